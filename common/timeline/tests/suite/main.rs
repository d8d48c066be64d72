//! Times against small cases by hand, and against published runs.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a panic")]

mod calibration;
mod clock;
mod costs;
mod played;
