//! The table of keys in the book.

use crate::keys::Key;
use crate::table::keys;

/// Returns the table of keys and their effects as Markdown: one row per key.
pub fn markdown() -> String {
    let mut text =
        "| key | value | default there | here | what it does, or why not |\n|---|---|---|---|---|\n"
            .to_string();
    keys().for_each(|key| text.push_str(&row(key)));
    text
}

fn row(key: &Key) -> String {
    let default = if key.default.is_empty() { String::new() } else { format!("`{}`", key.default) };
    let flag = key.flag().map(|flag| format!("`{flag}`: ")).unwrap_or_default();
    format!("| `{}` | {} | {default} | {} | {flag}{} |\n", key.path, key.expected(), key.label(), key.note)
}
