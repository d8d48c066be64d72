//! A file's keys handed to the flags that say the same, and what contradicts what.

use super::batch;
use super::keys::{Auto, Fate, Key, Set};
use super::node::Node;
use super::read::{Entries, Entry};
use super::{Findings, SchedulerName};
use crate::cli::{FloatType, TrainArgs};
use crate::error::{Failure, Result};

/// Completes `args` with the file that they name, if any. `width` gives the model's width, for `auto`.
///
/// # Errors
/// A usage failure that names the file and the key, or the four numbers of the batch rule. Whether a stage can do all of
/// it is left to [`Findings::check`].
pub fn merge(args: TrainArgs, width: impl Fn(&TrainArgs) -> Result<usize>) -> Result<(TrainArgs, Findings)> {
    let Some(path) = args.config.clone() else { return Ok((args, Findings::default())) };
    let file = path.display().to_string();
    let mut findings = Findings { file, ..Findings::default() };
    let entries = Entries::read(&path, &mut findings.warnings).map_err(Failure::Usage)?;
    let mut merging = Merging { args, findings, setters: Vec::new() };
    for entry in entries.iter() {
        merging.entry(entry, &entries, &width)?;
    }
    merging.check_together(&entries).map_err(Failure::Usage)?;
    let Merging { mut args, mut findings, .. } = merging;
    findings.stage = args.file_only.stage;
    batch::settle(&mut args, &findings.file, &mut findings.warnings)
        .map_err(|what| Failure::usage(format!("{}: {what}", findings.file)))?;
    Ok((args, findings))
}

/// The warning that a key and a flag differ.
pub(super) fn contradiction(file: &str, key: &str, value: &Node, flag: &str, typed: &str) -> String {
    let typed = if typed.is_empty() { String::new() } else { format!(" {typed}") };
    format!("{file}: {key} {value} and {flag}{typed} on the command line disagree: the flag counts")
}

struct Merging {
    args: TrainArgs,
    findings: Findings,
    /// The key that last set a flag.
    setters: Vec<(&'static str, &'static Key)>,
}

impl Merging {
    fn entry(
        &mut self,
        entry: &Entry,
        entries: &Entries,
        width: &impl Fn(&TrainArgs) -> Result<usize>,
    ) -> Result<()> {
        let Entry { key, value, alias } = entry;
        let switched_on = entries.switched_on(key.path);
        match key.fate {
            Fate::NotYet { harmless }
                if switched_on == Some(true) && !value.is_auto() && !harmless(value) =>
            {
                self.findings.miss(key, *alias, value);
            }
            Fate::Honoured { flag, set, .. } if switched_on != Some(false) && !self.is_idle(key) => {
                let value = match key.auto {
                    Auto::Width(factor, power) if value.is_auto() => {
                        let width = width(&self.args)? as f64;
                        Node::Number((factor * width.powi(power)).floor().max(1.0))
                    }
                    _ if value.is_auto() => return Ok(()),
                    _ => value.clone(),
                };
                self.honour(key, flag, set, &value);
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether `key` has no meaning at the file's stage, or in a precision that a flag chose.
    fn is_idle(&self, key: &Key) -> bool {
        let scales_loss = key.path.starts_with("fp16.") && key.path != "fp16.enabled";
        if scales_loss && self.args.types.precision != FloatType::Fp16 {
            return true;
        }
        let stage = self.args.file_only.stage;
        key.is_about_sharded_parameters() && stage.is_some_and(|stage| !stage.sharded().parameters)
    }

    fn honour(&mut self, key: &'static Key, flag: Option<&'static str>, set: Set, value: &Node) {
        let mut changed = self.args.clone();
        set(&mut changed, value);
        let differs = changed != self.args;
        let Some(id) = flag else {
            self.args = changed;
            return;
        };
        let file = &self.findings.file;
        if let Some(typed) = self.args.given.typed(id) {
            if differs {
                let flag = key.flag().unwrap_or_default();
                self.findings.warnings.push(contradiction(file, key.path, value, &flag, typed));
            }
            return;
        }
        let earlier = self.setters.iter().find(|(other, _)| *other == id).filter(|_| differs);
        if let Some((_, earlier)) = earlier {
            let path = key.path;
            self.findings
                .warnings
                .push(format!("{file}: {} and {path} {value} disagree: the latter counts", earlier.path));
        }
        self.setters.push((id, key));
        self.args = changed;
    }

    /// What no single key can tell.
    fn check_together(&mut self, entries: &Entries) -> std::result::Result<(), String> {
        let file = &self.findings.file;
        let on = |path| entries.get(path).and_then(Node::as_flag) == Some(true);
        if on("fp16.enabled") && on("bf16.enabled") {
            return Err(format!("{file}: fp16.enabled and bf16.enabled are both true: choose one"));
        }
        let total = "scheduler.params.total_num_steps";
        let scheduler = &self.args.file_only.scheduler;
        let decays = !matches!(scheduler.name, None | Some(SchedulerName::WarmupLr));
        if decays && entries.get(total).is_none() {
            return Err(format!(
                "{file}: this scheduler.type needs {total}: give a number, or auto for --steps"
            ));
        }
        let steps = scheduler.total.unwrap_or(self.args.training.steps);
        if let Some(warmup) = self.args.training.warmup_steps.filter(|&warmup| decays && warmup >= steps) {
            self.findings
                .warnings
                .push(format!("{file}: {total} {steps} leaves nothing after a warm-up of {warmup} steps"));
        }
        Ok(())
    }
}
