//! Seeded initial weights.
//!
//! Every element is a function of the seed, its tensor and its position alone (a counter-based generator; Salmon et al.,
//! 2011), so each rank can make the slice that it owns, and all stages and world sizes start from the same weights.

use crate::{TensorId, TensorSpec};
use std::f64::consts::TAU;
use std::ops::Range;

/// Standard deviation of projections and embeddings.
const DEVIATION: f64 = 0.02;

/// Writes the initial values of elements `range` of `tensor`, number `id` in its layout, to `out`: 1 for norms, else
/// normal with mean 0 and standard deviation 0.02.
///
/// # Panics
/// If `out` is not as long as `range`.
pub fn fill(seed: u64, tensor: &TensorSpec, id: TensorId, range: Range<usize>, out: &mut [f32]) {
    assert_eq!(range.len(), out.len(), "elements to initialise");
    if tensor.shape.len() == 1 {
        return out.fill(1.0);
    }
    let key = mix(mix(seed) ^ id as u64);
    let first = range.start - range.start % 2;
    for pair in (first..range.end).step_by(2) {
        let values = normal_pair(mix(key.wrapping_add(pair as u64)));
        for (position, value) in (pair..).zip(values) {
            if range.contains(&position) {
                out[position - range.start] = (value * DEVIATION) as f32;
            }
        }
    }
}

/// SplitMix64's finalizer after one step of its sequence (Steele et al., 2014): a bijection whose output bits all depend
/// on all input bits.
fn mix(counter: u64) -> u64 {
    let z = counter.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Two independent standard normal values from 64 random bits (Box & Muller, 1958).
fn normal_pair(bits: u64) -> [f64; 2] {
    const SCALE: f64 = 1.0 / (1u64 << 32) as f64;
    let uniform = ((bits >> 32) as f64 + 0.5) * SCALE;
    let angle = TAU * (bits & 0xFFFF_FFFF) as f64 * SCALE;
    let radius = (-2.0 * uniform.ln()).sqrt();
    [radius * angle.cos(), radius * angle.sin()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matrix(rows: usize, columns: usize) -> TensorSpec {
        TensorSpec { name: "w".into(), shape: vec![rows, columns] }
    }

    fn whole(seed: u64, tensor: &TensorSpec, id: TensorId) -> Vec<f32> {
        let mut out = vec![f32::NAN; tensor.elements()];
        fill(seed, tensor, id, 0..tensor.elements(), &mut out);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_slice_is_that_slice_of_the_whole(seed: u64, id in 0usize..400, start in 0usize..63, len in 0usize..63) {
            let tensor = matrix(9, 7);
            let range = start..(start + len).min(63);
            let mut slice = vec![f32::NAN; range.len()];
            fill(seed, &tensor, id, range.clone(), &mut slice);
            prop_assert_eq!(&slice, &whole(seed, &tensor, id)[range]);
        }
    }

    #[test]
    fn moments_are_those_of_the_normal_distribution() {
        let values = whole(7, &matrix(500, 400), 3);
        let n = values.len() as f64;
        let moment =
            |power: i32| values.iter().map(|&v| (f64::from(v) / DEVIATION).powi(power)).sum::<f64>() / n;
        // Four standard errors: moments 1 to 4 have variances 1, 2, 15 and 96 over n.
        for (power, expected, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            let error = (moment(power) - expected).abs();
            assert!(error < 4.0 * f64::sqrt(variance / n), "moment {power} is off by {error}");
        }
        let neighbours = values.windows(2).map(|w| f64::from(w[0]) * f64::from(w[1])).sum::<f64>() / n;
        assert!((neighbours / DEVIATION / DEVIATION).abs() < 4.0 / n.sqrt());
    }

    #[test]
    fn seeds_and_tensors_differ_and_norms_are_one() {
        let tensor = matrix(8, 8);
        let base = whole(1, &tensor, 0);
        assert_ne!(base, whole(2, &tensor, 0));
        assert_ne!(base, whole(1, &tensor, 1));
        let norm = TensorSpec { name: "norm".into(), shape: vec![5] };
        assert_eq!(whole(1, &norm, 2), [1.0; 5]);
    }
}
