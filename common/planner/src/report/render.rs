//! The report as tables and text.

use super::{CAPACITIES, CapacityFit, Compute, MicroBatch, Report, StageReport};
use crate::recipe::Recipe;
use crate::strategy::Strategy;
use crate::table::{Format, Scale, Table, counted, grouped, in_words};
use events::{Class, Operation};

impl Report {
    /// Returns the report as text: three tables, and up to four of what rests beyond the GPUs,
    /// under a title of three to six lines.
    pub fn render(&self, format: Format) -> String {
        let tables = std::iter::once(self.memory()).chain(self.beyond()).chain([self.traffic(), self.fits()]);
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

    /// Returns how ZeRO-3 shards, if not in its default way.
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

    /// Returns a line on recomputation, if there is any.
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
        let scale = self.scale(self.stages.iter().map(|stage| stage.total));
        let title = format!("memory per GPU, {}", scale.label());
        let mut table = Table::numbers(title, self.stages.iter().map(|stage| stage.stage));
        let mut row = |name: &str, bytes: &dyn Fn(&StageReport) -> u64| {
            table.row(name, self.stages.iter().map(|stage| scale.show(bytes(stage))));
        };
        row("parameters", &|stage| stage.model_states.parameters());
        row("gradients", &|stage| stage.model_states.gradients);
        if self.model.is_none() {
            if self.recipe.master > 0 {
                row("master weights", &|stage| stage.model_states.master);
            }
            row("momentum", &|stage| stage.model_states.momentum);
            row("variance", &|stage| stage.model_states.variance);
        } else {
            row("optimizer", &|stage| stage.model_states.optimizer());
        }
        row("= model states", &|stage| stage.model_states.total());
        self.residual_rows(&mut row);
        table
    }

    fn residual_rows(&self, row: &mut AddRow<'_>) {
        let given = |stage: &StageReport| stage.total - stage.model_states.total();
        if self.model.is_some() {
            let classes = [
                Class::GatheredParameters,
                Class::Activations,
                Class::CommunicationBuckets,
                Class::Workspace,
            ];
            for class in classes {
                row(class.label(), &|stage| stage.memory.map_or(0, |memory| memory.peak(class)));
            }
            row("= peak at any one time", &|stage| stage.total);
        } else if self.stages.iter().any(|stage| given(stage) > 0) {
            row("activations, as given", &given);
            row("= together", &|stage| stage.total);
        }
    }

    /// Returns the bytes sent per GPU and step, by operation and stage.
    pub fn traffic(&self) -> Table {
        let scale = self.scale(self.stages.iter().map(|stage| stage.traffic_per_step.payload_bytes()));
        let title = format!("sent per GPU and step, {}", scale.label());
        let mut table = Table::numbers(title, self.stages.iter().map(|stage| stage.stage));
        for operation in [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather] {
            let bytes = self.stages.iter().map(|stage| stage.traffic_per_step.bytes(operation));
            table.row(operation.label(), bytes.map(|bytes| scale.show(bytes)));
        }
        let totals = self.stages.iter().map(|stage| stage.traffic_per_step.payload_bytes());
        table.row("= together", totals.map(|bytes| scale.show(bytes)));
        if self.stages.iter().any(|stage| stage.to_neighbours_per_step > 0) {
            let bytes = self.stages.iter().map(|stage| stage.to_neighbours_per_step);
            table.row("of that to neighbours", bytes.map(|bytes| scale.show(bytes)));
        }
        let sweeps = self.stages.iter().map(|stage| stage.sweeps);
        table.row(
            "elements, × Ψ(N−1)/N",
            sweeps.map(|sweeps| sweeps.map_or("-".into(), |sweeps| format!("{sweeps:.2}"))),
        );
        table
    }

    /// Returns which stage fits on which GPU.
    pub fn fits(&self) -> Table {
        let mut table = Table::numbers("fits on", self.stages.iter().map(|stage| stage.stage));
        for (i, capacity) in CAPACITIES.into_iter().enumerate() {
            let cells = self.stages.iter().map(|stage| stage.fits[i].show());
            table.row(format!("{} GB", capacity / 1_000_000_000), cells);
        }
        table
    }

    fn notes(&self) -> String {
        let notes = if self.model.is_some() { MODEL_NOTES } else { PARAMETERS_NOTES };
        let beyond = if self.model.is_some() && self.offload.is_some() { BEYOND_NOTES } else { "" };
        [notes, beyond].concat()
    }

    pub(super) fn scale(&self, bytes: impl Iterator<Item = u64>) -> Scale {
        Scale::suiting(bytes.max().unwrap_or(0), self.recipe.unit)
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

/// Adds a row of bytes per stage to a table.
type AddRow<'a> = dyn FnMut(&str, &dyn Fn(&StageReport) -> u64) + 'a;

const MODEL_NOTES: &str = "\
B: sequences per micro-batch. Classes reach their peaks at different times.
ZeRO-3 keeps the head gathered for backward, so it sends a little less than 3 per micro-batch.
";
const BEYOND_NOTES: &str = "\
Main memory: gathered parameters are a unit's, for the hash or a checkpoint; workspace is staging.
";
const PARAMETERS_NOTES: &str = "\
Activations, gathered units and buckets depend on the model: give one with --model.
";
