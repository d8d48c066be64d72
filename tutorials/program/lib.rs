//! The book and the programs that go with it.
//!
//! [`book`] keeps the chapters true: code, outputs, tables, pictures and quizzes in them are made by this workspace
//! and compared on every test. [`compare`] and [`fit`] run stages against each other, [`explain`] says where a run's
//! time went. [`learn`] plays predictions and quizzes in the terminal.

pub mod book;
pub mod cli;
pub mod compare;
pub mod explain;
pub mod fit;
pub mod learn;
pub mod programs;
mod single;
