//! The collecting thread and its subscribers.

use super::{HubOptions, HubReport, HubState};
use crate::complain;
use crate::cpu;
use crate::event::Event;
use crate::frame::{self, EventBatch, Message};
use crate::header::RunHeader;
use crate::history::CatchUp;
use crate::lock::lock;
use crate::pace::Control;
use crate::recording::{Recorder, RecordingError};
use crate::ring::Receiver;
use crate::socket::Server;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::time::{Duration, Instant};

/// The interval at which rings are drained: shorter than the interval between pictures, and long
/// enough to cost almost nothing.
const PERIOD: Duration = Duration::from_millis(40);
/// The interval at which collected events are handed to the disk. While a write is in progress they
/// wait.
const FLUSH_PERIOD: Duration = Duration::from_millis(200);
/// Events younger than this many nanoseconds are held back, so that earlier events of slower ranks
/// can precede them.
const SETTLE: u64 = 2_000_000;
/// [`SETTLE`] if some ranks are other processes.
const SETTLE_REMOTE: u64 = 100_000_000;

struct Subscriber {
    sender: SyncSender<Message>,
    /// True if it has missed events: it must receive the current state next.
    behind: bool,
    gone: bool,
    told_end: bool,
}

pub(super) struct Collector {
    shared: Arc<HubState>,
    state: CatchUp,
    receivers: Vec<Receiver>,
    options: HubOptions,
    /// Viewers' requests to the pace.
    controls: Option<mpsc::Receiver<Control>>,
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
        shared: Arc<HubState>,
    ) -> Self {
        Collector {
            shared,
            state: CatchUp::new(header.world_size, header.units.len()),
            receivers,
            controls: options.pace.as_ref().map(|pace| pace.listen()),
            options,
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
            let closing = self.shared.closing.load(Ordering::Acquire);
            let ending = closing || self.shared.ending.load(Ordering::Acquire);
            let new = self.welcome();
            let batch = self.collect(ending);
            self.hand_out(batch);
            self.tell_pace(new);
            if ending && !self.ended {
                self.end();
            }
            if self.ended {
                self.subscribers.iter_mut().for_each(|subscriber| subscriber.tell_end(&self.state));
            }
            if let Some(server) = &mut self.server {
                server.pump(self.options.pace.as_deref());
            }
            if closing {
                if let Some(server) = self.server {
                    server.close(Duration::from_millis(200));
                }
                return self.report;
            }
            self.shared.cpu_time.store(cpu::of_thread().as_nanos() as u64, Ordering::Relaxed);
            std::thread::park_timeout(PERIOD);
        }
    }

    /// Adds new watchers. Returns true if a watcher does not know the pace, because it is new or
    /// has missed messages.
    fn welcome(&mut self) -> bool {
        let newcomers = std::mem::take(&mut *lock(&self.shared.newcomers));
        let subscriber = |sender| Subscriber { sender, behind: true, gone: false, told_end: false };
        self.subscribers.extend(newcomers.into_iter().map(subscriber));
        let accepted = self.server.as_mut().is_some_and(|server| server.accept(&self.state));
        accepted || self.subscribers.iter().any(|subscriber| subscriber.behind)
    }

    /// Sends watchers the pace that viewers have asked for, if a watcher does not know it or a
    /// viewer has made a request since the last call.
    fn tell_pace(&mut self, unknown: bool) {
        let asked = self.controls.as_ref().is_some_and(|controls| controls.try_iter().count() > 0);
        let Some(pace) = self.options.pace.as_ref().filter(|_| (unknown || asked) && !self.ended) else {
            return;
        };
        let message = Message::Control(pace.asked());
        if let Some(server) = &mut self.server {
            server.send(&frame::encoded(&message));
        }
        self.subscribers.iter_mut().for_each(|subscriber| subscriber.send(message.clone()));
    }

    /// Returns the events that have arrived, sorted by time. Without `all`, holds back events
    /// younger than [`SETTLE`].
    fn collect(&mut self, all: bool) -> EventBatch {
        let settle = if self.options.remote { SETTLE_REMOTE } else { SETTLE };
        let pace = self.options.pace.as_ref();
        let now = self.receivers.first().map_or(0, Receiver::elapsed);
        let paused = pace.map_or(0, |pace| pace.paused().as_nanos() as u64);
        // The clock of a paused run stands still. After `settle` nanoseconds without activity, no
        // event is still in transit.
        let still = pace.is_some_and(|pace| pace.quiet().as_nanos() as u64 >= settle);
        let settled = if all || still { u64::MAX } else { now.saturating_sub(paused).saturating_sub(settle) };
        self.receivers.iter().for_each(|receiver| receiver.drain(&mut self.waiting));
        if self.options.remote {
            // Another process's clock may be ahead, because it did not stop at the same time as
            // this process's clock.
            let latest = self.receivers.first().map_or(0, Receiver::elapsed).saturating_sub(paused);
            self.waiting.iter_mut().for_each(|event| event.at = event.at.min(latest));
        }
        // The sort is stable, so that one rank's events of the same nanosecond keep their order.
        self.waiting.sort_by_key(|event| event.at);
        let ready = self.waiting.partition_point(|event| event.at <= settled);
        let rest = self.waiting.split_off(ready);
        let events = std::mem::replace(&mut self.waiting, rest);
        EventBatch { dropped: self.receivers.iter().map(Receiver::dropped).sum(), events }
    }

    fn hand_out(&mut self, batch: EventBatch) {
        self.report.events += batch.events.len() as u64;
        self.report.dropped = batch.dropped;
        self.state.dropped = batch.dropped;
        self.record(&batch);
        // Subscribers that are behind get the state before this batch, which they receive as well.
        self.subscribers.iter_mut().filter(|s| s.behind).for_each(|s| s.refresh(&self.state));
        batch.events.iter().for_each(|event| self.state.apply(event));
        if batch.events.is_empty() {
            return;
        }
        let message = Message::Batch(batch);
        if let Some(server) = self.server.as_mut().filter(|server| server.viewers() > 0) {
            server.send(&frame::encoded(&message));
        }
        if let Some((last, others)) = self.subscribers.split_last_mut() {
            others.iter_mut().for_each(|subscriber| subscriber.send(message.clone()));
            last.send(message);
        }
        self.subscribers.retain(|subscriber| !subscriber.gone);
    }

    fn record(&mut self, batch: &EventBatch) {
        let Some(recorder) = &mut self.recorder else { return };
        let mut result = recorder.push(batch.dropped, &batch.events);
        if self.flushed.elapsed() >= FLUSH_PERIOD {
            result = result.and_then(|()| recorder.advance());
            self.flushed = Instant::now();
        }
        if let Err(error) = result {
            self.end_recording(&error);
        }
    }

    /// Ends the recording before the run: the events written so far stay under the temporary name.
    fn end_recording(&mut self, error: &RecordingError) {
        let Some(recorder) = self.recorder.take() else { return };
        let partial = recorder.partial().display();
        let message = format!("{error}\nThe events recorded until then are in {partial}.");
        if self.options.complains {
            complain!("warning: {message}\nThe run continues without a recording.");
        }
        self.report.recording_error = Some(message);
    }

    /// Ends the recording and sends the end to viewers. A viewer may keep the process alive, so
    /// this does not wait for `close`.
    fn end(&mut self) {
        self.ended = true;
        match self.recorder.as_mut().map(Recorder::finish) {
            Some(Ok(path)) => self.report.recorded = Some(path),
            Some(Err(error)) => self.end_recording(&error),
            None => {}
        }
        self.recorder = None;
        if let Some(server) = &mut self.server {
            server.send(&frame::encoded(&Message::End));
        }
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
