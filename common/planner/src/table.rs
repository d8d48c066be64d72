//! Tables for a terminal and for Markdown.

use crate::recipe::ByteUnit;
use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width, presets,
};
pub use events::say::grouped;

/// Columns of the terminal for which tables are made.
const SCREEN: u16 = 80;
/// Columns of a row's name, and of a number, where there is room.
const NAME: u16 = 26;
const NUMBER: u16 = 12;

/// The output format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned, with rules, at most 80 columns wide.
    Terminal,
    /// A Markdown table.
    Markdown,
}

/// The content of a table's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Columns {
    /// A name, then numbers, right-aligned; a column is wider than in other such tables only where
    /// a number needs it.
    Numbers,
    /// Sentences, wrapped.
    Prose,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    columns: Columns,
}

impl Table {
    /// Returns an empty table of numbers, with a title over the rows' names.
    pub fn numbers<T: ToString>(title: impl Into<String>, columns: impl IntoIterator<Item = T>) -> Self {
        let columns = columns.into_iter().map(|column| column.to_string());
        let header = std::iter::once(title.into()).chain(columns).collect();
        Table { header, rows: Vec::new(), columns: Columns::Numbers }
    }

    /// Returns an empty table of sentences.
    pub fn prose<T: ToString>(columns: impl IntoIterator<Item = T>) -> Self {
        let header = columns.into_iter().map(|column| column.to_string()).collect();
        Table { header, rows: Vec::new(), columns: Columns::Prose }
    }

    /// Adds a row: its name and one cell per further column.
    pub fn row<T: ToString>(&mut self, name: impl Into<String>, cells: impl IntoIterator<Item = T>) {
        let cells = cells.into_iter().map(|cell| cell.to_string());
        self.rows.push(std::iter::once(name.into()).chain(cells).collect());
    }

    /// Returns the table as text, with a newline at the end and no spaces at the ends of lines.
    pub fn render(&self, format: Format) -> String {
        let mut table = comfy_table::Table::new();
        table.set_header(&self.header).add_rows(&self.rows);
        match (format, self.columns) {
            (Format::Markdown, _) => {
                table.load_style(presets::ASCII_MARKDOWN);
            }
            (Format::Terminal, Columns::Numbers) => self.fix_widths(&mut table),
            (Format::Terminal, Columns::Prose) => wrap(&mut table),
        }
        if self.columns == Columns::Numbers {
            table
                .column_iter_mut()
                .skip(1)
                .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
        }
        table.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }

    /// Returns the characters of the longest cell of a column below its header.
    fn longest(&self, column: usize) -> u16 {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count() as u16).max().unwrap_or(0)
    }

    fn fix_widths(&self, table: &mut comfy_table::Table) {
        table.load_style(TableStyle::new().header_separator(rule()));
        let numbers = (table.column_iter().count() as u16 - 1).max(1);
        let roomy = NAME + numbers * (NUMBER + 1) <= SCREEN;
        let name =
            if roomy { NAME } else { NAME.min(self.header[0].chars().count() as u16).max(self.longest(0)) };
        let narrow = (SCREEN.saturating_sub(name) / numbers).saturating_sub(1).max(1);
        // A number is never cut off: the name's column is narrowed, or the table becomes wider than
        // a screen.
        let width = |column| NUMBER.min(narrow).max(self.longest(column));
        let wanted: u16 = (1..=usize::from(numbers)).map(|column| width(column) + 1).sum();
        let name = name.min(SCREEN.saturating_sub(wanted)).max(self.longest(0).min(name));
        for (i, column) in table.column_iter_mut().enumerate() {
            let width = if i == 0 { name } else { width(i) };
            column.set_padding((0, 0)).set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
    }
}

fn rule() -> LineStyle {
    LineStyle::none().fill('─').junction('─')
}

fn wrap(table: &mut comfy_table::Table) {
    table.load_style(TableStyle::new().header_separator(rule()).row_separator(rule()));
    table.set_content_arrangement(ContentArrangement::Dynamic).set_width(SCREEN);
    table.column_iter_mut().for_each(|column| {
        column.set_padding((0, 2));
    });
}

/// The multiple of bytes in which a table prints its numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    label: &'static str,
    bytes: f64,
}

impl Scale {
    /// Returns the scale of a table whose largest entry is `largest` bytes: the largest of GB, MB
    /// and kB in which that entry is at least 10. Always GiB if that is `unit`.
    pub fn suiting(largest: u64, unit: ByteUnit) -> Self {
        let decimal = |label, bytes| Scale { label, bytes };
        match (unit, largest) {
            (ByteUnit::Gibibyte, _) => decimal("GiB", unit.bytes()),
            (_, 1..10_000_000) => decimal("kB", 1e3),
            (_, 10_000_000..10_000_000_000) => decimal("MB", 1e6),
            _ => decimal("GB", 1e9),
        }
    }

    /// Returns its symbol.
    pub fn label(&self) -> &'static str {
        self.label
    }

    /// Returns `bytes` with two decimals, or a dash for 0.
    pub fn show(&self, bytes: u64) -> String {
        if bytes == 0 { "-".into() } else { format!("{:.2}", bytes as f64 / self.bytes) }
    }
}

/// Returns a number with its noun, `1 rank` or `4 ranks`: `one` for one, `many` for all others.
pub fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{} {}", grouped(number as u64), if number == 1 { one } else { many })
}

/// Returns `number` to at most `decimals` places, without zeros at its end.
pub fn plain(number: f64, decimals: usize) -> String {
    let text = format!("{number:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').into() } else { text }
}

/// Returns a count in words: `6.74 billion`; below a million, `918,656`.
pub fn in_words(count: u64) -> String {
    let scales = [(1e12, "trillion"), (1e9, "billion"), (1e6, "million")];
    // A number that would round to a thousand of one scale is shown as 1 of the next.
    let reaches = |scale: f64| count >= 1_000_000 && count as f64 >= 0.999_995 * scale;
    match scales.into_iter().find(|(scale, _)| reaches(*scale)) {
        Some((scale, word)) => format!("{} {word}", plain(count as f64 / scale, 2)),
        None => grouped(count),
    }
}
