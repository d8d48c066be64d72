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
//! * [`pace`]: the other direction, pausing and stepping a run.

pub mod event;
pub mod header;
pub mod pace;
pub mod ring;

pub use event::{Class, CollectiveEvent, Event, Operation, Pass, Place, Progress, What};
pub use header::RunHeader;
pub use pace::{Boundary, Pace};
pub use ring::{Emitter, Receiver, channel};
