//! A rank's end of a process group.

use crate::CollectiveError;
use crate::backend::{Backend, Call, Result, Watch};
use crate::traffic::Traffic;
use device::{Buffer, DType};
use events::event::NO_UNIT;
use events::{Boundary, Emitter, Operation, Progress, What};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

mod control_channel;
mod pending;

pub use control_channel::{ControlChannel, Topic};
pub use pending::Pending;

/// Buffers that go through one collective together, and the units whose data they hold.
pub struct Bucket {
    /// The buffers; the same lengths and element types on every rank.
    pub buffers: Vec<Buffer>,
    /// First unit, or [`NO_UNIT`].
    pub first_unit: u16,
    /// Number of units.
    pub units: u16,
}

impl From<Vec<Buffer>> for Bucket {
    /// A bucket that holds no unit's data.
    fn from(buffers: Vec<Buffer>) -> Self {
        Bucket { buffers, first_unit: NO_UNIT, units: 0 }
    }
}

/// One rank's end of a process group; used on that rank's thread.
///
/// Dropping it says that this rank will take part in nothing more: others that still count on it get an error that
/// names it.
pub struct Group {
    backend: Arc<dyn Backend>,
    watch: Watch,
    /// Number of the next collective.
    next: Cell<u64>,
    /// Number of the next message per (sender, receiver).
    next_message: RefCell<BTreeMap<(usize, usize), u64>>,
    /// Number for the next sub-group.
    next_group: Cell<u16>,
    /// The last collective, in words.
    last: RefCell<Option<(Operation, u64)>>,
    /// Whether the next collective that moves buffers is left out.
    leaves_out: Cell<bool>,
}

impl Group {
    pub(crate) fn new(backend: Arc<dyn Backend>, group: u16) -> Self {
        let emitter = Emitter::silent(backend.names()[backend.member()]);
        Group {
            backend,
            watch: Watch::of(emitter, group),
            next: Cell::new(0),
            next_message: RefCell::default(),
            next_group: Cell::new(group + 1),
            last: RefCell::default(),
            leaves_out: Cell::default(),
        }
    }

    pub(crate) fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// The same group over the backend that `wrap` makes of its own.
    pub(crate) fn over<E>(
        mut self,
        wrap: impl FnOnce(Arc<dyn Backend>) -> std::result::Result<Arc<dyn Backend>, E>,
    ) -> std::result::Result<Self, E> {
        self.backend = wrap(self.backend.clone())?;
        Ok(self)
    }

    /// Tells events to `emitter` from now on and obeys its pace.
    pub fn attach(&mut self, emitter: Emitter) {
        self.watch.emitter = emitter;
    }

    /// To whom events are told.
    pub fn emitter(&self) -> &Emitter {
        &self.watch.emitter
    }

    /// This rank's number within the group.
    pub fn rank(&self) -> u32 {
        self.backend.member() as u32
    }

    /// Number of ranks in the group.
    pub fn size(&self) -> u32 {
        self.backend.names().len() as u32
    }

    /// What this rank has sent through this group so far.
    pub fn traffic(&self) -> Traffic {
        self.watch.counters.snapshot()
    }

    /// What this rank has sent so far through this group and all others that come from the same splits.
    pub fn overall_traffic(&self) -> Traffic {
        self.watch.overall.snapshot()
    }

    /// Every rank's buffers become the sum over ranks. Any length; f32, bf16 or f16.
    ///
    /// # Errors
    /// [`CollectiveError::Invalid`] for buffers without a sum; otherwise the group's failure.
    pub fn all_reduce(&self, bucket: Bucket) -> Result<Pending> {
        self.check(Operation::AllReduce, &bucket.buffers, true, false)?;
        self.issue(Operation::AllReduce, 0, bucket)
    }

    /// Slice r of rank r's buffers becomes the sum over ranks; its other slices are unspecified. Lengths must be
    /// multiples of the group's size; f32, bf16 or f16.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn reduce_scatter(&self, bucket: Bucket) -> Result<Pending> {
        self.check(Operation::ReduceScatter, &bucket.buffers, true, true)?;
        self.issue(Operation::ReduceScatter, 0, bucket)
    }

    /// Whether [`Group::reduce_scatter_exact`] has a way to go here: sums of a ring and of NCCL are rounded.
    pub fn sums_exactly(&self) -> bool {
        self.backend.sums_exactly()
    }

    /// As [`Group::reduce_scatter`], but the sums are handed out as they are before rounding: that of rank r's slice of
    /// each buffer in the buffer of `sums` at the same place, f32. The bucket's own buffers are unspecified afterwards, in
    /// every slice; what comes back is these, then `sums`.
    ///
    /// # Errors
    /// As [`Group::all_reduce`]; [`CollectiveError::Invalid`] too where `sums` are others than that, or
    /// [rounded](Group::sums_exactly).
    pub fn reduce_scatter_exact(&self, bucket: Bucket, sums: Vec<Buffer>) -> Result<Pending> {
        let operation = Operation::ReduceScatter;
        self.check(operation, &bucket.buffers, true, true)?;
        let size = self.size() as usize;
        let fits =
            |(sum, buffer): (&Buffer, &Buffer)| sum.dtype() == DType::F32 && sum.len() == buffer.len() / size;
        if sums.len() != bucket.buffers.len() || !sums.iter().zip(&bucket.buffers).all(fits) {
            return Err(
                self.invalid(operation, "places for sums that are not f32 slices of the buffers".into())
            );
        }
        if !self.sums_exactly() {
            return Err(self.invalid(operation, "sums before rounding: a ring and NCCL round them".into()));
        }
        self.issue_with(operation, 0, bucket, (sums, &[]))
    }

    /// Slice r of every rank's buffers becomes rank r's slice r. Lengths must be multiples of the group's size; any
    /// element type.
    ///
    /// # Errors
    /// As [`Group::all_reduce`].
    pub fn all_gather(&self, bucket: Bucket) -> Result<Pending> {
        self.check(Operation::AllGather, &bucket.buffers, false, true)?;
        self.issue(Operation::AllGather, 0, bucket)
    }

    /// Every rank's buffers become the root's. Any length and element type.
    ///
    /// # Errors
    /// [`CollectiveError::Invalid`] if there is no rank `root`; otherwise the group's failure.
    pub fn broadcast(&self, bucket: Bucket, root: u32) -> Result<Pending> {
        let root = self.peer(Operation::Broadcast, root)?;
        self.issue(Operation::Broadcast, root, bucket)
    }

    /// Sends a buffer to rank `to`, which must receive one of the same length and element type. The n-th send to a
    /// rank meets that rank's n-th receive from here.
    ///
    /// # Errors
    /// [`CollectiveError::Invalid`] if `to` is this rank or none; otherwise the group's failure.
    pub fn send(&self, buffer: Buffer, to: u32) -> Result<Pending> {
        let to = self.other(Operation::Send, to)?;
        self.issue(Operation::Send, to, vec![buffer].into())
    }

    /// Receives into a buffer what rank `from` sends; see [`Group::send`].
    ///
    /// # Errors
    /// As [`Group::send`].
    pub fn recv(&self, buffer: Buffer, from: u32) -> Result<Pending> {
        let from = self.other(Operation::Recv, from)?;
        self.issue(Operation::Recv, from, vec![buffer].into())
    }

    /// Returns once every rank is here.
    ///
    /// # Errors
    /// The group's failure.
    pub fn barrier(&self) -> Result<()> {
        self.issue(Operation::Barrier, 0, Vec::new().into())?.finish().map(drop)
    }

    /// Everybody's few bytes, in rank order. Lengths may differ. Blocks until every rank is here.
    ///
    /// # Errors
    /// The group's failure.
    pub fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.issue_with(Operation::Scalars, 0, Vec::new().into(), (Vec::new(), bytes))?
            .finish()
            .map(|(_, gathered)| gathered)
    }

    /// Splits the group: ranks that give the same `color` form a sub-group, in the order of their ranks here. Every
    /// rank of this group must call it. Its failures, counters and sequence numbers are its own, but a rank that
    /// poisons this group poisons its sub-groups too. Counts here as an exchange of 8 bytes.
    ///
    /// # Errors
    /// The group's failure.
    pub fn split(&self, color: u64) -> Result<Group> {
        let key = self.next.get();
        let colors: Vec<_> = self.exchange(&color.to_le_bytes())?;
        let same = |other: &Vec<u8>| other[..] == color.to_le_bytes();
        let members: Vec<usize> = (0..colors.len()).filter(|&member| same(&colors[member])).collect();
        let mut distinct: Vec<&Vec<u8>> = Vec::new();
        for other in &colors {
            if !distinct.contains(&other) {
                distinct.push(other);
            }
        }
        let index = distinct.iter().position(|&other| same(other)).unwrap_or(0) as u16;
        let number = self.next_group.get() + index;
        self.next_group.set(self.next_group.get() + distinct.len() as u16);
        let mut group = Group::new(self.backend.split((key, color), &members), number);
        group.attach(self.watch.emitter.clone());
        group.watch.overall = self.watch.overall.clone();
        group.watch.winding_down = self.watch.winding_down.clone();
        self.watch.emitter.emit(What::Joined { group: number, ranks: group.backend.names().into() });
        Ok(group)
    }

    /// A way to tell the others a few bytes that are no part of the run. Every rank makes one, at the same point of its
    /// program, and one only of each concern.
    pub fn control_channel(&self, topic: Topic) -> ControlChannel {
        ControlChannel::new(self.backend.beside(topic), self.watch.emitter.hushed())
    }

    /// Results on their way are no longer wanted, in this group and in those that come from the same splits: from now on a
    /// pending collective may be dropped, which waits for it. Every rank must have issued the same collectives by then.
    pub fn wind_down(&self) {
        self.watch.winding_down.store(true, Ordering::Relaxed);
    }

    /// Fails the group with this rank as the culprit: every rank that waits, or comes later, returns
    /// [`CollectiveError::Poisoned`] with these words. The first failure of a group stays.
    pub fn poison(&self, during: String, reason: String) {
        self.backend.poison(during, reason);
    }

    /// [`Group::poison`] with `culprit`, a rank of the world, as the culprit; with none where nobody can tell who is.
    pub fn blame(&self, culprit: Option<u32>, during: String, reason: String) {
        let names = self.backend.names();
        let culprit = culprit.and_then(|rank| names.iter().position(|&name| name == rank));
        self.backend.blame(culprit, during, reason);
    }

    /// Leaves out the next collective of this rank that moves buffers, as a program does that has taken another branch
    /// than its peers': it takes no number, nobody hears of it, and waiting gives its buffers back as they are.
    pub fn leave_out(&self) {
        self.leaves_out.set(true);
    }

    fn issue(&self, operation: Operation, peer: usize, bucket: Bucket) -> Result<Pending> {
        self.issue_with(operation, peer, bucket, (Vec::new(), &[]))
    }

    /// Issues a bucket with what does not travel as one of its buffers: places for sums, and the bytes of scalars.
    fn issue_with(
        &self,
        operation: Operation,
        peer: usize,
        bucket: Bucket,
        (sums, bytes): (Vec<Buffer>, &[u8]),
    ) -> Result<Pending> {
        let Bucket { mut buffers, first_unit, units } = bucket;
        let (backend, watch) = (self.backend.clone(), self.watch.clone());
        if !buffers.is_empty() && self.leaves_out.take() {
            return Ok(Pending { buffers: Some(buffers), call: None, backend, watch });
        }
        self.watch.emitter.boundary(Boundary::Collective);
        let call = Call {
            operation,
            sequence: self.number(operation, peer),
            peer,
            shapes: buffers.iter().map(|buffer| (buffer.len(), buffer.dtype())).collect(),
            first_unit,
            units,
            bytes: buffers.iter().map(|buffer| buffer.byte_len() as u64).sum::<u64>() + bytes.len() as u64,
            elsewhere: false,
        };
        self.last.replace(Some((operation, call.sequence)));
        buffers.extend(sums);
        self.watch.tell(&call, Progress::Issued);
        self.backend.issue(&call, &mut buffers, bytes, &self.watch).inspect_err(|_| self.watch.failing())?;
        Ok(Pending { buffers: Some(buffers), call: Some(call), backend, watch })
    }

    /// Takes the next sequence number.
    fn number(&self, operation: Operation, peer: usize) -> u64 {
        let me = self.backend.member();
        let pair = match operation {
            Operation::Send => (me, peer),
            Operation::Recv => (peer, me),
            _ => return self.next.replace(self.next.get() + 1),
        };
        let mut messages = self.next_message.borrow_mut();
        let next = messages.entry(pair).or_default();
        *next += 1;
        *next - 1
    }

    fn check(&self, operation: Operation, buffers: &[Buffer], sums: bool, slices: bool) -> Result<()> {
        let size = self.size() as usize;
        for buffer in buffers {
            if sums && buffer.dtype() == DType::U32 {
                return Err(self.invalid(operation, "u32 elements: sums are of f32, bf16 or f16".into()));
            }
            if slices && !buffer.len().is_multiple_of(size) {
                let what = format!("{} elements: not a multiple of the {size} ranks", buffer.len());
                return Err(self.invalid(operation, what));
            }
        }
        Ok(())
    }

    fn peer(&self, operation: Operation, rank: u32) -> Result<usize> {
        if rank < self.size() {
            return Ok(rank as usize);
        }
        Err(self.invalid(operation, format!("rank {rank}: the group has ranks 0 to {}", self.size() - 1)))
    }

    fn other(&self, operation: Operation, rank: u32) -> Result<usize> {
        if rank == self.rank() {
            return Err(self.invalid(operation, "this rank as its own peer".into()));
        }
        self.peer(operation, rank)
    }

    fn invalid(&self, operation: Operation, what: String) -> CollectiveError {
        CollectiveError::Invalid { rank: self.backend.names()[self.backend.member()], operation, what }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let during = match *self.last.borrow() {
                Some((operation, sequence)) => format!("its work after issuing {operation} #{sequence}"),
                None => "its work before the first collective".into(),
            };
            self.backend.poison(during, "it panicked".into());
        }
        self.backend.depart();
    }
}
