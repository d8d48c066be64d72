//! The walk of an update: of states on the device, or of offloaded ones, piece by piece.

use super::Walk;
use crate::offload::{Moves, PieceMoves, Pieces};
use crate::phases::Accumulate;
use crate::rank::{Cargo, InFlight, UpdateEnds};
use crate::script::{After, Begins, CpuTask};
use events::{Class, Place};
use std::collections::VecDeque;

/// A piece of a unit's slice.
#[derive(Clone, Copy)]
struct Piece {
    unit: usize,
    /// Its number within the slice.
    number: u16,
    size: Pieces,
}

/// The pieces of an update that is being issued.
#[derive(Default)]
pub(super) struct Pager {
    /// What the slots of pieces are waiting for, the oldest first.
    slots: VecDeque<Vec<After>>,
    /// Transfers that have read ahead, by piece.
    ahead: VecDeque<Vec<usize>>,
    /// Updated units that wait for others of their bucket.
    filling: Vec<(usize, UpdateEnds)>,
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
            let read = self.transfer_in_turn(piece.unit, &states, &[After::Slot(slot)]);
            self.pager.ahead.push_back(read.iter().map(InFlight::number).collect());
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
            if let Some(bucket) = self.updated.fill(unit) {
                let gather = self.updated.gather(&mut self.rank, &bucket, &[]);
                self.rank.wait(gather);
            }
        }
        self.rank.counter.transfers.remove(&self.offload.read_ahead());
    }

    /// Issues the update of each piece, in one of `slots` slots, and gathers units.
    fn update_by_piece(&mut self, slots: u64) {
        self.pager.slots = (0..slots).map(|_| Vec::new()).collect();
        for unit in 0..self.offload.units.len() {
            let mut ends = UpdateEnds::default();
            for piece in self.pieces_of(unit) {
                if self.offload.updates_on_device() {
                    self.update_on_device(piece, &mut ends);
                } else {
                    self.update_on_cpu(piece, &mut ends);
                }
            }
            self.gather_updated(unit, ends);
        }
        let slots = std::mem::take(&mut self.pager.slots);
        if self.offload.placement.optimizer == Place::Disk {
            self.rank.slots_in_use(slots.into());
        }
        let is_pending = self.offload.placement.any_states() || self.offload.gathers;
        if is_pending && !self.offload.continues_in_forward() {
            self.rank.wait_for_update(None);
        }
    }

    /// Updates a piece on the device, through which offloaded parameters pass.
    fn update_on_device(&mut self, piece: Piece, ends: &mut UpdateEnds) {
        let PieceMoves { arriving, leaving } = self.moves(piece);
        let free = self.take_slot();
        let arrived = self.transfer_in_turn(piece.unit, &arriving, &free);
        self.rank.wait_for(&free);
        arrived.into_iter().for_each(|arrived| self.rank.wait(arrived));
        self.rank.update(piece.unit, piece.number, piece.size.elements);
        let left = self.transfer_in_turn(piece.unit, &leaving, &[]);
        self.return_slot(&left);
        ends.add(&leaving, &left);
    }

    /// Updates a piece on the CPU.
    fn update_on_cpu(&mut self, piece: Piece, ends: &mut UpdateEnds) {
        let PieceMoves { mut arriving, leaving } = self.moves(piece);
        let free = self.take_slot();
        let mut arrived = Vec::new();
        if let Some(read) = self.pager.ahead.pop_front() {
            arriving.retain(|(_, class, _)| *class != Class::Optimizer);
            arrived.extend(read.into_iter().map(After::Action));
        }
        let moved = self.transfer_in_turn(piece.unit, &arriving, &free);
        arrived.extend(moved.iter().map(InFlight::end));
        let task = CpuTask::Update { piece: piece.number };
        let updated = self.rank.on_cpu(task, (piece.unit, piece.size.elements), &arrived);
        let mut left = self.transfer_in_turn(piece.unit, &leaving, &[updated.end()]);
        ends.parameters.push(updated.number());
        left.push(updated);
        self.return_slot(&left);
        ends.add(&leaving, &left);
    }

    /// Notes that the update of `unit` is issued, unless it is complete. Gathers it with its bucket
    /// if the rank holds it in full.
    fn gather_updated(&mut self, unit: usize, ends: UpdateEnds) {
        if !self.updated.gathers(unit) {
            if self.offload.placement.any_states() {
                self.rank.updated(unit, ends);
            }
            return;
        }
        self.pager.filling.push((unit, ends));
        let Some(bucket) = self.updated.fill(unit) else { return };
        let filled = std::mem::take(&mut self.pager.filling);
        let landed = filled.iter().flat_map(|(_, ends)| &ends.parameters);
        let after: Vec<After> = landed.map(|&number| After::Action(number)).collect();
        let gather = self.updated.gather(&mut self.rank, &bucket, &after);
        for (unit, ends) in filled {
            self.rank.updated(unit, UpdateEnds { parameters: vec![gather.number()], ..ends });
        }
        if self.offload.updates_on_device() && !self.job.overlap {
            self.rank.wait(gather);
        }
    }

    /// Issues `moves` for `unit`, after `after`. Parameters that move over two routes take the
    /// second after the first.
    fn transfer_in_turn(&mut self, unit: usize, moves: &Moves, after: &[After]) -> Vec<InFlight> {
        let mut moved: Vec<InFlight> = Vec::with_capacity(moves.len());
        let mut previous = None;
        for &(route, class, bytes) in moves {
            let cargo = Cargo { route, class, unit, bytes };
            let is_second = class == Class::Parameters && previous == Some(class);
            let first = moved.last().filter(|_| is_second).map(InFlight::end);
            let first = first.map(|first| [first]);
            let after = first.as_ref().map_or(after, |first| first);
            moved.push(self.rank.transfer(cargo, Begins::ForUpdate, after));
            previous = Some(class);
        }
        moved
    }

    /// Takes the next piece's slot, and returns what it waits for.
    fn take_slot(&mut self) -> Vec<After> {
        self.pager.slots.pop_front().unwrap_or_default()
    }

    /// Returns a piece's slot, which is free after `left`.
    fn return_slot(&mut self, left: &[InFlight]) {
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
