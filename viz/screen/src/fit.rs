//! What fits into the columns of a line: text, and equal slices.

use std::ops::Range;

/// Returns the columns of the `number`-th of `of` equal slices of a line of `width`; at least one.
/// Only slices narrower than a column share one.
pub fn slice(number: usize, of: usize, width: u16) -> Range<u16> {
    let (number, of, columns) = (number as u32, of as u32, u32::from(width));
    let start = (number * columns / of) as u16;
    let end = ((number + 1) * columns / of) as u16;
    start..end.max(start + 1).min(width.max(start + 1))
}

/// Returns the number of columns that `text` takes.
pub fn columns(text: &str) -> u16 {
    ratatui::text::Span::raw(text).width().min(usize::from(u16::MAX)) as u16
}

/// Returns the first of `forms` that fits into `width` columns; nothing if none does.
pub fn fitting<T: AsRef<str>>(forms: &[T], width: u16) -> &str {
    forms.iter().map(T::as_ref).find(|form| columns(form) <= width).unwrap_or_default()
}

/// Returns the first of `forms` that fits into `width` columns, or the last one cut.
pub fn fitting_or_cut(forms: &[String], width: u16) -> String {
    let found = forms.iter().find(|form| columns(form) <= width).or(forms.last());
    found.map_or(String::new(), |form| fitted(form, width))
}

/// Returns the words of `text` that fit into `width` columns, with an ellipsis if words are left
/// out; nothing if not even the first word fits.
pub fn whole_words(text: &str, width: u16) -> String {
    if columns(text) <= width {
        return text.into();
    }
    let mut ends = text.match_indices(' ').map(|(end, _)| text[..end].trim_end());
    let kept = ends.rfind(|kept| !kept.is_empty() && columns(kept) < width);
    kept.map_or(String::new(), |kept| format!("{}…", kept.trim_end_matches([',', ':', ';', '·', ' '])))
}

/// Returns `text` cut to `width` columns, with an ellipsis if it is longer.
pub fn fitted(text: &str, width: u16) -> String {
    if columns(text) <= width {
        return text.into();
    }
    let beginnings = text.char_indices().map(|(end, _)| &text[..end]);
    let kept = beginnings.take_while(|kept| columns(kept) < width).last().unwrap_or_default();
    format!("{}…", kept.trim_end())
}
