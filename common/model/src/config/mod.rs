//! The numbers that define the architecture.

mod family;
mod hugging_face;
mod presets;

use crate::ModelError;
pub use device::RopeScaling;
pub use family::Family;

/// A Llama-style model, of one of the families.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Preset or directory name.
    pub name: String,
    /// Determines the tensors beyond Llama's.
    pub family: Family,
    /// Vocabulary size (V).
    pub vocabulary: usize,
    /// Width of the residual stream (d).
    pub width: usize,
    /// Transformer blocks (L).
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Key/value heads; divides `heads`.
    pub kv_heads: usize,
    /// Elements per head; even.
    pub head_dim: usize,
    /// Width of the feed-forward layer (f).
    pub feed_forward: usize,
    /// Sequence length in training (T), unless a flag overrides it.
    pub sequence_length: usize,
    /// Sequences per micro-batch and rank, unless a flag overrides it.
    pub batch_size: usize,
    /// Maximum sequence length that the model is designed for. No buffer depends on it.
    pub max_positions: usize,
    /// Added to the mean square in RMSNorm.
    pub norm_eps: f32,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Scaling that lowers these frequencies.
    pub rope_scaling: RopeScaling,
    /// Number of tokens that a token attends to, including itself. `None`: all before it. This
    /// program does not hide tokens, so sequences must not be longer.
    pub window: Option<usize>,
    /// Whether the head uses the embedding's weights.
    pub tied: bool,
    /// Standard deviation of the initial projections and embeddings when training starts from
    /// scratch.
    pub initializer_range: f64,
}

/// Default standard deviation of initial weights.
const INITIALIZER_RANGE: f64 = 0.02;

/// Maximum width, vocabulary, number of heads and so on. It keeps every parameter count within 64
/// bits.
const LARGEST: usize = 1 << 24;

/// Maximum number of blocks. It lets every tensor be a unit and 16 bits number the units.
const MOST_LAYERS: usize = 4096;

impl ModelConfig {
    /// Checks that the numbers describe a valid model.
    ///
    /// # Errors
    /// [`ModelError::Invalid`] names the first inconsistent numbers, and values that would be
    /// valid.
    pub fn validate(&self) -> Result<(), ModelError> {
        let checks = [Self::counts, Self::heads_fit, Self::floats, Self::fits_window];
        let sound = checks.iter().try_for_each(|check| check(self));
        sound.map_err(|problem| ModelError::Invalid { name: self.name.clone(), problem })
    }

    fn counts(&self) -> Result<(), String> {
        let numbers = [
            ("vocabulary", self.vocabulary),
            ("width", self.width),
            ("layers", self.layers),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("feed_forward", self.feed_forward),
            ("sequence_length", self.sequence_length),
            ("batch_size", self.batch_size),
        ];
        for (name, number) in numbers {
            let most = match name {
                "layers" => MOST_LAYERS,
                // The run checks these.
                "sequence_length" | "batch_size" => usize::MAX,
                _ => LARGEST,
            };
            match number {
                0 => return Err(format!("`{name}` is 0; it must be at least 1")),
                number if number > most => {
                    return Err(format!("`{name}` is {number}; it must be at most {most}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn heads_fit(&self) -> Result<(), String> {
        let ModelConfig { width, heads, kv_heads, head_dim, .. } = self;
        // As in Transformers. The other families may have heads of any size.
        if self.family == Family::Llama && width % heads != 0 {
            return Err(format!(
                "{heads} heads do not divide a width of {width} evenly; in a Llama `heads` must divide `width`"
            ));
        }
        if heads * head_dim > LARGEST {
            return Err(format!(
                "{heads} heads of {head_dim} elements are {} together; they must be at most {LARGEST}",
                heads * head_dim
            ));
        }
        if heads % kv_heads != 0 {
            return Err(format!(
                "{heads} query heads cannot share {kv_heads} key/value heads evenly; `kv_heads` must divide `heads`"
            ));
        }
        if head_dim % 2 != 0 {
            return Err(format!(
                "`head_dim` is {head_dim}; rotary embedding turns pairs of elements, so it must be even"
            ));
        }
        Ok(())
    }

    fn floats(&self) -> Result<(), String> {
        for (name, number) in [("norm_eps", self.norm_eps), ("rope_theta", self.rope_theta)] {
            positive(name, number)?;
        }
        let range = self.initializer_range;
        if !range.is_finite() || range < 0.0 {
            return Err(format!("`initializer_range` is {range}; it must be 0 or a positive number"));
        }
        match self.rope_scaling {
            RopeScaling::None => Ok(()),
            RopeScaling::Linear(factor) => positive("factor", factor),
            RopeScaling::Llama3 { factor, low, high, .. } => {
                positive("factor", factor).and_then(|()| positive("low_freq_factor", low))?;
                if high > low {
                    return Ok(());
                }
                Err(format!("`high_freq_factor` is {high}; it must be more than `low_freq_factor`, {low}"))
            }
        }
    }

    /// Checks that no token of a sequence lies outside another's window.
    fn fits_window(&self) -> Result<(), String> {
        let length = self.sequence_length;
        match self.window {
            Some(window) if length > window => Err(format!(
                "a sequence has {length} tokens, but each attends to the last {window} only (`sliding_window`), and \
                 this program does not mask earlier ones; train on sequences of at most {window} tokens (--seq-len)"
            )),
            _ => Ok(()),
        }
    }

    /// Returns the grain: the start of every tensor in memory is a multiple of this many elements.
    pub(crate) fn grain(&self) -> usize {
        let common = |mut a: usize, mut b: usize| {
            while b != 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        match self.family {
            Family::Llama | Family::Mistral => self.width,
            Family::Qwen2 => common(self.width, self.kv_heads * self.head_dim),
            Family::Qwen3 => common(self.width, self.head_dim),
        }
    }
}

/// Fails unless `number` is positive and finite.
fn positive(name: &str, number: f32) -> Result<(), String> {
    if number.is_finite() && number > 0.0 {
        Ok(())
    } else {
        Err(format!("`{name}` is {number}; it must be a positive number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(change: impl Fn(&mut ModelConfig)) -> String {
        let mut config = ModelConfig::tiny();
        change(&mut config);
        config.validate().unwrap_err().to_string()
    }

    #[test]
    fn errors_name_the_numbers() {
        insta::assert_snapshot!(problem(|c| c.layers = 0), @"model `tiny`: `layers` is 0; it must be at least 1");
        insta::assert_snapshot!(problem(|c| c.layers = 1 << 40), @"model `tiny`: `layers` is 1099511627776; it must be at most 4096");
        insta::assert_snapshot!(problem(|c| c.width = 1 << 60), @"model `tiny`: `width` is 1152921504606846976; it must be at most 16777216");
        insta::assert_snapshot!(problem(|c| c.head_dim = 1 << 23), @"model `tiny`: 4 heads of 8388608 elements are 33554432 together; they must be at most 16777216");
        insta::assert_snapshot!(problem(|c| c.heads = 3), @"model `tiny`: 3 heads do not divide a width of 128 evenly; in a Llama `heads` must divide `width`");
        insta::assert_snapshot!(problem(|c| c.kv_heads = 3), @"model `tiny`: 4 query heads cannot share 3 key/value heads evenly; `kv_heads` must divide `heads`");
        insta::assert_snapshot!(problem(|c| c.head_dim = 5), @"model `tiny`: `head_dim` is 5; rotary embedding turns pairs of elements, so it must be even");
        insta::assert_snapshot!(problem(|c| c.window = Some(64)), @"model `tiny`: a sequence has 128 tokens, but each attends to the last 64 only (`sliding_window`), and this program does not mask earlier ones; train on sequences of at most 64 tokens (--seq-len)");
        insta::assert_snapshot!(problem(|c| c.rope_scaling = RopeScaling::Linear(0.0)), @"model `tiny`: `factor` is 0; it must be a positive number");
        insta::assert_snapshot!(problem(|c| c.initializer_range = -0.1), @"model `tiny`: `initializer_range` is -0.1; it must be 0 or a positive number");
        insta::assert_snapshot!(problem(|c| c.norm_eps = f32::NAN), @"model `tiny`: `norm_eps` is NaN; it must be a positive number");
    }
}
