//! Tables for a terminal and for Markdown.

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, LineStyle, TableStyle, Width, presets,
};

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
