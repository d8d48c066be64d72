//! Dead links in the book.

use std::path::{Path, PathBuf};
use trainer::{Failure, Result};

/// Returns a sentence for every dead link in the folder's pages.
pub(super) fn dead(folder: &Path) -> Result<Vec<String>> {
    let pages = pages(folder)?;
    Ok(pages.iter().flat_map(|(file, text)| dead_in(text, file)).collect())
}

/// Returns a sentence for every picture that no page of the folder includes.
pub(super) fn unshown(folder: &Path) -> Result<Vec<String>> {
    let pages = pages(folder)?;
    let pictures = std::fs::read_dir(folder.join("img")).into_iter().flatten().flatten();
    let names = pictures.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let shown = |name: &String| pages.iter().any(|(_, text)| text.contains(&format!("(img/{name})")));
    Ok(names.filter(|name| !shown(name)).map(|name| format!("no chapter shows img/{name}")).collect())
}

/// Returns the Markdown files of a folder, with their texts.
fn pages(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let fail = |e: std::io::Error| Failure::run(format!("cannot read {}: {e}", folder.display()));
    let files = std::fs::read_dir(folder).map_err(fail)?.flatten().map(|entry| entry.path());
    let markdown = files.filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    markdown.map(|file| Ok((file.clone(), std::fs::read_to_string(&file).map_err(fail)?))).collect()
}

fn dead_in(text: &str, file: &Path) -> Vec<String> {
    let folder = file.parent().unwrap_or(Path::new("."));
    let targets = outside_fences(text).flat_map(links);
    let dead = targets.filter(|target| !alive(target, text, folder));
    dead.map(|target| format!("{}: the link to {target} leads nowhere", file.display())).collect()
}

fn outside_fences(text: &str) -> impl Iterator<Item = &str> {
    let mut inside = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        inside ^= fence;
        !fence && !inside
    })
}

/// Returns the targets of the links in a line.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(target, _)| target)
}

fn alive(target: &str, text: &str, folder: &Path) -> bool {
    if target.starts_with("http") {
        return true;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let read = |path: &str| with_includes(&folder.join(path));
    let exists = path.is_empty() || folder.join(path).exists();
    if let (true, Some(line)) = (path.ends_with(".rs"), anchor.strip_prefix('L')) {
        return line.parse().is_ok_and(|line: usize| (1..=read(path).lines().count()).contains(&line));
    }
    exists
        && (anchor.is_empty() || has_heading(&if path.is_empty() { text.into() } else { read(path) }, anchor))
}

/// Returns a page's text, followed by the pages that mdBook includes in it.
fn with_includes(page: &Path) -> String {
    let text = std::fs::read_to_string(page).unwrap_or_default();
    let folder = page.parent().unwrap_or(Path::new("."));
    let included = text.lines().filter_map(|line| line.strip_prefix("{{#include ")?.strip_suffix("}}"));
    let included: Vec<String> =
        included.map(|path| std::fs::read_to_string(folder.join(path)).unwrap_or_default()).collect();
    text + &included.concat()
}

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
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("two.rs"), "a\nb\n").unwrap();
        let text = "[one](two.rs#L2) [other](two.rs#L3) [third](two.rs#Lx)";
        let problems = dead_in(text, &folder.path().join("page.md"));
        assert_eq!(problems.len(), 2, "{problems:?}");
    }
}
