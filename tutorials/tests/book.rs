//! The chapters say what the programs do.

use std::path::Path;
use std::time::{Duration, Instant};
use tutorials::book;

/// What the whole book may take, with everything in it run.
const LIMIT: Duration = Duration::from_secs(600);

#[test]
fn every_chapter_is_true() {
    let program = Path::new(env!("CARGO_BIN_EXE_tutorials"));
    let mut workshop = book::Workshop::new(book::root(), program.to_path_buf(), false).unwrap();
    let mut problems = Vec::new();
    let begun = Instant::now();
    for file in book::pages().unwrap() {
        let started = Instant::now();
        problems
            .extend(book::inspect(&file, &mut workshop).unwrap_or_else(|failure| vec![failure.to_string()]));
        println!("{:6.1} s   {}", started.elapsed().as_secs_f64(), file.file_name().unwrap().display());
    }
    println!("{:6.1} s   the book", begun.elapsed().as_secs_f64());
    problems.extend(book::dead_links().unwrap());
    assert!(problems.is_empty(), "{}", problems.join("\n\n"));
    assert!(begun.elapsed() < LIMIT, "the book takes {:?}", begun.elapsed());
}
