//! The watchers of a run: the screen, a recording, viewers in other processes.

use crate::plan::Plan;
use crate::stop::StopRequest;
use events::{Emitter, Hub, HubError, HubOptions, Inlets, Pace, RecordingError, RunHeader, channel, feed};
use settings::machine::remedy_for_threads;
use settings::{Failure, Result, planned, precision};
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
    let header = prediction::header(&job, &plan.prediction).map_err(Failure::usage)?;
    Ok(RunHeader {
        device: config.describe_device(),
        precision: precision::describe(config.precision),
        steps: config.steps,
        capacity: config.memory.device_memory,
        version: env!("CARGO_PKG_VERSION").into(),
        ..header
    })
}
