//! What happened during a run, as data.
//!
//! Ranks describe what they do as [`Event`]s; everything that watches a run (the screen, a recording, a viewer in
//! another process) reads them and nothing else. A rank never waits for its watchers: each rank owns a bounded
//! [ring](ring), and what does not fit is dropped, counted and shown. Events carry absolute values (bytes live after,
//! totals so far), so a drop heals itself with the next event. The memory ledger and
//! the traffic counters stay the authority: the closing report reads those, never this crate.
//!
//! * [`event`]: the vocabulary.
//! * [`header`]: what a watcher must know before the first event: layout, partition, predictions.
//! * [`ring`]: from a rank's thread to the collector, without blocking.
//! * [`hub`]: the collector, which feeds the screen, the recording and the socket.
//! * [`snapshot`], [`units`], [`history`], [`catchup`]: the fold of all events so far.
//! * [`frame`], [`recording`], [`socket`], [`runs`]: the fold's and the events' way into files and other processes.
//! * [`relay`]: the events of other processes of a job.
//! * [`cpu`]: what watching costs a run.
//! * [`say!`], [`complain!`]: lines for a person who may have stopped reading.
//! * [`pace`]: the other direction, pausing and stepping a run.

#![forbid(unsafe_code)]

pub mod catchup;
pub mod cpu;
pub mod event;
pub mod frame;
pub mod header;
pub mod history;
pub mod hub;
pub mod pace;
pub mod recording;
pub mod relay;
pub mod ring;
pub mod runs;
pub mod say;
pub mod snapshot;
pub mod socket;
pub mod units;

pub use catchup::CatchUp;
pub use event::{
    Class, CollectiveEvent, Contribution, Event, Operation, Pass, Place, Progress, Purpose, What, Work,
};
pub use frame::{Batch, FrameError, Message};
pub use header::RunHeader;
pub use history::{History, StepRecord};
pub use hub::{Hub, HubError, HubOptions, HubReport, Subscription};
pub use pace::{Boundary, Control, Pace};
pub use recording::{Recorder, Recording, RecordingError};
pub use relay::{Inlets, Outlet};
pub use ring::{Emitter, Feed, Receiver, channel, feed};
pub use runs::AttachError;
pub use snapshot::{Flight, Membership, Outcome, PassNow, RankSnapshot, Scaling, Sent, Snapshot};
pub use socket::Attachment;
