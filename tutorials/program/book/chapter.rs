//! Regenerates one chapter from its source.

use super::{code, commit, console, diff, picture, tables};
use crate::learn;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trainer::{Failure, Result};

/// Marks the end of a generated place.
const END: &str = "<!-- end -->";

/// Runs the chapters' commands and collects their outputs.
pub struct Workshop {
    root: PathBuf,
    console: console::Console,
    runs: learn::runs::Runs,
    /// Whether to write the pictures.
    pub(super) bless: bool,
    /// Problems other than stale text.
    pub problems: Vec<String>,
    /// The text rows of the pictures that the current chapter has drawn.
    pub(super) frames: Vec<String>,
}

impl Workshop {
    /// Returns a workshop for the workspace at `root`, whose programs are all in `program`. It
    /// writes pictures if `bless` is true.
    ///
    /// # Errors
    /// If there is no temporary folder to work in.
    pub fn new(root: PathBuf, program: PathBuf, bless: bool) -> Result<Self> {
        let console = console::Console::new(&root, program)?;
        Ok(Workshop {
            root,
            console,
            runs: learn::runs::Runs::default(),
            bless,
            problems: Vec::new(),
            frames: Vec::new(),
        })
    }

    /// Returns the workshop with `runs` as the source of its questions and tables. Other workshops
    /// may share them.
    pub fn sharing(self, runs: &learn::runs::Runs) -> Self {
        Workshop { runs: runs.clone(), ..self }
    }

    /// Returns `text` with all generated parts regenerated.
    ///
    /// # Errors
    /// If a part cannot be generated: a missing item, an unknown directive, a command that does not
    /// run.
    pub fn render(&mut self, text: &str) -> Result<String> {
        let mut lines = text.lines().peekable();
        let mut out: Vec<String> = Vec::new();
        let mut options = BTreeMap::new();
        while let Some(line) = lines.next() {
            out.push(line.into());
            match directive(line)? {
                Some((word @ ("show" | "fails" | "recorded"), rest)) => {
                    if options.insert(word, rest).is_some() {
                        return Err(Failure::run(format!("{line}: there is another {word} above it")));
                    }
                    continue;
                }
                None if line == "```console" => {
                    let old = until("```", &mut lines)?;
                    out.extend(self.console.block(&old, &std::mem::take(&mut options))?);
                    out.push("```".into());
                }
                Some(("picture", rest)) => self.picture(rest, lines.peek())?,
                Some((word, rest)) => {
                    let old = until(END, &mut lines)?;
                    out.extend(self.made(word, rest, &old)?);
                    out.push(END.into());
                }
                None => {}
            }
            unused(&options)?;
        }
        unused(&options)?;
        Ok(out.join("\n") + "\n")
    }

    /// Returns the lines of a generated place. Keeps the `old` ones if both differ only in line
    /// numbers.
    fn made(&mut self, word: &str, rest: &str, old: &[&str]) -> Result<Vec<String>> {
        let text = match word {
            "code" => return code::block(&self.root, rest),
            "diff" => return diff::blocks(&self.root, rest, old, &mut self.problems),
            "table" if rest == "commit" => return commit::lines(),
            "table" => tables::text(rest, &self.root, &self.runs)?,
            "predict" => learn::pages::guesses(rest)?,
            "answers" => learn::pages::answers(rest, &self.runs)?,
            "quiz" => learn::pages::quiz(rest, &self.runs)?,
            _ => return Err(Failure::run(format!("there is no directive {word:?}"))),
        };
        // Markdown requires an empty line on both sides.
        let fresh: Vec<String> = format!("\n{}\n", text.trim_end()).split('\n').map(String::from).collect();
        Ok(if code::alike(old, &fresh) { old.iter().map(|line| line.to_string()).collect() } else { fresh })
    }

    fn picture(&mut self, arguments: &str, link: Option<&&str>) -> Result<()> {
        let picture = picture::Picture::parse(arguments)?;
        let target = format!("](img/{}.svg)", picture.name);
        if !link.is_some_and(|link| link.starts_with("![") && link.contains(&target)) {
            self.problems.push(format!("the picture {} is not shown in the next line", picture.name));
        }
        let (svg, rows) = picture.draw(&self.root)?;
        self.frames.extend(rows);
        let file = self.root.join("tutorials/src/img").join(format!("{}.svg", picture.name));
        self.keep(&file, &svg)
    }

    /// Compares a generated file with the existing one, or writes it.
    fn keep(&mut self, file: &Path, fresh: &str) -> Result<()> {
        if std::fs::read_to_string(file).is_ok_and(|old| old == fresh) {
            return Ok(());
        }
        if !self.bless {
            self.problems
                .push(format!("{} is stale; cargo run -p tutorials -- book --bless", file.display()));
            return Ok(());
        }
        let folder = file.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(folder)
            .and_then(|()| std::fs::write(file, fresh))
            .map_err(|e| Failure::run(format!("cannot write {}: {e}", file.display())))
    }
}

/// Takes the lines before the line `end`, and drops `end`.
fn until<'a>(end: &str, lines: &mut impl Iterator<Item = &'a str>) -> Result<Vec<&'a str>> {
    let mut ended = false;
    let taken = lines.take_while(|line| {
        ended = *line == end;
        !ended
    });
    let taken = taken.collect();
    ended.then_some(taken).ok_or_else(|| Failure::run(format!("{end:?} is missing at the chapter's end")))
}

/// Returns the directive in `<!-- word: rest -->`.
///
/// # Errors
/// If the line looks like a directive but is not one, or is a `console` fence that would not run.
fn directive(line: &str) -> Result<Option<(&str, &str)>> {
    let bare = line.trim();
    if bare.starts_with("```console") && line != "```console" {
        return Err(Failure::run(format!(
            "{line:?}: write ```console alone on a line, otherwise nothing runs it"
        )));
    }
    // After a comment at the start of a line or list item, Markdown shows the remainder verbatim.
    let numbered = bare.split_once(". ").filter(|(number, _)| number.parse::<u32>().is_ok());
    let item = numbered.map_or(bare.trim_start_matches(['*', '-', ' ']), |(_, item)| item);
    if !item.starts_with("<!--") {
        return Ok(None);
    }
    let inside = line.strip_prefix("<!-- ").and_then(|rest| rest.strip_suffix(" -->"));
    let parts = inside.and_then(|inside| inside.split_once(": "));
    let word = parts.filter(|(word, _)| word.chars().all(|c| c.is_ascii_lowercase()));
    word.map(Some)
        .ok_or_else(|| Failure::run(format!("{line:?} is not a directive: write <!-- word: rest -->")))
}

/// Refuses a directive for a `console` block that is missing.
fn unused(options: &BTreeMap<&str, &str>) -> Result<()> {
    match options.iter().next() {
        None => Ok(()),
        Some((word, rest)) => {
            Err(Failure::run(format!("<!-- {word}: {rest} -->: no console block stands under it")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str) -> Result<String> {
        let root = tempfile::tempdir().unwrap();
        Workshop::new(root.path().into(), "/bin/true".into(), false).unwrap().render(text)
    }

    #[test]
    fn what_nothing_makes_is_named() {
        for (text, words) in [
            ("<!-- show: x -->\n\n```console\n```", "<!-- show: x -->: no console block"),
            ("<!-- fails: 1 -->", "<!-- fails: 1 -->: no console block"),
            ("<!-- recorded: x -->\n```\n```", "recorded: x -->: no console block"),
            ("<!-- show: x -->\n<!-- show: y -->\n```console\n```", "another show"),
            ("<!-- tabel: claims -->\n<!-- end -->", "no directive \"tabel\""),
            ("<!-- quiz:4 -->", "is not a directive"),
            ("<!--quiz: 4-->", "is not a directive"),
            ("<!-- end -->", "is not a directive"),
            ("<!--=-->2 × 3 = 6<!--/-->", "is not a directive"),
            ("12. <!--=-->2 × 3 = 6<!--/-->", "is not a directive"),
            ("1. run\n   ```console\n   $ x\n   ```", "nothing runs it"),
        ] {
            let said = rendered(text).expect_err(text).to_string();
            assert!(said.contains(words), "{text:?}: {said}");
        }
        for fine in [
            "text <!-- an aside -->\n",
            "1024<!--GPUs--> GPUs\n",
            "<!-- fails: 1 -->\n<!-- show: x -->\n```console\n```\n",
        ] {
            assert_eq!(rendered(fine).unwrap(), fine);
        }
    }
}
