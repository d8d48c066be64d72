//! The walk of an update: of states on the device, or of offloaded ones, piece by piece.

use super::Walk;
use crate::offload::{Moves, PieceMoves, Pieces};
use crate::phases::Accumulate;
use crate::rank::{Begins, Cargo, InFlight};
use crate::script::{After, CpuTask};
use events::{Class, Place, Route};
use std::collections::VecDeque;

/// A piece of a unit's slice.
#[derive(Clone, Copy)]
struct Piece {
    unit: usize,
    /// Its number within the slice.
    number: u16,
    size: Pieces,
}

/// The actions after which a piece, or a unit, is updated, by number.
#[derive(Default)]
struct Ends {
    /// Those after which its parameters may be used.
    parameters: Vec<usize>,
    /// The others.
    others: Vec<usize>,
}

/// The pieces of an update that is being issued.
#[derive(Default)]
pub(super) struct Pager {
    /// What the slots of pieces are waiting for, the oldest first.
    slots: VecDeque<Vec<After>>,
    /// Transfers that have read ahead, by piece.
    ahead: VecDeque<Vec<usize>>,
    /// Updated units that wait for others of their bucket.
    filling: Vec<(usize, Ends)>,
}

impl Walk<'_> {
    /// Issues the reads of the states that the next update needs first, if they are stored on disk:
    /// a piece per slot, as soon as the previous update no longer uses it.
    pub(super) fn read_ahead(&mut self) {
        if !self.rank.is_scripted() {
            self.rank.counter.transfers.add(&self.offload.read_ahead(), 1);
            return;
        }
        if self.offload.placement.optimizer != Place::Disk {
            return;
        }
        let count = self.offload.update_slots().count as usize;
        let pieces: Vec<Piece> = self.all_pieces().take(count).collect();
        for (slot, piece) in (0u16..).zip(pieces) {
            let mut states = self.moves(piece).arriving;
            states.retain(|(_, class, _)| *class == Class::Optimizer);
            let read = self.transfer_in_turn(piece.unit, &states, Begins::Ahead, &[After::Slot(slot)]);
            self.pager.ahead.push_back(read.into_iter().map(InFlight::number).collect());
        }
    }

    /// Updates the rank's slice of each unit, piece by piece, and gathers units that it holds in
    /// full. The CPU's update has its slots from the start, and may continue in the next forward.
    pub(super) fn update(&mut self) {
        let slots = self.offload.update_slots();
        let bytes_in_memory = if self.offload.updates_on_device() { slots.bytes_in_memory } else { 0 };
        let in_memory = self.rank.allocate_in(Place::Host, Class::Workspace, slots.count * bytes_in_memory);
        let staged = self.rank.allocate(Class::Workspace, slots.count * slots.bytes_on_device);
        if self.rank.is_scripted() {
            self.update_by_piece(slots.count);
        } else {
            self.count_update();
        }
        self.rank.free(in_memory);
        self.rank.free(staged);
    }

    /// Counts the transfers of an update, and gathers units, without writing down each piece.
    fn count_update(&mut self) {
        for (unit, slices) in self.offload.units.iter().enumerate() {
            self.rank.counter.transfers.add(&self.offload.updates(slices), 1);
            self.updated.push(&mut self.rank, unit);
        }
        self.updated.finish(&mut self.rank);
        self.rank.counter.transfers.remove(&self.offload.read_ahead());
    }

    /// Issues the update of each piece, in one of `slots` slots, and gathers units.
    fn update_by_piece(&mut self, slots: u64) {
        let on_device = self.offload.updates_on_device();
        self.pager.slots = (0..slots).map(|_| Vec::new()).collect();
        for unit in 0..self.offload.units.len() {
            let mut ends = Ends::default();
            for piece in self.pieces_of(unit).collect::<Vec<_>>() {
                let Ends { parameters, others } =
                    if on_device { self.update_on_device(piece) } else { self.update_on_cpu(piece) };
                ends.parameters.extend(parameters);
                ends.others.extend(others);
            }
            if !on_device {
                self.gather_updated(unit, ends);
                continue;
            }
            if !(ends.parameters.is_empty() && ends.others.is_empty()) {
                self.rank.updated(unit, ends.parameters, ends.others);
            }
            self.updated.push(&mut self.rank, unit);
        }
        self.updated.finish(&mut self.rank);
        let slots = std::mem::take(&mut self.pager.slots);
        if self.offload.placement.any_states() {
            self.rank.slots_in_use(slots.into());
            if !self.offload.continues_in_forward() {
                self.rank.wait_for_update(None);
            }
        }
    }

    /// Updates a piece on the device, through which offloaded parameters pass.
    fn update_on_device(&mut self, piece: Piece) -> Ends {
        let PieceMoves { arriving, leaving } = self.moves(piece);
        let free = self.free_slot();
        for arrived in self.transfer_in_turn(piece.unit, &arriving, Begins::Now, &free) {
            self.rank.wait(arrived);
        }
        self.rank.update(piece.unit, piece.number, piece.size.elements);
        let left = self.transfer_in_turn(piece.unit, &leaving, Begins::Now, &[]);
        self.take_slot(&left);
        Ends { parameters: left.into_iter().map(InFlight::number).collect(), others: Vec::new() }
    }

    /// Updates a piece on the CPU.
    fn update_on_cpu(&mut self, piece: Piece) -> Ends {
        let PieceMoves { mut arriving, leaving } = self.moves(piece);
        let free = self.free_slot();
        let mut arrived = Vec::new();
        if let Some(read) = self.pager.ahead.pop_front() {
            arriving.retain(|(_, class, _)| *class != Class::Optimizer);
            arrived.extend(read.into_iter().map(After::Action));
        }
        let moved = self.transfer_in_turn(piece.unit, &arriving, Begins::Now, &free);
        arrived.extend(moved.iter().map(InFlight::end));
        let task = CpuTask::Update { piece: piece.number };
        let updated = self.rank.on_cpu(task, (piece.unit, piece.size.elements), &arrived);
        let left = self.transfer_in_turn(piece.unit, &leaving, Begins::Now, &[updated.end()]);
        let mut slot = left;
        let mut ends = Ends::default();
        slot.push(updated);
        self.take_slot(&slot);
        // Shards on their way to disk may be used before they are written.
        let is_landing = |(route, class, _): &(Route, Class, u64)| {
            *class == Class::Parameters && *route != Route::HostToDisk
        };
        for (lands, end) in leaving.iter().map(is_landing).chain([true]).zip(slot) {
            let ends = if lands { &mut ends.parameters } else { &mut ends.others };
            ends.push(end.number());
        }
        ends
    }

    /// Notes that the CPU's update of `unit` is issued. Gathers it with its bucket if the rank
    /// holds it in full.
    fn gather_updated(&mut self, unit: usize, ends: Ends) {
        if !self.updated.gathers(unit) {
            self.rank.updated(unit, ends.parameters, ends.others);
            return;
        }
        self.pager.filling.push((unit, ends));
        let Some(bucket) = self.updated.fill(unit) else { return };
        let filled = std::mem::take(&mut self.pager.filling);
        let landed = filled.iter().flat_map(|(_, ends)| &ends.parameters);
        let after: Vec<After> = landed.map(|&number| After::Action(number)).collect();
        let gather = self.updated.gather(&mut self.rank, &bucket, &after).number();
        for (unit, Ends { others, .. }) in filled {
            self.rank.updated(unit, vec![gather], others);
        }
    }

    /// Issues `moves` for `unit`, after `after`. Parameters that move over two routes take the
    /// second after the first.
    fn transfer_in_turn(
        &mut self,
        unit: usize,
        moves: &Moves,
        begins: Begins,
        after: &[After],
    ) -> Vec<InFlight> {
        let mut moved: Vec<InFlight> = Vec::with_capacity(moves.len());
        let mut previous = None;
        for &(route, class, bytes) in moves {
            let cargo = Cargo { route, class, unit, bytes };
            let is_second = class == Class::Parameters && previous == Some(class);
            let first = moved.last().filter(|_| is_second).map(InFlight::end);
            let crossing = match first {
                Some(first) => self.rank.transfer(cargo, begins, &[first]),
                None => self.rank.transfer(cargo, begins, after),
            };
            moved.push(crossing);
            previous = Some(class);
        }
        moved
    }

    /// Returns what the next piece's slot waits for.
    fn free_slot(&mut self) -> Vec<After> {
        self.pager.slots.pop_front().unwrap_or_default()
    }

    /// Notes that a piece's slot is free after `left`.
    fn take_slot(&mut self, left: &[InFlight]) {
        self.pager.slots.push_back(left.iter().map(InFlight::end).collect());
    }

    fn moves(&self, piece: Piece) -> PieceMoves {
        self.offload.moves(self.offload.units[piece.unit].offloaded, piece.size)
    }

    /// Returns the pieces of `unit`, in order.
    fn pieces_of(&self, unit: usize) -> impl Iterator<Item = Piece> + use<> {
        let sizes = self.offload.pieces(self.offload.units[unit].optimizer);
        let sizes = sizes.flat_map(|size| (0..size.times).map(move |_| size));
        (0u64..).zip(sizes).map(move |(number, size)| {
            let number = number.min(u16::MAX.into()) as u16;
            Piece { unit, number, size }
        })
    }

    fn all_pieces(&self) -> impl Iterator<Item = Piece> {
        (0..self.offload.units.len()).flat_map(|unit| self.pieces_of(unit))
    }
}
