//! Reads a file: finds its keys in the table and checks their values.

use crate::entries::{Entries, Entry, Written};
use crate::file::{Language, beside, load};
use crate::keys::{Auto, Fate, Key};
use crate::misplaced::{Misplaced, misplaced};
use crate::nearest::nearest;
use crate::node::Node;
use crate::parameters;
use crate::table::{self, is_accelerates, keys};
use events::say::shortened;
use settings::findings::Findings;
use std::path::Path;

/// Keys that occur in Accelerate's files and not in DeepSpeed's.
const MARKS: [&str; 2] = ["compute_environment", "distributed_type"];
/// Sections of Accelerate's, and the distributed_type with which it reads them.
const SECTIONS: [(&str, &str); 3] =
    [(PLUGIN, "DEEPSPEED"), (FSDP, "FSDP"), ("megatron_lm_config", "MEGATRON_LM")];
/// The section of Accelerate's own keys about DeepSpeed.
const PLUGIN: &str = "deepspeed_config";
/// Accelerate's key of the precision.
const MIXED_PRECISION: &str = "mixed_precision";
/// The section of FSDP's keys.
const FSDP: &str = "fsdp_config";
/// Maximum number of unknown keys that warnings name.
const NAMED: usize = 20;

impl Entries {
    /// Reads the file at `path`. Errors in its keys and values go to `findings`.
    ///
    /// # Errors
    /// A message that names the file, if it cannot be read.
    pub(crate) fn read(path: &Path, findings: &mut Findings) -> Result<Entries, String> {
        let file = path.display().to_string();
        let mut reader = Reader {
            file,
            accelerate: false,
            marked: false,
            findings,
            entries: Vec::new(),
            unknown: 0,
            named: Vec::new(),
        };
        reader.file(path)?;
        if let Some(inner) = reader.take_text(table::CONFIG_FILE) {
            let native = std::mem::take(&mut reader.entries);
            let found = beside(path, &inner);
            let outer = std::mem::replace(&mut reader.file, found.display().to_string());
            reader.file(&found).map_err(|what| format!("{outer}: {}: {what}", table::CONFIG_FILE))?;
            native.into_iter().for_each(|entry| reader.add(entry));
        }
        let Reader { entries, unknown, file, findings, .. } = reader;
        if unknown > NAMED {
            findings.warnings.push(format!("{file}: {} more unknown keys are ignored", unknown - NAMED));
        }
        Ok(Entries::in_order(entries))
    }
}

struct Reader<'a> {
    file: String,
    /// Whether the file is Accelerate's, which rejects unknown keys outside sections.
    accelerate: bool,
    /// Whether the file has one of [`MARKS`]: a file of DeepSpeed's keys may also be YAML.
    marked: bool,
    findings: &'a mut Findings,
    entries: Vec<Entry>,
    unknown: usize,
    /// Sections with a `type`, and the type that takes their parameters.
    named: Vec<(&'static str, String)>,
}

impl Reader<'_> {
    fn file(&mut self, path: &Path) -> Result<(), String> {
        let (root, language, doubts) =
            load(path).map_err(|what| format!("cannot read --config {}: {what}", self.file))?;
        doubts.into_iter().for_each(|doubt| self.warn(doubt));
        if !matches!(root, Node::Section(_)) {
            return Err(format!("--config {}: it holds {root}, not a section of keys", self.file));
        }
        self.marked = MARKS.iter().any(|mark| root.get(mark).is_some());
        let is_accelerates = language == Language::Yaml || self.marked;
        let fsdp = !is_accelerates && is_fsdps(&root);
        self.accelerate = is_accelerates || fsdp;
        let named = |section| Some((section, root.get(section)?.get("type")?.as_text()?.to_string()));
        self.named = ["optimizer", "scheduler"].into_iter().filter_map(named).collect();
        self.section(&root, if fsdp { FSDP } else { "" });
        let plugin = root.get(PLUGIN).filter(|_| is_accelerates && self.unread(PLUGIN, &root).is_none());
        plugin.into_iter().for_each(|plugin| self.complete_stage(plugin));
        let one_process = root.get("distributed_type").filter(|kind| kind.as_flag() == Some(false));
        if let Some(value) = one_process.filter(|_| root.get("num_processes").is_none()) {
            let written = Written { path: "distributed_type".into(), value: value.clone() };
            self.known("num_processes", &written, &Node::count(1));
        }
        Ok(())
    }

    /// Uses Accelerate's default of the stage if its section about DeepSpeed leaves the stage out.
    fn complete_stage(&mut self, plugin: &Node) {
        let elsewhere = ["zero_stage", "zero_optimization", "deepspeed_config_file"];
        let has_keys = matches!(plugin, Node::Section(entries) if !entries.is_empty());
        if has_keys && elsewhere.iter().all(|name| plugin.get(name).is_none()) {
            let path = format!("{PLUGIN}.zero_stage");
            self.warn(format!("{path} is left out, which is 2 for Accelerate"));
            let stage = Node::count(2);
            self.known("zero_optimization.stage", &Written { path, value: stage.clone() }, &stage);
        }
    }

    fn section(&mut self, section: &Node, parent: &str) {
        let Node::Section(entries) = section else {
            if *section != Node::Null {
                self.refuse(format!("{parent} is {section}: it must be a section of keys"));
            }
            return;
        };
        for (name, value) in entries {
            let path = if parent.is_empty() { name.clone() } else { format!("{parent}.{name}") };
            if self.marked && parent.is_empty() && is_deepspeeds(name, value) {
                self.rejected(&path);
                continue;
            }
            let written = Written { path: path.clone(), value: value.clone() };
            let short = self.shorthand(&path, value, section);
            let (path, value) = match &short {
                Some((key, value)) => (key.path.to_string(), value),
                None => (path, value),
            };
            if path == MIXED_PRECISION && wraps_itself(section) {
                self.autocast(&written, value);
                continue;
            }
            if let Some((key, value)) = &short {
                self.row(key, &written, key.path, value);
                continue;
            }
            if let Some(kind) = self.unread(&path, section) {
                self.warn(format!("Accelerate reads {path} only with distributed_type {kind}: ignored"));
                continue;
            }
            match find(&path).filter(|_| !name.contains('.')) {
                Some(Found::Row(key)) => self.row(key, &written, &path, value),
                Some(Found::Section) => self.section(value, &path),
                None => self.unknown(&path, value),
            }
        }
    }

    /// Returns the distributed_type that Accelerate needs to read the section at `path`; `None`
    /// unless the section has entries and the file names a different type.
    fn unread(&self, path: &str, root: &Node) -> Option<&'static str> {
        let (_, kind) = SECTIONS.iter().find(|(section, _)| *section == path)?;
        let found = root.get("distributed_type").and_then(Node::as_text)?;
        let holds = matches!(root.get(path), Some(Node::Section(entries)) if !entries.is_empty());
        (holds && !found.eq_ignore_ascii_case(kind)).then_some(*kind)
    }

    /// Returns the key and value that an old form of `path` stands for: a truth value in place of a
    /// section.
    fn shorthand(&self, path: &str, value: &Node, root: &Node) -> Option<(&'static Key, Node)> {
        let Node::Flag(on) = *value else { return None };
        match path {
            "zero_optimization" => {
                Some((table::find("zero_optimization.stage")?, Node::count(usize::from(on))))
            }
            "fp16" if self.accelerate => {
                let counts = on && root.get("mixed_precision").is_none();
                Some((table::find("mixed_precision")?, Node::text(if counts { "fp16" } else { "no" })))
            }
            _ => None,
        }
    }

    /// Takes `mixed_precision` as PyTorch's autocast if neither DeepSpeed nor FSDP reads it.
    fn autocast(&mut self, written: &Written, value: &Node) {
        let name = value.as_text().unwrap_or_default();
        if name.eq_ignore_ascii_case("bf16") {
            for (path, value) in table::autocast() {
                self.known(path, written, &value);
            }
            return;
        }
        if name.eq_ignore_ascii_case("fp16") {
            self.warn(
                "Accelerate trains mixed_precision fp16 with fp32 weights under autocast; this program trains fp16 \
                 weights with fp32 masters"
                    .into(),
            );
        }
        self.known(MIXED_PRECISION, written, value);
    }

    fn refuse(&mut self, what: String) {
        let error = format!("{}: {what}", self.file);
        self.findings.errors.push(error);
    }

    fn warn(&mut self, what: String) {
        let warning = format!("{}: {what}", self.file);
        self.findings.warnings.push(warning);
    }

    /// Checks the value of `path`, which the file writes as `written`, follows other names, and
    /// adds it.
    fn row(&mut self, key: &'static Key, written: &Written, path: &str, value: &Node) {
        if key.path != path && path.starts_with("deepspeed_config.") {
            self.warn(format!(
                "{path} is no key of Accelerate, which ignores it; taken as DeepSpeed's {}",
                key.path
            ));
        }
        if *value == Node::Null || (value.is_auto() && key.auto == Auto::LeftOut && !is_accelerates(key)) {
            return;
        }
        let value = key.converted(value);
        let fine = if value.is_auto() && key.auto.allowed() { Ok(()) } else { key.check(&value) };
        if let Err(expected) = fine {
            let quotes = if is_quoted_number(key, &value) { ", without quotes" } else { "" };
            self.refuse(format!("{path} is {value}: it must be {expected}{quotes}"));
            return;
        }
        match key.fate {
            Fate::Means(means) => {
                if let Some((target, value)) = means(&value) {
                    self.known(target, written, &value);
                }
            }
            _ => {
                let alias = (written.path != key.path).then(|| written.clone());
                self.add(Entry { key, value, alias });
            }
        }
    }

    /// Takes `value` for the key `path`, which has a row and which the file writes as `written`.
    fn known(&mut self, path: &str, written: &Written, value: &Node) {
        if let Some(key) = table::find(path) {
            self.row(key, written, key.path, value);
        }
    }

    /// Adds `entry`, unless its key already has a value: the first one counts.
    fn add(&mut self, entry: Entry) {
        match self.entries.iter_mut().find(|other| other.key.path == entry.key.path) {
            None => self.entries.push(entry),
            Some(other) if other.value == entry.value || entry.value.is_auto() => {}
            Some(other) if other.value.is_auto() => *other = entry,
            Some(other) => {
                let (first, second) = (other.value.to_string(), entry.value);
                self.warn(format!(
                    "{} is given twice, as {first} and as {second}: the first counts",
                    entry.key.path
                ));
            }
        }
    }

    /// Adds a warning about a key that has no row, or an error if Accelerate rejects it or if it
    /// would move data or split the model.
    fn unknown(&mut self, path: &str, value: &Node) {
        if let Some(Misplaced { path, value, right }) = misplaced(path, value, self.accelerate) {
            self.refuse(format!(
                "{} is {value}, in a place where it is not read: the data would stay on the device\n\
                 Write it as {right}, or remove it.",
                shortened_path(&path)
            ));
            return;
        }
        if self.accelerate && (!path.contains('.') || path.starts_with("parallelism_config.")) {
            return self.rejected(path);
        }
        let section = path.split_once(".params.").map(|(section, _)| section);
        if let Some((section, kind)) = self.named.iter().find(|(named, _)| Some(*named) == section) {
            let refusal = parameters::refusal(&shortened_path(path), section, kind);
            return self.refuse(refusal);
        }
        self.unknown += 1;
        if self.unknown > NAMED {
            return;
        }
        let (who, does) = match path.split('.').next().unwrap_or(path) {
            "zero_optimization" => ("DeepSpeed", "rejects"),
            "fp16" | "bf16" => ("DeepSpeed", "ignores or, when newer, rejects"),
            _ if self.accelerate => ("Accelerate", "ignores"),
            _ => ("DeepSpeed", "ignores"),
        };
        let meant = meant(path);
        let path = shortened_path(path);
        self.warn(format!("{path} is no key of {who}, which {does} it; ignored here{meant}"));
    }

    /// Adds an error about a key that Accelerate does not know.
    fn rejected(&mut self, path: &str) {
        let place = if find(path).is_some() { " in this place" } else { "" };
        let meant = if place.is_empty() { meant(path) } else { String::new() };
        let path = shortened_path(path);
        self.refuse(format!(
            "{path} is no key of Accelerate{place}, which rejects the file: remove it{meant}"
        ));
    }

    fn take_text(&mut self, path: &str) -> Option<String> {
        let at = self.entries.iter().position(|entry| entry.key.path == path)?;
        self.entries.remove(at).value.as_text().map(String::from)
    }
}

/// True if `root` says that Accelerate wraps the model itself, in DDP or not at all.
fn wraps_itself(root: &Node) -> bool {
    let Some(kind) = root.get("distributed_type") else { return false };
    let is = |name: &str| kind.as_text().is_some_and(|text| text.eq_ignore_ascii_case(name));
    !SECTIONS.iter().any(|(_, name)| is(name))
}

/// True if only DeepSpeed knows the key or section `name`. (`fp16: true` is an old key of
/// Accelerate's.)
fn is_deepspeeds(name: &str, value: &Node) -> bool {
    let old = name == "fp16" && matches!(value, Node::Flag(_));
    let within =
        |key: &Key| key.path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    find(name).is_some() && !old && !keys().any(|key| is_accelerates(key) && within(key))
}

/// True if `root` holds keys of FSDP's and no section of DeepSpeed's: the file that Transformers'
/// trainer takes as `fsdp_config`.
fn is_fsdps(root: &Node) -> bool {
    let Node::Section(entries) = root else { return false };
    let own = |name: &str| matches!(find(&format!("{FSDP}.{name}")), Some(Found::Row(_)));
    let foreign = |(name, value): &(String, Node)| {
        find(name).is_some() && (!own(name) || matches!(value, Node::Section(_)))
    };
    entries.iter().any(|(name, _)| own(name)) && !entries.iter().any(foreign)
}

/// Returns the end of a message about `path`, with the key that is probably meant.
fn meant(path: &str) -> String {
    nearest(path).map(|key| format!("; the nearest is {key}")).unwrap_or_default()
}

/// True if `value` is text that `key` would accept as a number.
fn is_quoted_number(key: &Key, value: &Node) -> bool {
    let number = value.as_text().and_then(|text| text.trim().parse().ok());
    number.is_some_and(|number| key.check(&Node::Number(number)).is_ok())
}

fn shortened_path(path: &str) -> String {
    path.split('.').map(shortened).take(4).collect::<Vec<_>>().join(".")
}

enum Found {
    Row(&'static Key),
    Section,
}

/// Finds the row of `path`, or the section. Fields of DeepSpeed's may omit `stage3_`, and FSDP's
/// keys their prefix. Accelerate's `deepspeed_config` may also hold DeepSpeed's own keys, because
/// users write them there.
fn find(path: &str) -> Option<Found> {
    if let Some(key) = table::find(path) {
        return Some(Found::Row(key));
    }
    let inside = |key: &&Key| key.path.strip_prefix(path).is_some_and(|rest| rest.starts_with('.'));
    if keys().any(|key| inside(&key)) {
        return Some(Found::Section);
    }
    let (section, name) = path.split_once('.')?;
    let key = match section {
        "zero_optimization" => table::find(&format!("zero_optimization.stage3_{name}")),
        "fsdp_config" => table::find(&format!("fsdp_config.fsdp_{name}")),
        "deepspeed_config" => table::find(&format!("zero_optimization.{name}")).or_else(|| table::find(name)),
        _ => None,
    };
    key.map(Found::Row)
}
