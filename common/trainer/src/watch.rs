//! Those who watch a run: the screen, a recording, viewers in other processes.

use crate::error::{Failure, Result};
use crate::plan;
use crate::precision;
use crate::run::Plan;
use crate::stage::Stage;
use events::{Emitter, Hub, HubOptions, Pace, RunHeader, channel};
use std::sync::Arc;
use std::time::Instant;

/// Events that a rank may be ahead of the collector.
const RING: usize = 1 << 14;

/// Watchers of a run, ready before it starts.
pub(crate) struct Watch {
    /// One voice per rank.
    pub(crate) emitters: Vec<Emitter>,
    /// Where the ranks' events come together.
    pub(crate) hub: Hub,
    /// How fast the ranks may go.
    pub(crate) pace: Arc<Pace>,
}

impl Watch {
    /// Opens the recording, if one is asked for, and the socket if `socket`.
    ///
    /// # Errors
    /// If the recording cannot be created.
    pub(crate) fn start<S: Stage>(plan: &Plan, socket: bool) -> Result<Self> {
        let pace = Arc::new(Pace::new());
        let start = Instant::now();
        let open = |rank| channel(rank as u32, RING, start, Some(pace.clone()));
        let (emitters, receivers) = (0..plan.config.world_size).map(open).unzip();
        let options = HubOptions { record: plan.config.record.clone(), socket, pace: Some(pace.clone()) };
        let hub =
            Hub::start(header::<S>(plan)?, receivers, options).map_err(|e| Failure::run(e.to_string()))?;
        Ok(Watch { emitters, hub, pace })
    }
}

/// What watchers must know beforehand.
fn header<S: Stage>(plan: &Plan) -> Result<RunHeader> {
    let config = &plan.config;
    let job = plan::job(S::PLAN, config);
    let replicated = planner::predict(&job.with_stage(planner::Stage::REPLICATED))
        .map_err(|e| Failure::usage(e.to_string()))?;
    Ok(RunHeader {
        stage: S::NAME.into(),
        model: config.model.name.clone(),
        parameters: plan.model.layout.parameters(),
        world_size: config.world_size as u32,
        device: config.device_words(),
        precision: precision::words(config.precision),
        communicated_bytes: config.precision.reduce.size() as u32,
        algorithm: format!("{:?}", config.algorithm).to_lowercase(),
        steps: config.steps,
        micro_batches: config.micro_batches as u32,
        batch_size: config.batch_size as u32,
        sequence_length: config.sequence_length as u32,
        capacity: config.device_memory,
        sharded: S::SHARDED,
        units: planner::Partition::of(&job).headers(),
        predicted_memory: plan.prediction.memory_header(),
        predicted_total: plan.prediction.total_header(),
        replicated_total: replicated.total_header(),
        predicted_traffic: plan.prediction.traffic_header(),
        version: env!("CARGO_PKG_VERSION").into(),
    })
}
