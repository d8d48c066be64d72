//! The book and the programs that go with it.
//!
//! [`book`] keeps the chapters true: this workspace makes their code, outputs, tables, pictures and
//! quizzes, and every test compares them. [`compare`] and [`fit`] compare stages, [`explain`] shows
//! where a run's time went, [`flip`] damages a file. [`learn`] asks for predictions and plays
//! quizzes in the terminal.

pub mod book;
pub mod cli;
pub mod compare;
mod equation;
pub mod explain;
mod file;
pub mod fit;
pub mod flip;
pub mod learn;
pub mod programs;
mod single;
pub mod workspace;
