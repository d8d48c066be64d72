//! The answer to a request: for a model, predictions; for a number of parameters, closed forms.

use super::{
    CAPACITIES, CapacityFit, Compute, FittingChange, MicroBatch, Report, Request, StageReport, Times, ToFit,
};
use events::{Operation, Place};
use prediction::Stage;
use prediction::closed::Sweeps;
use prediction::invalid::{InvalidJob, check_bytes, check_counts};
use prediction::job::Job;
use prediction::largest_batch_within;
use prediction::partition::Partition;
use prediction::placement::Placement;
use prediction::predict;
use prediction::recipe::{F32, Recipe};
use prediction::traffic::Traffic;
use prediction::{Room, remedies};

pub(super) fn of_model(request: &Request) -> Result<Report, InvalidJob> {
    let placement = request.job.placement;
    let placement = Placement { gathers_states: placement.any(), ..placement };
    let base = Job { placement, ..request.job.clone() };
    base.validate()?;
    let parameters = Partition::of(&base).parameters();
    let stage_report = |stage| predicted(request, &base.with_stage(stage), parameters);
    let stages: Vec<_> = Stage::ALL.into_iter().map(stage_report).collect::<Result<_, InvalidJob>>()?;
    let micro_batch = Some(MicroBatch { batch_size: base.batch_size, tokens: base.tokens });
    let compute = Compute {
        checkpointing: base.checkpointing,
        flops_per_token: base.config.flops_per_token(base.tokens),
        recomputed_flops_per_token: base.config.recomputed_flops_per_token(base.tokens, base.checkpointing),
    };
    let fits = stages.last().map_or([].as_slice(), |stage| &stage.fits);
    let to_fit = all_to_fit(&base.with_stage(Stage::SHARDS_PARAMETERS), fits);
    let times = request.timing.as_ref().map(|timing| Times::of(&base, timing, &stages)).transpose()?;
    let report = report(request, Some(base.config.name.clone()), parameters, micro_batch, stages);
    Ok(Report { compute: Some(compute), times, to_fit, ..report })
}

/// Returns the changes with which `job` fits on GPUs that are too small for it, the smallest first.
/// Below a GPU for which one change is not enough it looks no further: a search for several takes
/// seconds.
fn all_to_fit(job: &Job, fits: &[CapacityFit]) -> Vec<ToFit> {
    if !job.recipe.is_trainable() {
        return Vec::new();
    }
    let mut all = Vec::new();
    for fit in fits.iter().rev().filter(|fit| !fit.fits) {
        let found = to_fit(job, fit.capacity);
        let one_is_enough = found.changes.iter().any(|change| change.how.len() == 1);
        all.push(found);
        if !one_is_enough {
            break;
        }
    }
    all.reverse();
    all
}

/// Returns the changes with which `job` fits on a GPU of `capacity` bytes.
fn to_fit(job: &Job, capacity: u64) -> ToFit {
    let found = remedies(Room::of(Place::Device, capacity, [None; Place::ALL.len()]), job);
    let enough = found.alone.into_iter().filter(|remedy| remedy.total_peak <= capacity);
    let alone = enough.map(|remedy| FittingChange { how: vec![remedy.how], total: remedy.total_peak });
    let together = found.together.map(|(how, total)| FittingChange { how, total });
    ToFit { capacity, changes: alone.chain(together).collect() }
}

/// Returns `job`'s stage of a report on its model, predicted to the byte.
fn predicted(request: &Request, job: &Job, parameters: u64) -> Result<StageReport, InvalidJob> {
    let (rank, partition) = (predict(job)?.ranks[0], Partition::of(job));
    let fits = CAPACITIES.map(|capacity| CapacityFit {
        capacity,
        fits: rank.memory.total_peak <= capacity,
        largest_batch: largest_batch_within(job, [Some(capacity), None, None]),
    });
    Ok(StageReport {
        stage: job.stage,
        model_states: partition.model_states_in(job, Place::Device),
        memory: Some(rank.memory),
        total: rank.memory.total_peak,
        beyond: request.beyond(|place| {
            let memory = rank.place(place);
            (partition.model_states_in(job, place), Some(memory), memory.total_peak)
        })?,
        transfers_per_step: rank.transfers.step,
        traffic_per_step: rank.traffic.step,
        to_neighbours_per_step: rank.payload_to_neighbours,
        sweeps: sweeps(&rank.traffic.step, parameters, job),
        fits: fits.into(),
    })
}

pub(super) fn of_parameters(request: &Request, count: u64, activations: u64) -> Result<Report, InvalidJob> {
    check(&request.job, count, activations)?;
    let base = &request.job;
    let (ranks, micro_batches) = (base.world_size, base.micro_batches as u64);
    let stage_report = |stage| -> Result<StageReport, InvalidJob> {
        let job = base.with_stage(stage);
        let partition = Partition::of_count(count, job.shards());
        let model_states = partition.model_states_in(&job, Place::Device);
        let total = model_states.total() + activations;
        let traffic = Sweeps::of(stage, micro_batches, base.textbook_all_reduce);
        let traffic = traffic.traffic(count, ranks, stage, &base.recipe);
        let fits =
            CAPACITIES.map(|capacity| CapacityFit { capacity, fits: total <= capacity, largest_batch: None });
        Ok(StageReport {
            stage,
            model_states,
            memory: None,
            total,
            beyond: request.beyond(|place| {
                let states = partition.model_states_in(&job, place);
                (states, None, states.total())
            })?,
            transfers_per_step: partition.transfers_of_step(&job),
            traffic_per_step: traffic,
            to_neighbours_per_step: 0,
            sweeps: sweeps(&traffic, count, &job),
            fits: fits.into(),
        })
    };
    let stages = Stage::ALL.into_iter().map(stage_report).collect::<Result<_, InvalidJob>>()?;
    Ok(report(request, None, count, None, stages))
}

/// Refuses zeros, and sizes whose bytes would not fit into 64 bits.
fn check(job: &Job, count: u64, activations: u64) -> Result<(), InvalidJob> {
    check_counts(job.world_size, job.micro_batches)?;
    if count == 0 {
        return Err(InvalidJob::Zero { name: "number of parameters" });
    }
    let padded = count as f64 + job.world_size as f64;
    check_bytes(32.0 * padded * job.micro_batches as f64 + activations as f64)
}

fn report(
    request: &Request,
    model: Option<String>,
    parameters: u64,
    micro_batch: Option<MicroBatch>,
    stages: Vec<StageReport>,
) -> Report {
    let job = &request.job;
    Report {
        model,
        parameters,
        gpus: job.world_size,
        recipe: job.recipe,
        micro_batch,
        micro_batches: job.micro_batches,
        strategy: job.strategy,
        shard_group: job.shard_group,
        secondary_shards: job.secondary_shards,
        offload: request.offloading(),
        compute: None,
        times: None,
        stages,
        to_fit: Vec::new(),
    }
}

/// Returns the elements sent in units of Ψ(N−1)/N; `None` for one GPU, which sends nothing.
fn sweeps(traffic: &Traffic, parameters: u64, job: &Job) -> Option<f64> {
    let Recipe { weights, gradients, .. } = job.recipe;
    // If parameters are sharded, an all-reduce is a sum over replicas, which is sent in f32.
    let summed = if job.stage.sharded().parameters { F32 } else { gradients };
    let elements = traffic.bytes(Operation::AllReduce) / summed
        + traffic.bytes(Operation::ReduceScatter) / gradients
        + traffic.bytes(Operation::AllGather) / weights;
    let ranks = job.world_size as f64;
    (job.world_size > 1).then(|| elements as f64 * ranks / (parameters as f64 * (ranks - 1.0)))
}
