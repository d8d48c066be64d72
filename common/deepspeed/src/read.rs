//! Reads a file: its keys found in the table, their values checked.

use crate::keys::{Auto, Fate, Key};
use crate::misplaced::{Misplaced, misplaced};
use crate::nearest::nearest;
use crate::node::{Node, is_none, shortened};
use crate::table::{self, keys};
use crate::yaml;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// A key of the file, with a value that passed its row's check, or `auto` where the row allows it.
pub(crate) struct Entry {
    /// Its row.
    pub key: &'static Key,
    /// Its value.
    pub value: Node,
    /// What the file calls it, if that is another name.
    pub alias: Option<&'static str>,
}

/// The entries of a file, in the table's order, each key once.
#[derive(Default)]
pub(crate) struct Entries(Vec<Entry>);

/// The largest file that is read: real ones have a few kilobytes.
const LARGEST: u64 = 1 << 20;
/// The most unknown keys that warnings name.
const NAMED: usize = 20;

impl Entries {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A message that names the file and the key.
    pub(crate) fn read(path: &Path, warnings: &mut Vec<String>) -> Result<Entries, String> {
        let mut reader =
            Reader { file: path.display().to_string(), warnings, entries: Vec::new(), unknown: 0 };
        reader.file(path)?;
        if let Some(inner) = reader.take_text(table::CONFIG_FILE) {
            let native = std::mem::take(&mut reader.entries);
            let outer = std::mem::replace(&mut reader.file, inner.clone());
            reader
                .file(Path::new(&inner))
                .map_err(|what| format!("{outer}: {}: {what}", table::CONFIG_FILE))?;
            native.into_iter().for_each(|entry| reader.add(entry));
        }
        let Reader { entries, unknown, file, warnings } = reader;
        if unknown > NAMED {
            warnings.push(format!("{file}: {} more unknown keys are ignored", unknown - NAMED));
        }
        let mut ordered = Entries(entries);
        ordered.0.sort_by_key(|entry| keys().position(|key| key.path == entry.key.path));
        Ok(ordered)
    }

    /// Iterates over all entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.iter()
    }

    /// Returns the value of `path`.
    pub(crate) fn get(&self, path: &str) -> Option<&Node> {
        self.0.iter().find(|entry| entry.key.path == path).map(|entry| &entry.value)
    }

    /// True if the section of `path` is switched on, for sections that have a switch (`enabled` or
    /// `device`); `None` if the flags decide.
    pub(crate) fn switched_on(&self, path: &str) -> Option<bool> {
        let Some((section, name)) = path.rsplit_once('.') else { return Some(true) };
        for switch in ["enabled", "device"] {
            let switch_path = format!("{section}.{switch}");
            if name != switch && keys().any(|key| key.path == switch_path) {
                let value = self.get(&switch_path).filter(|value| !is_none(value));
                return match value {
                    Some(value) if value.is_auto() => None,
                    Some(value) => Some(value.as_flag().unwrap_or(true)),
                    None => Some(false),
                };
            }
        }
        Some(true)
    }
}

struct Reader<'a> {
    file: String,
    warnings: &'a mut Vec<String>,
    entries: Vec<Entry>,
    unknown: usize,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path) -> Result<(), String> {
        let root = load(path).map_err(|what| format!("--config {}: {what}", self.file))?;
        if !matches!(root, Node::Section(_)) {
            return Err(format!("--config {}: it holds {root}, not a section of keys", self.file));
        }
        self.section(&root, "")
    }

    fn section(&mut self, section: &Node, parent: &str) -> Result<(), String> {
        let Node::Section(entries) = section else {
            return match section {
                Node::Null => Ok(()),
                value => Err(format!("{}: {parent} is {value}: it must be a section of keys", self.file)),
            };
        };
        for (name, value) in entries {
            let path = if parent.is_empty() { name.clone() } else { format!("{parent}.{name}") };
            match find(&path).filter(|_| !name.contains('.')) {
                Some(Found::Row(key)) => self.row(key, None, &path, value)?,
                Some(Found::Section) => self.section(value, &path)?,
                None => self.unknown(&path, value)?,
            }
        }
        Ok(())
    }

    /// Checks a value, follows other names, and adds it.
    fn row(
        &mut self,
        key: &'static Key,
        alias: Option<&'static str>,
        path: &str,
        value: &Node,
    ) -> Result<(), String> {
        if key.path != path {
            self.warnings.push(format!(
                "{}: {path} is no key of Accelerate, which ignores it; taken as DeepSpeed's {}",
                self.file, key.path
            ));
        }
        if *value == Node::Null {
            return Ok(());
        }
        let fine = if value.is_auto() && key.auto != Auto::No { Ok(()) } else { key.check(value) };
        let quotes = if is_quoted_number(key, value) { ", without quotes" } else { "" };
        fine.map_err(|expected| format!("{}: {path} is {value}: it must be {expected}{quotes}", self.file))?;
        match key.fate {
            Fate::Means(means) => {
                match means(value).and_then(|(target, value)| Some((table::find(target)?, value))) {
                    Some((target, value)) => self.row(target, Some(key.path), target.path, &value),
                    None => Ok(()),
                }
            }
            _ => {
                self.add(Entry { key, value: value.clone(), alias });
                Ok(())
            }
        }
    }

    /// Adds `entry`, unless its key is there already: the first one counts.
    fn add(&mut self, entry: Entry) {
        match self.entries.iter().find(|other| other.key.path == entry.key.path) {
            None => self.entries.push(entry),
            Some(other) if other.value == entry.value => {}
            Some(other) => self.warnings.push(format!(
                "{}: {} is given twice, as {} and as {}: the first counts",
                self.file, entry.key.path, other.value, entry.value
            )),
        }
    }

    /// Adds a warning about a key that has no row, unless it would move data.
    fn unknown(&mut self, path: &str, value: &Node) -> Result<(), String> {
        let yaml = !self.file.to_ascii_lowercase().ends_with(".json");
        if let Some(Misplaced { path, value, right }) = misplaced(path, value, yaml) {
            return Err(format!(
                "{}: {} is {value}, in a place where it is not read: the data would stay on the device\n\
                 Write it as {right}, or remove it.",
                self.file,
                shortened_path(&path)
            ));
        }
        self.unknown += 1;
        if self.unknown > NAMED {
            return Ok(());
        }
        let (who, does) = match path.split('.').next().unwrap_or(path) {
            "zero_optimization" => ("DeepSpeed", "rejects"),
            "fp16" | "bf16" => ("DeepSpeed", "ignores or, when newer, rejects"),
            "deepspeed_config" => ("Accelerate", "ignores"),
            _ => ("DeepSpeed or Accelerate", "ignore"),
        };
        let meant = nearest(path).map(|key| format!("; the nearest is {key}")).unwrap_or_default();
        let path = shortened_path(path);
        self.warnings
            .push(format!("{}: {path} is no key of {who}, which {does} it; ignored here{meant}", self.file));
        Ok(())
    }

    fn take_text(&mut self, path: &str) -> Option<String> {
        let at = self.entries.iter().position(|entry| entry.key.path == path)?;
        self.entries.remove(at).value.as_text().map(String::from)
    }
}

/// True if `value` is text that `key` would accept as a number.
fn is_quoted_number(key: &Key, value: &Node) -> bool {
    let number = value.as_text().and_then(|text| text.trim().parse().ok());
    number.is_some_and(|number| key.check(&Node::Number(number)).is_ok())
}

fn shortened_path(path: &str) -> String {
    path.split('.').map(shortened).take(4).collect::<Vec<_>>().join(".")
}

fn load(path: &Path) -> Result<Node, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    file.take(LARGEST + 1).read_to_string(&mut text).map_err(|e| match e.kind() {
        ErrorKind::InvalidData => "not text in UTF-8".into(),
        _ => e.to_string(),
    })?;
    if text.len() as u64 > LARGEST {
        return Err(format!("too long for a configuration: at most {LARGEST} bytes are read"));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    if text.trim().is_empty() {
        return Err(
            "it is empty; write at least {}, or something like {\"zero_optimization\": {\"stage\": 3}}"
                .into(),
        );
    }
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or("");
    match extension.to_ascii_lowercase().as_str() {
        "json" => Node::from_json(text),
        "yaml" | "yml" => yaml::parse(text),
        _ if text.trim_start().starts_with('{') => Node::from_json(text),
        _ => yaml::parse(text),
    }
}

enum Found {
    Row(&'static Key),
    Section,
}

/// Finds the row of `path`, or the section. Accelerate's `deepspeed_config` may hold DeepSpeed's
/// own keys too, because users write them there.
fn find(path: &str) -> Option<Found> {
    if let Some(key) = table::find(path) {
        return Some(Found::Row(key));
    }
    let inside = |key: &&Key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    if keys().any(|key| inside(&key)) {
        return Some(Found::Section);
    }
    let rest = path.strip_prefix("deepspeed_config.")?;
    let native = table::find(&format!("zero_optimization.{rest}")).or_else(|| table::find(rest));
    native.map(Found::Row)
}
