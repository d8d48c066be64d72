//! Seeded initial weights.
//!
//! Every element depends only on the seed, its tensor and its position. So each rank can compute
//! the slice that it owns, and all stages and world sizes start from the same weights.

use crate::{TensorId, TensorSpec};
use device::random::{mix, normals};
use std::ops::Range;

/// Writes the initial values of elements `range` of `tensor`, which has number `id` in its layout,
/// to `out`: 1 for norms, 0 for biases, otherwise normal with mean 0 and standard deviation
/// `deviation`.
///
/// # Panics
/// If the lengths of `out` and `range` differ.
pub fn fill(
    (seed, deviation): (u64, f64),
    tensor: &TensorSpec,
    id: TensorId,
    range: Range<usize>,
    out: &mut [f32],
) {
    assert_eq!(range.len(), out.len(), "elements to initialise");
    if tensor.shape.len() == 1 {
        return out.fill(if tensor.name.ends_with(".bias") { 0.0 } else { 1.0 });
    }
    let key = mix(mix(seed) ^ id as u64);
    normals((key, deviation), range.start, out);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn matrix(rows: usize, columns: usize) -> TensorSpec {
        TensorSpec { name: "w".into(), shape: vec![rows, columns] }
    }

    const DEVIATION: f64 = 0.02;

    fn whole(seed: u64, tensor: &TensorSpec, id: TensorId) -> Vec<f32> {
        with_deviation(DEVIATION, seed, tensor, id)
    }

    fn with_deviation(deviation: f64, seed: u64, tensor: &TensorSpec, id: TensorId) -> Vec<f32> {
        let mut out = vec![f32::NAN; tensor.elements()];
        fill((seed, deviation), tensor, id, 0..tensor.elements(), &mut out);
        out
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_slice_is_that_slice_of_the_whole(seed: u64, id in 0usize..400, start in 0usize..287, len in 0usize..287) {
            let tensor = matrix(41, 7);
            let range = start..(start + len).min(287);
            let mut slice = vec![f32::NAN; range.len()];
            fill((seed, DEVIATION), &tensor, id, range.clone(), &mut slice);
            prop_assert_eq!(&slice, &whole(seed, &tensor, id)[range]);
        }
    }

    /// Expected values come from another implementation, which uses the C library's functions.
    #[test]
    fn the_generator_stays_what_it_is() {
        let mut values = [0.0; 4];
        fill((42, DEVIATION), &matrix(100, 100), 5, 1001..1005, &mut values);
        assert_eq!(values.map(f32::to_bits), [1003188538, 1013246543, 1015193337, 1015532968]);
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
    fn values_are_multiples_of_the_standard_deviation() {
        let of = |deviation| with_deviation(deviation, 7, &matrix(9, 9), 3);
        let doubled: Vec<f32> = of(DEVIATION).into_iter().map(|value| 2.0 * value).collect();
        assert_eq!(of(2.0 * DEVIATION), doubled);
        assert!(of(0.0).iter().all(|value| *value == 0.0));
    }

    #[test]
    fn seeds_and_tensors_differ_and_norms_are_one() {
        let tensor = matrix(8, 8);
        let base = whole(1, &tensor, 0);
        assert_ne!(base, whole(2, &tensor, 0));
        assert_ne!(base, whole(1, &tensor, 1));
        let norm = TensorSpec { name: "norm".into(), shape: vec![5] };
        assert_eq!(whole(1, &norm, 2), [1.0; 5]);
        let bias = TensorSpec { name: "q_proj.bias".into(), shape: vec![5] };
        assert_eq!(whole(1, &bias, 2), [0.0; 5]);
    }
}
