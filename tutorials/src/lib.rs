//! The book and the programs that go with it.
//!
//! [`book`] keeps the chapters true: code, outputs, tables, pictures and quizzes in them are made by this workspace
//! and compared on every test. [`learn`] plays predictions and quizzes in the terminal.

pub mod book;
pub mod learn;
pub mod programs;
