//! A rank's end of a process group.

use crate::call_id::CallId;
use crate::core::backend::{Backend, Result, Topic};
use crate::core::call::{BufferShape, Call, Signature};
use crate::core::observer::Observer;
use crate::traffic::{CallTimer, Traffic};
use device::{Buffer, DType};
use events::{Boundary, Emitter, Operation, Progress, UnitSet, What, lock};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

mod control_channel;
mod pending;
mod watch;

pub use control_channel::ControlChannel;
pub use pending::Pending;
pub use watch::GroupWatch;

/// Buffers that go through one collective together, and the units whose data they hold.
pub struct Bucket {
    /// The buffers; the same lengths and element types on every rank.
    pub buffers: Vec<Buffer>,
    /// The units.
    pub units: UnitSet,
}

impl From<Vec<Buffer>> for Bucket {
    /// Returns a bucket that holds no unit's data.
    fn from(buffers: Vec<Buffer>) -> Self {
        Bucket { buffers, units: UnitSet::default() }
    }
}

/// One rank's end of a process group; used on that rank's thread.
///
/// Dropping it declares that this rank takes no further part: ranks that still wait for it get an
/// error that names it.
pub struct Group {
    backend: Arc<dyn Backend>,
    observer: Observer,
    /// Number of the next collective.
    next: Cell<u64>,
    /// Number for the next sub-group.
    next_group: Cell<u16>,
    /// The topics whose control channels this rank has opened.
    opened_topics: RefCell<Vec<Topic>>,
    /// The last collective.
    last: Cell<Option<CallId>>,
    /// True if the next collective that moves buffers is to be skipped.
    skips_next: Cell<bool>,
}

impl Group {
    pub(crate) fn new(backend: Arc<dyn Backend>, group: u16) -> Self {
        let emitter = Emitter::silent(backend.global_rank());
        Group {
            backend,
            observer: Observer::new(emitter, group),
            next: Cell::new(0),
            next_group: Cell::new(1),
            opened_topics: RefCell::default(),
            last: Cell::default(),
            skips_next: Cell::default(),
        }
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Replaces the backend by one over it.
    pub(crate) fn over(mut self, backend: Arc<dyn Backend>) -> Self {
        self.backend = backend;
        self
    }

    /// Emits events to `emitter` from now on and obeys its pace.
    pub fn attach(&mut self, emitter: Emitter) {
        self.observer.emitter = emitter;
    }

    /// Returns the emitter of this rank's events.
    pub fn emitter(&self) -> &Emitter {
        &self.observer.emitter
    }

    /// Returns this rank's number within the group.
    pub fn rank(&self) -> u32 {
        self.backend.member() as u32
    }

    /// Returns the number of ranks in the group.
    pub fn size(&self) -> u32 {
        self.backend.global_ranks().len() as u32
    }

    /// Returns this rank's slice of a full buffer that is cut into slices of `shard` elements.
    pub fn own_slice(&self, shard: usize) -> Range<usize> {
        let rank = self.rank() as usize;
        rank * shard..(rank + 1) * shard
    }

    /// Returns the traffic that this rank has sent through this group so far.
    pub fn traffic(&self) -> Traffic {
        self.observer.counters.snapshot()
    }

    /// Returns the traffic that this rank has sent so far through this group, the groups split from
    /// it, and those it was split from.
    pub fn overall_traffic(&self) -> Traffic {
        self.observer.overall.snapshot()
    }

    /// Makes every rank's buffers the sum over ranks. Any length; f32, bf16 or f16.
    ///
    /// # Errors
    /// [`CollectiveError::Invalid`](crate::CollectiveError) for buffers without a sum; otherwise
    /// the group's failure.
    pub fn all_reduce(&self, bucket: Bucket) -> Result<Pending> {
        self.issue(Operation::AllReduce, 0, bucket)
    }

    /// Makes slice r of rank r's buffers the sum over ranks; its other slices are unspecified.
    /// Lengths must be multiples of the group's size; f32, bf16 or f16.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn reduce_scatter(&self, bucket: Bucket) -> Result<Pending> {
        self.issue(Operation::ReduceScatter, 0, bucket)
    }

    /// True if [`Group::reduce_scatter_exact`] works on this group. A ring and NCCL round their
    /// sums.
    pub fn sums_exactly(&self) -> bool {
        self.backend.sums_exactly()
    }

    /// True if data of other ranks wait in main memory until this rank waits for their collective:
    /// between processes without NCCL.
    pub fn holds_early_data(&self) -> bool {
        self.backend.holds_early_data()
    }

    /// Does what [`Group::reduce_scatter`] does, but returns the sums before rounding: the sum of
    /// rank r's slice of the i-th buffer is in `sums[i]`, f32. Afterwards all slices of the
    /// bucket's own buffers are unspecified. Returns them, followed by `sums`.
    ///
    /// # Errors
    /// As [`Group::all_reduce`]; also [`CollectiveError::Invalid`](crate::CollectiveError) if
    /// `sums` have other types or lengths, or are [rounded](Group::sums_exactly).
    pub fn reduce_scatter_exact(&self, bucket: Bucket, sums: Vec<Buffer>) -> Result<Pending> {
        let operation = Operation::ReduceScatter;
        let invalid = |what| Err(self.backend.invalid(operation, what));
        self.check(operation, &bucket.buffers)?;
        let size = self.size() as usize;
        let fits =
            |(sum, buffer): (&Buffer, &Buffer)| sum.dtype() == DType::F32 && sum.len() == buffer.len() / size;
        if sums.len() != bucket.buffers.len() || !sums.iter().zip(&bucket.buffers).all(fits) {
            return invalid("places for sums other than one f32 slice per buffer");
        }
        if !self.sums_exactly() {
            return invalid("sums before rounding: a ring and NCCL round them");
        }
        self.issue_with(operation, 0, bucket, (sums, &[]))
    }

    /// Copies rank r's slice r to slice r of every rank's buffers. Lengths must be multiples of the
    /// group's size; any element type.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn all_gather(&self, bucket: Bucket) -> Result<Pending> {
        self.issue(Operation::AllGather, 0, bucket)
    }

    /// Copies the root's buffers to every rank's. Any length and element type.
    ///
    /// # Errors
    /// [`CollectiveError::Invalid`](crate::CollectiveError) if there is no rank `root`; otherwise
    /// the group's failure.
    pub fn broadcast(&self, bucket: Bucket, root: u32) -> Result<Pending> {
        self.issue(Operation::Broadcast, root, bucket)
    }

    /// Issues `operation` on `bucket`. `root` is the sender of a broadcast, and 0 otherwise.
    ///
    /// # Errors
    /// As [`Group::all_reduce`] or whichever function issues that operation.
    pub fn issue(&self, operation: Operation, root: u32, bucket: Bucket) -> Result<Pending> {
        if root >= self.size() {
            let what = format!("rank {root}: the group has ranks 0 to {}", self.size() - 1);
            return Err(self.backend.invalid(operation, &what));
        }
        self.check(operation, &bucket.buffers)?;
        self.issue_with(operation, root as usize, bucket, (Vec::new(), &[]))
    }

    /// Blocks until every rank has called it.
    ///
    /// # Errors
    /// The group's failure.
    pub fn barrier(&self) -> Result<()> {
        self.issue(Operation::Barrier, 0, Vec::new().into())?.finish().map(drop)
    }

    /// Returns every rank's bytes, in rank order. Lengths may differ. Blocks until every rank has
    /// called it.
    ///
    /// # Errors
    /// The group's failure.
    pub fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.issue_with(Operation::Scalars, 0, Vec::new().into(), (Vec::new(), bytes))?
            .finish()
            .map(|(_, gathered)| gathered)
    }

    /// Splits the group: ranks that give the same `color` form a sub-group, in the order of their
    /// ranks here. Every rank of this group must call it. A sub-group has its own failures,
    /// counters and sequence numbers, but a failure reported to this group also fails its
    /// sub-groups. Counts here as an exchange of 8 bytes.
    ///
    /// # Errors
    /// The group's failure.
    ///
    /// # Panics
    /// If this is a sub-group: numbers of groups tell only the sub-groups of one group apart.
    pub fn split(&self, color: u64) -> Result<Group> {
        assert_eq!(self.observer.group, 0, "only the group of all ranks is split");
        let key = self.next.get();
        let colors: Vec<_> = self.exchange(&color.to_le_bytes())?;
        let same = |other: &Vec<u8>| other[..] == color.to_le_bytes();
        let members: Vec<usize> = (0..colors.len()).filter(|&member| same(&colors[member])).collect();
        // Sub-groups are numbered by their first members.
        let is_first = |member: &usize| !colors[..*member].contains(&colors[*member]);
        let firsts: Vec<usize> = (0..colors.len()).filter(is_first).collect();
        let index = firsts.iter().position(|first| Some(first) == members.first()).unwrap_or(0) as u16;
        let number = self.next_group.get() + index;
        self.next_group.set(self.next_group.get() + firsts.len() as u16);
        let mut group = Group::new(self.backend.split((key, color), &members), number);
        group.attach(self.observer.emitter.clone());
        group.observer.overall = self.observer.overall.clone();
        group.observer.winding_down = self.observer.winding_down.clone();
        self.observer
            .emitter
            .emit(What::Joined { group: number, ranks: group.backend.global_ranks().into() });
        Ok(group)
    }

    /// Opens a channel for small messages that are neither emitted as events nor counted as
    /// traffic. Every rank opens it at the same point of its program, once per topic.
    ///
    /// # Panics
    /// If this rank has opened the topic's channel before.
    pub fn control_channel(&self, topic: Topic) -> ControlChannel {
        let mut opened = self.opened_topics.borrow_mut();
        assert!(!opened.contains(&topic), "the control channel for {topic:?} is open already");
        opened.push(topic);
        ControlChannel::new(self.backend.open_control_group(topic), self.observer.emitter.without_events())
    }

    /// Returns a handle for waits on disks and copies: it reports the group's failure and pauses
    /// peers' deadlines.
    pub fn watch(&self) -> GroupWatch {
        GroupWatch::new(&self.backend)
    }

    /// Returns when the collective that this rank has waited for last was complete: all ranks had
    /// issued it, and a simulated link had delivered it. Ranks of one process move data only when
    /// they wait, which may be later; a GPU moves them at that moment. Where other engines move
    /// them, this is when the wait ended.
    pub fn latest_complete(&self) -> Instant {
        lock(&self.observer.complete).unwrap_or_else(Instant::now)
    }

    /// Allows pending collectives to be dropped from now on, in this group and in all that share
    /// its [`Group::overall_traffic`]; a drop blocks until the collective is complete. Every rank
    /// must have issued the same collectives by then.
    pub fn wind_down(&self) {
        self.observer.winding_down.store(true, Ordering::Relaxed);
    }

    /// Fails the group with this rank as the culprit: every rank that waits, now or later, returns
    /// [`CollectiveError::Poisoned`](crate::CollectiveError) with these words. The first failure of
    /// a group stays.
    pub fn poison(&self, during: String, reason: String) {
        self.backend.poison(during, reason);
    }

    /// Fails the group as [`Group::poison`] does, with rank `culprit` of the world at fault; `None`
    /// if it is unknown.
    pub fn blame(&self, culprit: Option<u32>, during: String, reason: String) {
        let global_ranks = self.backend.global_ranks();
        let culprit = culprit.and_then(|rank| global_ranks.iter().position(|&global| global == rank));
        self.backend.blame(culprit, during, reason);
    }

    /// Makes this rank skip its next collective that moves buffers, as if its program had taken
    /// another branch than the others'. The collective gets no number, no other rank notices, and
    /// waiting returns its buffers unchanged.
    pub fn skip_next_collective(&self) {
        self.skips_next.set(true);
    }

    /// Issues a bucket, with places for sums and the bytes of scalars, which do not travel as
    /// buffers.
    fn issue_with(
        &self,
        operation: Operation,
        root: usize,
        bucket: Bucket,
        (sums, bytes): (Vec<Buffer>, &[u8]),
    ) -> Result<Pending> {
        let Bucket { mut buffers, units } = bucket;
        let backend = self.backend.clone();
        if !buffers.is_empty() && self.skips_next.take() {
            return Ok(Pending { buffers: Some(buffers), call: None, backend });
        }
        self.observer.emitter.boundary(Boundary::Collective);
        let shape = |buffer: &Buffer| BufferShape { len: buffer.len(), dtype: buffer.dtype() };
        let on_gpu = buffers.iter().any(|buffer| !buffer.on_host());
        let shapes = buffers.iter().map(shape).collect();
        let call = Arc::new(Call {
            signature: Signature { operation, root, shapes, units, on_gpu, external_engine: false },
            sequence: self.next.replace(self.next.get() + 1),
            bytes: buffers.iter().map(|buffer| buffer.byte_len() as u64).sum::<u64>() + bytes.len() as u64,
            observer: self.observer.clone(),
        });
        self.last.set(Some(call.id()));
        buffers.extend(sums);
        call.emit(Progress::Issued);
        let timer = CallTimer::start(&self.observer.emitter);
        self.backend.issue(&call, &mut buffers, bytes).inspect_err(|_| self.observer.failing())?;
        self.observer.spent(operation, &timer);
        Ok(Pending { buffers: Some(buffers), call: Some(call), backend })
    }

    /// Refuses buffers that `operation` cannot sum or cut into equal slices.
    fn check(&self, operation: Operation, buffers: &[Buffer]) -> Result<()> {
        let size = self.size() as usize;
        let sums = matches!(operation, Operation::AllReduce | Operation::ReduceScatter);
        let slices = matches!(operation, Operation::ReduceScatter | Operation::AllGather);
        for buffer in buffers {
            if sums && buffer.dtype() == DType::U32 {
                return Err(self.backend.invalid(operation, "u32 elements: sums are of f32, bf16 or f16"));
            }
            if slices && !buffer.len().is_multiple_of(size) {
                let what = format!("{} elements: not a multiple of the {size} ranks", buffer.len());
                return Err(self.backend.invalid(operation, &what));
            }
        }
        Ok(())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let during = match self.last.get() {
                Some(call) => format!("its work after issuing {call}"),
                None => "its work before the first collective".into(),
            };
            self.backend.poison(during, "it panicked".into());
        }
        self.backend.depart();
    }
}
