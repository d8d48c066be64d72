//! Stretches of time, as sets.

use screen::intervals::{length, merged, without};

#[test]
fn intervals_merge_and_are_cut() {
    let a = merged(vec![(5, 9), (0, 2), (1, 4), (4, 4)]);
    assert_eq!(a, [(0, 4), (5, 9)]);
    assert_eq!(length(&a), 8);
    assert_eq!(without(&a, &[(1, 2), (3, 6), (8, 20)]), [(0, 1), (2, 3), (6, 8)]);
    assert_eq!((without(&a, &[]), without(&[], &a)), (a.clone(), vec![]));
}
