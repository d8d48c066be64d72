//! What a group asks of the machinery that moves its data.

use crate::CollectiveError;
use crate::group::Topic;
use crate::traffic::TrafficCounters;
use device::{Buffer, DType};
use events::event::NO_UNIT;
use events::{CollectiveEvent, Emitter, Operation, Progress, What};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

pub(crate) type Result<T> = std::result::Result<T, CollectiveError>;

/// One collective as one rank issues it.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) operation: Operation,
    /// Number within the group, or within the sender's messages to one receiver.
    pub(crate) sequence: u64,
    /// Root, receiver or sender, as a member of the group; 0 where there is none.
    pub(crate) peer: usize,
    /// Elements and element type per buffer.
    pub(crate) shapes: Vec<(usize, DType)>,
    pub(crate) first_unit: u16,
    pub(crate) units: u16,
    /// Bytes of all buffers.
    pub(crate) bytes: u64,
    /// Others move the buffers' data: the ranks only agree that they mean the same call.
    pub(crate) elsewhere: bool,
}

impl Call {
    /// What stands for a call where none is meant.
    pub(crate) fn none() -> Self {
        Call {
            operation: Operation::Barrier,
            sequence: 0,
            peer: 0,
            shapes: Vec::new(),
            first_unit: NO_UNIT,
            units: 0,
            bytes: 0,
            elsewhere: false,
        }
    }

    /// `#7` with the operation, as messages name it.
    pub(crate) fn label(&self) -> String {
        format!("{} #{}", self.operation, self.sequence)
    }
}

/// What a finished collective leaves beside the buffers.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Payload bytes that this rank sent.
    pub(crate) sent: u64,
    /// Everybody's bytes, for [`Operation::Scalars`].
    pub(crate) gathered: Vec<Vec<u8>>,
    /// What the time was spent on, beside moving data.
    pub(crate) waits: Waits,
    /// When the data crossed a simulated link, if there is one.
    pub(crate) crossing: Option<Crossing>,
}

/// Parts of a wait for a collective's result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waits {
    /// Until peers had issued, and had done their parts.
    pub(crate) peers: Duration,
    /// Until the simulated link delivered.
    pub(crate) link: Duration,
}

/// A transfer over a simulated link, in time before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crossing {
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    /// How long the rank waited for the link.
    pub(crate) exposed: Duration,
}

/// One rank's end of a group, as a backend sees it.
///
/// The caller keeps the buffers of an issued call alive, where they are and untouched until `wait` or `abandon` has
/// returned for it. Sequence numbers count from 0 without gaps, one count for collectives, one for the messages of
/// each ordered pair.
pub(crate) trait Backend: Send + Sync {
    /// This rank's place in the group.
    fn member(&self) -> usize;

    /// The members' ranks in the world.
    fn names(&self) -> &[u32];

    /// Whether a reduce-scatter can hand out its sums before they are rounded.
    fn sums_exactly(&self) -> bool;

    /// Hands in buffers (or `bytes`, for scalars) and returns without waiting for others. Buffers beyond those of the
    /// call's shapes are where a reduce-scatter leaves its sums, if it [can](Backend::sums_exactly).
    fn issue(&self, call: &Call, buffers: &mut [Buffer], bytes: &[u8], watch: &Watch) -> Result<()>;

    /// Returns once the call is complete here and nobody touches its buffers any more; or with the group's failure,
    /// under the same guarantee.
    fn wait(&self, call: &Call, watch: &Watch) -> Result<Outcome>;

    /// Gives up an issued call: poisons the group and returns once nobody touches the call's buffers any more.
    fn abandon(&self, call: &Call, during: String, reason: String, watch: &Watch);

    /// Fails the group with `culprit` of its members as the culprit, unless it has failed already; none where nobody can tell.
    fn blame(&self, culprit: Option<usize>, during: String, reason: String);

    /// [`Backend::blame`] of this rank itself.
    fn poison(&self, during: String, reason: String) {
        self.blame(Some(self.member()), during, reason);
    }

    /// The group's failure as this rank sees it in `call`, if it has failed.
    fn failure(&self, call: &Call) -> Option<CollectiveError>;

    /// Lets the others know that this rank has handed in `count` collectives to whatever moves data
    /// [elsewhere](Call::elsewhere).
    fn report(&self, count: u64);

    /// What every member has reported last, in order; 0 of those who have not.
    fn reports(&self) -> Vec<u64>;

    /// This rank will issue nothing more.
    fn depart(&self);

    /// This rank's end of the sub-group of `members`. All of them call with the same arguments; `key` tells apart
    /// the sub-groups of this group.
    fn split(&self, key: (u64, u64), members: &[usize]) -> Arc<dyn Backend>;

    /// This rank's end of a sub-group of all members for words alone. All of them call with the same `topic`, once.
    fn beside(&self, topic: Topic) -> Arc<dyn Backend> {
        let all: Vec<usize> = (0..self.names().len()).collect();
        self.split((u64::MAX, u64::MAX - topic as u64), &all)
    }
}

/// Where a rank's doings are counted and told.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) emitter: Emitter,
    pub(crate) counters: Arc<TrafficCounters>,
    /// The same over this group, all groups split from it, and the one it was split from with all of its.
    pub(crate) overall: Arc<TrafficCounters>,
    /// The group's number.
    pub(crate) group: u16,
    /// Whether results on their way are no longer wanted; for the same groups as `overall`.
    pub(crate) winding_down: Arc<AtomicBool>,
}

impl Watch {
    /// Of what is no part of the run.
    pub(crate) fn silent(rank: u32) -> Self {
        Watch::of(Emitter::silent(rank), 0)
    }

    /// Of group number `group`, told to `emitter`.
    pub(crate) fn of(emitter: Emitter, group: u16) -> Self {
        let (counters, overall, winding_down) = (Arc::default(), Arc::default(), Arc::default());
        Watch { emitter, counters, overall, group, winding_down }
    }

    /// Tells how far a collective has come.
    pub(crate) fn tell(&self, call: &Call, progress: Progress) {
        self.emitter.emit(What::Collective(CollectiveEvent {
            progress,
            sequence: call.sequence,
            operation: call.operation,
            group: self.group,
            unit: call.first_unit,
            units: call.units,
            bytes: call.bytes,
            sent: self.overall.sent(call.operation),
        }));
    }

    /// Tells when a collective's data crossed the simulated link.
    pub(crate) fn tell_crossing(&self, call: &Call, crossing: Crossing) {
        let nanoseconds = |time: Duration| time.as_nanos() as u64;
        self.emitter.emit(What::Crossed {
            group: self.group,
            sequence: call.sequence,
            began: nanoseconds(crossing.began),
            ended: nanoseconds(crossing.ended),
            exposed: nanoseconds(crossing.exposed),
        });
    }

    /// Tells that this rank's collective has failed, while its buffers are still there.
    pub(crate) fn failing(&self) {
        self.emitter.emit(What::Failing);
    }

    /// Time for which the run has been held so far.
    pub(crate) fn held(&self) -> Duration {
        self.emitter.held()
    }
}
