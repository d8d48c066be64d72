//! Bounds of the numbers in streams. Anyone can write a recording, so a number that no run can
//! reach is treated as damage. Sums and differences of a rank's valid numbers fit both `u64` and
//! `i64`.

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::sync::Arc;

/// The greatest valid count of bytes, nanoseconds or anything else: 72 petabytes, or two years.
pub const MOST: u64 = 1 << 56;

/// Maximum number of entries of a rank's lists, such as collectives in flight. A longer list means
/// damage: events that remove its entries are missing.
const MOST_ENTRIES: usize = 4096;

/// Returns the sum of `amounts`, limited to the greatest `u64`.
pub fn total(amounts: impl Iterator<Item = u64>) -> u64 {
    amounts.fold(0, u64::saturating_add)
}

/// Adds `amount` to a counter that stays at [`MOST`] once it has reached it.
pub(crate) fn count(counter: &mut u64, amount: u64) {
    *counter = counter.saturating_add(amount).min(MOST);
}

/// Subtracts each of `before` from the amount in its place, down to 0.
pub(crate) fn subtract(amounts: &mut [u64], before: &[u64]) {
    amounts.iter_mut().zip(before).for_each(|(amount, before)| *amount = amount.saturating_sub(*before));
}

/// Removes the oldest entry if the list has reached the maximum length.
pub(crate) fn make_room<T>(entries: &mut Vec<T>) {
    if entries.len() >= MOST_ENTRIES {
        entries.remove(0);
    }
}

/// Deserializes numbers. Fails if one is above [`MOST`].
pub(crate) fn bounded<'de, T: Amounts + Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    let amounts = T::deserialize(deserializer)?;
    if amounts.are_bounded() { Ok(amounts) } else { Err(D::Error::custom("a number that no run reaches")) }
}

/// A number, or several.
pub(crate) trait Amounts {
    /// True if none is above [`MOST`].
    fn are_bounded(&self) -> bool;
}

impl Amounts for u64 {
    fn are_bounded(&self) -> bool {
        *self <= MOST
    }
}

impl Amounts for i64 {
    fn are_bounded(&self) -> bool {
        self.unsigned_abs() <= MOST
    }
}

impl<T: Amounts> Amounts for Option<T> {
    fn are_bounded(&self) -> bool {
        self.iter().all(T::are_bounded)
    }
}

impl<T: Amounts> Amounts for Vec<T> {
    fn are_bounded(&self) -> bool {
        self.iter().all(T::are_bounded)
    }
}

impl<T: Amounts> Amounts for Arc<T> {
    fn are_bounded(&self) -> bool {
        T::are_bounded(self)
    }
}

impl<T: Amounts, const N: usize> Amounts for [T; N] {
    fn are_bounded(&self) -> bool {
        self.iter().all(T::are_bounded)
    }
}

/// The latest number of a group.
impl Amounts for (u16, u64) {
    fn are_bounded(&self) -> bool {
        self.1.are_bounded()
    }
}
