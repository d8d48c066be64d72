//! The chapters say what the programs do.

use std::path::Path;
use tutorials::book;

#[test]
fn every_chapter_is_true() {
    let program = Path::new(env!("CARGO_BIN_EXE_tutorials"));
    let mut workshop = book::Workshop::new(book::root(), program.to_path_buf(), false).unwrap();
    let mut problems = Vec::new();
    for file in book::pages().unwrap() {
        problems
            .extend(book::inspect(&file, &mut workshop).unwrap_or_else(|failure| vec![failure.to_string()]));
    }
    problems.extend(book::dead_links().unwrap());
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
}
