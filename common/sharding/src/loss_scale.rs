//! Dynamic loss scaling, by DeepSpeed's rules.
//!
//! f16 loses numbers below 6e-8 and has none above 65504. Multiplying the loss moves all gradients
//! into its range; the largest factor that does not overflow is found by trying.

use crate::{Error, Result};

/// How the loss is scaled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScaling {
    /// A scale that never changes; `None` for a dynamic one.
    pub fixed: Option<f64>,
    /// The first scale is 2 to this power.
    pub initial_power: u32,
    /// Number of steps without overflow after which the scale doubles and the hysteresis is reset.
    /// The first step after the start or after an overflow does not count.
    pub window: u32,
    /// Number of overflows after which the scale halves. Every overflow after these halves it, too,
    /// until the hysteresis is reset.
    pub hysteresis: u32,
    /// True if one step without overflow resets the hysteresis.
    pub consecutive_hysteresis: bool,
    /// The smallest scale to which overflows lower it.
    pub minimum: f64,
}

impl Default for LossScaling {
    fn default() -> Self {
        LossScaling {
            fixed: None,
            initial_power: 16,
            window: 1000,
            hysteresis: 2,
            consecutive_hysteresis: false,
            minimum: 1.0,
        }
    }
}

/// The scale of the loss from step to step. Every rank keeps one, and all have the same state.
#[derive(Clone, Debug, PartialEq)]
pub struct LossScaler {
    scaling: LossScaling,
    at: LossScale,
}

/// The state of a [`LossScaler`].
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct LossScale {
    /// The factor of the next step's loss.
    pub scale: f64,
    /// Number of overflows until the scale halves, including the one that halves it.
    pub hysteresis: u32,
    /// Number of steps since the last overflow, or since the start.
    pub clean: u32,
    /// Number of steps that were skipped because of an overflow.
    pub skipped: u32,
}

impl LossScaler {
    /// Returns the scaler before the first step.
    pub fn new(scaling: LossScaling) -> Self {
        let scale = scaling.fixed.unwrap_or(2f64.powi(scaling.initial_power as i32));
        let at = LossScale { scale, hysteresis: scaling.hysteresis, clean: 0, skipped: 0 };
        LossScaler { scaling, at }
    }

    /// Resumes at `at`. A fixed scale replaces its scale. A scale below the minimum becomes the
    /// minimum of this run, since an overflow must not raise it.
    pub fn resumed(scaling: LossScaling, at: LossScale) -> Self {
        let scale = scaling.fixed.unwrap_or(at.scale);
        let scaling = LossScaling { minimum: scaling.minimum.min(scale), ..scaling };
        let hysteresis = at.hysteresis.min(scaling.hysteresis);
        LossScaler { scaling, at: LossScale { scale, hysteresis, ..at } }
    }

    /// Returns the scale and the counters.
    pub fn at(&self) -> LossScale {
        self.at
    }

    /// Adjusts the scale after a step, which was skipped if gradients overflowed on any rank.
    ///
    /// # Errors
    /// [`Error::LossScaleAtMinimum`] if the scale would have to be lower than it can be.
    pub fn finished(&mut self, overflow: bool) -> Result<()> {
        if overflow {
            return self.overflowed();
        }
        self.succeeded();
        Ok(())
    }

    fn overflowed(&mut self) -> Result<()> {
        self.at.skipped += 1;
        self.at.clean = 0;
        if self.scaling.fixed.is_some() {
            return Ok(());
        }
        if self.at.hysteresis > 1 {
            self.at.hysteresis -= 1;
            return Ok(());
        }
        if self.at.scale <= self.scaling.minimum {
            return Err(Error::LossScaleAtMinimum { scale: self.at.scale, skipped: self.at.skipped });
        }
        self.at.scale = (self.at.scale / 2.0).max(self.scaling.minimum);
        Ok(())
    }

    fn succeeded(&mut self) {
        self.at.clean += 1;
        if self.scaling.fixed.is_some() {
            return;
        }
        let clean = self.at.clean;
        let window_full = clean > 1 && (clean - 1).is_multiple_of(self.scaling.window);
        if window_full || self.scaling.consecutive_hysteresis {
            self.at.hysteresis = self.scaling.hysteresis;
        }
        if window_full {
            self.at.scale *= 2.0;
        }
    }
}

#[cfg(test)]
mod tests;
