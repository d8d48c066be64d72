//! The norm of all gradients: its bits do not depend on which rank holds which slice.
//!
//! The largest magnitude comes first; its exponent scales every element below 2, and squares are
//! then summed in fixed point (2⁻⁴⁸), where addition is exact and so the order does not matter.

use crate::Result;
use crate::rank::Rank;
use collectives::Group;
use device::{View, max_or_nan};

/// Returns the norm over all shards of `gradients`. Each rank that shares a copy of the model
/// states passes its own shards.
///
/// # Errors
/// If a kernel or an exchange fails.
pub fn global_norm(rank: &Rank, gradients: &[View<'_>]) -> Result<f64> {
    norm_of_largest(rank, gradients, rank.kernels().max_magnitude_of(gradients)?)
}

/// As [`global_norm`], of gradients whose largest magnitude on this rank is `largest`.
pub(crate) fn norm_of_largest(rank: &Rank, gradients: &[View<'_>], largest: f32) -> Result<f64> {
    let group = rank.shard_group();
    let largest =
        combine(group, largest.to_le_bytes(), f32::from_le_bytes)?.into_iter().fold(0.0, max_or_nan);
    // The second exchange always happens, so that every step sends the same bytes.
    let exponent = exponent(largest);
    let own = exponent.map_or(Ok(0), |exponent| rank.kernels().sum_of_squares_of(gradients, exponent))?;
    let sums = combine(group, own.to_le_bytes(), u128::from_le_bytes)?;
    Ok(exponent.map_or(f64::from(largest), |exponent| root(sums.into_iter().sum(), exponent)))
}

/// Returns the norm of `gradients` that this rank holds in full.
///
/// # Errors
/// If a kernel fails.
pub fn local_norm(rank: &Rank, gradients: &[View<'_>]) -> Result<f64> {
    let largest = rank.kernels().max_magnitude_of(gradients)?;
    let Some(exponent) = exponent(largest) else { return Ok(f64::from(largest)) };
    Ok(root(rank.kernels().sum_of_squares_of(gradients, exponent)?, exponent))
}

fn combine<T, const B: usize>(group: &Group, mine: [u8; B], decode: fn([u8; B]) -> T) -> Result<Vec<T>> {
    let all = group.exchange(&mine)?;
    Ok(all
        .iter()
        .map(|bytes| {
            let mut value = [0; B];
            value.copy_from_slice(bytes);
            decode(value)
        })
        .collect())
}

/// The exponent e with `1 <= largest · 2⁻ᵉ < 2`; none for 0, infinity and NaN.
fn exponent(largest: f32) -> Option<i32> {
    if largest == 0.0 || !largest.is_finite() {
        return None;
    }
    let bits = f64::from(largest).to_bits();
    Some(((bits >> 52) & 0x7ff) as i32 - 1023)
}

fn root(sum: u128, exponent: i32) -> f64 {
    (sum as f64).sqrt() * 2f64.powi(exponent - 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_scale_into_one_to_two() {
        for x in [1.0f32, 1.999, 2.0, 3e-38, 1e-45, 3e38, 0.1] {
            let scaled = f64::from(x) * 2f64.powi(-exponent(x).unwrap());
            assert!((1.0..2.0).contains(&scaled), "{x}: {scaled}");
        }
        assert_eq!(exponent(0.0), None);
        assert_eq!(exponent(f32::NAN), None);
    }

    #[test]
    fn root_undoes_the_scaling() {
        // One element of magnitude 3: 3 · 2⁻¹ = 1.5, squared 2.25.
        let sum = (2.25 * 2f64.powi(48)) as u128;
        assert_eq!(root(sum, 1), 3.0);
    }
}
