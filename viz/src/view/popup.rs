//! Places for boxes over a view.

use super::paint::{Paint, columns};
use crate::theme::{DIM, ink};

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Anchor {
    Middle,
    /// At the bottom, so that the upper part of the view stays visible.
    Bottom,
}

/// Clears a box, centred horizontally, with a margin around it. Returns the box.
pub(super) fn cleared<'a>(paint: &'a mut Paint<'_>, width: u16, height: u16, at: Anchor) -> Paint<'a> {
    const MARGIN: (u16, u16) = (2, 1);
    let (width, height) = (width.min(paint.width().saturating_sub(2)), height.min(paint.height()));
    let below = paint.height() - height;
    let (x, y) = ((paint.width() - width) / 2, if at == Anchor::Middle { below / 2 } else { below });
    let (left, top) = (x.saturating_sub(MARGIN.0), y.saturating_sub(MARGIN.1));
    paint.part(left, top, x + width + MARGIN.0 - left, y + height + MARGIN.1 - top).clear();
    paint.part(x, y, width, height)
}

/// Writes the first of `forms` that fits on the lower edge of a box.
pub(super) fn lower_edge(area: &mut Paint<'_>, forms: &[&str]) {
    let bottom = area.height().saturating_sub(1);
    if let Some(text) = forms.iter().find(|text| columns(text) + 3 <= area.width()) {
        area.text(2, bottom, text, ink(DIM));
    }
}
