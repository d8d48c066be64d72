//! The `viz` program: its command line, and what it writes for other programs.

#![forbid(unsafe_code)]

pub mod cli;
/// Writes pictures and traces of runs for other programs.
pub mod export {
    pub mod asciicast;
    pub mod svg;
    pub mod trace;
}
pub mod output;
