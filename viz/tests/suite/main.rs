//! The crate's tests, in one program.

mod behaviour;
mod program;
mod pty;
mod screens;
mod sizes;
mod sums;
mod support;
mod terminal;
