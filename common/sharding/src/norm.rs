//! The norm of all gradients: its bits do not depend on which rank holds which slice.
//!
//! The largest magnitude comes first; its exponent, rounded up to 3 more than a multiple of 4,
//! scales every element below 2, and squares are then summed in fixed point (2⁻⁴⁸), where addition
//! is exact and so the order does not matter.

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
    let largest = rank.kernels().max_magnitude(gradients)?;
    let squares = |exponent| Ok(rank.kernels().sum_of_squares(gradients, exponent)?);
    Ok(combined_norm(rank, largest, squares)?.0)
}

/// Partial results for the norm of a rank's shards, measured before the norm is needed.
#[derive(Default)]
pub(crate) struct PartialNorm {
    /// The largest magnitude.
    largest: f32,
    /// The last norm's exponent, and the sum of squares scaled by it. `None` if there is no such
    /// exponent or a shard does not fit it: the norm then reads all shards.
    squares: Option<(i32, u128)>,
}

impl PartialNorm {
    /// Measures one more shard.
    ///
    /// # Errors
    /// If a kernel fails.
    pub(crate) fn add(&mut self, rank: &Rank, shard: View<'_>) -> Result<()> {
        let largest = rank.kernels().max_magnitude(std::slice::from_ref(&shard))?;
        self.largest = max_or_nan(self.largest, largest);
        let fits = |exponent: i32| f64::from(largest) < 2f64.powi(exponent + 1);
        self.squares = match self.squares {
            Some((exponent, sum)) if fits(exponent) => {
                Some((exponent, sum + rank.kernels().sum_of_squares(&[shard], exponent)?))
            }
            _ => None,
        };
        Ok(())
    }

    /// Forgets the shards.
    pub(crate) fn clear(&mut self) {
        self.largest = 0.0;
        self.squares = self.squares.map(|(exponent, _)| (exponent, 0));
    }

    /// Returns [`global_norm`] of `shards`, which are those that were measured, and forgets them.
    /// They are read again only if the exponent has changed.
    ///
    /// # Errors
    /// If a kernel or an exchange fails.
    pub(crate) fn take_norm(&mut self, rank: &Rank, shards: &[View<'_>]) -> Result<f64> {
        let squares = |exponent| match self.squares {
            Some((of, sum)) if of == exponent => Ok(sum),
            _ => Ok(rank.kernels().sum_of_squares(shards, exponent)?),
        };
        let (norm, exponent) = combined_norm(rank, self.largest, squares)?;
        *self = PartialNorm { largest: 0.0, squares: exponent.map(|exponent| (exponent, 0)) };
        Ok(norm)
    }
}

/// Returns the norm over all shards, and its [`exponent`]. `largest` is this rank's largest
/// magnitude; `squares` returns the sum of its squares, scaled by an exponent.
fn combined_norm(
    rank: &Rank,
    largest: f32,
    squares: impl FnOnce(i32) -> Result<u128>,
) -> Result<(f64, Option<i32>)> {
    let group = rank.shard_group();
    let largest =
        combine(group, largest.to_le_bytes(), f32::from_le_bytes)?.into_iter().fold(0.0, max_or_nan);
    // The second exchange always happens, so that every step sends the same bytes.
    let exponent = exponent(largest);
    let own = match exponent {
        Some(exponent) => squares(exponent)?,
        None => 0,
    };
    let sums = combine(group, own.to_le_bytes(), u128::from_le_bytes)?;
    let norm = exponent.map_or(f64::from(largest), |exponent| root(sums.into_iter().sum(), exponent));
    Ok((norm, exponent))
}

/// Returns the norm of `gradients` that this rank holds in full.
///
/// # Errors
/// If a kernel fails.
pub fn local_norm(rank: &Rank, gradients: &[View<'_>]) -> Result<f64> {
    let largest = rank.kernels().max_magnitude(gradients)?;
    let Some(exponent) = exponent(largest) else { return Ok(f64::from(largest)) };
    Ok(root(rank.kernels().sum_of_squares(gradients, exponent)?, exponent))
}

fn combine<T, const B: usize>(group: &Group, mine: [u8; B], decode: fn([u8; B]) -> T) -> Result<Vec<T>> {
    let all = group.exchange(&mine)?;
    Ok(all.iter().map(|bytes| decode(std::array::from_fn(|i| bytes[i]))).collect())
}

/// Returns the least e with `largest · 2⁻ᵉ < 2` that is 3 more than a multiple of 4; `None` for 0,
/// infinity and NaN. From step to step the largest gradient often doubles or halves, but e mostly
/// stays the same.
fn exponent(largest: f32) -> Option<i32> {
    if largest == 0.0 || !largest.is_finite() {
        return None;
    }
    let bits = f64::from(largest).to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i32 - 1023;
    Some(exponent | 3)
}

fn root(sum: u128, exponent: i32) -> f64 {
    (sum as f64).sqrt() * 2f64.powi(exponent - 24)
}

#[cfg(test)]
mod tests {
    use super::*;
    use collectives::local::{Options, groups};
    use device::{Class, DType};

    /// The second norm needs no shards: its exponent is the first one's.
    #[test]
    fn measured_shards_are_read_again_only_for_another_exponent() {
        let rank = Rank::for_tests(groups(1, Options::default()).remove(0));
        let mut shard = rank.device.zeros(Class::Gradients, DType::F32, 2).unwrap();
        let mut measured = PartialNorm::default();
        let mut norm = |values: [f32; 2], is_read: bool| {
            rank.device.write(shard.view_mut(), &values).unwrap();
            measured.add(&rank, shard.view()).unwrap();
            let all = [shard.view()];
            measured.take_norm(&rank, if is_read { &all } else { &[] }).unwrap()
        };
        assert_eq!(norm([3.0, 4.0], true), 5.0);
        assert_eq!(norm([9.0, 12.0], false), 15.0);
        assert_eq!(norm([12.0, 16.0], true), 20.0, "a larger exponent");
        assert_eq!(norm([3.0, 4.0], true), 5.0, "a smaller one");
        assert_eq!(norm([0.0, 0.0], true), 0.0);
        assert_eq!(norm([3.0, 4.0], true), 5.0, "after a norm without one");
    }

    #[test]
    fn exponents_scale_below_two_and_come_in_steps_of_four() {
        for x in [1.0f32, 1.999, 2.0, 3e-38, 1e-45, 3e38, 0.1] {
            let scaled = f64::from(x) * 2f64.powi(-exponent(x).unwrap());
            assert!((0.125..2.0).contains(&scaled), "{x}: {scaled}");
        }
        assert_eq!([0.99, 1.0, 15.99, 16.0].map(exponent), [-1, 3, 3, 7].map(Some));
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
