//! The interface between a [`Group`](crate::Group) and the engine that moves its data.

use super::call::{Call, Crossing};
use crate::CollectiveError;
use crate::call_id::CallId;
use crate::traffic::Waits;
use device::Buffer;
use events::Operation;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

pub(crate) type Result<T> = std::result::Result<T, CollectiveError>;

/// The outcome of a finished collective, in addition to its buffers.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Payload bytes that this rank sent.
    pub(crate) sent: u64,
    /// Every member's bytes, for [`Operation::Scalars`].
    pub(crate) gathered: Vec<Vec<u8>>,
    /// How long the wait was for something other than moving data.
    pub(crate) waits: Waits,
    /// The time at which the data crossed the simulated link; `None` without one.
    pub(crate) crossing: Option<Crossing>,
    /// The time at which every rank had issued the call and the simulated link had delivered;
    /// `None` if it is unknown.
    pub(crate) complete: Option<Instant>,
}

/// The purpose of a [control channel](crate::ControlChannel). A group has one sub-group per topic,
/// so that messages of one topic never meet those of another, whenever the channels are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Making a communicator of all ranks.
    Setup,
    /// Measuring the memory of communicators that are split off.
    Splits,
    /// Agreeing on the end of the run.
    Ending,
    /// Writing the run's files.
    Writing,
    /// Saving checkpoints.
    Saving,
    /// Choosing the checkpoint to resume.
    Resuming,
}

/// One rank's end of a group, as an engine implements it.
///
/// From `issue` until `wait` or `abandon` returns, the caller keeps the call's buffers alive, in
/// place and untouched.
pub(crate) trait Backend: Send + Sync {
    /// Returns this rank's place in the group.
    fn member(&self) -> usize;

    /// Returns the members' ranks in the world.
    fn global_ranks(&self) -> &[u32];

    /// Returns this rank's number in the world.
    fn global_rank(&self) -> u32 {
        self.global_ranks()[self.member()]
    }

    /// True if a reduce-scatter can return its sums before they are rounded.
    fn sums_exactly(&self) -> bool;

    /// True if data of other ranks wait in main memory until this rank waits for their collective.
    fn holds_early_data(&self) -> bool {
        false
    }

    /// Hands in buffers (or `bytes`, for scalars) and returns without waiting for other ranks.
    /// Buffers beyond those of the call's shapes are where a reduce-scatter writes its exact sums,
    /// if it [can](Backend::sums_exactly).
    fn issue(&self, call: &Arc<Call>, buffers: &mut [Buffer], bytes: &[u8]) -> Result<()>;

    /// Blocks until the call is complete on this rank, or until the group has failed. In both cases
    /// no rank touches this rank's buffers of the call any more.
    fn wait(&self, call: &Call) -> Result<Outcome>;

    /// Gives up an issued call: poisons the group, and blocks until no rank touches the call's
    /// buffers any more.
    fn abandon(&self, call: &Call, during: String, reason: String);

    /// Fails the group, unless it has failed already. `culprit` is the member at fault; `None` if
    /// it is unknown.
    fn blame(&self, culprit: Option<usize>, during: String, reason: String);

    /// Returns this rank's error for `operation`, which cannot take `what`.
    fn invalid(&self, operation: Operation, what: &str) -> CollectiveError {
        CollectiveError::Invalid { rank: self.global_rank(), operation, what: what.into() }
    }

    /// Returns this rank's error for a call that has failed on its device.
    fn device_error(&self, call: &Call, error: &dyn Display) -> CollectiveError {
        CollectiveError::Device { rank: self.global_rank(), call: call.id(), reason: error.to_string() }
    }

    /// Fails the group with this rank as the culprit, unless it has failed already.
    fn poison(&self, during: String, reason: String) {
        self.blame(Some(self.member()), during, reason);
    }

    /// Returns the group's failure, if it has failed, as an error of this rank in `call`, or in no
    /// call.
    fn failure(&self, call: Option<CallId>) -> Option<CollectiveError>;

    /// Takes in the messages that have arrived, in an engine in which only this rank's thread does
    /// so.
    fn receive(&self) {}

    /// Publishes that this rank is blocked on a disk or a copy, or that it is no longer.
    fn publish_blocked(&self, blocked: bool);

    /// True if `member` has published that it is blocked, and not on this rank.
    fn is_member_blocked(&self, member: usize) -> bool;

    /// Tells the other ranks how many steps this rank has taken in the engine that moves data [in
    /// place of the group's own](super::call::Signature::external_engine): one for its setup, and
    /// two per collective.
    fn report_steps(&self, steps: u64);

    /// Returns the number of steps that every member has reported, in order; 0 for a member that
    /// has reported none.
    fn reported_steps(&self) -> Vec<u64>;

    /// Declares that this rank will issue nothing more.
    fn depart(&self);

    /// Returns this rank's end of the sub-group of `members`. All of them call it with the same
    /// arguments; `key` tells apart the sub-groups of this group.
    fn split(&self, key: (u64, u64), members: &[usize]) -> Arc<dyn Backend>;

    /// Returns this rank's end of a sub-group of all members for a control channel. All of them
    /// call it once per topic.
    fn open_control_group(&self, topic: Topic) -> Arc<dyn Backend> {
        let all: Vec<usize> = (0..self.global_ranks().len()).collect();
        self.split((u64::MAX, u64::MAX - topic as u64), &all)
    }
}
