//! What fits into the columns of a line.

use screen::fit::{columns, fitted, slice};

/// Slices are side by side and equally wide, up to a column; if there are more slices than columns,
/// each has one column.
#[test]
fn slices_share_the_line_equally() {
    for (of, width) in (1..=70).flat_map(|of| (1..=40u16).map(move |width| (of, width))) {
        let place = |number| slice(number, of, width);
        let lengths: Vec<usize> = (0..of).map(|number| place(number).len()).collect();
        let least = (usize::from(width) / of).max(1);
        assert!(lengths.iter().all(|length| (least..=least + 1).contains(length)), "{of} in {width}");
        for number in 1..of {
            let (before, after) = (place(number - 1), place(number));
            let beside = before.end == after.start;
            assert!(beside || of > usize::from(width) && before.start <= after.start, "{of} in {width}");
        }
        assert_eq!((place(0).start, place(of - 1).end), (0, width), "{of} in {width}");
        assert!(of < usize::from(width) || lengths.iter().all(|length| *length == 1), "{of} in {width}");
    }
}

/// A character of two columns is kept only where both fit next to the ellipsis.
#[test]
fn text_is_cut_by_columns() {
    for (text, width, cut) in [
        ("plain", 5, "plain"),
        ("plain text", 6, "plain…"),
        ("模型一号", 8, "模型一号"),
        ("模型一号", 7, "模型一…"),
        ("模型一号", 6, "模型…"),
        ("ab模型", 4, "ab…"),
        ("模型", 1, "…"),
    ] {
        assert_eq!(fitted(text, width), cut);
        assert!(columns(cut) <= width);
    }
}
