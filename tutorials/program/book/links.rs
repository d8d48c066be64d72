//! Links in the book that lead nowhere.

use std::path::Path;
use trainer::{Failure, Result};

/// Every dead link and every picture that no chapter shows, in words.
///
/// # Errors
/// If the chapters cannot be read.
pub(super) fn dead(folder: &Path) -> Result<Vec<String>> {
    let fail = |e: std::io::Error| Failure::run(format!("cannot read {}: {e}", folder.display()));
    let mut problems = Vec::new();
    let mut all = String::new();
    for entry in std::fs::read_dir(folder).map_err(fail)?.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(entry.path()).map_err(fail)?;
            problems.extend(dead_in(&text, &entry.path()));
            all.push_str(&text);
        }
    }
    for entry in std::fs::read_dir(folder.join("img")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !all.contains(&format!("(img/{name})")) {
            problems.push(format!("no chapter shows img/{name}"));
        }
    }
    Ok(problems)
}

fn dead_in(text: &str, file: &Path) -> Vec<String> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let targets = outside_fences(text).flat_map(links);
    let dead = targets.filter(|target| !alive(target, text, folder));
    dead.map(|target| format!("{}: the link to {target} leads nowhere", file.display())).collect()
}

/// Lines of `text` that are no code.
pub(super) fn outside_fences(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        inside ^= fence;
        !fence && !inside
    })
}

/// Targets of the links in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

fn alive(target: &str, text: &str, folder: &Path) -> bool {
    if target.starts_with("http") {
        return true;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let read = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap_or_default();
    let exists = path.is_empty() || folder.join(path).exists();
    exists
        && (anchor.is_empty() || has_heading(&if path.is_empty() { text.into() } else { read(path) }, anchor))
}

/// Whether a page has a heading whose anchor is `anchor`.
fn has_heading(text: &str, anchor: &str) -> bool {
    outside_fences(text).filter(|line| line.starts_with('#')).any(|line| slug(line) == anchor)
}

fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
    text.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_links_are_found() {
        let text =
            "# A b\n[x](#a-b) [y](#c) [z](missing.md) [w](https://example.org)\n```\n[no](code.md)\n```\n";
        let problems = dead_in(text, Path::new("page.md"));
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
