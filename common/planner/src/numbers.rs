//! Numbers as tables and sentences print them.

use events::say::grouped;
use prediction::recipe::ByteUnit;

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
