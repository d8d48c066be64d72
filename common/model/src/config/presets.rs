//! Presets: models by name.

use super::{Family, INITIALIZER_RANGE, ModelConfig, RopeScaling};
use crate::ModelError;
use strsim::levenshtein;

/// A row of the table below.
type Row = (&'static str, usize, usize, usize, usize, usize, usize, f32, bool, usize, usize, usize);

/// The first three are byte-level and sized for laptops; the others have their published shapes. In
/// all of them RMSNorm's eps is 1e-5, a head has width / heads elements, and initial weights have
/// the default standard deviation.
#[rustfmt::skip]
const PRESETS: [Row; 9] = [
    // name, vocabulary, width, layers, heads, kv_heads, feed_forward, rope_theta, tied,
    // max_positions, sequence_length, batch_size
    ("tiny",              256,  128,  4,  4,  4,   384,  10_000.0, false,  128,  128, 8),
    ("small",             256,  384,  6,  6,  6,  1024,  10_000.0, false,  256,  256, 8),
    ("base",              256,  768, 12, 12, 12,  2048,  10_000.0, false,  256,  256, 4),
    ("smollm2-135m",   49_152,  576, 30,  9,  3,  1536, 100_000.0, true,  8192,  512, 2),
    ("tinyllama-1.1b", 32_000, 2048, 22, 32,  4,  5632,  10_000.0, false, 2048, 2048, 1),
    ("llama2-7b",      32_000, 4096, 32, 32, 32, 11008,  10_000.0, false, 4096, 4096, 1),
    ("llama2-13b",     32_000, 5120, 40, 40, 40, 13824,  10_000.0, false, 4096, 4096, 1),
    ("llama3-8b",     128_256, 4096, 32, 32,  8, 14336, 500_000.0, false, 8192, 4096, 1),
    ("llama3-70b",    128_256, 8192, 80, 64,  8, 28672, 500_000.0, false, 8192, 4096, 1),
];

fn config(row: &Row) -> ModelConfig {
    let &(name, vocabulary, width, layers, heads, kv_heads, feed_forward, rope_theta, tied, ..) = row;
    let &(.., max_positions, sequence_length, batch_size) = row;
    ModelConfig {
        name: name.into(),
        family: Family::Llama,
        vocabulary,
        width,
        layers,
        heads,
        kv_heads,
        head_dim: width / heads,
        feed_forward,
        sequence_length,
        batch_size,
        max_positions,
        norm_eps: 1e-5,
        rope_theta,
        rope_scaling: RopeScaling::None,
        window: None,
        tied,
        initializer_range: INITIALIZER_RANGE,
    }
}

impl ModelConfig {
    /// Returns the default model: byte-level, 0.9 million parameters.
    pub fn tiny() -> Self {
        config(&PRESETS[0])
    }

    /// Returns the names of all presets, from smallest to largest.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|row| row.0)
    }

    /// Returns the model called `name`.
    ///
    /// # Errors
    /// [`ModelError::UnknownPreset`] lists the names and suggests the nearest.
    pub fn preset(name: &str) -> Result<Self, ModelError> {
        match PRESETS.iter().find(|row| row.0 == name) {
            Some(row) => Ok(config(row)),
            None => Err(unknown(name)),
        }
    }
}

fn unknown(name: &str) -> ModelError {
    let wanted = name.to_lowercase();
    let distance = |known: &&str| levenshtein(&wanted, known);
    // A name that differs in more than a third of its letters is a different name.
    let near = |known: &&str| 3 * distance(known) <= known.len();
    let nearest = ModelConfig::presets().min_by_key(distance).filter(near);
    let known = ModelConfig::presets().collect::<Vec<_>>().join(", ");
    ModelError::UnknownPreset { name: name.into(), nearest, known }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Layout;

    #[test]
    fn parameters_are_those_published() {
        let published = [
            ("tiny", 918_656),
            ("smollm2-135m", 134_515_008),
            ("tinyllama-1.1b", 1_100_048_384),
            ("llama2-7b", 6_738_415_616),
            ("llama2-13b", 13_015_864_320),
            ("llama3-8b", 8_030_261_248),
            ("llama3-70b", 70_553_706_496),
        ];
        for (name, parameters) in published {
            let config = ModelConfig::preset(name).unwrap();
            assert_eq!(Layout::new(&config).parameters(), parameters, "{name}");
        }
    }

    #[test]
    fn every_preset_is_valid() {
        for name in ModelConfig::presets() {
            ModelConfig::preset(name).unwrap().validate().unwrap();
        }
    }

    #[test]
    fn an_unknown_name_is_met_with_the_nearest() {
        insta::assert_snapshot!(ModelConfig::preset("Llama-7b").unwrap_err(), @r"
        there is no model preset `Llama-7b`; did you mean `llama2-7b`?
        presets: tiny, small, base, smollm2-135m, tinyllama-1.1b, llama2-7b, llama2-13b, llama3-8b, llama3-70b
        ");
    }

    #[test]
    fn a_name_that_is_like_no_other_is_met_with_all() {
        insta::assert_snapshot!(ModelConfig::preset("nope").unwrap_err(), @r"
        there is no model preset `nope`
        presets: tiny, small, base, smollm2-135m, tinyllama-1.1b, llama2-7b, llama2-13b, llama3-8b, llama3-70b
        ");
    }
}
