//! The book and the programs that go with it.
//!
//! [`book`] keeps the chapters in sync: this workspace generates their code, outputs, tables,
//! pictures and quizzes, and every test run compares them. [`compare`] and [`fit`] compare stages,
//! [`explain`] shows where a run's time went, and [`flip`] damages a file. [`learn`] asks for
//! predictions and plays quizzes in the terminal.

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
