//! Checks the loss scale against the workspace's own.

use crate::{Score, Verdict};
use sharding::{LossScaler, LossScaling};

/// The state of a loss scale, and its settings.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// The factor for the loss of the next step.
    pub scale: f64,
    /// Overflows left until the scale halves, including the one that halves it.
    pub left: u32,
    /// Clean steps since the last overflow.
    pub clean: u32,
    /// Clean steps after the first one, after which the scale doubles.
    pub window: u32,
    /// The value to which `left` is refilled.
    pub hysteresis: u32,
}

/// The function under check: (scale, whether the step overflowed).
pub type Next = fn(&mut Scale, bool);

/// Sequences of clean steps and overflows.
const ORDERS: [&str; 10] =
    ["....", "xx", "xxx", "x.x", "x....x", "..x....", "x.x....", "....xx", ".......", "xx....xx....x"];

/// Applies several sequences of overflows.
pub fn check(next: Next) -> Verdict {
    for steps in ORDERS {
        run(next, steps)?;
    }
    Ok(Score::right("the scale changes as DeepSpeed's does"))
}

fn run(next: Next, steps: &str) -> Result<(), String> {
    let settings = LossScaling { initial_power: 8, window: 3, hysteresis: 2, ..LossScaling::default() };
    let mut oracle = LossScaler::new(settings);
    let mut own = Scale { scale: 256.0, left: 2, clean: 0, window: 3, hysteresis: 2 };
    for (at, step) in steps.chars().enumerate() {
        next(&mut own, step == 'x');
        oracle.finished(step == 'x').map_err(|e| e.to_string())?;
        if own.scale != oracle.at().scale {
            return Err(format!(
                "steps {steps} (x overflows; window 3, hysteresis 2): after step {at} the scale is {}, and should be {}",
                own.scale,
                oracle.at().scale
            ));
        }
    }
    Ok(())
}
