//! Checks of keys that depend on each other.

use super::Merging;
use crate::entries::{Entries, asked};
use crate::keys::contradiction;
use crate::node::Node;
use crate::table::{AUTOCAST, AUTOCAST_DTYPE, GRADIENTS, SENT, SENT_IN_16_BITS};
use device::DType;
use events::Place;
use prediction::{Stage, Strategy};
use settings::file::SchedulerName;
use settings::findings::Findings;
use settings::flag_name;
use settings::float_type::PrecisionName;

/// Sections that choose the precision.
const PRECISIONS: [&str; 3] = ["fp16.enabled", "bf16.enabled", AUTOCAST];

const SCATTER: &str = "zero_optimization.reduce_scatter";
const AHEAD: &str = "zero_optimization.stage3_prefetch_bucket_size";
const OVERLAP: &str = "zero_optimization.overlap_comm";
const MICS: &str = "zero_optimization.mics_shard_size";
const REUSE: &str = "zero_optimization.stage3_max_reuse_distance";
const PARAMETERS_BUFFERS: &str = "zero_optimization.offload_param.buffer_count";
const OPTIMIZER_BUFFERS: &str = "zero_optimization.offload_optimizer.buffer_count";
const UNIT: &str = "fsdp_config.fsdp_min_num_params";
const POLICY: &str = "fsdp_config.fsdp_auto_wrap_policy";

/// Returns the value at `path`, if it is a number of at least 1.
fn set<'a>(entries: &'a Entries, path: &str) -> Option<&'a Node> {
    entries.get(path).filter(|value| value.as_number().is_some_and(|number| number >= 1.0))
}

impl Merging {
    /// Checks keys that depend on each other.
    pub(super) fn check_together(&mut self, entries: &Entries) {
        let file = self.findings.file.clone();
        let on = |path: &&str| entries.get(path).and_then(Node::as_flag) == Some(true);
        let precisions: Vec<&str> = PRECISIONS.into_iter().filter(on).collect();
        if let [first, second, ..] = precisions[..] {
            self.findings.errors.push(format!("{file}: {first} and {second} are both true: choose one"));
        } else if precisions == [AUTOCAST] && self.args.types.precision == PrecisionName::Autocast {
            self.check_autocast(entries);
        }
        self.check_offload(entries);
        self.check_gathering_ahead(entries);
        self.check_flags(entries);
        self.check_gradients(entries);
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

    /// Checks flags and keys about gathering ahead, which change nothing without overlap. It is an
    /// error if a key makes a flag meaningless, and a warning if a flag makes a key meaningless.
    fn check_gathering_ahead(&mut self, entries: &Entries) {
        let Merging { args, findings: Findings { file, warnings, errors, .. }, .. } = self;
        let typed = |id| args.given.typed(id);
        if args.communication.no_overlap && typed("no_overlap").is_none() {
            let ahead = ["prefetch_bucket", "backward_prefetch", "limit_all_gathers"];
            for flag in ahead.into_iter().filter(|id| typed(id).is_some()).map(flag_name) {
                errors.push(format!(
                    "{file}: {OVERLAP} false gathers nothing ahead, so {flag} would change nothing\n\
                     Leave {flag} out, or set {OVERLAP} to true."
                ));
            }
        }
        let gathers = args.file_only.stage.is_none_or(|stage| stage.sharded().parameters);
        if let Some(value) = set(entries, AHEAD)
            && gathers
            && args.communication.no_overlap
            && typed("prefetch_bucket").is_none()
        {
            let why = typed("no_overlap").map_or(format!("{OVERLAP} false"), |_| flag_name("no_overlap"));
            warnings.push(format!(
                "{file}: {} changes nothing: {why} gathers nothing ahead",
                asked(AHEAD, value)
            ));
        }
    }

    /// Checks flags against keys that set the same value under another name. If the values differ,
    /// the flag's is used, with a warning.
    fn check_flags(&mut self, entries: &Entries) {
        let Merging { args, findings: Findings { file, warnings, .. }, .. } = self;
        let typed = |id| args.given.typed(id);
        let set = |path| set(entries, path);
        let groups = set(MICS).filter(|_| args.sharding.strategy == Some(Strategy::HybridShard));
        // The optimizer's own count sets the flag, and reports that itself.
        let buffers = set(PARAMETERS_BUFFERS)
            .filter(|_| entries.get(OPTIMIZER_BUFFERS).is_none() && args.offload.parameters != Place::Device);
        let sizes = [
            (MICS, groups, "shard_group_size", args.sharding.shard_group_size),
            (PARAMETERS_BUFFERS, buffers, "offload_buffers", args.offload.buffers),
        ];
        for (path, value, id, counts) in sizes {
            if let (Some(value), Some(flag)) = (value, typed(id))
                && value.as_number() != counts.map(|count| count as f64)
            {
                warnings.push(contradiction(file, &asked(path, value), &flag_name(id), flag));
            }
        }
        if let (Some(value), Some(flag)) = (set(REUSE), typed("reshard_last")) {
            warnings.push(contradiction(file, &asked(REUSE, value), &flag_name("reshard_last"), flag));
        }
        if let Some(value) = set(UNIT).filter(|_| entries.get(POLICY).is_none() && typed("wrap").is_none()) {
            let what = asked(UNIT, value);
            warnings.push(format!("{file}: {what} changes nothing without {POLICY} SIZE_BASED_WRAP"));
        }
    }

    /// Warns about gradients that are averaged or scaled differently than in DeepSpeed.
    fn check_gradients(&mut self, entries: &Entries) {
        let Merging { args, findings: Findings { file, warnings, .. }, .. } = self;
        let scattered =
            |stage: Stage| stage != Stage::SUPPORTS_TEXTBOOK_ALL_REDUCE && stage.sharded().optimizer;
        if entries.get(SCATTER).and_then(Node::as_flag) == Some(false)
            && args.file_only.stage.is_some_and(scattered)
        {
            let only = Stage::SUPPORTS_TEXTBOOK_ALL_REDUCE;
            warnings.push(format!(
                "{file}: {SCATTER} false changes nothing here: {only} alone all-reduces gradients"
            ));
        }
        let types = &args.types;
        let dtypes = [(SENT, types.reduce_dtype), (GRADIENTS, types.grad_dtype)];
        let in_fp16 = |(path, dtype): &(&str, _)| entries.get(path).is_some() && *dtype == Some(DType::F16);
        if let Some((path, _)) = dtypes.into_iter().find(in_fp16)
            && types.precision != PrecisionName::Fp16
        {
            warnings.push(format!(
                "{file}: with {path} fp16 this program scales the loss, and skips a step whose gradients overflow: \
                 DeepSpeed does so with fp16.enabled alone"
            ));
        }
    }

    /// Refuses an autocast to a type other than bf16, and warns that DeepSpeed sends fewer bytes.
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

    /// Refuses two directories. Warns about states that DeepSpeed keeps in another place, and about
    /// flags that contradict FSDP's single key for two places.
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
                let warning = contradiction(file, &asked(key, value), &flag_name(id), typed);
                self.findings.warnings.push(warning);
            }
        }
    }
}
