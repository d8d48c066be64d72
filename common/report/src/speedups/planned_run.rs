//! The run of a report, as a job that can be predicted.

use crate::report::Report;
use model::ModelConfig;
use prediction::Job;
use settings::{Communication, GradSync, planned};
use sharding::Precision;

/// The settings that a run's traffic depends on.
pub(super) struct PlannedRun<'a> {
    /// The job.
    pub job: Job,
    /// Element types.
    pub precision: Precision,
    /// Buckets, overlap and prefetch.
    pub communication: &'a Communication,
}

impl<'a> PlannedRun<'a> {
    /// Returns the settings of `report`'s run; `None` if the report is too old to have all of them.
    pub(super) fn of(report: &'a Report) -> Option<Self> {
        let communication = report.communication.as_ref()?;
        let architecture = report.model.architecture.as_ref()?.to_string();
        let model = ModelConfig::from_hugging_face(&architecture, &report.model.name).ok()?;
        let name = report.precision;
        let precision = Precision {
            parameters: name.stored(),
            gradients: report.grad_dtype.stored(),
            reduce: report.reduce_dtype.stored(),
            rounding: name.rounding(),
        };
        let job = Job {
            batch_size: report.model.batch_size,
            tokens: report.model.sequence_length,
            micro_batches: report.model.micro_batches,
            checkpointing: report.model.checkpoint_activations,
            wrap: report.model.wrap.parse().ok()?,
            strategy: report.strategy.unwrap_or_default(),
            shard_group: report.shard_group_size,
            secondary_shards: report.secondary_shard_size,
            textbook_all_reduce: report.grad_sync == Some(GradSync::AllReduce),
            algorithm: report.algorithm.unwrap_or_default(),
            placement: report.placement,
            ..Job::new(model, report.stage, report.world_size)
        };
        Some(PlannedRun { job: with_precision(job, precision, communication), precision, communication })
    }

    /// Returns the job of the same run with other element types.
    pub(super) fn with_precision(&self, precision: Precision) -> Job {
        with_precision(self.job.clone(), precision, self.communication)
    }
}

fn with_precision(job: Job, precision: Precision, communication: &Communication) -> Job {
    communication.plan(Job { recipe: planned::recipe(precision), ..job }, precision)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{config, one_step};
    use prediction::Stage;
    use sharding::MeshShape;

    #[test]
    fn a_report_holds_what_traffic_and_memory_depend_on() {
        for flags in [
            "--gpus 7 --grad-accum 2 --model small --algorithm ring",
            "--gpus 4 --strategy hybrid-shard --shard-group-size 2 --wrap module --precision bf16",
            "--gpus 4 --strategy shard-grad-op --reduce-bucket 7 --contiguous-gradients false",
            "--gpus 4 --secondary-shard-size 2 --reshard-last --no-overlap --checkpoint-activations block",
            "--gpus 2 --prefetch-bucket 0 --limit-all-gathers 1 --max-live-parameters 9 --allgather-bucket 5",
            "--gpus 2 --backward-prefetch post --param-persistence-threshold 200 --model-persistence-threshold 999",
            "--gpus 2 --grad-sync all-reduce --precision fp16 --grad-dtype fp32 --reduce-dtype bf16",
            "--gpus 2 --precision autocast --reduce-dtype bf16",
            "--gpus 2 --offload-optimizer disk --offload-buffers 2 --sub-group-size 999",
            "--gpus 2 --offload-activations cpu --checkpoint-activations block",
        ] {
            let (config, mut report) = (config(flags), one_step(flags));
            report.strategy = config.strategy;
            let alone = config.strategy.is_some() || config.mesh != MeshShape::World;
            for stage in Stage::ALL.into_iter().filter(|&stage| stage == Stage::Zero3 || !alone) {
                report.stage = stage;
                let text = serde_json::to_string(&report).unwrap();
                let back: Report = serde_json::from_str(&text).unwrap();
                let run = PlannedRun::of(&back).unwrap();
                let predicted = prediction::predict(&run.job).unwrap();
                assert_eq!(
                    predicted,
                    prediction::predict(&planned::job(stage, &config)).unwrap(),
                    "{stage} {flags}"
                );
            }
        }
    }
}
