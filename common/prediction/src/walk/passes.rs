//! The walk through the layers: forward, backward, and an evaluation's forward.

use super::inputs::Saved;
use super::{Walk, sharing};
use crate::activations::HeadKept;
use crate::moment::Moment;
use crate::reduce::UnitGradients;
use crate::traffic::Among;
use events::Pass;
use model::{Checkpointing, LayerKind};

/// The buffers that forward keeps for backward.
pub(super) struct SavedForward {
    blocks: Vec<Saved>,
    head: HeadKept,
}

impl Walk<'_> {
    pub(super) fn forward(&mut self) -> SavedForward {
        let last = self.partition.last_layer();
        self.begin(Pass::Forward, 0..=last, sharing(self.job));
        self.acquire(0);
        self.compute(Pass::Forward, 0);
        let mut x = self.sizes.embed_forward(&mut self.rank);
        self.rank.end();
        self.leave(0);
        let mut blocks = Vec::new();
        for layer in 1..last {
            self.acquire(layer);
            self.compute(Pass::Forward, layer);
            let checkpointing = self.job.checkpointing;
            let (kept, out) = self.sizes.block_forward(&mut self.rank, x, checkpointing);
            x = out;
            blocks.push(self.offload_input(layer - 1, kept));
            self.rank.end();
            self.leave(layer);
        }
        self.acquire(last);
        self.compute(Pass::Forward, last);
        let head = self.sizes.head_forward(&mut self.rank, x);
        self.rank.end();
        self.leave(last);
        self.wait_until_offloaded();
        SavedForward { blocks, head }
    }

    pub(super) fn backward(
        &mut self,
        SavedForward { mut blocks, head }: SavedForward,
        last_micro_batch: bool,
    ) {
        let last = self.partition.last_layer();
        let neighbours = |size: usize| Among::Neighbours(size as u64);
        let among = self.job.secondary_shards.map_or(sharing(self.job), neighbours);
        self.begin(Pass::Backward, (0..=last).rev(), among);
        self.acquire(last);
        self.fetch_input(blocks.last_mut());
        self.compute(Pass::Backward, last);
        self.acquire_gradients(last);
        let mut dx = self.sizes.head_backward(&mut self.rank, head);
        self.rank.end();
        self.finish_backward(last, last_micro_batch);
        while let Some(block) = blocks.pop() {
            let layer = blocks.len() + 1;
            self.acquire(layer);
            let block = self.arrived_input(block);
            self.fetch_input(blocks.last_mut());
            let recomputes = self.job.checkpointing != Checkpointing::None;
            if recomputes {
                self.compute(Pass::Recompute, layer);
            }
            let block = self.sizes.block_recompute(&mut self.rank, block);
            if recomputes {
                self.rank.end();
            }
            self.compute(Pass::Backward, layer);
            self.acquire_gradients(layer);
            dx = self.sizes.block_backward(&mut self.rank, block, dx);
            self.rank.end();
            self.finish_backward(layer, last_micro_batch);
        }
        if last_micro_batch && self.offload.cpu_update_continues() {
            self.rank.wait_for_update(None);
        }
        self.acquire(0);
        self.compute(Pass::Backward, 0);
        self.acquire_gradients(0);
        self.rank.free(dx);
        self.rank.end();
        self.finish_backward(0, last_micro_batch);
    }

    pub(super) fn evaluation_batch(&mut self) {
        let last = self.partition.last_layer();
        let batch = self.sizes.batch(&mut self.rank);
        self.begin(Pass::Evaluate, 0..=last, sharing(self.job));
        self.acquire(0);
        let mut x = self.sizes.embed_forward(&mut self.rank);
        self.leave(0);
        for layer in 1..last {
            self.acquire(layer);
            x = self.sizes.block_unkept(&mut self.rank, Some(x));
            self.leave(layer);
        }
        self.acquire(last);
        self.sizes.head_evaluate(&mut self.rank, x);
        self.leave(last);
        self.rank.free_all(batch);
    }

    /// Begins a pass over `layers` that gathers among `among`. Where parameters are not sharded, it
    /// gathers no unit.
    fn begin(&mut self, pass: Pass, layers: impl Iterator<Item = usize>, among: Among) {
        self.pass = pass;
        let needs = &self.partition.needs;
        let sharded = self.job.stage.sharded().parameters;
        let units = layers.filter(|_| sharded).flat_map(|layer| needs[layer].iter().copied());
        self.parameters.begin(pass, units, among);
    }

    /// Acquires the full parameters of every unit that `layer` needs.
    fn acquire(&mut self, layer: usize) {
        self.rank.enter(Moment::Layer(self.pass, self.kind(layer)));
        let may_update = self.pass == Pass::Forward && self.offload.continues_in_forward();
        for &unit in &self.partition.needs[layer] {
            if may_update && !self.parameters.gathers(unit) {
                self.rank.wait_for_update(Some(unit));
            }
            self.parameters.acquire(&mut self.rank, unit);
        }
    }

    /// Begins a pass over `layer`; [`SymbolicRank::end`](crate::rank::SymbolicRank::end) ends it.
    fn compute(&mut self, pass: Pass, layer: usize) {
        self.rank.begin(pass, self.partition.shown[layer], self.kind(layer));
    }

    fn kind(&self, layer: usize) -> LayerKind {
        match layer {
            0 => LayerKind::Embedding,
            _ if layer == self.partition.last_layer() => LayerKind::Head,
            _ => LayerKind::Block(layer - 1),
        }
    }

    fn acquire_gradients(&mut self, layer: usize) {
        for &unit in &self.partition.needs[layer] {
            self.gradients.acquire(&mut self.rank, self.partition, unit);
        }
    }

    /// Ends the use of the units that no layer after `layer` needs in a forward. A backward follows
    /// unless the forward is an evaluation's.
    fn leave(&mut self, layer: usize) {
        for unit in self.partition.last_used_by(layer) {
            match self.pass {
                Pass::Forward => self.parameters.leave_forward(&mut self.rank, unit),
                _ => self.parameters.free(&mut self.rank, unit),
            }
        }
    }

    /// Frees the units that no layer before `layer` needs, then reduces their gradients.
    fn finish_backward(&mut self, layer: usize, last_micro_batch: bool) {
        let units = self.partition.first_used_by(layer);
        for &unit in &units {
            self.parameters.free(&mut self.rank, unit);
        }
        if !self.job.stage.sharded().gradients && !last_micro_batch {
            return;
        }
        for (i, &unit) in units.iter().enumerate() {
            let part = UnitGradients {
                unit,
                elements: self.partition.units[unit].padded,
                ends_pass: layer == 0 && i + 1 == units.len(),
                ends_step: last_micro_batch,
            };
            let reduced = self.gradients.reduce(&mut self.rank, part);
            self.reduced(reduced);
        }
    }
}
