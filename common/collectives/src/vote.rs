//! Which member of a group differs from the others.

/// Returns the first member whose value differs from the most frequent one, and the first member
/// that has the most frequent one; `None` if all are equal. Ties go to the value of the lowest
/// member.
pub fn odd_one_out<T: PartialEq>(all: &[T]) -> Option<(usize, usize)> {
    if all.iter().all(|one| *one == all[0]) {
        return None;
    }
    let alike = |one: &T| all.iter().filter(|other| *other == one).count();
    let most = all.iter().map(alike).max()?;
    let usual = all.iter().position(|one| alike(one) == most)?;
    all.iter().position(|one| *one != all[usual]).map(|odd| (odd, usual))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_one_is_not_what_most_are() {
        for (all, odd) in [
            (&[7, 7, 7, 7][..], None),
            (&[7, 7, 7, 9], Some((3, 0))),
            (&[9, 7, 7, 7], Some((0, 1))),
            (&[7, 9, 9, 7, 9], Some((0, 1))),
            (&[7, 9], Some((1, 0))),
            (&[7], None),
            (&[], None),
        ] {
            assert_eq!(odd_one_out(all), odd, "{all:?}");
        }
    }
}
