//! Sizes of offload: the bytes of a rank's slices where they are stored, and the transfers that
//! update, gather and read them (Ren et al., "ZeRO-Offload", 2021; Rajbhandari et al.,
//! "ZeRO-Infinity", 2021). The walk decides when the transfers happen.

use crate::job::Job;
use crate::partition::{Partition, Unit};
use crate::phases::Accumulate;
use crate::placement::Placement;
use crate::recipe::F32;
use crate::recipe::{ModelStates, Recipe};
use crate::regather::is_gathered;
use crate::transfers::Transfers;
use events::{Class, Place, Route};
use model::TrainingState;

/// The page size in bytes: a state on disk takes whole pages.
const PAGE: u64 = 4096;
/// The number of optimizer states that are offloaded, each in f32: master weights, momentum,
/// variance.
pub(crate) const STATES: u64 = 3;

/// Returns the size of `bytes` on disk, or in a buffer for a transfer to or from disk.
pub(crate) fn pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(PAGE)
}

/// The elements of one unit that a rank holds of each model state.
#[derive(Clone, Copy)]
pub(crate) struct Slices {
    pub(crate) parameters: u64,
    pub(crate) gradients: u64,
    pub(crate) optimizer: u64,
    /// Whether its parameters are offloaded.
    pub(crate) offloaded: bool,
}

/// The slots through which pieces pass while they are updated.
pub(crate) struct UpdateSlots {
    /// The number of slots.
    pub(crate) count: u64,
    /// Bytes of one slot in main memory.
    pub(crate) bytes_in_memory: u64,
    /// Bytes of one slot on the device.
    pub(crate) bytes_on_device: u64,
}

/// The slices of a rank, and where each of their states is stored.
pub(crate) struct Offload {
    pub(crate) placement: Placement,
    recipe: Recipe,
    /// Bytes per element of reduced gradients.
    reduced: u64,
    /// Whether reduced gradients are accumulated in main memory, next to the optimizer's states.
    pub(crate) gradients_offloaded: bool,
    /// Whether the next forward may begin before an update is complete.
    overlaps_update: bool,
    /// Whether a rank holds some unit in full but updates only its slice.
    pub(crate) gathers: bool,
    /// Ranks that hold the same slices of optimizer states, and share the work of saving them.
    pub(crate) holders: u64,
    /// One entry per unit.
    pub(crate) units: Vec<Slices>,
}

impl Offload {
    /// Returns the offload of `job`, whose model has `units`.
    pub(crate) fn of(job: &Job, units: &[Unit]) -> Self {
        let (placement, sharded) = (job.placement, job.stage.sharded());
        let slice = |unit: &Unit, cut| if cut { unit.padded / job.shards() } else { unit.padded };
        let slices = |unit: &Unit| Slices {
            parameters: slice(unit, sharded.parameters && !unit.persistent),
            gradients: slice(unit, sharded.gradients),
            optimizer: slice(unit, sharded.optimizer),
            offloaded: placement.parameters != Place::Device && !unit.persistent,
        };
        Offload {
            placement,
            recipe: job.recipe,
            reduced: job.wire_copy_bytes().unwrap_or(job.recipe.gradients),
            gradients_offloaded: placement.optimizer == Place::Host
                && sharded.gradients
                && !job.strategy.forms_groups(),
            overlaps_update: job.overlap && job.overlaps_update,
            gathers: units.iter().any(|unit| is_gathered(sharded, unit)),
            holders: job.world_size as u64 / job.shards(),
            units: units.iter().map(slices).collect(),
        }
    }

    /// Returns the bytes of `unit` stored in `place`, main memory or a disk, between steps.
    pub(crate) fn stored(&self, unit: &Slices, place: Place) -> ModelStates {
        let rounded = |bytes| if place == Place::Disk { pages(bytes) } else { bytes };
        let only = |is_stored: bool, bytes| if is_stored { bytes } else { 0 };
        let state = self.pieces(unit.optimizer).map(|piece| piece.times * rounded(piece.elements * F32));
        let state = only(self.placement.optimizer == place, state.sum());
        ModelStates {
            weights: only(
                unit.offloaded && self.placement.parameters == place,
                rounded(self.parameters(unit.parameters)),
            ),
            gradients: only(
                self.gradients_offloaded && place == Place::Host,
                unit.gradients * self.recipe.gradients,
            ),
            master: state,
            momentum: state,
            variance: state,
            secondary: 0,
        }
    }

    /// Returns the bytes of `elements` parameters.
    pub(crate) fn parameters(&self, elements: u64) -> u64 {
        elements * self.recipe.weights
    }

    /// Returns the bytes of `unit`'s reduced gradients in flight to main memory.
    pub(crate) fn reduced_bytes(&self, unit: usize) -> u64 {
        self.units[unit].gradients * self.reduced
    }

    /// Returns the pieces in which a slice of `elements` is updated: the full ones, and the last.
    pub(crate) fn pieces(&self, elements: u64) -> impl Iterator<Item = Pieces> + use<> {
        let size = self.placement.sub_group_size();
        let full = elements.saturating_sub(1) / size;
        let before = (full > 0).then_some(Pieces { times: full, elements: size, in_pages: false });
        let in_pages = self.parameters(full * size).is_multiple_of(PAGE);
        let last = Pieces { times: 1, elements: elements - full * size, in_pages };
        before.into_iter().chain([last])
    }

    /// Returns the transfers that read ahead of the update, while the step's last backward
    /// computes: the states of as many pieces as there are buffers.
    pub(crate) fn read_ahead(&self) -> Transfers {
        let mut moved = Transfers::default();
        let mut left = if self.placement.optimizer == Place::Disk { self.slots() } else { 0 };
        for piece in self.units.iter().flat_map(|unit| self.pieces(unit.optimizer)) {
            let times = piece.times.min(left);
            moved.count_all(Route::DiskToHost, pages(piece.elements * F32), STATES * times);
            left -= times;
        }
        moved
    }

    /// Returns the number of pieces that are in flight during an update.
    fn slots(&self) -> u64 {
        let pieces = self.units.iter().flat_map(|unit| self.pieces(unit.optimizer));
        self.placement.update_buffers(pieces.map(|piece| piece.times).sum())
    }

    /// True if the update runs on the device.
    pub(crate) fn updates_on_device(&self) -> bool {
        self.placement.optimizer == Place::Device
    }

    /// Returns the slots of the update.
    pub(crate) fn update_slots(&self) -> UpdateSlots {
        let stored_in = |place| self.placement.parameters == place;
        let on_cpu = !self.updates_on_device();
        let needing = |needs: &dyn Fn(&Slices) -> bool| {
            let elements = self.units.iter().filter(|unit| needs(unit)).map(|unit| unit.optimizer);
            elements.max().unwrap_or(0).min(self.placement.sub_group_size())
        };
        let any = needing(&|_| true);
        let gradients = if on_cpu && !self.gradients_offloaded { any * self.recipe.gradients } else { 0 };
        let staged = needing(&|unit| {
            on_cpu && !unit.offloaded && self.recipe.weights != F32
                || unit.offloaded && stored_in(Place::Disk)
        });
        let staged = self.parameters(staged);
        let staged = if stored_in(Place::Disk) { pages(staged) } else { staged };
        let on_disk = self.placement.optimizer == Place::Disk;
        let states = if on_disk { STATES * pages(any * F32) } else { 0 };
        let fetched = if on_cpu { 0 } else { self.parameters(needing(&|unit| unit.offloaded)) };
        UpdateSlots {
            count: self.slots(),
            bytes_in_memory: states + gradients + staged,
            bytes_on_device: fetched,
        }
    }

    /// Returns the transfers of `unit`'s update.
    pub(crate) fn updates(&self, unit: &Slices) -> Transfers {
        let mut all = Transfers::default();
        for piece in self.pieces(unit.optimizer) {
            let PieceMoves { arriving, leaving } = self.moves(unit.offloaded, piece);
            for (route, _, bytes) in arriving.into_iter().chain(leaving) {
                all.count_all(route, bytes, piece.times);
            }
        }
        all
    }

    /// Returns the transfers of the update of one of `piece`, in a unit whose parameters are
    /// `offloaded` or not.
    pub(crate) fn moves(&self, offloaded: bool, piece: Pieces) -> PieceMoves {
        let PieceMoves { mut arriving, mut leaving } = PieceMoves::default();
        let on_cpu = !self.updates_on_device();
        let bytes = self.parameters(piece.elements);
        let on_disk = if piece.in_pages { pages(bytes) } else { bytes };
        let states = (Class::Optimizer, pages(piece.elements * F32));
        let states = |route| (0..STATES).map(move |_| (route, states.0, states.1));
        let optimizer_on_disk = self.placement.optimizer == Place::Disk;
        if optimizer_on_disk {
            arriving.extend(states(Route::DiskToHost));
        }
        if on_cpu && !self.gradients_offloaded {
            let bytes = piece.elements * self.recipe.gradients;
            arriving.push((Route::DeviceToHost, Class::Gradients, bytes));
        }
        let parameters = |route, bytes| (route, Class::Parameters, bytes);
        match (on_cpu, if offloaded { self.placement.parameters } else { Place::Device }) {
            (true, Place::Device) => leaving.push(parameters(Route::HostToDevice, bytes)),
            (true, Place::Disk) => leaving.push(parameters(Route::HostToDisk, on_disk)),
            (true, Place::Host) | (false, Place::Device) => {}
            (false, place) => {
                // In f32 the optimizer updates the parameters themselves.
                if self.recipe.weights == F32 {
                    if place == Place::Disk {
                        arriving.push(parameters(Route::DiskToHost, on_disk));
                    }
                    arriving.push(parameters(Route::HostToDevice, bytes));
                }
                leaving.push(parameters(Route::DeviceToHost, bytes));
                if place == Place::Disk {
                    leaving.push(parameters(Route::HostToDisk, on_disk));
                }
            }
        }
        if optimizer_on_disk {
            leaving.extend(states(Route::HostToDisk));
        }
        PieceMoves { arriving, leaving }
    }

    /// True if the CPU's update may continue while the next forward computes. Gathered units wait
    /// in buckets for others, and shards in flight to disk take all slots: both together could need
    /// more slots than there are.
    pub(crate) fn cpu_update_continues(&self) -> bool {
        let has_to_wait = self.gathers && self.placement.parameters == Place::Disk;
        self.overlaps_update && !self.updates_on_device() && !has_to_wait
    }

    /// True if the next forward waits for the update, unit by unit: for the CPU, or for all-gathers
    /// of units that the device has updated.
    pub(crate) fn continues_in_forward(&self) -> bool {
        let gathers = self.gathers && !self.placement.any_states();
        self.cpu_update_continues() || self.overlaps_update && gathers
    }

    /// True if an update hands its shards over to the next forward, which then does not read them
    /// from disk.
    pub(crate) fn hands_over(&self) -> bool {
        let on_disk = self.placement.parameters == Place::Disk;
        on_disk && self.units.iter().all(|unit| unit.offloaded) && self.cpu_update_continues()
    }

    /// Returns the bytes of `unit`'s shard that an all-gather fetches; `None` if the shard is on
    /// the device.
    pub(crate) fn fetch(&self, unit: &Slices) -> Option<Fetch> {
        let copied = unit.offloaded.then(|| self.parameters(unit.parameters))?;
        let read = (self.placement.parameters == Place::Disk).then(|| pages(copied));
        Some(Fetch { read, copied })
    }

    /// Returns the transfers of an all-gather of `unit` from the rank's own shard.
    fn fetches(&self, unit: &Slices) -> Transfers {
        let mut moved = Transfers::default();
        if let Some(Fetch { read, copied }) = self.fetch(unit) {
            read.into_iter().for_each(|bytes| moved.count(Route::DiskToHost, bytes));
            moved.count(Route::HostToDevice, copied);
        }
        moved
    }

    /// Returns the transfers of a step's first forward that read shards from disk if the previous
    /// update has finished. An update in progress hands these shards over.
    pub(crate) fn rereads(&self) -> Transfers {
        let mut moved = Transfers::default();
        if self.hands_over() {
            let reads = self.units.iter().filter_map(|unit| self.fetch(unit)?.read);
            reads.for_each(|bytes| moved.count(Route::DiskToHost, bytes));
        }
        moved
    }

    /// Returns the transfers of a step of `micro_batches` if every pass gathers every unit from
    /// where it is stored.
    fn of_step(&self, micro_batches: u64) -> Transfers {
        let mut moved = Transfers::default();
        for (i, unit) in self.units.iter().enumerate() {
            moved.add(&self.updates(unit), 1);
            moved.add(&self.fetches(unit), 2 * micro_batches);
            if self.gradients_offloaded {
                moved.count_all(Route::DeviceToHost, self.reduced_bytes(i), micro_batches);
            }
        }
        moved.remove(&self.rereads());
        moved
    }

    /// Returns the buffers that a rank reads one after the other from its disk while `state` of
    /// `unit` is gathered in main memory.
    pub(crate) fn reads(&self, unit: &Slices, state: TrainingState) -> Vec<EqualBuffers> {
        let masters = self.recipe.weights != F32;
        match (self.placement.optimizer, self.placement.parameters) {
            (Place::Disk, _) => self.pieces_on_disk(unit).collect(),
            (Place::Device, Place::Disk) if state == TrainingState::Weight && unit.offloaded && !masters => {
                vec![EqualBuffers { times: 1, bytes: pages(self.parameters(unit.parameters)) }]
            }
            _ => Vec::new(),
        }
    }

    /// Returns the pieces of one state of `unit`, as they are stored on disk.
    pub(crate) fn pieces_on_disk(&self, unit: &Slices) -> impl Iterator<Item = EqualBuffers> + use<> {
        let pieces = self.pieces(unit.optimizer);
        pieces.map(|piece| EqualBuffers { times: piece.times, bytes: pages(piece.elements * F32) })
    }

    /// Returns the number of slots through which parameters are fetched, and the bytes of the
    /// largest shard that passes through them.
    pub(crate) fn fetch_slots(&self) -> (u64, u64) {
        let offloaded = || self.units.iter().filter(|unit| unit.offloaded).map(|unit| unit.parameters);
        let slots = self.placement.fetch_buffers().min(offloaded().count() as u64);
        (slots, self.parameters(offloaded().max().unwrap_or(0)))
    }
}

/// Transfers: over which route, of what, how many bytes.
pub(crate) type Moves = Vec<(Route, Class, u64)>;

/// The transfers of one piece's update, in order.
#[derive(Default)]
pub(crate) struct PieceMoves {
    /// Those before it.
    pub(crate) arriving: Moves,
    /// Those after it.
    pub(crate) leaving: Moves,
}

/// A shard on its way to the device.
#[derive(Clone, Copy)]
pub(crate) struct Fetch {
    /// Bytes that are read from disk; `None` if the shard is in main memory.
    pub(crate) read: Option<u64>,
    /// Bytes that are copied to the device.
    pub(crate) copied: u64,
}

/// Buffers of equal size that are moved one at a time.
#[derive(Clone, Copy)]
pub(crate) struct EqualBuffers {
    /// The number of buffers.
    pub(crate) times: u64,
    /// Bytes of each.
    pub(crate) bytes: u64,
}

/// Pieces of equal size of a slice that is being updated.
#[derive(Clone, Copy)]
pub(crate) struct Pieces {
    pub(crate) times: u64,
    /// Elements of each.
    pub(crate) elements: u64,
    /// Whether this is the slice's last piece and its parameters begin on a page of the disk: they
    /// are then transferred in whole pages.
    in_pages: bool,
}

impl Partition {
    /// Returns the bytes that a rank of `job` holds in `place` between steps. On disk each state of
    /// a unit takes whole pages, the optimizer's piece by piece.
    pub fn model_states_in(&self, job: &Job, place: Place) -> ModelStates {
        let offload = Offload::of(job, &self.units);
        if place != Place::Device {
            return offload.units.iter().map(|unit| offload.stored(unit, place)).sum();
        }
        let offloaded = offload.units.iter().filter(|unit| unit.offloaded).map(|unit| unit.parameters);
        let held = self.model_states(job);
        let stays = |stays: bool, bytes| if stays { bytes } else { 0 };
        let optimizer = job.placement.optimizer == Place::Device;
        ModelStates {
            weights: held.weights - offload.parameters(offloaded.sum()),
            gradients: stays(!offload.gradients_offloaded, held.gradients),
            master: stays(optimizer, held.master),
            momentum: stays(optimizer, held.momentum),
            variance: stays(optimizer, held.variance),
            secondary: held.secondary,
        }
    }

    /// Returns the transfers of a rank of `job` in a step, if every pass gathers every unit from
    /// where it is stored.
    pub fn transfers_of_step(&self, job: &Job) -> Transfers {
        Offload::of(job, &self.units).of_step(job.micro_batches as u64)
    }
}
