//! Pictures and traces of runs, for other programs.

pub mod svg;
