//! The header of a run, as far as its job determines it.

use crate::invalid::InvalidJob;
use crate::job::Job;
use crate::placement::Placement;
use crate::predict::{Prediction, RankPrediction, predict};
use crate::stage::Stage;
use crate::strategy::Strategy;
use crate::traffic::Algorithm;
use events::header::{Choices, Offload, PredictedBytes, PredictedPlace};
use events::{Class, Place, Route, RunHeader};
use model::Checkpointing;

/// Returns the header of a run of `job`, whose prediction is `prediction`: everything but its
/// device, precision, steps, capacity and version.
///
/// # Errors
/// [`InvalidJob`] if no run without sharding can have these numbers.
pub fn header(job: &Job, prediction: &Prediction) -> Result<RunHeader, InvalidJob> {
    let replicated = predict(&job.with_stage(Stage::REPLICATED))?;
    Ok(RunHeader {
        stage: job.stage.label().into(),
        model: job.config.name.clone(),
        parameters: prediction.units.iter().map(|unit| unit.parameters).sum(),
        world_size: job.world_size as u32,
        device: String::new(),
        precision: String::new(),
        communicated_bytes: job.converted_gradients.unwrap_or(job.recipe.gradients) as u32,
        algorithm: match job.algorithm {
            Algorithm::Direct => "direct".into(),
            Algorithm::Ring => "ring".into(),
        },
        steps: 0,
        micro_batches: job.micro_batches as u32,
        batch_size: job.batch_size as u32,
        sequence_length: job.tokens as u32,
        capacity: None,
        shard_group: job.sharing_ranks() as u32,
        sharded: job.stage.sharded(),
        units: prediction.units.clone(),
        predicted_memory: prediction.memory_header(),
        predicted_total: prediction.total_header(),
        replicated_total: replicated.total_header(),
        predicted_traffic: prediction.traffic_header(),
        version: String::new(),
        theory: prediction.theory.clone(),
        offload: offload(job, prediction),
        choices: choices(job),
    })
}

/// Returns the choices of `job` that differ from the defaults.
fn choices(job: &Job) -> Choices {
    let word = |differs: bool, label: &str| if differs { label.to_string() } else { String::new() };
    Choices {
        strategy: word(job.strategy != Strategy::default(), job.strategy.label()),
        checkpointing: word(job.checkpointing != Checkpointing::None, job.checkpointing.label()),
    }
}

/// Returns which states are stored beyond the device, with predicted memory and transfers; empty
/// without offload.
fn offload(job: &Job, prediction: &Prediction) -> Offload {
    let Placement { optimizer, parameters, activations, .. } = job.placement;
    let ranks = || (0u32..).zip(&prediction.ranks);
    let follow = ranks().any(|(_, rank)| rank.host.peak(Class::Gradients) > 0);
    let places = [
        (Class::Parameters, parameters),
        (Class::Gradients, if follow { Place::Host } else { Place::Device }),
        (Class::Optimizer, optimizer),
        (Class::Activations, activations),
    ];
    let resting: Vec<_> = places.into_iter().filter(|(_, place)| *place != Place::Device).collect();
    if resting.is_empty() {
        return Offload::default();
    }
    let memory = |(number, rank): (u32, &RankPrediction), place: Place| {
        let (peaks, total) = (rank.place(place).peaks.to_vec(), rank.place(place).total_peak);
        PredictedPlace { rank: number, place, peaks, total }
    };
    let transfers = |(number, rank): (u32, &RankPrediction), route: Route| PredictedBytes {
        rank: number,
        of: route,
        bytes: rank.transfers.step.bytes(route),
    };
    Offload {
        resting,
        memory: [Place::Host, Place::Disk]
            .iter()
            .flat_map(|&place| ranks().map(move |rank| memory(rank, place)))
            .collect(),
        transfers: Route::ALL
            .iter()
            .flat_map(|&route| ranks().map(move |rank| transfers(rank, route)))
            .collect(),
    }
}
