//! Merges a file's keys with the flags of the same meaning, and finds contradictions.

use crate::batch;
use crate::defaults;
use crate::entries::{Entries, Entry, Written, asked};
use crate::fsdp;
use crate::keys::{Auto, Fate, Key, Set, contradiction, typed_as};
use crate::mesh;
use crate::node::{Node, is_none};
use crate::parameters;
use crate::table::{AUTOCAST, AUTOCAST_DTYPE, GRADIENTS, SENT, SENT_IN_16_BITS};
use device::DType;
use events::Place;
use model::Checkpointing;
use planner::Strategy;
use settings::cli::TrainArgs;
use settings::file::SchedulerName;
use settings::findings::{Findings, Missing, Setter};
use settings::float_type::PrecisionName;
use settings::{Failure, Result};

/// Completes `args` with the file that they name, if any. `width` gives the model's width, for
/// `auto`.
///
/// # Errors
/// A usage failure that names the file, if it cannot be read. What is wrong with its keys is among
/// the findings: see [`Findings::refuse`], and [`Findings::check`] for what a stage supports.
pub(crate) fn merge(
    args: TrainArgs,
    width: impl Fn(&TrainArgs) -> Result<usize>,
) -> Result<(TrainArgs, Findings)> {
    let Some(path) = args.config.clone() else { return Ok((args, Findings::default())) };
    let file = path.display().to_string();
    let mut findings = Findings { file, ..Findings::default() };
    let mut entries = Entries::read(&path, &mut findings).map_err(Failure::Usage)?;
    parameters::check(&mut entries, &mut findings);
    fsdp::remove_unread(&mut entries, &mut findings);
    let mut merging = Merging { args, findings, missed: Vec::new() };
    let defaults = defaults::of_the_named(&merging.args, &entries);
    for entry in entries.iter().chain(&defaults) {
        merging.entry(entry, &entries, &width)?;
    }
    merging.types_of_gradients(&entries);
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

/// Flags that keys set although their rows do not name them: beside another flag, or resolved
/// together with other keys.
const BESIDE: [(&str, &str); 7] = [
    ("fsdp_config.fsdp_offload_params", "offload_parameters"),
    ("fsdp_config.fsdp_offload_params", "offload_optimizer"),
    ("activation_checkpointing.cpu_checkpointing", "checkpoint_activations"),
    ("fsdp_config.fsdp_activation_checkpointing_offload", "checkpoint_activations"),
    ("zero_optimization.mics_shard_size", "shard_group_size"),
    ("train_micro_batch_size_per_gpu", "batch_size"),
    ("gradient_accumulation_steps", "grad_accum"),
];

/// Sections that choose the precision.
const PRECISIONS: [&str; 3] = ["fp16.enabled", "bf16.enabled", AUTOCAST];

const OVERLAP: &str = "zero_optimization.overlap_comm";
const MICS: &str = "zero_optimization.mics_shard_size";
const REUSE: &str = "zero_optimization.stage3_max_reuse_distance";
const PARAMETERS_BUFFERS: &str = "zero_optimization.offload_param.buffer_count";
const OPTIMIZER_BUFFERS: &str = "zero_optimization.offload_optimizer.buffer_count";
const UNIT: &str = "fsdp_config.fsdp_min_num_params";
const POLICY: &str = "fsdp_config.fsdp_auto_wrap_policy";

struct Merging {
    args: TrainArgs,
    findings: Findings,
    /// Accepted keys whose values ask for something that does not happen: why, and what.
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

    /// False if `key` is about another precision than the run's, or about states that stay on the device,
    /// whatever the file's own switch says.
    fn applies(&self, key: &Key) -> bool {
        !self.is_of_another_precision(key)
            && self.place_of(key).is_none_or(|(_, place)| place != Place::Device)
    }

    /// Returns the flag that says where the states rest which `key` is about, and where they do.
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
    /// a flag or a launcher does already what it asks for.
    fn is_idle(&self, key: &Key) -> bool {
        match (key.name(), self.place_of(key)) {
            ("num_machines", _) => return self.args.on_this_machine.is_some(),
            ("nvme_path", Some((_, place))) if place != Place::Disk => return true,
            ("buffer_count", Some((_, Place::Device))) => return true,
            _ => {}
        }
        if key.path.starts_with("aio.") {
            return !self.args.offload.uses_disk();
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
        let flag = typed_as(id);
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

    /// Settles the types of gradients that neither the file nor a flag gives: DeepSpeed sends what
    /// accumulates in another type as parameters are; FSDP computes and sends in 16 bits, and adds up
    /// in fp32.
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

    /// Adds a warning for every reason why keys change nothing.
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

    /// Checks keys that depend on each other.
    fn check_together(&mut self, entries: &Entries) {
        let file = self.findings.file.clone();
        let on = |path: &&str| entries.get(path).and_then(Node::as_flag) == Some(true);
        let precisions: Vec<&str> = PRECISIONS.into_iter().filter(on).collect();
        if let [first, second, ..] = precisions[..] {
            self.findings.errors.push(format!("{file}: {first} and {second} are both true: choose one"));
        } else if precisions == [AUTOCAST] && self.args.types.precision == PrecisionName::Autocast {
            self.check_autocast(entries);
        }
        self.check_offload(entries);
        self.check_flags(entries);
        let total = "scheduler.params.total_num_steps";
        let scheduler = &self.args.file_only.scheduler;
        let decays = !matches!(scheduler.name, None | Some(SchedulerName::WarmupLr));
        if decays && entries.get(total).is_none() {
            let what =
                format!("{file}: this scheduler.type needs {total}: give a number, or auto for --steps");
            self.findings.errors.push(what);
        }
        let steps = scheduler.total.unwrap_or(self.args.training.steps);
        if let Some(warmup) = self.args.training.warmup_steps.filter(|&warmup| decays && warmup >= steps) {
            self.findings
                .warnings
                .push(format!("{file}: {total} {steps} leaves nothing after a warm-up of {warmup} steps"));
        }
    }

    /// Checks flags against keys that set the same under another name. A key that makes a flag meaningless
    /// is an error; of two different values the flag's counts, with a warning.
    fn check_flags(&mut self, entries: &Entries) {
        let Merging { args, findings: Findings { file, warnings, errors, .. }, .. } = self;
        let typed = |id| args.given.typed(id);
        if args.communication.no_overlap && typed("no_overlap").is_none() {
            let ahead = ["prefetch_bucket", "backward_prefetch", "limit_all_gathers"];
            for flag in ahead.into_iter().filter(|id| typed(id).is_some()).map(typed_as) {
                errors.push(format!(
                    "{file}: {OVERLAP} false gathers nothing ahead, so {flag} would change nothing\n\
                     Leave {flag} out, or set {OVERLAP} to true."
                ));
            }
        }
        let set = |path, least: f64| {
            entries.get(path).filter(|value| value.as_number().is_some_and(|n| n >= least))
        };
        let groups = set(MICS, 1.0).filter(|_| args.sharding.strategy == Some(Strategy::HybridShard));
        // The optimizer's own count sets the flag, and says so itself.
        let buffers = set(PARAMETERS_BUFFERS, 1.0)
            .filter(|_| entries.get(OPTIMIZER_BUFFERS).is_none() && args.offload.parameters != Place::Device);
        let sizes = [
            (MICS, groups, "shard_group_size", args.sharding.shard_group_size),
            (PARAMETERS_BUFFERS, buffers, "offload_buffers", args.offload.buffers),
        ];
        for (path, value, id, counts) in sizes {
            if let (Some(value), Some(flag)) = (value, typed(id))
                && value.as_number() != counts.map(|count| count as f64)
            {
                warnings.push(contradiction(file, &asked(path, value), &typed_as(id), flag));
            }
        }
        if let (Some(value), Some(flag)) = (set(REUSE, 1.0), typed("reshard_last")) {
            warnings.push(contradiction(file, &asked(REUSE, value), &typed_as("reshard_last"), flag));
        }
        if let Some(value) =
            set(UNIT, 1.0).filter(|_| entries.get(POLICY).is_none() && typed("wrap").is_none())
        {
            let what = asked(UNIT, value);
            warnings.push(format!("{file}: {what} changes nothing without {POLICY} SIZE_BASED_WRAP"));
        }
    }

    /// Refuses an autocast to another type, and warns that DeepSpeed sends fewer bytes.
    fn check_autocast(&mut self, entries: &Entries) {
        let Findings { file, errors, warnings, .. } = &mut self.findings;
        match entries.get(AUTOCAST_DTYPE) {
            None => errors.push(format!(
                "{file}: torch_autocast has no dtype: DeepSpeed's documentation means bfloat16 then, its code float16\n\
                 Write \"dtype\": \"bfloat16\"."
            )),
            Some(dtype) if !dtype.word().is_some_and(|word| word.to_ascii_lowercase().contains("bf")) => {
                errors.push(format!(
                    "{file}: {AUTOCAST_DTYPE} is {dtype}: autocast is to bfloat16 alone here (--precision autocast)"
                ));
            }
            Some(_) => {}
        }
        if entries.get(SENT_IN_16_BITS).is_none()
            && self.args.file_only.stage.is_none_or(|stage| stage.sharded().optimizer)
        {
            warnings.push(format!(
                "{file}: with torch_autocast DeepSpeed sends weights and gradients of linear layers in 16 bits: they \
                 travel in fp32 here (there too, if lower_precision_safe_modules is [])"
            ));
        }
    }

    /// Refuses two directories, and names what DeepSpeed keeps elsewhere, and flags that contradict FSDP's
    /// one key for two places.
    fn check_offload(&mut self, entries: &Entries) {
        let (file, args) = (&self.findings.file, &self.args);
        let path = |place, section: &str| {
            let key = format!("zero_optimization.{section}.nvme_path");
            entries.get(&key).filter(|_| place == Place::Disk && args.given.typed("offload_dir").is_none())
        };
        let optimizer = path(args.offload.optimizer, "offload_optimizer");
        let parameters = path(args.offload.parameters, "offload_param");
        if let (Some(a), Some(b)) = (optimizer, parameters)
            && a != b
        {
            let what = format!(
                "{file}: nvme_path is {a} in offload_optimizer and {b} in offload_param: one directory holds both here\n\
                 Write the same path twice, or override both with --offload-dir DIR."
            );
            self.findings.errors.push(what);
        }
        let Merging { args, findings: Findings { file, warnings, .. }, .. } = self;
        if args.offload.optimizer == Place::Disk
            && entries.get("zero_optimization.offload_optimizer.device").is_some()
            && args.file_only.stage.is_some_and(|stage| !stage.sharded().parameters)
        {
            warnings.push(format!(
                "{file}: offload_optimizer.device nvme means a disk where parameters are sharded, too: elsewhere \
                 DeepSpeed keeps the optimizer in main memory, and this program keeps it on disk"
            ));
        }
        let (file, args) = (&self.findings.file, &self.args);
        let key = "fsdp_config.fsdp_offload_params";
        let Some(value) = entries.get(key).filter(|value| value.as_flag() == Some(true)) else {
            return;
        };
        for id in ["offload_parameters", "offload_optimizer"] {
            if let Some(typed) = args.given.typed(id).filter(|&typed| typed != "cpu") {
                let warning = contradiction(file, &asked(key, value), &typed_as(id), typed);
                self.findings.warnings.push(warning);
            }
        }
    }
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
