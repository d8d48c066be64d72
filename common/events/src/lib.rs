//! Events of a run, as data.
//!
//! Ranks emit [`Event`]s. The screen, a recording and a viewer in another process read only these.
//! A rank never waits for a watcher: each rank owns a bounded [ring], and an event that does not
//! fit is dropped and counted. Events carry absolute values (bytes live afterwards, totals so far),
//! so the next event of the same kind corrects the error that a dropped one causes. The memory
//! ledger and the traffic counters are the authority: the closing report reads those, never this
//! crate.
//!
//! * [`amount`]: bounds of the numbers that streams carry; [`counters!`]: sums and differences of
//!   counters.
//! * [`event`]: the types of events; [`labels!`]: the labels of an enum.
//! * [`header`]: the run's header, which precedes all events: layout, partition, predictions.
//! * [`ring`]: a bounded queue from a rank's thread to the collector.
//! * [`hub`]: the collector, which feeds the screen, the recording and the socket.
//! * [`snapshot`], [`units`], [`history`]: the state of a run, folded from all events so far.
//! * [`frame`], [`recording`]: the format of streams, and streams in files.
//! * [`socket`], [`runs`]: streams to viewers in other processes, and how a viewer finds a run.
//! * [`relay`]: streams between the processes of one job.
//! * [`cpu`]: processor time of a thread and of the process; [`lock`](lock()): locks after panics.
//! * [`say!`], [`complain!`]: lines on standard output and standard error, which do not fail if
//!   nothing reads them.
//! * [`pace`]: pausing, stepping and slowing a run.

#![forbid(unsafe_code)]

pub mod amount;
mod counters;
pub mod cpu;
pub mod event;
pub mod frame;
pub mod header;
pub mod history;
pub mod hub;
mod lock;
pub mod pace;
pub mod recording;
pub mod relay;
pub mod ring;
pub mod runs;
pub mod say;
pub mod snapshot;
pub mod socket;
mod unit_set;
pub mod units;

pub use event::{
    Class, CollectiveEvent, Event, LocalMetrics, Operation, Pass, Place, Progress, Purpose, Route,
    TransferEvent, What, Work,
};
pub use frame::{EventBatch, FrameError, Message};
pub use header::RunHeader;
pub use history::{CatchUp, History, StepRecord};
pub use hub::{Hub, HubError, HubOptions, HubReport, Subscription};
pub use lock::lock;
pub use pace::{Boundary, Control, Pace};
pub use recording::{Gap, Growth, Recorder, Recording, RecordingError};
pub use relay::{Inlets, Outlet};
pub use ring::{Began, Emitter, Feed, Receiver, channel, feed};
pub use snapshot::{
    Flight, Hop, Membership, Moved, PassNow, RankSnapshot, RankStatus, Scaling, Sent, Snapshot,
    TransferFlight, Transfers,
};
pub use socket::{AttachError, Attachment};
pub use unit_set::UnitSet;
