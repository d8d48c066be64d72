//! Commands that the documents tell their readers to type: the content of plain fences, and inline
//! code that begins with `cargo` or a script. The book's own test runs `console` blocks.

use std::path::{Path, PathBuf};

/// A program of this workspace with its arguments, as written in a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The document's name.
    pub place: String,
    /// The program: the name of a package or a binary.
    pub program: String,
    /// The program's arguments.
    pub arguments: Vec<String>,
}

/// Returns every command of every document: the book, the READMEs, and `docs/`.
///
/// # Panics
/// If a document has a line that cannot be parsed as a command, or names a script or file that does
/// not exist.
pub fn commands() -> Vec<Command> {
    let mut commands = Vec::new();
    for document in documents() {
        let place = document.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&document).unwrap_or_else(|error| panic!("{place}: {error}"));
        for line in typed(&text) {
            let understood = understood(&line).unwrap_or_else(|why| panic!("{place}: {line}\n{why}"));
            let named = |(program, arguments)| Command { place: place.clone(), program, arguments };
            commands.extend(understood.map(named));
        }
    }
    commands
}

/// Returns the commands of one program.
///
/// # Panics
/// As [`commands`], and if the program has no commands.
pub fn commands_of(program: &str) -> Vec<Command> {
    let mut commands = commands();
    commands.retain(|command| command.program == program);
    assert!(!commands.is_empty(), "no document names {program}");
    commands
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(PathBuf::new, Path::to_path_buf)
}

fn documents() -> Vec<PathBuf> {
    let pages = |folder: &str| std::fs::read_dir(root().join(folder)).into_iter().flatten().flatten();
    let files = ["", "docs", "tutorials/src", "zero0-ddp", "zero1", "zero2", "zero3"]
        .into_iter()
        .flat_map(pages)
        .map(|entry| entry.path());
    let pages = files.filter(|file| file.extension().is_some_and(|extension| extension == "md"));
    // Its fence contains a map.
    pages.filter(|file| !file.ends_with("ARCHITECTURE.md")).collect()
}

/// Returns the lines to type, without `#` comments.
fn typed(text: &str) -> Vec<String> {
    let (mut fence, mut lines, mut prose) = (None, Vec::new(), String::new());
    for line in text.replace("\\\n", " ").lines() {
        match (line.trim().strip_prefix("```"), fence) {
            (Some(_), Some(_)) => fence = None,
            (Some(language), None) => fence = Some(language.is_empty()),
            (None, Some(plain)) => {
                lines.extend(plain.then(|| line.split(" #").next().unwrap_or("").to_string()))
            }
            // The end of a paragraph ends the span of an unmatched backtick.
            (None, None) if line.is_empty() => lines.extend(spans(&std::mem::take(&mut prose))),
            (None, None) => prose += &format!("{line} "),
        }
    }
    lines.extend(spans(&prose));
    lines.retain(|line| !line.trim().is_empty());
    lines
}

/// Returns the commands in inline code, as far as they are complete.
fn spans(prose: &str) -> Vec<String> {
    let code = prose.split('`').skip(1).step_by(2);
    let whole = code.filter(|span| span.starts_with("cargo ") || span.starts_with("scripts/launch/"));
    whole.filter(|span| !span.contains('…') && span.contains(' ')).map(String::from).collect()
}

/// A program and its arguments.
pub type Call = (String, Vec<String>);

/// Parses a line: a program of the workspace, or `None` if it cannot be wrong about one.
///
/// # Errors
/// If it names a package, a binary, a test, a feature, a script or a file that does not exist, or
/// is not a command.
pub fn understood(line: &str) -> Result<Option<Call>, String> {
    let words = stages::split_arguments(line);
    let words: Vec<&str> = words.iter().map(String::as_str).skip_while(|word| word.contains('=')).collect();
    match words.as_slice() {
        ["cargo", "run"] | ["cargo", "insta", "review"] => Ok(None),
        ["cargo", "run", rest @ ..] => cargo(rest).map(Some),
        ["cargo", "test" | "build" | "bench" | "clippy" | "fmt", rest @ ..] => cargo(rest).map(|_| None),
        ["cat" | "diff", files @ ..] => files.iter().try_for_each(|file| exists(file)).map(|()| None),
        ["mdbook", "build", folder] => exists(&format!("{folder}/book.toml")).map(|()| None),
        ["pip" | "ls", ..] => Ok(None),
        ["sbatch" | "mpirun" | "torchrun" | "timeout", rest @ ..] => {
            let at = rest.iter().position(|word| word.starts_with("scripts/") || word.starts_with("target/"));
            at.map_or(Err("no program of ours in it".into()), |at| started(&rest[at..]))
        }
        all => started(all),
    }
}

/// Parses the call of a script, or of a program by its name or file.
fn started(words: &[&str]) -> Result<Option<Call>, String> {
    let given = |words: &[&str]| words.iter().map(|word| word.to_string()).collect();
    match words {
        [script, rest @ ..] if script.starts_with("scripts/") => {
            exists(script)?;
            // A launcher is given the number of ranks, then the program. Under Slurm the job
            // determines the number.
            let rest =
                if rest.first().is_some_and(|word| word.parse::<u32>().is_ok()) { &rest[1..] } else { rest };
            Ok(rest.split_first().map(|(program, rest)| (program.to_string(), given(rest))))
        }
        [program, rest @ ..] => {
            let name = program.rsplit('/').next().unwrap_or(program);
            package(name)?;
            Ok(Some((name.to_string(), given(rest))))
        }
        [] => Err("there is nothing to run".into()),
    }
}

/// Returns the program that cargo's flags name, and the words after `--`.
fn cargo(words: &[&str]) -> Result<Call, String> {
    let (flags, given) = match words.iter().position(|word| *word == "--") {
        Some(at) => (&words[..at], &words[at + 1..]),
        None => (words, &[][..]),
    };
    let (mut program, mut folder, mut flags) = (String::new(), PathBuf::new(), flags.iter());
    let mut filtered = false;
    while let Some(flag) = flags.next() {
        let mut value = || flags.next().ok_or(format!("{flag} of what?"));
        match *flag {
            "-p" => {
                program = value()?.to_string();
                folder = package(&program)?;
            }
            "--bin" => {
                program = value()?.to_string();
                let file = exists_in(&folder, &format!("src/bin/{program}.rs"));
                file.or_else(|_| exists_in(&folder, &format!("src/bin/{program}/main.rs")))?;
            }
            "--example" => {
                program = value()?.to_string();
                exists_in(&folder, &format!("examples/{program}.rs"))?;
            }
            "--bench" => manifest_has(&folder, &format!("name = \"{}\"", value()?))?,
            "--features" => manifest_has(&folder, &format!("\n{} = [", value()?))?,
            "--test" => {
                let name = value()?;
                let file = exists_in(&folder, &format!("tests/{name}.rs"));
                file.or_else(|_| exists_in(&folder, &format!("tests/{name}/main.rs")))?;
                filtered = true;
            }
            "--release" | "--workspace" | "--all-targets" | "--all" | "--check" => {}
            // Names of tests to run.
            word if filtered && !word.starts_with('-') => {}
            other => return Err(format!("{other} is unknown here")),
        }
    }
    Ok((program, given.iter().map(|word| word.to_string()).collect()))
}

/// Returns the folder of the package called `name`.
fn package(name: &str) -> Result<PathBuf, String> {
    let common = format!("common/{name}");
    let folders = [name, common.as_str()].map(|folder| root().join(folder));
    let found = folders.into_iter().find(|folder| folder.join("Cargo.toml").exists());
    found.ok_or_else(|| format!("there is no package {name}"))
}

fn manifest_has(folder: &Path, words: &str) -> Result<(), String> {
    let text = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    if text.contains(words) { Ok(()) } else { Err(format!("{}'s manifest has no {words}", folder.display())) }
}

fn exists(file: &str) -> Result<(), String> {
    exists_in(&root(), file)
}

fn exists_in(folder: &Path, file: &str) -> Result<(), String> {
    if folder.join(file).exists() { Ok(()) } else { Err(format!("there is no {file}")) }
}
