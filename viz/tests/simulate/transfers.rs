//! States stored in main memory or on disk, and their transfers.

use super::clockwork::{IssuedTransfer, Simulation};
use events::{Class, Event, Place, Progress, Route, TransferEvent, What};

/// Bytes per nanosecond between device and main memory, and between main memory and disk.
const COPIES: u64 = 8;
const DISK: u64 = 1;

impl Simulation<'_> {
    /// Allocates or releases bytes of `class` in `place` on every rank.
    pub(super) fn memory_in(&mut self, place: Place, class: Class, delta: i64) {
        for rank in 0..self.clocks.len() {
            let live = &mut self.live[rank][place.index()][class.index()];
            *live = live.saturating_add_signed(delta);
            let what = What::Memory { place, class, delta, live: *live };
            self.events.push(Event { at: self.clocks[rank], rank: rank as u32, what });
            self.clocks[rank] += 200;
        }
    }

    /// Issues a transfer on every rank.
    pub(super) fn start(&mut self, route: Route, class: Class, unit: usize, bytes: u64) -> IssuedTransfer {
        let event = TransferEvent {
            progress: Progress::Issued,
            sequence: self.transfers,
            route,
            class,
            unit: unit as u16,
            bytes,
            moved: 0,
            began: 0,
            ended: 0,
            exposed: 0,
        };
        self.transfers += 1;
        let rate = if route.touches_disk() { DISK } else { COPIES };
        let mut times = Vec::new();
        for rank in 0..self.clocks.len() {
            let moved = self.moved[rank][route.index()];
            self.emit(rank, self.clocks[rank], What::Transfer(TransferEvent { moved, ..event }));
            let began = self.clocks[rank].max(self.ways_free[rank][route.index()]);
            let ended = began + 20_000 + bytes / rate;
            self.ways_free[rank][route.index()] = ended;
            times.push((began, ended));
        }
        IssuedTransfer { event, times }
    }

    /// Lets every rank wait for a transfer.
    pub(super) fn arrive(&mut self, IssuedTransfer { event, times }: IssuedTransfer) {
        for (rank, (began, ended)) in times.into_iter().enumerate() {
            let since = self.clocks[rank];
            let now = since.max(ended) + 300;
            self.clocks[rank] = now;
            self.moved[rank][event.route.index()] += event.bytes;
            let what = What::Transfer(TransferEvent {
                progress: Progress::Finished,
                moved: self.moved[rank][event.route.index()],
                began: now - began,
                ended: now - ended,
                exposed: now - since,
                ..event
            });
            self.emit(rank, now, what);
        }
    }

    /// Moves bytes and waits for them.
    pub(super) fn travel(&mut self, route: Route, class: Class, unit: usize, bytes: u64) {
        let issued = self.start(route, class, unit, bytes);
        self.arrive(issued);
    }

    /// Starts to bring a unit's shard of the parameters to the device, if it is offloaded.
    pub(super) fn fetch(&mut self, unit: Option<usize>) {
        let (Some(unit), place) = (unit, self.plan.place(Class::Parameters)) else { return };
        let bytes = self.share(unit, true) as u64;
        let route = match place {
            Place::Device => return,
            Place::Host => Route::HostToDevice,
            Place::Disk => Route::DiskToHost,
        };
        let issued = self.start(route, Class::Parameters, unit, bytes);
        self.fetching = Some((unit, issued));
    }

    /// Waits until a unit's shard is on the device, and starts to fetch that of `next`.
    pub(super) fn fetched(&mut self, unit: usize, next: Option<usize>) {
        if self.fetching.as_ref().is_none_or(|(other, _)| *other != unit) {
            self.fetch(Some(unit));
        }
        let Some((_, issued)) = self.fetching.take() else { return };
        let bytes = issued.event.bytes;
        self.arrive(issued);
        if self.plan.place(Class::Parameters) == Place::Disk {
            self.travel(Route::HostToDevice, Class::Parameters, unit, bytes);
        }
        self.fetch(next);
    }

    /// Moves a block's activations away after its forward.
    pub(super) fn store_activations(&mut self, unit: usize) {
        let (bytes, place) = (self.activations(unit), self.plan.place(Class::Activations));
        if place == Place::Device {
            return;
        }
        self.memory_in(place, Class::Activations, bytes);
        let block = unit.saturating_sub(1);
        self.travel(Route::DeviceToHost, Class::Activations, block, bytes as u64);
        if place == Place::Disk {
            self.travel(Route::HostToDisk, Class::Activations, block, bytes as u64);
        }
        self.memory_in(Place::Device, Class::Activations, -bytes);
    }

    /// Brings a block's activations back before its backward.
    pub(super) fn load_activations(&mut self, unit: usize) {
        let (bytes, place) = (self.activations(unit), self.plan.place(Class::Activations));
        if place == Place::Device {
            return;
        }
        let block = unit.saturating_sub(1);
        if place == Place::Disk {
            self.travel(Route::DiskToHost, Class::Activations, block, bytes as u64);
        }
        self.memory_in(Place::Device, Class::Activations, bytes);
        self.travel(Route::HostToDevice, Class::Activations, block, bytes as u64);
        self.memory_in(place, Class::Activations, -bytes);
    }

    /// Brings what the update of a unit needs to the processor that computes it.
    pub(super) fn page_in(&mut self, unit: usize) {
        let bytes = self.share(unit, self.header.sharded.optimizer) as u64;
        if self.plan.place(Class::Optimizer) == Place::Disk {
            self.travel(Route::DiskToHost, Class::Optimizer, unit, 2 * bytes);
        }
        if self.plan.place(Class::Optimizer) != Place::Device
            && self.plan.place(Class::Gradients) == Place::Device
        {
            self.travel(Route::DeviceToHost, Class::Gradients, unit, bytes);
        }
    }

    /// Moves the states that the update of a unit has changed to the place where they are stored.
    /// Writes to a disk continue: returns them.
    pub(super) fn page_out(&mut self, unit: usize) -> Option<IssuedTransfer> {
        let bytes = self.share(unit, self.header.sharded.optimizer) as u64;
        let (states, parameters) = (self.plan.place(Class::Optimizer), self.plan.place(Class::Parameters));
        match (states, parameters) {
            (Place::Host | Place::Disk, Place::Device) => {
                self.travel(Route::HostToDevice, Class::Parameters, unit, bytes);
            }
            (Place::Device, Place::Host | Place::Disk) => {
                self.travel(Route::DeviceToHost, Class::Parameters, unit, bytes);
            }
            _ => {}
        }
        if parameters == Place::Disk {
            self.travel(Route::HostToDisk, Class::Parameters, unit, bytes);
        }
        (states == Place::Disk).then(|| self.start(Route::HostToDisk, Class::Optimizer, unit, 2 * bytes))
    }
}
