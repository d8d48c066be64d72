//! The loss scale, against the workspace's own.

use crate::{Score, Verdict};
use sharding::{LossScaler, LossScaling};

/// The state of a loss scale, and its settings.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// What the loss of the next step is multiplied with.
    pub scale: f64,
    /// Overflows left until the scale halves, that one included.
    pub left: u32,
    /// Clean steps since the last overflow.
    pub clean: u32,
    /// Clean steps after which the scale doubles.
    pub window: u32,
    /// What `left` is refilled to.
    pub hysteresis: u32,
}

/// What is checked: a step is over, and overflowed or did not.
pub type Next = fn(&mut Scale, bool);

/// Lets steps overflow in several orders.
///
/// # Errors
/// What is wrong, in words.
pub fn check(next: Next) -> Verdict {
    for steps in ["...", "xx", "xxx", "x.x", "x...x", "..x...", "......", "xx...xx...x"] {
        run(next, steps)?;
    }
    Ok(Score::right("the scale goes where DeepSpeed's goes"))
}

fn run(next: Next, steps: &str) -> Result<(), String> {
    let settings = LossScaling { initial_power: 8, window: 3, hysteresis: 2, ..LossScaling::default() };
    let mut oracle = LossScaler::new(settings);
    let mut own = Scale { scale: 256.0, left: 2, clean: 0, window: 3, hysteresis: 2 };
    for (at, step) in steps.chars().enumerate() {
        next(&mut own, step == 'x');
        oracle.finished(step == 'x').map_err(|e| e.to_string())?;
        if own.scale != oracle.scale() {
            return Err(format!(
                "steps {steps} (x overflows; window 3, hysteresis 2): after step {at} the scale is {}, and should be {}",
                own.scale,
                oracle.scale()
            ));
        }
    }
    Ok(())
}
