//! The report as tables and text.

use super::{CAPACITIES, CapacityFit, Compute, FittingChange, MicroBatch, Report, StageReport, Times, ToFit};
use crate::numbers::{Scale, in_words};
use events::say::{counted, grouped};
use events::{Class, Operation};
use prediction::Strategy;
use prediction::recipe::{ModelStates, Recipe};
use shell::table::{Format, Table};

/// The most changes that are shown for a GPU.
const SHOWN_CHANGES: usize = 3;

impl Report {
    /// Returns the report as text under a title of three to six lines: three tables, up to four
    /// about offloaded states, and one about changes where the last stage does not fit.
    pub fn render(&self, format: Format) -> String {
        let tables = std::iter::once(self.memory()).chain(self.beyond()).chain([self.traffic(), self.fits()]);
        let tables = tables.chain(self.to_fit()).chain(self.step_times());
        let mut parts = vec![self.title()];
        parts.extend(tables.map(|table| table.render(format)));
        parts.push(self.notes());
        parts.join("\n")
    }

    fn title(&self) -> String {
        let Recipe { name, weights, gradients, .. } = self.recipe;
        let optimizer = self.recipe.optimizer();
        let subject = match &self.model {
            Some(model) => format!("{model}, {} parameters", in_words(self.parameters)),
            None => format!("{} parameters", in_words(self.parameters)),
        };
        let gpus = counted(self.gpus, "GPU", "GPUs");
        let recipe = format!("recipe {name}: {weights} + {gradients} + {optimizer} bytes per parameter");
        let batch = self.micro_batch.map_or(String::new(), |MicroBatch { batch_size, tokens }| {
            format!(
                "{} of {} tokens per micro-batch, ",
                counted(batch_size, "sequence", "sequences"),
                grouped(tokens as u64)
            )
        });
        let steps = counted(self.micro_batches, "micro-batch", "micro-batches");
        let more = [self.recomputed(), self.strategy(), self.offloaded()].concat();
        format!("{subject}, on {gpus}\n{recipe}\n{batch}{steps} per step\n{more}")
    }

    /// Returns how ZeRO-3 shards; empty for the default.
    fn strategy(&self) -> String {
        match (self.strategy, self.shard_group, self.secondary_shards) {
            (strategy, Some(size), _) => {
                format!("ZeRO-3 is {strategy} in groups of {}\n", counted(size, "GPU", "GPUs"))
            }
            (_, _, Some(size)) => {
                format!("ZeRO-3 has secondary shards, shared by {}\n", counted(size, "GPU", "GPUs"))
            }
            (strategy, ..) if strategy == Strategy::default() => String::new(),
            (strategy, ..) => format!("ZeRO-3 is {strategy}\n"),
        }
    }

    /// Returns a line about recomputation; empty if there is none.
    fn recomputed(&self) -> String {
        let Some(compute) = self.compute.filter(|compute| compute.recomputed_flops_per_token > 0) else {
            return String::new();
        };
        let Compute { checkpointing, flops_per_token, recomputed_flops_per_token } = compute;
        let share = 100.0 * recomputed_flops_per_token as f64 / flops_per_token as f64;
        let [recomputed, model] = [recomputed_flops_per_token, flops_per_token].map(grouped);
        format!(
            "checkpointing {checkpointing}: recomputes {recomputed} FLOPs per token, {share:.2} % of {model}\n"
        )
    }

    /// Returns the memory per GPU by class and stage.
    pub fn memory(&self) -> Table {
        let states = |bytes: fn(&ModelStates) -> u64| self.of(|stage| bytes(&stage.model_states));
        let mut rows = vec![
            ("parameters", states(ModelStates::parameters)),
            ("gradients", states(|states| states.gradients)),
        ];
        if self.model.is_some() {
            rows.push(("optimizer", states(ModelStates::optimizer)));
        } else {
            let masters =
                (self.recipe.master > 0).then(|| ("master weights", states(|states| states.master)));
            rows.extend(masters);
            rows.push(("momentum", states(|states| states.momentum)));
            rows.push(("variance", states(|states| states.variance)));
        }
        rows.push(("= model states", states(ModelStates::total)));
        rows.extend(self.residual_rows());
        self.bytes("memory per GPU", rows)
    }

    fn residual_rows(&self) -> Vec<(&'static str, Vec<u64>)> {
        let total = self.of(|stage| stage.total);
        if self.model.is_some() {
            let classes = [
                Class::GatheredParameters,
                Class::Activations,
                Class::CommunicationBuckets,
                Class::Workspace,
            ];
            let peak = |class: Class| self.of(|stage| stage.memory.map_or(0, |memory| memory.peak(class)));
            let rows = classes.map(|class| (class.label(), peak(class))).into_iter();
            return rows.chain([("= peak at any one time", total)]).collect();
        }
        let given = self.of(|stage| stage.total - stage.model_states.total());
        let any = given.iter().any(|&bytes| bytes > 0);
        if any { vec![("activations, as given", given), ("= together", total)] } else { Vec::new() }
    }

    /// Returns the bytes sent per GPU and step, by operation and stage.
    pub fn traffic(&self) -> Table {
        let operations = [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather];
        let sent = |operation| self.of(|stage| stage.traffic_per_step.bytes(operation));
        let mut rows = operations.map(|operation| (operation.label(), sent(operation))).to_vec();
        rows.push(("= together", self.of(|stage| stage.traffic_per_step.payload_bytes())));
        let to_neighbours = self.of(|stage| stage.to_neighbours_per_step);
        if to_neighbours.iter().any(|&bytes| bytes > 0) {
            rows.push(("of that to neighbours", to_neighbours));
        }
        let mut table = self.bytes("sent per GPU and step", rows);
        let sweeps = self.of(|stage| stage.sweeps);
        let shown =
            sweeps.into_iter().map(|sweeps| sweeps.map_or("-".into(), |sweeps| format!("{sweeps:.2}")));
        table.row("elements, × Ψ(N−1)/N", shown);
        table
    }

    /// Returns which stage fits on which GPU.
    pub fn fits(&self) -> Table {
        let mut table = Table::numbers("fits on", self.of(|stage| stage.stage));
        for (i, capacity) in CAPACITIES.into_iter().enumerate() {
            table.row(format!("{} GB", capacity / 1_000_000_000), self.of(|stage| stage.fits[i].show()));
        }
        table
    }

    /// Returns what makes the last stage fit where it does not; `None` if it fits everywhere.
    fn to_fit(&self) -> Option<Table> {
        let last = self.stages.last()?.stage;
        let mut table = Table::prose([format!("to fit {last} on"), "train with".into(), "peak, GB".into()]);
        for ToFit { capacity, changes } in &self.to_fit {
            let mut name = format!("{} GB", capacity / 1_000_000_000);
            if changes.is_empty() {
                table.row(name, ["no flags are enough", ""]);
                continue;
            }
            for FittingChange { how, total } in changes.iter().take(SHOWN_CHANGES) {
                let peak = format!("{:.2}", *total as f64 / 1e9);
                table.row(std::mem::take(&mut name), [how.join("\n"), peak]);
            }
        }
        (!self.to_fit.is_empty()).then_some(table)
    }

    fn notes(&self) -> String {
        if self.model.is_none() {
            return PARAMETERS_NOTES.into();
        }
        let noted = [
            (true, MODEL_NOTES),
            (self.sends_nearly_thrice(), GATHERED_NOTES),
            (self.offload.is_some(), BEYOND_NOTES),
        ];
        let times = self.times.iter().map(Times::notes);
        let noted = noted.into_iter().filter(|(applies, _)| *applies).map(|(_, note)| note.into());
        noted.chain(times).collect()
    }

    /// True if ZeRO-3 gathers nearly all parameters twice per micro-batch, among all GPUs, and
    /// sends less than three times as many elements. With padding it can be more.
    fn sends_nearly_thrice(&self) -> bool {
        let all = self.strategy == Strategy::FullShard && self.secondary_shards.is_none();
        let sweeps = self.stages.last().and_then(|stage| stage.sweeps);
        let micro_batches = self.micro_batches as f64;
        all && sweeps.is_some_and(|sweeps| sweeps > 2.5 * micro_batches && sweeps < 3.0 * micro_batches)
    }

    /// Returns one value per stage.
    pub(super) fn of<T>(&self, figure: impl Fn(&StageReport) -> T) -> Vec<T> {
        self.stages.iter().map(figure).collect()
    }

    /// Returns a table with a row of bytes per stage for each of `rows`.
    pub(super) fn bytes(&self, title: &str, rows: Vec<(&str, Vec<u64>)>) -> Table {
        let largest = rows.iter().flat_map(|(_, bytes)| bytes).max();
        let scale = Scale::suiting(largest.copied().unwrap_or(0), self.recipe.unit);
        let mut table = Table::numbers(format!("{title}, {}", scale.label()), self.of(|stage| stage.stage));
        for (name, bytes) in rows {
            table.row(name, bytes.into_iter().map(|bytes| scale.show(bytes)));
        }
        table
    }
}

impl CapacityFit {
    /// Returns `yes` or `no`, and the largest micro-batch (from 10,000 on rounded down to
    /// thousands).
    fn show(&self) -> String {
        let verdict = if self.fits { "yes" } else { "no" };
        match self.largest_batch {
            None => verdict.into(),
            Some(batch @ 0..10_000) => format!("{verdict}, B≤{}", grouped(batch as u64)),
            Some(batch) => format!("{verdict}, B≤{}k", grouped(batch as u64 / 1000)),
        }
    }
}

const MODEL_NOTES: &str = "\
B: sequences per micro-batch. Classes reach their peaks at different times.
";
const GATHERED_NOTES: &str = "\
ZeRO-3 keeps the head gathered for backward, so it sends a little less than 3 per micro-batch.
";
const BEYOND_NOTES: &str = "\
Main memory: gathered parameters are a unit's, for the hash or saved weights; workspace is staging.
";
const PARAMETERS_NOTES: &str = "\
Activations, gathered units and buckets depend on the model: give one with --model.
";
