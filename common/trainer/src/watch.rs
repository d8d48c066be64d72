//! The watchers of a run: the screen, a recording, viewers in other processes.

use crate::plan::Plan;
use crate::stop::StopRequest;
use events::header::{Choices, Offload, PredictedBytes, PredictedPlace};
use events::{
    Class, Emitter, Hub, HubError, HubOptions, Inlets, Pace, Place, RecordingError, Route, RunHeader,
    channel, feed,
};
use prediction::{Job, Placement, Prediction, RankPrediction};
use settings::machine::remedy_for_threads;
use settings::{Config, Failure, Result, planned, precision};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Events by which a rank may be ahead of the collector.
pub(crate) const RING: usize = 1 << 14;

/// How long after the end of this process's rank the run waits for the last events of other ranks.
/// These may linger for 2 s before they send them, and so does this process.
const LAST_EVENTS: Duration = Duration::from_secs(3);

/// Watchers of a run, ready before it starts.
pub(crate) struct Watch {
    /// One emitter per rank of this process.
    pub(crate) emitters: Vec<Emitter>,
    /// The hub that collects the ranks' events.
    pub(crate) hub: Hub,
    /// The speed limit of the ranks.
    pub(crate) pace: Arc<Pace>,
    /// The streams of other processes' events.
    inlets: Option<Inlets>,
}

impl Watch {
    /// Opens the recording, if one is asked for, and the socket for viewers. The ranks behind
    /// `links` are processes of their own; no events arrive from other ranks without a link.
    ///
    /// # Errors
    /// If the recording cannot be created, the job cannot be predicted, or a thread does not start.
    pub(crate) fn start(plan: &Plan, links: Vec<(u32, TcpStream)>) -> Result<Self> {
        Watch::open(plan, HubOptions { socket: true, ..HubOptions::default() }, links)
    }

    /// Opens the recording alone. All ranks are threads of this process.
    ///
    /// # Errors
    /// As [`Watch::start`].
    pub(crate) fn record(plan: &Plan) -> Result<Self> {
        Watch::open(plan, HubOptions { socket: false, ..HubOptions::default() }, Vec::new())
    }

    /// Starts the hub as `options` and `plan` say.
    fn open(plan: &Plan, options: HubOptions, links: Vec<(u32, TcpStream)>) -> Result<Self> {
        let pace = Arc::new(Pace::default());
        let start = Instant::now();
        let (far, links): (Vec<u32>, Vec<TcpStream>) = links.into_iter().unzip();
        let ranks = 0..plan.config.world_size as u32;
        let near = ranks.filter(|rank| match &plan.config.process {
            Some(process) => *rank as usize == process.position.rank,
            None => !far.contains(rank),
        });
        let (emitters, mut receivers): (Vec<_>, Vec<_>) =
            near.map(|rank| channel(rank, RING, start, Some(pace.clone()))).unzip();
        let (feeds, more): (Vec<_>, Vec<_>) = far.iter().map(|_| feed(RING, start)).unzip();
        receivers.extend(more);
        let (record, remote) = (plan.config.output.record.clone(), !far.is_empty());
        let options = HubOptions {
            record,
            pace: Some(pace.clone()),
            remote,
            timeout: Some(plan.config.timeout),
            complains: plan.config.screen.is_none(),
            ..options
        };
        let hub = Hub::start(header(plan)?, receivers, options).map_err(watch_failure)?;
        let inlets = remote.then(|| Inlets::start(links, feeds, start, &pace)).transpose();
        Ok(Watch { emitters, hub, pace, inlets: inlets.map_err(Failure::run)? })
    }

    /// Waits for the last events of other processes. Call it when the run is over.
    pub(crate) fn wait_for_last_events(&self, stop: &StopRequest) {
        if let Some(inlets) = &self.inlets {
            inlets.finish(stop.ended_at() + LAST_EVENTS);
        }
    }
}

/// Returns the failure of a watcher. A recording's names the flag that asked for it.
fn watch_failure(error: HubError) -> Failure {
    match error {
        HubError::Recording(RecordingError::Io { path, source, .. }) => {
            Failure::run(format!("cannot write --record {}: {source}", path.display()))
        }
        HubError::Thread(ref cause) => Failure::run(format!("{error}{}", remedy_for_threads(cause))),
        error => Failure::run(error.to_string()),
    }
}

/// Returns the header that watchers need before the first event.
fn header(plan: &Plan) -> Result<RunHeader> {
    let config = &plan.config;
    let job = planned::job(plan.stage.id, config);
    let replicated =
        prediction::predict(&job.with_stage(prediction::Stage::REPLICATED)).map_err(Failure::usage)?;
    Ok(RunHeader {
        stage: plan.stage.id.label().into(),
        model: config.model.name.clone(),
        parameters: plan.model.layout.parameters(),
        world_size: config.world_size as u32,
        device: config.describe_device(),
        precision: precision::describe(config.precision),
        communicated_bytes: config.precision.reduce.size() as u32,
        algorithm: format!("{:?}", config.algorithm).to_lowercase(),
        steps: config.steps,
        micro_batches: config.micro_batches as u32,
        batch_size: config.batch_size as u32,
        sequence_length: config.sequence_length as u32,
        capacity: config.memory.device_memory,
        shard_group: job.sharing_ranks() as u32,
        sharded: plan.stage.sharded,
        units: prediction::Partition::of(&job).units,
        predicted_memory: plan.prediction.memory_header(),
        predicted_total: plan.prediction.total_header(),
        replicated_total: replicated.total_header(),
        predicted_traffic: plan.prediction.traffic_header(),
        version: env!("CARGO_PKG_VERSION").into(),
        theory: plan.prediction.theory.clone(),
        offload: offload(&job, &plan.prediction),
        choices: choices(config),
    })
}

/// Returns the choices of `config` that differ from the defaults.
fn choices(config: &Config) -> Choices {
    let strategy = config.strategy.filter(|strategy| *strategy != prediction::Strategy::default());
    let recomputes = config.memory.checkpoint_activations != model::Checkpointing::None;
    Choices {
        strategy: strategy.map_or_else(String::new, |strategy| strategy.label().into()),
        checkpointing: if recomputes {
            config.memory.checkpoint_activations.label().into()
        } else {
            String::new()
        },
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
