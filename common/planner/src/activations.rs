//! What the model's layers allocate and free: their memory contract, without the arithmetic.
//!
//! Every buffer is named as in the model crate. Forward leaves in [`Class::Activations`] what backward will read;
//! backward's own buffers are [`Class::Workspace`]. Norm scales, log-sums and losses are fp32 in any recipe.

use crate::books::{Books, Held};
use crate::job::Job;
use events::Class::{Activations, Workspace};

const F32: u64 = 4;
const TOKEN_ID: u64 = 4;

/// Sizes of a micro-batch's buffers, in bytes.
pub(crate) struct Sizes {
    /// `[rows]` fp32: one norm scale, or one loss, per token.
    row: u64,
    /// `[rows]` token ids.
    ids: u64,
    /// `[rows, width]`.
    residual: u64,
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
            residual: of_width(c.width),
            qkv: of_width((c.heads + 2 * c.kv_heads) * c.head_dim),
            attention: of_width(c.heads * c.head_dim),
            log_sum: rows * c.heads as u64 * F32,
            hidden: of_width(c.feed_forward),
            logits: of_width(c.vocabulary),
        }
    }

    /// Token ids and targets of a micro-batch.
    pub(crate) fn batch(&self, books: &mut Books) -> Held {
        books.allocate(Activations, 2 * self.ids)
    }

    /// The embedding's output.
    pub(crate) fn embed_forward(&self, books: &mut Books) -> Held {
        books.allocate(Activations, self.residual)
    }

    /// Frees the gradient of the embedding's output.
    pub(crate) fn embed_backward(&self, books: &mut Books, dx: Held) {
        books.free(dx);
    }

    /// A block's forward for backward to come: keeps everything.
    pub(crate) fn block_forward(&self, books: &mut Books, x: Held) -> (BlockKept, Held) {
        let kept = BlockKept {
            x,
            inverse_rms1: books.allocate(Activations, self.row),
            n1: books.allocate(Activations, self.residual),
            qkv: books.allocate(Activations, self.qkv),
            attn: books.allocate(Activations, self.attention),
            log_sum: books.allocate(Activations, self.log_sum),
            x2: books.allocate(Activations, self.residual),
            inverse_rms2: books.allocate(Activations, self.row),
            n2: books.allocate(Activations, self.residual),
            gate_up: books.allocate(Activations, 2 * self.hidden),
            h: books.allocate(Activations, self.hidden),
        };
        (kept, books.allocate(Activations, self.residual))
    }

    /// A block's forward with no backward to come: frees each buffer after its last use.
    pub(crate) fn block_evaluate(&self, books: &mut Books, x: Held) -> Held {
        let inverse_rms1 = books.allocate(Activations, self.row);
        let n1 = books.allocate(Activations, self.residual);
        let qkv = books.allocate(Activations, self.qkv);
        books.free_all([n1, inverse_rms1]);
        let attn = books.allocate(Activations, self.attention);
        let log_sum = books.allocate(Activations, self.log_sum);
        books.free_all([qkv, log_sum]);
        let x2 = books.allocate(Activations, self.residual);
        books.free_all([attn, x]);
        let inverse_rms2 = books.allocate(Activations, self.row);
        let n2 = books.allocate(Activations, self.residual);
        let gate_up = books.allocate(Activations, 2 * self.hidden);
        books.free_all([n2, inverse_rms2]);
        let h = books.allocate(Activations, self.hidden);
        books.free(gate_up);
        let out = books.allocate(Activations, self.residual);
        books.free_all([h, x2]);
        out
    }

    /// A block's backward: consumes what forward kept and returns the gradient of its input, in `dout`'s place.
    pub(crate) fn block_backward(&self, books: &mut Books, kept: BlockKept, dout: Held) -> Held {
        let dh = books.allocate(Workspace, self.hidden);
        books.free(kept.h);
        let dgate_up = books.allocate(Workspace, 2 * self.hidden);
        books.free_all([dh, kept.gate_up]);
        let dn2 = books.allocate(Workspace, self.residual);
        books.free_all([dgate_up, kept.n2, dn2, kept.x2, kept.inverse_rms2]);
        let dattn = books.allocate(Workspace, self.attention);
        let dqkv = books.allocate(Workspace, self.qkv);
        books.free_all([dattn, kept.attn, kept.log_sum, kept.qkv]);
        let dn1 = books.allocate(Workspace, self.residual);
        books.free_all([dqkv, kept.n1, dn1, kept.x, kept.inverse_rms1]);
        dout
    }

    /// The head's forward for backward to come.
    pub(crate) fn head_forward(&self, books: &mut Books, x: Held) -> HeadKept {
        let kept = HeadKept {
            x,
            inverse_rms: books.allocate(Activations, self.row),
            n: books.allocate(Activations, self.residual),
            logits: books.allocate(Activations, self.logits),
        };
        let losses = books.allocate(Workspace, self.row);
        books.free(losses);
        kept
    }

    /// The head's forward with no backward to come.
    pub(crate) fn head_evaluate(&self, books: &mut Books, x: Held) {
        let inverse_rms = books.allocate(Activations, self.row);
        let n = books.allocate(Activations, self.residual);
        let logits = books.allocate(Activations, self.logits);
        books.free_all([n, inverse_rms]);
        let losses = books.allocate(Workspace, self.row);
        books.free_all([losses, logits, x]);
    }

    /// The head's backward: returns the gradient of its input.
    pub(crate) fn head_backward(&self, books: &mut Books, kept: HeadKept) -> Held {
        let dn = books.allocate(Workspace, self.residual);
        books.free_all([kept.logits, kept.n]);
        let dx = books.allocate(Workspace, self.residual);
        books.free_all([dn, kept.x, kept.inverse_rms]);
        dx
    }
}

/// What a block's forward leaves for its backward.
pub(crate) struct BlockKept {
    x: Held,
    inverse_rms1: Held,
    n1: Held,
    qkv: Held,
    attn: Held,
    log_sum: Held,
    x2: Held,
    inverse_rms2: Held,
    n2: Held,
    gate_up: Held,
    h: Held,
}

/// What the head's forward leaves for its backward.
pub(crate) struct HeadKept {
    x: Held,
    inverse_rms: Held,
    n: Held,
    logits: Held,
}
