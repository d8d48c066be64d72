//! The chapters agree with the programs, and checking them is quick.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tutorials::learn::runs::Runs;
use tutorials::{book, workspace};

/// The most time that the whole book may take, with everything in it run.
const LIMIT: Duration = Duration::from_secs(600);
/// The most processor time that a chapter may take on average, in seconds.
const AVERAGE: f64 = 10.0;
/// Chapters that are checked at the same time.
const AT_ONCE: usize = 2;

/// Returns the seconds of processor time that this process and its finished children have used, as
/// Linux reports them; `None` elsewhere. Unlike wall time, they do not depend on the load of the
/// machine.
fn computed() -> Option<f64> {
    const TICKS: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = text.rsplit_once(')')?;
    let ticks = fields.split_whitespace().skip(11).take(4).map(|field| field.parse::<f64>().ok());
    Some(ticks.sum::<Option<f64>>()? / TICKS)
}

/// Returns what is wrong with the chapter in `file`. Each has a workshop of its own, since a reader
/// may begin anywhere; the runs behind questions and tables, which leave nothing, are made once.
fn problems(file: &Path, runs: &Runs) -> trainer::Result<Vec<String>> {
    let started = Instant::now();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_tutorials"));
    let mut workshop = book::Workshop::new(workspace::root(), program, false)?.sharing(runs);
    let problems = book::inspect(file, &mut workshop)?;
    let name = file.file_name().unwrap_or_default().display();
    println!("{:6.1} s   {name}", started.elapsed().as_secs_f64());
    Ok(problems)
}

#[test]
fn every_chapter_is_true() {
    let (begun, before) = (Instant::now(), computed());
    let pages = book::pages().unwrap();
    let (count, left) = (pages.len() as f64, Mutex::new(pages.into_iter()));
    let (found, runs) = (Mutex::new(book::dead_links().unwrap()), Runs::default());
    let check = || {
        let next = || left.lock().unwrap().next();
        while let Some(file) = next() {
            let problems = problems(&file, &runs).unwrap_or_else(|failure| vec![failure.to_string()]);
            found.lock().unwrap().extend(problems);
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE).for_each(|_| drop(scope.spawn(check))));
    let spent = computed().zip(before).map_or(0.0, |(after, before)| after - before);
    println!("{:6.1} s, {spent:5.1} s of processors   the book", begun.elapsed().as_secs_f64());
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{}", found.join("\n\n"));
    assert!(spent < AVERAGE * count, "the book takes {spent:.0} s of processors");
    assert!(begun.elapsed() < LIMIT, "the book takes {:?}", begun.elapsed());
}

/// The headings that chapters share, in order, with their alternatives.
const HEADINGS: [&[&str]; 8] = [
    &["What you will be able to do"],
    &["One command"],
    &["What always holds"],
    &["Predict before you look"],
    &["How good was your guess?"],
    &["Exercises", "Break it yourself"],
    &["Quiz"],
    &["What is next", "What this book leaves out"],
];

/// Returns the parts that every chapter has and this one lacks.
fn lacks(number: u32, text: &str) -> Vec<String> {
    let headings: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let place = |names: &&[&str]| headings.iter().position(|heading| names.contains(heading));
    let places: Vec<Option<usize>> = HEADINGS.iter().map(place).collect();
    let mut lacks = Vec::new();
    for (names, at) in HEADINGS.iter().zip(&places) {
        lacks.extend(at.is_none().then(|| format!("## {}", names[0])));
    }
    if !places.iter().flatten().is_sorted() {
        lacks.push(format!("the order of {HEADINGS:?}"));
    }
    let mut parts = ["predict", "answers", "quiz"].map(|word| format!("<!-- {word}: {number} -->")).to_vec();
    // Where a stage precedes, the diff to it takes the place of the code.
    let code = if (4..=6).contains(&number) { "<!-- diff: " } else { "<!-- code: " };
    parts.extend([code, "```console\n"].map(String::from));
    lacks.extend(parts.into_iter().filter(|part| !text.contains(part.as_str())));
    let minutes = text.lines().find_map(|line| line.strip_prefix("*About ")?.split(' ').next()?.parse().ok());
    if !minutes.is_some_and(|minutes: usize| (10..=25).contains(&minutes) && prose(text) / minutes < 130) {
        lacks.push("*About 10 to 25 minutes, at less than 130 words a minute".into());
    }
    lacks
}

/// Returns the number of words outside tables and quoted blocks.
fn prose(text: &str) -> usize {
    let mut quoted = false;
    let words = |line: &str| {
        quoted ^= line.starts_with("```");
        if quoted || line.starts_with('|') { 0 } else { line.split_whitespace().count() }
    };
    text.lines().map(words).sum()
}

#[test]
fn every_chapter_has_the_parts_that_chapters_have() {
    let mut numbers = Vec::new();
    for file in book::pages().unwrap() {
        let Some(number) = book::number(&file) else { continue };
        let text = std::fs::read_to_string(&file).unwrap();
        assert_eq!(lacks(number, &text), Vec::<String>::new(), "{}", file.display());
        let without = text.replace("## Quiz\n", "").replace("```console\n", "```\n");
        assert_eq!(lacks(number, &without), ["## Quiz", "```console\n"]);
        numbers.push(number);
    }
    assert_eq!(numbers, (0..=17).collect::<Vec<_>>());
}
