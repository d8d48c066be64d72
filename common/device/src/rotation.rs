//! The angles of rotary position embedding, alike on every device.

/// How frequencies are lowered, so that a model takes longer sequences than it was first trained
/// with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// They are not.
    #[default]
    None,
    /// Every frequency is divided by this factor (Chen et al., "Extending Context Window of Large
    /// Language Models via Positional Interpolation", 2023).
    Linear(f32),
    /// Frequencies with long waves are divided by `factor`, those with short waves stay, and those
    /// between are interpolated, as in Llama 3.1. A wave's length is compared with `positions`.
    Llama3 {
        /// Divides the frequencies of long waves.
        factor: f32,
        /// Long waves are longer than `positions / low`.
        low: f32,
        /// Short waves are shorter than `positions / high`; more than `low`.
        high: f32,
        /// Positions of the first training.
        positions: usize,
    },
}

impl RopeScaling {
    /// Returns what becomes of `frequency`, in radians per position.
    fn scale(self, frequency: f64) -> f64 {
        match self {
            RopeScaling::None => frequency,
            RopeScaling::Linear(factor) => frequency / f64::from(factor),
            RopeScaling::Llama3 { factor, low, high, positions } => {
                let [factor, low, high] = [factor, low, high].map(f64::from);
                let waves = positions as f64 * frequency / std::f64::consts::TAU;
                let kept = ((waves - low) / (high - low)).clamp(0.0, 1.0);
                kept * frequency + (1.0 - kept) * frequency / factor
            }
        }
    }
}

/// Cosines and sines for positions from 0: per position `half` cosines, then `half` sines, of
/// `position · theta^(−pair / half)`, scaled; computed in f64 and rounded once.
pub fn turns(theta: f32, scaling: RopeScaling, half: usize, positions: usize) -> Vec<f32> {
    let mut turns = vec![0.0; positions * 2 * half];
    fill_turns(&mut turns, theta, scaling, half);
    turns
}

/// Writes what [`turns`] returns, for as many positions as there is room.
pub(crate) fn fill_turns(turns: &mut [f32], theta: f32, scaling: RopeScaling, half: usize) {
    for (position, turn) in turns.chunks_mut(2 * half.max(1)).enumerate() {
        for pair in 0..half {
            let frequency = libm::pow(f64::from(theta), -(pair as f64) / half as f64);
            let angle = position as f64 * scaling.scale(frequency);
            let (sine, cosine) = libm::sincos(angle);
            (turn[half + pair], turn[pair]) = (sine as f32, cosine as f32);
        }
    }
}
