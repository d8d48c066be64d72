//! The walk of offloaded states: those stored in main memory or on disk, the buffers through which
//! they pass, and the weights gathered in main memory.

use super::{GradientsInFlight, Walk, sharing};
use crate::ledger::Allocation;
use crate::offload::{EqualBuffers, STATES, Slices, pages};
use crate::placement::{MIN_STREAM_PIECES, STREAM_BUFFER, STREAM_BUFFERS, Saving};
use crate::rank::Cargo;
use crate::recipe::F32;
use crate::reduce::UnitGradients;
use crate::script::{Begins, CpuTask};
use events::{Class, Operation, Place, Route};
use model::TrainingState;

impl Walk<'_> {
    /// Allocates the offloaded states, unit by unit, and the slots through which parameters are
    /// fetched, which live to the end. Also allocates the slots of the CPU's update.
    pub(super) fn allocate_offloaded(&mut self) {
        let units = self.offload.units.clone();
        for unit in &units {
            let on_disk = self.offload.stored(unit, Place::Disk).by_class();
            let in_memory = self.offload.stored(unit, Place::Host).by_class();
            for ((class, disk), (_, host)) in on_disk.into_iter().zip(in_memory) {
                let allocated = [
                    self.rank.allocate_in(Place::Disk, class, disk),
                    self.rank.allocate_in(Place::Host, class, host),
                ];
                self.resting.extend(allocated);
                self.write_initial_values(unit, class);
            }
        }
        self.take_update_slots();
        let (slots, bytes) = self.offload.fetch_slots();
        self.resting.push(self.rank.allocate(Class::Workspace, slots * bytes));
        if self.offload.placement.parameters == Place::Disk {
            self.resting.push(self.rank.allocate_in(Place::Host, Class::Workspace, slots * pages(bytes)));
        }
        if self.offload.placement.activations == Place::Disk {
            let blocks = self.job.config.layers as u64 * pages(self.sizes.residual);
            self.resting.push(self.rank.allocate_in(Place::Disk, Class::Activations, blocks));
        }
    }

    /// Writes the initial values of a state of `unit` to disk, if it is stored there.
    fn write_initial_values(&mut self, unit: &Slices, class: Class) {
        let placement = self.offload.placement;
        let writes = match class {
            Class::Parameters if unit.offloaded && placement.parameters == Place::Disk => {
                vec![EqualBuffers { times: 1, bytes: pages(self.offload.parameters(unit.parameters)) }]
            }
            Class::Optimizer if placement.optimizer == Place::Disk => {
                let states =
                    |buffers: EqualBuffers| EqualBuffers { times: STATES * buffers.times, ..buffers };
                self.offload.pieces_on_disk(unit).map(states).collect()
            }
            _ => Vec::new(),
        };
        self.pass_through_memory(Route::HostToDisk, &writes);
    }

    /// Moves buffers over `route` through main memory, one at a time. They are counted alone.
    fn pass_through_memory(&mut self, route: Route, buffers: &[EqualBuffers]) {
        for &EqualBuffers { times, bytes } in buffers {
            let staged = self.rank.allocate_in(Place::Host, Class::Workspace, bytes);
            self.rank.free(staged);
            self.rank.counter.transfers.count_all(route, bytes, times);
        }
    }

    /// Moves a unit's reduced gradients to main memory, where they are added to their shard. The
    /// gradients of one unit are in flight at a time.
    pub(super) fn send_gradients(&mut self, part: UnitGradients, full: Option<Allocation>) {
        self.wait_for_gradients();
        let (unit, bytes) = (part.unit, self.offload.reduced_bytes(part.unit));
        let sent = self.rank.allocate(Class::Workspace, bytes);
        self.rank.free_all(full);
        let arrived = self.rank.allocate_in(Place::Host, Class::Workspace, bytes);
        let cargo = Cargo { route: Route::DeviceToHost, class: Class::Gradients, unit, bytes };
        let crossing = self.rank.transfer(cargo, Begins::Now, &[]);
        self.gradients_in_flight = Some(GradientsInFlight { unit, crossing, sent, arrived });
    }

    /// Adds the gradients that have arrived to their shard.
    pub(super) fn wait_for_gradients(&mut self) {
        if let Some(GradientsInFlight { unit, crossing, sent, arrived }) = self.gradients_in_flight.take() {
            let elements = self.offload.units[unit].gradients;
            let after = [crossing.end()];
            self.rank.wait(crossing);
            self.rank.free(sent);
            self.gradients_added = Some(self.rank.on_cpu(CpuTask::AddGradients, (unit, elements), &after));
            self.rank.free(arrived);
        }
    }

    /// Waits until the CPU has added all gradients.
    pub(super) fn wait_for_sums(&mut self) {
        if let Some(added) = self.gradients_added.take() {
            self.rank.wait(added);
        }
    }

    /// Allocates the slots of the CPU's update.
    fn take_update_slots(&mut self) {
        if !self.offload.updates_on_device() {
            let slots = self.offload.update_slots();
            self.update_slots = Some(self.rank.allocate_in(
                Place::Host,
                Class::Workspace,
                slots.count * slots.bytes_in_memory,
            ));
        }
    }

    /// Allocates, until the end, the buffers for saving the rank's part of a checkpoint: one for a
    /// copy of it, or those through which it is written piece by piece.
    pub(super) fn take_room_for_saves(&mut self) {
        let parts = self.offload.units.iter().map(|unit| unit.optimizer.div_ceil(self.offload.holders));
        let elements = STATES * parts.sum::<u64>();
        let bytes = match self.offload.placement.saving {
            Saving::Never => return,
            Saving::Copying => pages(F32 * elements),
            Saving::Streaming => {
                STREAM_BUFFERS * pages(F32 * elements.div_ceil(MIN_STREAM_PIECES).min(STREAM_BUFFER))
            }
        };
        self.resting.push(self.rank.allocate_in(Place::Host, Class::Workspace, bytes));
    }

    /// Saves the rank's part of a checkpoint: reads the states stored on disk. The update does not
    /// need its buffers during that time.
    pub(super) fn checkpoint(&mut self) {
        self.rank.free_all(self.update_slots.take());
        if self.offload.placement.saving == Saving::Streaming {
            for unit in self.offload.units.clone() {
                for state in TrainingState::ALL {
                    self.pass_through_memory(Route::DiskToHost, &self.offload.reads(&unit, state));
                }
            }
        }
        self.take_update_slots();
    }

    /// Gathers the weights in main memory, in the order of the layout: a unit is gathered from its
    /// first tensor to its last.
    pub(super) fn gather_weights(&mut self) {
        let unit_of = &self.partition.unit_of;
        let mut last = vec![0; self.partition.units.len()];
        unit_of.iter().enumerate().for_each(|(tensor, &unit)| last[unit] = tensor);
        let mut held: Vec<Option<Allocation>> = last.iter().map(|_| None).collect();
        for (tensor, &unit) in unit_of.iter().enumerate() {
            if held[unit].is_none() {
                held[unit] = Some(self.gather_in_memory(unit));
            }
            if last[unit] == tensor {
                self.rank.free_all(held[unit].take());
            }
        }
    }

    /// Gathers a unit's weights in main memory.
    fn gather_in_memory(&mut self, unit: usize) -> Allocation {
        let padded = self.partition.units[unit].padded;
        let held = self.rank.allocate_in(Place::Host, Class::GatheredParameters, padded * F32);
        let reads = self.offload.reads(&self.offload.units[unit], TrainingState::Weight);
        self.pass_through_memory(Route::DiskToHost, &reads);
        if self.job.shards() > 1 {
            self.rank.counter.collective(sharing(self.job), Operation::AllGather, [padded], F32);
        }
        held
    }
}
