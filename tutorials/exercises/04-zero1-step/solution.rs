//! The real stage is one way to write it: `fn step` in `zero1/src/lib.rs`.

pub use zero1::Zero1;
