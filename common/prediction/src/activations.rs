//! The buffers that the model's layers allocate and free: their memory contract, without the
//! arithmetic.
//!
//! The job chooses what a block keeps between forward and backward; recomputation completes it
//! before its backward. Every buffer is named as in the model crate. Forward allocates
//! `Class::Activations`, which backward reads; backward's own buffers are `Class::Workspace`.
//! Norm scales, log-sums and losses are fp32 in any recipe.

use crate::job::Job;
use crate::ledger::Allocation;
use crate::rank::SymbolicRank;
use crate::recipe::F32;
use events::Class::{Activations, Workspace};
use model::Checkpointing;

const TOKEN_ID: u64 = 4;

/// Sizes of a micro-batch's buffers, in bytes.
pub(crate) struct Sizes {
    /// `[rows]` fp32: one norm scale, or one loss, per token.
    row: u64,
    /// `[rows]` token ids.
    ids: u64,
    /// `[rows]` ones, by which a bias is multiplied; `None` without biases.
    ones: Option<u64>,
    /// `[rows, heads + kv_heads]` fp32: scales of the norms of heads; `None` without these norms.
    head_scales: Option<u64>,
    /// `[rows, width]`: a block's input.
    pub(crate) residual: u64,
    /// `[rows, (heads + 2·kv_heads)·head_dim]`.
    qkv: u64,
    /// `[rows, heads·head_dim]`.
    attention: u64,
    /// `[batch, heads, tokens]` fp32: the log of attention's denominators.
    log_sum: u64,
    /// `[rows, feed_forward]`.
    hidden: u64,
    /// `[rows, vocabulary]`.
    logits: u64,
}

impl Sizes {
    pub(crate) fn new(job: &Job) -> Self {
        let c = &job.config;
        let rows = job.batch_size as u64 * job.tokens as u64;
        let of_width = |width: usize| rows * width as u64 * job.recipe.weights;
        Sizes {
            row: rows * F32,
            ids: rows * TOKEN_ID,
            ones: c.family.has_biases().then(|| of_width(1)),
            head_scales: c.family.norms_heads().then_some(rows * (c.heads + c.kv_heads) as u64 * F32),
            residual: of_width(c.width),
            qkv: of_width((c.heads + 2 * c.kv_heads) * c.head_dim),
            attention: of_width(c.heads * c.head_dim),
            log_sum: rows * c.heads as u64 * F32,
            hidden: of_width(c.feed_forward),
            logits: of_width(c.vocabulary),
        }
    }

    /// Allocates the token ids and targets of a micro-batch.
    pub(crate) fn batch(&self, rank: &mut SymbolicRank) -> [Allocation; 2] {
        [rank.allocate(Activations, self.ids), rank.allocate(Activations, self.ids)]
    }

    /// Allocates the embedding's output.
    pub(crate) fn embed_forward(&self, rank: &mut SymbolicRank) -> Allocation {
        rank.allocate(Activations, self.residual)
    }

    /// Walks a block's forward before a backward: returns the buffers that it keeps, and its
    /// output.
    pub(crate) fn block_forward(
        &self,
        rank: &mut SymbolicRank,
        x: Allocation,
        checkpointing: Checkpointing,
    ) -> (BlockKept, Allocation) {
        match checkpointing {
            Checkpointing::None => {
                let inner = self.block_inner(rank);
                (BlockKept::Everything(x, inner), rank.allocate(Activations, self.residual))
            }
            Checkpointing::Selective => {
                let (kept, out) = self.block_expensive(rank);
                (BlockKept::Selective(x, kept), out)
            }
            Checkpointing::Block => {
                let out = self.block_unkept(rank, None);
                (BlockKept::Input(x), out)
            }
        }
    }

    /// Allocates every buffer between a block's input and output.
    fn block_inner(&self, rank: &mut SymbolicRank) -> BlockInner {
        let [inverse_rms1, n1] = self.norm(rank);
        let qkv = self.queries_keys_values(rank);
        let attn = rank.allocate(Activations, self.attention);
        let log_sum = rank.allocate(Activations, self.log_sum);
        let x2 = rank.allocate(Activations, self.residual);
        let [inverse_rms2, n2] = self.norm(rank);
        let gate_up = rank.allocate(Activations, 2 * self.hidden);
        let h = rank.allocate(Activations, self.hidden);
        let expensive = BlockExpensive { qkv, attn, log_sum, x2, gate_up };
        BlockInner { inverse_rms1, n1, expensive, inverse_rms2, n2, h }
    }

    /// Walks a block's forward that keeps the buffers that are expensive to compute again.
    fn block_expensive(&self, rank: &mut SymbolicRank) -> (BlockExpensive, Allocation) {
        let norm1 = self.norm(rank);
        let qkv = self.queries_keys_values(rank);
        rank.free_all(norm1);
        let attn = rank.allocate(Activations, self.attention);
        let log_sum = rank.allocate(Activations, self.log_sum);
        let x2 = rank.allocate(Activations, self.residual);
        let norm2 = self.norm(rank);
        let gate_up = rank.allocate(Activations, 2 * self.hidden);
        rank.free_all(norm2);
        let h = rank.allocate(Activations, self.hidden);
        let out = rank.allocate(Activations, self.residual);
        rank.free(h);
        (BlockExpensive { qkv, attn, log_sum, x2, gate_up }, out)
    }

    /// Walks a block's forward that frees each buffer after its last use. Frees its input `x` too
    /// if no backward follows.
    pub(crate) fn block_unkept(&self, rank: &mut SymbolicRank, x: Option<Allocation>) -> Allocation {
        let norm1 = self.norm(rank);
        let qkv = self.queries_keys_values(rank);
        rank.free_all(norm1);
        let attn = rank.allocate(Activations, self.attention);
        let log_sum = rank.allocate(Activations, self.log_sum);
        rank.free(log_sum);
        qkv.free(rank);
        let x2 = rank.allocate(Activations, self.residual);
        rank.free(attn);
        rank.free_all(x);
        let norm2 = self.norm(rank);
        let gate_up = rank.allocate(Activations, 2 * self.hidden);
        rank.free_all(norm2);
        let h = rank.allocate(Activations, self.hidden);
        rank.free(gate_up);
        let out = rank.allocate(Activations, self.residual);
        rank.free_all([h, x2]);
        out
    }

    /// Allocates queries, keys and values, and the buffers that the norms of heads read and keep.
    fn queries_keys_values(&self, rank: &mut SymbolicRank) -> PackedHeads {
        let first = rank.allocate(Activations, self.qkv);
        self.biases(rank);
        let second = self
            .head_scales
            .map(|scales| [rank.allocate(Activations, self.qkv), rank.allocate(Activations, scales)]);
        PackedHeads { first, second }
    }

    /// Walks the buffers that biases need, forward or backward.
    fn biases(&self, rank: &mut SymbolicRank) {
        let ones = self.ones.map(|ones| rank.allocate(Workspace, ones));
        rank.free_all(ones);
    }

    /// Allocates a norm's scales and output.
    fn norm(&self, rank: &mut SymbolicRank) -> [Allocation; 2] {
        [rank.allocate(Activations, self.row), rank.allocate(Activations, self.residual)]
    }

    /// Allocates again the buffers that a block's forward did not keep.
    pub(crate) fn block_recompute(
        &self,
        rank: &mut SymbolicRank,
        kept: BlockKept,
    ) -> (Allocation, BlockInner) {
        match kept {
            BlockKept::Everything(x, inner) => (x, inner),
            BlockKept::Input(x) => (x, self.block_inner(rank)),
            BlockKept::Selective(x, expensive) => {
                let [inverse_rms1, n1] = self.norm(rank);
                let [inverse_rms2, n2] = self.norm(rank);
                let h = rank.allocate(Activations, self.hidden);
                (x, BlockInner { inverse_rms1, n1, expensive, inverse_rms2, n2, h })
            }
        }
    }

    /// Walks a block's backward: frees the block's input and all buffers that forward computed from
    /// it, and returns the gradient of its input, which replaces `dout`.
    pub(crate) fn block_backward(
        &self,
        rank: &mut SymbolicRank,
        (x, kept): (Allocation, BlockInner),
        dout: Allocation,
    ) -> Allocation {
        let BlockExpensive { qkv, attn, log_sum, x2, gate_up } = kept.expensive;
        let dh = rank.allocate(Workspace, self.hidden);
        rank.free(kept.h);
        let dgate_up = rank.allocate(Workspace, 2 * self.hidden);
        rank.free_all([dh, gate_up]);
        let dn2 = rank.allocate(Workspace, self.residual);
        rank.free_all([dgate_up, kept.n2, dn2, x2, kept.inverse_rms2]);
        let dattn = rank.allocate(Workspace, self.attention);
        let dqkv = rank.allocate(Workspace, self.qkv);
        rank.free_all([dattn, attn, log_sum]);
        qkv.free(rank);
        self.biases(rank);
        let dn1 = rank.allocate(Workspace, self.residual);
        rank.free_all([dqkv, kept.n1, dn1, x, kept.inverse_rms1]);
        dout
    }

    /// Walks the head's forward before a backward.
    pub(crate) fn head_forward(&self, rank: &mut SymbolicRank, x: Allocation) -> HeadKept {
        let kept = HeadKept {
            x,
            inverse_rms: rank.allocate(Activations, self.row),
            n: rank.allocate(Activations, self.residual),
            logits: rank.allocate(Activations, self.logits),
        };
        let losses = rank.allocate(Workspace, self.row);
        rank.free(losses);
        kept
    }

    /// Walks the head's forward in an evaluation, which no backward follows.
    pub(crate) fn head_evaluate(&self, rank: &mut SymbolicRank, x: Allocation) {
        let inverse_rms = rank.allocate(Activations, self.row);
        let n = rank.allocate(Activations, self.residual);
        let logits = rank.allocate(Activations, self.logits);
        rank.free_all([n, inverse_rms]);
        let losses = rank.allocate(Workspace, self.row);
        rank.free_all([losses, logits, x]);
    }

    /// Walks the head's backward: returns the gradient of its input.
    pub(crate) fn head_backward(&self, rank: &mut SymbolicRank, kept: HeadKept) -> Allocation {
        let dn = rank.allocate(Workspace, self.residual);
        rank.free_all([kept.logits, kept.n]);
        let dx = rank.allocate(Workspace, self.residual);
        rank.free_all([dn, kept.x, kept.inverse_rms]);
        dx
    }
}

/// The buffers that a block's forward keeps for its backward, its input first.
pub(crate) enum BlockKept {
    Everything(Allocation, BlockInner),
    Selective(Allocation, BlockExpensive),
    Input(Allocation),
}

/// The buffers between a block's input and its output.
pub(crate) struct BlockInner {
    inverse_rms1: Allocation,
    n1: Allocation,
    expensive: BlockExpensive,
    inverse_rms2: Allocation,
    n2: Allocation,
    h: Allocation,
}

/// The buffers of [`BlockInner`] that are expensive to compute again.
pub(crate) struct BlockExpensive {
    qkv: PackedHeads,
    attn: Allocation,
    log_sum: Allocation,
    x2: Allocation,
    gate_up: Allocation,
}

/// Packed queries, keys and values. With norms of heads: before these norms, then after them with
/// their scales.
struct PackedHeads {
    first: Allocation,
    second: Option<[Allocation; 2]>,
}

impl PackedHeads {
    fn free(self, rank: &mut SymbolicRank) {
        rank.free(self.first);
        self.second.into_iter().for_each(|kept| rank.free_all(kept));
    }
}

/// The buffers that the head's forward keeps for its backward.
pub(crate) struct HeadKept {
    x: Allocation,
    inverse_rms: Allocation,
    n: Allocation,
    logits: Allocation,
}
