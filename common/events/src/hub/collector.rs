//! The thread that collects, and those it hands events to.

use super::{HubOptions, HubReport, Signals};
use crate::catchup::CatchUp;
use crate::cpu;
use crate::event::Event;
use crate::frame::{self, Batch, Message};
use crate::header::RunHeader;
use crate::pace::Pace;
use crate::recording::Recorder;
use crate::ring::Receiver;
use crate::socket::Server;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// How often rings are emptied: oftener than pictures are drawn, and seldom enough to cost next to nothing.
const PERIOD: Duration = Duration::from_millis(40);
/// How often collected events reach the recording's file at the latest.
const FLUSH_PERIOD: Duration = Duration::from_millis(200);
/// Events younger than this wait a round, so that slower ranks' earlier events can be put before them: ranks of this
/// process, and of others.
const SETTLE: [u64; 2] = [2_000_000, 100_000_000];

struct Subscriber {
    sender: SyncSender<Message>,
    /// It has missed something: a fresh state comes before anything else.
    behind: bool,
    gone: bool,
    told_end: bool,
}

pub(super) struct Collector {
    signals: Arc<Signals>,
    state: CatchUp,
    receivers: Vec<Receiver>,
    pace: Option<Arc<Pace>>,
    settle: u64,
    recorder: Option<Recorder>,
    flushed: Instant,
    server: Option<Server>,
    subscribers: Vec<Subscriber>,
    waiting: Vec<Event>,
    report: HubReport,
    ended: bool,
}

impl Collector {
    pub(super) fn new(
        header: &RunHeader,
        receivers: Vec<Receiver>,
        (recorder, server): (Option<Recorder>, Option<Server>),
        options: HubOptions,
        signals: Arc<Signals>,
    ) -> Self {
        Collector {
            signals,
            state: CatchUp::new(header.world_size, header.units.len()),
            receivers,
            pace: options.pace,
            settle: SETTLE[usize::from(options.remote)],
            recorder,
            flushed: Instant::now(),
            server,
            subscribers: Vec::new(),
            waiting: Vec::new(),
            report: HubReport::default(),
            ended: false,
        }
    }

    pub(super) fn run(mut self) -> HubReport {
        loop {
            let closing = self.signals.closing.load(Ordering::Acquire);
            let ending = closing || self.signals.ending.load(Ordering::Acquire);
            self.welcome();
            let batch = self.collect(ending);
            self.hand_out(batch);
            if ending && !self.ended {
                self.end();
            }
            if self.ended {
                self.subscribers.iter_mut().for_each(|subscriber| subscriber.tell_end(&self.state));
            }
            if let Some(server) = &mut self.server {
                server.pump(self.pace.as_deref());
            }
            if closing {
                return self.close();
            }
            self.signals.taken.store(cpu::of_thread().as_nanos() as u64, Ordering::Relaxed);
            std::thread::park_timeout(PERIOD);
        }
    }

    fn welcome(&mut self) {
        let newcomers =
            std::mem::take(&mut *self.signals.newcomers.lock().unwrap_or_else(PoisonError::into_inner));
        let subscribers = newcomers.into_iter().map(|sender| Subscriber {
            sender,
            behind: true,
            gone: false,
            told_end: false,
        });
        self.subscribers.extend(subscribers);
        if let Some(server) = &mut self.server {
            server.accept(&self.state);
        }
    }

    /// Takes what has arrived, in order of time; with `all`, also what is too young to be sure of its place.
    fn collect(&mut self, all: bool) -> Batch {
        let now = self.receivers.first().map_or(0, Receiver::elapsed);
        let held = self.pace.as_ref().map_or(0, |pace| pace.held().as_nanos() as u64);
        // The clock of a run that is held stands still, but nothing is on its way any more.
        let still = self.pace.as_ref().is_some_and(|pace| pace.quiet().as_nanos() as u64 >= self.settle);
        let settled = match all || still {
            true => u64::MAX,
            false => now.saturating_sub(held).saturating_sub(self.settle),
        };
        self.receivers.iter().for_each(|receiver| receiver.drain(&mut self.waiting));
        // Stable, so that one rank's events of the same nanosecond keep their order.
        self.waiting.sort_by_key(|event| event.at);
        let ready = self.waiting.partition_point(|event| event.at <= settled);
        let rest = self.waiting.split_off(ready);
        let events = std::mem::replace(&mut self.waiting, rest);
        Batch { dropped: self.receivers.iter().map(Receiver::dropped).sum(), events }
    }

    fn hand_out(&mut self, batch: Batch) {
        self.report.events += batch.events.len() as u64;
        self.report.dropped = batch.dropped;
        self.state.dropped = batch.dropped;
        self.record(&batch);
        // Newcomers' fresh state must not hold what the batch will tell them again.
        self.subscribers.iter_mut().filter(|s| s.behind).for_each(|s| s.refresh(&self.state));
        batch.events.iter().for_each(|event| self.state.apply(event));
        if batch.events.is_empty() {
            return;
        }
        let message = Message::Batch(batch);
        if let Some(server) = self.server.as_mut().filter(|server| server.is_watched()) {
            let mut bytes = Vec::new();
            frame::encode(&message, &mut bytes);
            server.send(&bytes);
        }
        if let Some((last, others)) = self.subscribers.split_last_mut() {
            others.iter_mut().for_each(|subscriber| subscriber.send(message.clone()));
            last.send(message);
        }
        self.subscribers.retain(|subscriber| !subscriber.gone);
    }

    fn record(&mut self, batch: &Batch) {
        let Some(recorder) = &mut self.recorder else { return };
        let mut result = recorder.push(batch.dropped, &batch.events);
        if self.flushed.elapsed() >= FLUSH_PERIOD {
            result = result.and_then(|()| recorder.flush());
            self.flushed = Instant::now();
        }
        if let Err(error) = result {
            self.report.recording_error = Some(error.to_string());
            self.recorder = None;
        }
    }

    /// Tells everybody that nothing follows. Recorded too, so that a viewer who keeps the process alive loses nothing.
    fn end(&mut self) {
        self.ended = true;
        if let Some(recorder) = self.recorder.take() {
            match recorder.finish() {
                Ok(path) => self.report.recorded = Some(path),
                Err(error) => self.report.recording_error = Some(error.to_string()),
            }
        }
        if let Some(server) = &mut self.server {
            let mut bytes = Vec::new();
            frame::encode(&Message::End, &mut bytes);
            server.send(&bytes);
        }
    }

    fn close(mut self) -> HubReport {
        if let Some(server) = self.server.take() {
            server.close(Duration::from_millis(200));
        }
        self.report
    }
}

impl Subscriber {
    fn send(&mut self, message: Message) {
        if self.behind {
            return;
        }
        match self.sender.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.behind = true,
            Err(TrySendError::Disconnected(_)) => self.gone = true,
        }
    }

    fn tell_end(&mut self, state: &CatchUp) {
        if self.behind {
            self.refresh(state);
        }
        if !self.behind && !self.told_end {
            self.send(Message::End);
            self.told_end = !self.behind;
        }
    }

    fn refresh(&mut self, state: &CatchUp) {
        self.behind = false;
        self.send(Message::CatchUp(Box::new(state.clone())));
    }
}
