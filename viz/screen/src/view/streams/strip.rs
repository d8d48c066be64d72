//! One stream, drawn column by column.

use super::super::axis::Axis;
use super::super::paint::Paint;
use crate::fit::columns;
use crate::theme::{FAINT, INK, ink};
use ratatui::style::{Color, Style};

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Look {
    /// A block with its name in it.
    Block,
    /// A line, for a span much shorter than a column.
    Tick,
    /// A line of its glyphs.
    Dashes,
}

/// The width in columns below which a span is drawn as a tick.
const TICK: f64 = 0.25;

/// The content of one column: its look and its span.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Fill {
    pub(super) colour: Color,
    pub(super) glyph: &'static str,
    pub(super) look: Look,
    pub(super) span: usize,
}

/// One column of a stream.
#[derive(Clone, Copy, Default)]
pub(super) struct StripColumn {
    /// The part of the column that the span covers.
    covered: f64,
    /// What the column shows; `None` if the stream is idle.
    pub(super) fill: Option<Fill>,
}

/// The columns of a stream. Each shows the span that fills most of its time.
pub(super) struct Strip {
    axis: Axis,
    pub(super) columns: Vec<StripColumn>,
}

impl Strip {
    pub(super) fn new(axis: Axis) -> Self {
        Strip { axis, columns: vec![StripColumn::default(); usize::from(axis.width)] }
    }

    /// Adds a span in a colour and a glyph of its own.
    pub(super) fn add(&mut self, from: u64, to: u64, span: usize, (colour, glyph): (Color, &'static str)) {
        let (from, to) = self.columns_of(from, to);
        let tick = to - from < TICK;
        let fill = Fill { colour, glyph, look: if tick { Look::Tick } else { Look::Block }, span };
        let mut column = from.floor();
        while column < to {
            let covered = to.min(column + 1.0) - from.max(column);
            let slot = &mut self.columns[column as usize];
            if covered > slot.covered && (covered > 0.08 || tick) {
                *slot = StripColumn { covered, fill: Some(fill) };
            }
            column += 1.0;
        }
    }

    /// Returns where a span begins and ends within the axis, in columns.
    fn columns_of(&self, from: u64, to: u64) -> (f64, f64) {
        let end = f64::from(self.axis.width);
        (self.axis.column(from).max(0.0), self.axis.column(to).min(end))
    }

    /// Adds a collective that is issued but moves no data yet. It fills only columns in which no
    /// other data moves.
    pub(super) fn add_pending(&mut self, from: u64, to: u64, span: usize) {
        let (from, to) = self.columns_of(from, to);
        for column in from.floor() as usize..to.ceil().max(0.0) as usize {
            if let Some(slot) = self.columns.get_mut(column).filter(|slot| slot.fill.is_none()) {
                slot.fill = Some(Fill { colour: FAINT, glyph: "╌", look: Look::Dashes, span });
            }
        }
    }

    /// Draws the stream over the whole of `paint`. `labels` returns a span's names, from the
    /// longest to the shortest.
    pub(super) fn draw(&self, paint: &mut Paint<'_>, labels: &dyn Fn(usize) -> Vec<String>) {
        let (mut x, height) = (0, paint.height());
        while x < self.columns.len() {
            let fill = self.columns[x].fill;
            let same = self.columns[x..].iter().take_while(|column| column.fill == fill).count();
            match fill {
                Some(fill) => run(&mut paint.part(x as u16, 0, same as u16, height), fill, labels(fill.span)),
                None => paint.run(x as u16, height / 2, same as u16, "·", ink(FAINT)),
            }
            x += same;
        }
    }
}

/// Draws one span over the whole of `paint`.
fn run(paint: &mut Paint<'_>, fill: Fill, labels: Vec<String>) {
    let (width, middle) = (paint.width(), paint.height() / 2);
    let colours = paint.theme().colours();
    let (symbol, style) = match fill.look {
        Look::Dashes => return paint.run(0, middle, width, fill.glyph, ink(fill.colour)),
        Look::Tick if colours => ("│", ink(fill.colour)),
        Look::Block if colours => (" ", Style::new().bg(fill.colour).fg(INK)),
        _ => (fill.glyph, Style::new()),
    };
    (0..paint.height()).for_each(|y| paint.run(0, y, width, symbol, style));
    // Among letters a name needs a space on both sides.
    let margin = if colours { 1 } else { 3 };
    if let Some(label) =
        labels.iter().find(|label| fill.look == Look::Block && columns(label) + margin < width)
    {
        let label = if colours { label.clone() } else { format!(" {label} ") };
        paint.centred(0, width, middle, &label, style);
    }
}
