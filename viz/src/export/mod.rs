//! Writes pictures and traces of runs for other programs.

pub mod asciicast;
pub mod svg;
pub mod trace;
