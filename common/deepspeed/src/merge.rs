//! Merges a file's keys with the flags of the same meaning, and finds contradictions.

mod checks;

use crate::batch;
use crate::defaults;
use crate::entries::{Entries, Entry, Written, asked};
use crate::fsdp;
use crate::keys::{Auto, Fate, Key, Set, contradiction};
use crate::mesh;
use crate::node::{Node, is_none};
use crate::parameters;
use crate::table::{GRADIENTS, HYSTERESIS, SENT, WINDOW};
use device::DType;
use events::Place;
use model::Checkpointing;
use prediction::Stage;
use settings::cli::TrainArgs;
use settings::findings::{Findings, Missing, Setter};
use settings::flag_name;
use settings::float_type::PrecisionName;
use settings::{Failure, Result};

/// Completes `args` with the file that they name. Does nothing if they name none. `width` gives the
/// model's width, for `auto`.
///
/// # Errors
/// A usage failure that names the file, if it cannot be read. Errors in its keys are among the
/// findings: see [`Findings::refuse`], and [`Findings::check`] for the features that a stage
/// supports.
pub(crate) fn merge(
    args: TrainArgs,
    width: impl Fn(&TrainArgs) -> Result<usize>,
) -> Result<(TrainArgs, Findings)> {
    let Some(path) = args.config.clone() else { return Ok((args, Findings::default())) };
    let file = path.display().to_string();
    let mut findings = Findings { file, ..Findings::default() };
    let mut entries = Entries::read(&path, &mut findings).map_err(Failure::Usage)?;
    parameters::check(&mut entries, &mut findings);
    fsdp::settle_version(&mut entries, &mut findings);
    let mut merging = Merging { args, findings, missed: Vec::new() };
    let defaults = defaults::of_the_named(&merging.args, &entries);
    for entry in entries.iter().chain(&defaults) {
        merging.entry(entry, &entries, &width)?;
    }
    merging.types_of_gradients(&entries);
    merging.loss_scaler(&entries);
    merging.check_together(&entries);
    merging.warn_of_missed();
    let Merging { mut args, mut findings, .. } = merging;
    findings.stage = args.file_only.stage;
    mesh::fit_groups(&mut args, &mut findings);
    let settled = [mesh::settle(&mut args, &entries, &mut findings), batch::settle(&mut args, &mut findings)];
    for what in settled.into_iter().filter_map(|settled| settled.err()) {
        findings.errors.push(format!("{}: {what}", findings.file));
    }
    findings.own_settings = defaults::words(&args, &entries, &defaults);
    Ok((args, findings))
}

/// Flags that keys set although their rows do not name them: in addition to another flag, or
/// resolved together with other keys.
const BESIDE: [(&str, &str); 7] = [
    ("fsdp_config.fsdp_offload_params", "offload_parameters"),
    ("fsdp_config.fsdp_offload_params", "offload_optimizer"),
    ("activation_checkpointing.cpu_checkpointing", "checkpoint_activations"),
    ("fsdp_config.fsdp_activation_checkpointing_offload", "checkpoint_activations"),
    ("zero_optimization.mics_shard_size", "shard_group_size"),
    ("train_micro_batch_size_per_gpu", "batch_size"),
    ("gradient_accumulation_steps", "grad_accum"),
];

struct Merging {
    args: TrainArgs,
    findings: Findings,
    /// Accepted keys whose values ask for something that this program does not do: the reason, and
    /// the request.
    missed: Vec<(&'static str, String)>,
}

impl Merging {
    fn entry(
        &mut self,
        entry: &Entry,
        entries: &Entries,
        width: &impl Fn(&TrainArgs) -> Result<usize>,
    ) -> Result<()> {
        let Entry { key, value, .. } = entry;
        let switched_on = entries.switched_on(key.path).filter(|on| *on || !self.is_switched_by_flag(key));
        match key.fate {
            Fate::NotYet { harmless }
                if switched_on != Some(false)
                    && self.applies(key)
                    && !value.is_auto()
                    && !harmless(value)
                    && (key.name() != "adam_w_mode" || defaults::decays_inside(&self.args, entries)) =>
            {
                self.findings.missing.push(missing(entry));
            }
            Fate::Accepted { harmless }
                if switched_on != Some(false) && !harmless(value) && !self.is_idle(key) =>
            {
                self.missed.push((key.note, entry.asked(value)));
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
                self.honour(entry, flag, set, &value);
            }
            _ => {}
        }
        Ok(())
    }

    /// False if `key` is about a different precision than the run's, or about states that stay on
    /// the device, whatever the file's own switch says.
    fn applies(&self, key: &Key) -> bool {
        !self.is_of_another_precision(key)
            && self.place_of(key).is_none_or(|(_, place)| place != Place::Device)
    }

    /// Returns the flag that says where the states of `key` are stored, and their place; `None` if
    /// `key` is not about offload.
    fn place_of(&self, key: &Key) -> Option<(&'static str, Place)> {
        let offload = &self.args.offload;
        match key.path.strip_prefix("zero_optimization.offload_")?.split_once('.')?.0 {
            "optimizer" => Some(("offload_optimizer", offload.optimizer)),
            "param" => Some(("offload_parameters", offload.parameters)),
            _ => None,
        }
    }

    /// True if a flag moves the states whose section the file leaves switched off.
    fn is_switched_by_flag(&self, key: &Key) -> bool {
        let typed = |flag| self.args.given.typed(flag).is_some();
        self.place_of(key).is_some_and(|(flag, place)| place != Place::Device && typed(flag))
    }

    fn is_of_another_precision(&self, key: &Key) -> bool {
        let precision = self.args.types.precision;
        key.path.starts_with("fp16.") && precision != PrecisionName::Fp16
            || key.path.starts_with("bf16.") && precision != PrecisionName::Bf16
    }

    /// True if `key` has no meaning at the file's stage or in a precision that a flag chose, or if
    /// a flag or a launcher already does what the key asks for.
    fn is_idle(&self, key: &Key) -> bool {
        match (key.name(), self.place_of(key)) {
            ("num_machines", _) => return self.args.on_this_machine.is_some(),
            ("nvme_path", Some((_, place))) if place != Place::Disk => return true,
            ("buffer_count", Some((_, Place::Device))) => return true,
            ("reduce_scatter", _) => {
                return self
                    .args
                    .file_only
                    .stage
                    .is_some_and(|stage| stage != Stage::SUPPORTS_TEXTBOOK_ALL_REDUCE);
            }
            _ => {}
        }
        if key.path.starts_with("aio.") {
            return !self.args.offload.placement().uses_disk();
        }
        if key.path.starts_with("activation_checkpointing.") && key.name() != "cpu_checkpointing" {
            return self.args.memory.checkpoint_activations != Checkpointing::None;
        }
        if key.name() != "enabled" && self.is_of_another_precision(key) {
            return true;
        }
        let stage = self.args.file_only.stage;
        key.is_about_sharded_parameters() && stage.is_some_and(|stage| !stage.sharded().parameters)
    }

    fn honour(&mut self, entry: &Entry, flag: Option<&'static str>, set: Set, value: &Node) {
        let key = entry.key;
        let mut changed = self.args.clone();
        set(&mut changed, value);
        let differs = changed != self.args;
        if let Some(typed) = flag.and_then(|id| self.args.given.typed(id)) {
            if differs {
                let flag = key.flag().unwrap_or_default();
                let warning = contradiction(&self.findings.file, &entry.asked(value), &flag, typed);
                self.findings.warnings.push(warning);
            }
            return;
        }
        self.args = changed;
        if !differs && key.is_default(value) {
            return;
        }
        let beside = BESIDE.iter().filter(|(path, _)| *path == key.path).map(|(_, id)| *id);
        for id in flag.into_iter().chain(beside) {
            self.set_by(id, entry, value, differs);
        }
    }

    /// Records that `entry` has set the flag with the identifier `id`, and warns if another key has
    /// set it to another value.
    fn set_by(&mut self, id: &str, entry: &Entry, value: &Node, differs: bool) {
        let flag = flag_name(id);
        let Findings { file, warnings, setters, .. } = &mut self.findings;
        let own = Written { path: entry.key.path.into(), value: value.clone() };
        let Written { path, value } = entry.alias.clone().unwrap_or(own);
        if self.args.given.typed(id).is_some() {
            return;
        }
        if let Some(at) = setters.iter().position(|setter| setter.flag == flag) {
            let earlier = setters.remove(at).path;
            if differs {
                warnings.push(format!("{file}: {earlier} and {path} {value} disagree: the latter counts"));
            }
        }
        setters.push(Setter { flag, path, value: value.to_string() });
    }

    /// Sets the types of gradients that neither the file nor a flag gives. DeepSpeed sends
    /// gradients in the parameters' type, even if they accumulate in another one; FSDP computes and
    /// sends in 16 bits, and accumulates in fp32.
    fn types_of_gradients(&mut self, entries: &Entries) {
        let has = |path| entries.get(path).is_some_and(|value| !is_none(value));
        let given = |path, flag| has(path) || self.args.given.typed(flag).is_some();
        let (kept, sent) = (given(GRADIENTS, "grad_dtype"), given(SENT, "reduce_dtype"));
        let parameters = self.args.types.precision.stored();
        let fsdp = fsdp::is_in(entries) && parameters != DType::F32;
        let types = &mut self.args.types;
        if fsdp && !kept {
            types.grad_dtype = Some(DType::F32);
        }
        if !sent && (fsdp || has(GRADIENTS)) {
            types.reduce_dtype = Some(parameters);
        }
    }

    /// Sets how the loss scale is found where ZeRO's scaler does not run. PyTorch's scaler, which
    /// Accelerate uses without DeepSpeed, and DeepSpeed's own at stage 0 halve the scale at the
    /// first overflow. PyTorch's doubles it after 2,000 steps.
    fn loss_scaler(&mut self, entries: &Entries) {
        if self.args.types.precision != PrecisionName::Fp16 {
            return;
        }
        let typed = |id| self.args.given.typed(id).is_some();
        let of_torch = fsdp::is_in(entries) || runs_no_deepspeed(entries);
        let at_once = of_torch || self.args.file_only.stage == Some(Stage::REPLICATED);
        let (hysteresis, window) = (at_once && !typed("hysteresis"), of_torch && !typed("loss_scale_window"));
        if hysteresis
            && let Some(value) = entries.get(HYSTERESIS).filter(|value| value.as_number() != Some(1.0))
        {
            self.missed
                .push(("the first overflow halves the loss scale without ZeRO", asked(HYSTERESIS, value)));
        }
        let types = &mut self.args.types;
        if hysteresis {
            types.hysteresis = Some(1);
        }
        if window && entries.get(WINDOW).is_none() {
            types.loss_scale_window = Some(2000);
        }
    }

    /// Adds a warning per reason for which keys change nothing.
    fn warn_of_missed(&mut self) {
        let mut missed = std::mem::take(&mut self.missed);
        while let Some(&(note, _)) = missed.first() {
            let (same, others): (Vec<_>, Vec<_>) = missed.into_iter().partition(|(why, _)| *why == note);
            missed = others;
            let words: Vec<String> = same.into_iter().map(|(_, what)| what).collect();
            let change = if words.len() == 1 { "changes" } else { "change" };
            let file = &self.findings.file;
            self.findings
                .warnings
                .push(format!("{file}: {} {change} nothing here: {note}", words.join(", ")));
        }
    }
}

/// True if the file is Accelerate's and not for DeepSpeed.
fn runs_no_deepspeed(entries: &Entries) -> bool {
    let kind = entries.get(fsdp::KIND).and_then(Node::word);
    kind.is_some_and(|kind| !kind.eq_ignore_ascii_case("DEEPSPEED"))
}

fn missing(Entry { key, value, alias }: &Entry) -> Missing {
    Missing {
        path: key.path,
        alias: alias.as_ref().map(|alias| asked(&alias.path, &alias.value)),
        value: value.to_string(),
        note: key.note,
        needs_sharded_parameters: key.is_about_sharded_parameters(),
    }
}
