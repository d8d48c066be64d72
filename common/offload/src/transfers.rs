//! A rank's transfers: issued, waited for, numbered, counted and shown.

use crate::Result;
use crate::route_queue::{Priority, RouteQueue, Times};
use crate::swap::{DiskBuffer, Extent, PAGE, Swap, paged};
use crate::wait::WaitLimits;
use collectives::local::Link;
use device::{Buffer, Class, Device, Place};
use events::event::TransferEvent;
use events::{Emitter, Progress, Route, What};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};
use storage::{Disk, Effect, Ticket};

mod counters;
mod crossings;
mod waits;

use counters::ROUTES;
pub use counters::TransferCounters;
pub use crossings::Crossing;

/// The settings of a rank's transfers.
#[derive(Default)]
pub struct Options<'a> {
    /// The simulated link between device and main memory, in each direction; `None` for the real
    /// one.
    pub host: Option<Link>,
    /// The simulated link between main memory and disk, in each direction; `None` for the real one.
    pub disk: Option<Link>,
    /// The directory of the swap file; `None` if no state is stored on disk.
    pub directory: Option<&'a Path>,
    /// Number of bytes to reserve for the swap file at once. It grows if it needs more.
    pub reserved_bytes: u64,
    /// Reads and writes the swap file; `None` for a [`Disk`] of the rank's own.
    pub storage: Option<Disk>,
    /// Conditions that end the rank's waits early.
    pub limits: WaitLimits,
}

/// The bytes of a transfer, as a screen names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferLabel {
    /// The class of the buffer where the bytes are stored.
    pub class: Class,
    /// The unit that the bytes belong to; for activations the number of the block.
    pub unit: usize,
}

/// The transfers of one rank.
pub struct Transfers {
    device: Device,
    emitter: Emitter,
    start: Instant,
    queues: RefCell<[RouteQueue; ROUTES]>,
    swap: Option<Swap>,
    issued: Cell<u64>,
    moved: Cell<TransferCounters>,
    limits: WaitLimits,
    /// True once the results of transfers in flight are no longer wanted.
    winding_down: Cell<bool>,
}

/// A transfer that has been issued.
#[derive(Clone, Copy)]
struct Issued {
    sequence: u64,
    route: Route,
    label: TransferLabel,
    bytes: u64,
    at: Duration,
}

/// A read or write of a disk that the rank has not waited for. It returns the buffer, or nothing if
/// a read into the same buffer follows.
#[must_use = "a transfer may fail, and it holds a buffer"]
pub struct DiskTransfer<M = DiskBuffer> {
    issued: Issued,
    ticket: Ticket<M>,
    /// The disk's answer, if [`Transfers::is_done`] has received it.
    answer: Option<storage::Result<storage::Completed<M>>>,
    /// Its number on a simulated link.
    booked: Option<u64>,
}

/// Bytes of an extent on disk.
pub struct OnDisk<'a> {
    /// The name of the bytes.
    pub label: TransferLabel,
    /// The extent in which they are stored.
    pub extent: &'a Extent,
    /// The first of them, counted from the extent's start.
    pub start: usize,
    /// Their number.
    pub bytes: usize,
}

impl<'a> OnDisk<'a> {
    /// Returns the first `bytes` bytes of `extent`.
    pub fn first(label: TransferLabel, extent: &'a Extent, bytes: usize) -> Self {
        OnDisk { label, extent, start: 0, bytes }
    }

    /// Returns the first byte's place in the swap file.
    fn offset(&self) -> u64 {
        self.extent.offset + self.start as u64
    }
}

/// A buffer in main memory that has been read from a disk.
pub struct ReadBuffer {
    /// The buffer.
    pub buffer: Buffer,
    /// When the read was complete: a copy to the device may have begun then.
    pub complete: Instant,
}

impl Transfers {
    /// Returns the transfers of the rank of `emitter` on `device`.
    ///
    /// # Errors
    /// If the swap file cannot be created.
    pub fn new(device: Device, emitter: Emitter, options: Options<'_>) -> Result<Self> {
        let link = |route: &Route| match (route.from(), route.to()) {
            (Place::Disk, _) | (_, Place::Disk) => options.disk,
            _ => options.host,
        };
        let queues = std::array::from_fn(|i| RouteQueue::new(link(&Route::ALL[i])));
        let rank = emitter.rank();
        let swap = options
            .directory
            .map(|directory| Swap::create(options.storage, directory, rank, options.reserved_bytes));
        Ok(Transfers {
            device,
            emitter,
            start: Instant::now(),
            queues: RefCell::new(queues),
            swap: swap.transpose()?,
            issued: Cell::default(),
            moved: Cell::default(),
            limits: options.limits,
            winding_down: Cell::new(false),
        })
    }

    /// Returns the counters of the transfers so far.
    pub fn moved(&self) -> TransferCounters {
        self.moved.get()
    }

    /// Returns an extent of the swap file for `bytes` bytes, rounded up to whole pages.
    ///
    /// # Errors
    /// If the disk is full.
    ///
    /// # Panics
    /// If the rank has no swap file.
    pub fn extent(&self, class: Class, bytes: usize) -> Result<Extent> {
        let bytes = paged(bytes) as u64;
        self.swap().extend(bytes, self.device.reserve(class, bytes)?)
    }

    /// Starts to read `from` into the beginning of `into`, in main memory. Other reads go before
    /// reads of optimizer states: a layer waits for the former, while the update can continue while
    /// layers compute.
    pub fn read(&self, from: OnDisk<'_>, into: Buffer) -> DiskTransfer {
        let issued = self.issue(Route::DiskToHost, from.label, from.bytes as u64);
        let Swap { disk, file, .. } = self.swap();
        let carried = DiskBuffer { buffer: into, out: 0, back: from.bytes };
        let (ticket, priority) = match from.label.class {
            Class::Optimizer => (disk.read(file, from.offset(), carried), Priority::InOrder),
            _ => (disk.read_first(file, from.offset(), carried), Priority::First),
        };
        self.staged(issued, issued.at, ticket, priority)
    }

    /// Starts to write the beginning of `buffer`, in main memory, to `to`.
    pub fn write(&self, to: OnDisk<'_>, buffer: Buffer) -> DiskTransfer {
        let issued = self.issue(Route::HostToDisk, to.label, to.bytes as u64);
        let Swap { disk, file, .. } = self.swap();
        let carried = DiskBuffer { buffer, out: to.bytes, back: 0 };
        self.staged(issued, issued.at, disk.write(file, to.offset(), carried), Priority::InOrder)
    }

    /// Starts to write the beginning of `buffer`, in main memory, to `to`, and then to read `from`
    /// into its beginning. Wait for the write first: if it fails, nothing is read.
    pub fn write_then_read(
        &self,
        to: OnDisk<'_>,
        from: OnDisk<'_>,
        buffer: Buffer,
    ) -> (DiskTransfer<()>, DiskTransfer) {
        let written = self.issue(Route::HostToDisk, to.label, to.bytes as u64);
        let read = self.issue(Route::DiskToHost, from.label, from.bytes as u64);
        let Swap { disk, file, .. } = self.swap();
        let carried = DiskBuffer { buffer, out: to.bytes, back: from.bytes };
        let (leaves, arrives) = disk.write_then_read(file, (to.offset(), from.offset()), carried);
        let leaves = self.staged(written, written.at, leaves, Priority::InOrder);
        let ready = self.crosses(&leaves).map_or(read.at, |(_, ends)| ends);
        (leaves, self.staged(read, ready, arrives, Priority::InOrder))
    }

    /// Returns the transfer of `ticket`, over a route on which it may begin at `ready`.
    fn staged<M>(
        &self,
        issued: Issued,
        ready: Duration,
        ticket: Ticket<M>,
        priority: Priority,
    ) -> DiskTransfer<M> {
        let booked =
            self.queues.borrow_mut()[issued.route.index()].book(issued.at, ready, issued.bytes, priority);
        DiskTransfer { issued, ticket, answer: None, booked }
    }

    /// Returns when a simulated link carries `staged`; `None` on a real one.
    fn crosses<M>(&self, staged: &DiskTransfer<M>) -> Option<Times> {
        self.queues.borrow()[staged.issued.route.index()].crosses(staged.booked?)
    }

    /// True if [`Transfers::wait_staged`] would not block.
    pub fn is_done<M>(&self, staged: &mut DiskTransfer<M>) -> bool {
        if staged.answer.is_none() {
            staged.answer = staged.ticket.wait_for(Duration::ZERO);
        }
        staged.answer.is_some() && self.crosses(staged).is_none_or(|(_, ends)| ends <= self.now())
    }

    /// Blocks until `staged` is done. Returns its buffer.
    ///
    /// # Errors
    /// The file system's; a timeout that names file and call if the disk does not answer; the
    /// group's failure, if the group fails during the wait.
    pub fn wait_staged(&self, staged: DiskTransfer) -> Result<ReadBuffer> {
        let (carried, ended) = self.complete(staged)?;
        let complete = Instant::now() - self.now().saturating_sub(ended);
        Ok(ReadBuffer { buffer: carried.buffer, complete })
    }

    /// Blocks until a write that is followed by a read is done.
    ///
    /// # Errors
    /// As [`Transfers::wait_staged`].
    pub fn wait_written(&self, staged: DiskTransfer<()>) -> Result<()> {
        self.complete(staged).map(|((), _)| ())
    }

    /// Blocks until `staged` is done. Returns its result, and when it was done.
    fn complete<M>(&self, staged: DiskTransfer<M>) -> Result<(M, Duration)> {
        let (issued, booked, since) = (staged.issued, staged.booked, self.now());
        let storage::Completed { memory, began, ended } = self.receive(staged)?;
        let now = self.now();
        let moved = (self.at(began).max(issued.at), self.at(ended).max(issued.at));
        let crosses = self.queues.borrow_mut()[issued.route.index()].deliver(now, booked, moved);
        self.sleep_until(issued, crosses.1)?;
        self.finished(issued, crosses, since);
        Ok((memory, crosses.1))
    }

    /// Injects `effect` into all that the rank asks of its disk from now on, if it has one.
    pub fn fail(&self, effect: Effect) {
        self.swap.iter().for_each(|swap| swap.disk.fail(effect));
    }

    fn swap(&self) -> &Swap {
        self.swap.as_ref().expect("a rank with something on disk has a swap file")
    }

    /// Returns the run's time since these transfers were created, without pauses.
    fn now(&self) -> Duration {
        self.start.elapsed().saturating_sub(self.emitter.paused())
    }

    /// Returns the run's time at `instant`, after which the run has not been paused.
    fn at(&self, instant: Instant) -> Duration {
        self.now().saturating_sub(instant.elapsed())
    }

    fn issue(&self, route: Route, label: TransferLabel, bytes: u64) -> Issued {
        let sequence = self.issued.replace(self.issued.get() + 1);
        let issued = Issued { sequence, route, label, bytes, at: self.now() };
        self.emit(issued, Progress::Issued, [0; 3]);
        issued
    }

    /// Counts a transfer that began and ended at these times. The rank began to wait for it at
    /// `since`.
    fn finished(&self, issued: Issued, (began, ended): (Duration, Duration), since: Duration) {
        let now = self.now();
        let exposed = now.saturating_sub(since);
        let (mut moved, route) = (self.moved.get(), issued.route.index());
        moved.bytes[route] += issued.bytes;
        moved.calls[route] += 1;
        moved.waited[route] += exposed.as_secs_f64();
        self.moved.set(moved);
        let before = |time: Duration| now.saturating_sub(time).as_nanos() as u64;
        let times = [before(began), before(ended), exposed.as_nanos() as u64];
        self.emit(issued, Progress::Finished, times);
    }

    fn emit(&self, issued: Issued, progress: Progress, [began, ended, exposed]: [u64; 3]) {
        let Issued { sequence, route, label, bytes, .. } = issued;
        self.emitter.emit(What::Transfer(TransferEvent {
            progress,
            sequence,
            route,
            class: label.class,
            unit: label.unit as u16,
            bytes,
            moved: self.moved.get().bytes[route.index()],
            began,
            ended,
            exposed,
        }));
    }

    /// Allocates a buffer in main memory for `len` elements of type `dtype`, rounded up to whole
    /// pages.
    ///
    /// # Errors
    /// If main memory is full.
    pub fn staging(&self, dtype: device::DType, len: usize) -> Result<Buffer> {
        let elements = paged(len * dtype.size()) / dtype.size();
        Ok(self.device.allocate_host(Class::Workspace, dtype, elements)?)
    }
}

/// Returns the number of bytes to transfer for elements `range` of an extent, of `size` bytes each:
/// whole pages, if the elements begin on a page and are the `last` of the extent.
pub fn span(range: &Range<usize>, size: usize, last: bool) -> usize {
    let in_pages = last && (range.start * size).is_multiple_of(PAGE);
    if in_pages { paged(range.len() * size) } else { range.len() * size }
}
