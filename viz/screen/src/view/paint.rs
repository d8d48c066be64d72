//! Draws into a rectangle of the screen. It cuts off what does not fit.

use crate::fit::{columns, fitting, whole_words};
use crate::theme::{self, Theme};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Block, BorderType, Clear, Widget};

/// A rectangle of the screen. Positions are relative to it.
pub(super) struct Paint<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    theme: Theme,
}

/// Where a box over a view is drawn.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Anchor {
    Middle,
    /// At the bottom, so that the upper part of the view stays visible.
    Bottom,
}

impl<'a> Paint<'a> {
    /// Returns the part of `buffer` within `area`.
    pub(super) fn new(buffer: &'a mut Buffer, area: Rect, theme: Theme) -> Self {
        let area = area.intersection(buffer.area);
        Paint { buffer, area, theme }
    }

    pub(super) fn width(&self) -> u16 {
        self.area.width
    }

    pub(super) fn height(&self) -> u16 {
        self.area.height
    }

    pub(super) fn theme(&self) -> Theme {
        self.theme
    }

    /// Returns a rectangle within this one.
    pub(super) fn part(&mut self, x: u16, y: u16, width: u16, height: u16) -> Paint<'_> {
        let (x, y) = (x.min(self.area.width), y.min(self.area.height));
        let (width, height) = (width.min(self.area.width - x), height.min(self.area.height - y));
        let area = Rect::new(self.area.x + x, self.area.y + y, width, height);
        Paint { buffer: self.buffer, area, theme: self.theme }
    }

    /// Writes `text` and returns the column after it.
    pub(super) fn text(&mut self, x: u16, y: u16, text: impl AsRef<str>, style: Style) -> u16 {
        if x >= self.area.width || y >= self.area.height {
            return x;
        }
        let room = usize::from(self.area.width - x);
        let (end, _) = self.buffer.set_stringn(self.area.x + x, self.area.y + y, text, room, style);
        end - self.area.x
    }

    /// Writes pieces one after the other and returns the column after the last.
    pub(super) fn pieces<T: AsRef<str>>(&mut self, x: u16, y: u16, pieces: &[(T, Style)]) -> u16 {
        pieces.iter().fold(x, |x, (piece, style)| self.text(x, y, piece, *style))
    }

    /// Writes `text` so that it ends before column `end`.
    pub(super) fn right(&mut self, end: u16, y: u16, text: impl AsRef<str>, style: Style) -> u16 {
        let length = columns(text.as_ref());
        self.text(end.saturating_sub(length), y, text, style)
    }

    /// Writes `labels` on row `y`, each so that it ends before its column of `ends`.
    pub(super) fn labels(&mut self, ends: impl IntoIterator<Item = u16>, y: u16, labels: &[impl AsRef<str>]) {
        for (end, label) in ends.into_iter().zip(labels) {
            self.right(end, y, label, theme::ink(theme::DIM));
        }
    }

    /// Writes `text` in the middle of `width` columns from `x` on. Cuts it off at their end.
    pub(super) fn centred(&mut self, x: u16, width: u16, y: u16, text: &str, style: Style) {
        let length = columns(text).min(width);
        self.part(x, y, width, 1).text((width - length) / 2, 0, text, style);
    }

    pub(super) fn put(&mut self, x: u16, y: u16, symbol: &str, style: Style) {
        if x < self.area.width && y < self.area.height {
            self.buffer[(self.area.x + x, self.area.y + y)].set_symbol(symbol).set_style(style);
        }
    }

    /// Writes the same symbol in `width` columns.
    pub(super) fn run(&mut self, x: u16, y: u16, width: u16, symbol: &str, style: Style) {
        for column in x..x.saturating_add(width).min(self.area.width) {
            self.put(column, y, symbol, style);
        }
    }

    /// Draws a box with a title and returns its inside.
    pub(super) fn card(&mut self, title: &[(&str, Style)], style: Style) -> Paint<'_> {
        let (width, height) = (self.area.width, self.area.height);
        if width >= 2 && height >= 2 {
            let border = Block::bordered().border_type(BorderType::Rounded).border_style(style);
            border.render(self.area, self.buffer);
            self.part(2, 0, width.saturating_sub(3), 1).pieces(0, 0, title);
        }
        self.part(1, 1, width.saturating_sub(2), height.saturating_sub(2))
    }

    /// Clears a box over a view, centred horizontally, with a margin around it. Returns the box.
    pub(super) fn cleared(&mut self, width: u16, height: u16, at: Anchor) -> Paint<'_> {
        const MARGIN: (u16, u16) = (2, 1);
        let Rect { x, y, width, height } = over((self.width(), self.height()), (width, height), at);
        let (left, top) = (x.saturating_sub(MARGIN.0), y.saturating_sub(MARGIN.1));
        let around = self.part(left, top, x + width + MARGIN.0 - left, y + height + MARGIN.1 - top);
        Clear.render(around.area, around.buffer);
        self.part(x, y, width, height)
    }

    /// Writes the first of `forms` that fits on the lower edge of a box.
    pub(super) fn lower_edge(&mut self, forms: &[&str]) {
        let bottom = self.height().saturating_sub(1);
        self.text(2, bottom, fitting(forms, self.width().saturating_sub(3)), theme::ink(theme::DIM));
    }

    /// Writes a heading and next to it a note, or the words of the note that fit, on the first row.
    /// Returns the column after both.
    pub(super) fn noted_heading(&mut self, text: &str, note: impl AsRef<str>) -> u16 {
        let x = self.heading(0, 0, text) + 2;
        let note = whole_words(note.as_ref(), self.width().saturating_sub(x));
        self.text(x, 0, note, theme::ink(theme::DIM))
    }

    /// Writes a heading in the style of all views. Returns the column after it.
    pub(super) fn heading(&mut self, x: u16, y: u16, text: &str) -> u16 {
        self.text(x, y, text, theme::bold(theme::ACCENT))
    }
}

/// Returns the box of these columns and rows, or as many as fit, over a view of `size`.
pub(super) fn over(size: (u16, u16), (width, height): (u16, u16), at: Anchor) -> Rect {
    let (width, height) = (width.min(size.0.saturating_sub(2)), height.min(size.1));
    let below = size.1 - height;
    let y = if at == Anchor::Middle { below / 2 } else { below };
    Rect { x: (size.0 - width) / 2, y, width, height }
}
