//! What the model's layers allocate and free: their memory contract, without the arithmetic.
//!
//! What a block keeps between forward and backward is the job's choice; before its backward it has everything.
//! Every buffer is named as in the model crate. Forward leaves in [`Class::Activations`] what backward will read;
//! backward's own buffers are [`Class::Workspace`]. Norm scales, log-sums and losses are fp32 in any recipe.

use crate::books::{Books, Held};
use crate::job::Job;
use events::Class::{Activations, Workspace};
use model::Checkpointing;

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

    /// A block's forward for backward to come.
    pub(crate) fn block_forward(
        &self,
        books: &mut Books,
        x: Held,
        checkpointing: Checkpointing,
    ) -> (BlockKept, Held) {
        match checkpointing {
            Checkpointing::None => {
                let inner = self.block_inner(books);
                (BlockKept::Everything(x, inner), books.allocate(Activations, self.residual))
            }
            Checkpointing::Selective => {
                let (kept, out) = self.block_expensive(books);
                (BlockKept::Selective(x, kept), out)
            }
            Checkpointing::Block => {
                let out = self.block_unkept(books, None);
                (BlockKept::Input(x), out)
            }
        }
    }

    /// A block's forward with no backward to come.
    pub(crate) fn block_evaluate(&self, books: &mut Books, x: Held) -> Held {
        self.block_unkept(books, Some(x))
    }

    /// Everything between a block's input and output.
    fn block_inner(&self, books: &mut Books) -> BlockInner {
        BlockInner {
            inverse_rms1: books.allocate(Activations, self.row),
            n1: books.allocate(Activations, self.residual),
            expensive: BlockExpensive {
                qkv: books.allocate(Activations, self.qkv),
                attn: books.allocate(Activations, self.attention),
                log_sum: books.allocate(Activations, self.log_sum),
                x2: books.allocate(Activations, self.residual),
                gate_up: books.allocate(Activations, 2 * self.hidden),
            },
            inverse_rms2: books.allocate(Activations, self.row),
            n2: books.allocate(Activations, self.residual),
            h: books.allocate(Activations, self.hidden),
        }
    }

    /// A block's forward that keeps what is expensive to compute again.
    fn block_expensive(&self, books: &mut Books) -> (BlockExpensive, Held) {
        let norm1 = self.norm(books);
        let qkv = books.allocate(Activations, self.qkv);
        books.free_all(norm1);
        let attn = books.allocate(Activations, self.attention);
        let log_sum = books.allocate(Activations, self.log_sum);
        let x2 = books.allocate(Activations, self.residual);
        let norm2 = self.norm(books);
        let gate_up = books.allocate(Activations, 2 * self.hidden);
        books.free_all(norm2);
        let h = books.allocate(Activations, self.hidden);
        let out = books.allocate(Activations, self.residual);
        books.free(h);
        (BlockExpensive { qkv, attn, log_sum, x2, gate_up }, out)
    }

    /// A block's forward that frees each buffer after its last use, and `x` too if it is given.
    fn block_unkept(&self, books: &mut Books, x: Option<Held>) -> Held {
        let norm1 = self.norm(books);
        let qkv = books.allocate(Activations, self.qkv);
        books.free_all(norm1);
        let attn = books.allocate(Activations, self.attention);
        let log_sum = books.allocate(Activations, self.log_sum);
        books.free_all([qkv, log_sum]);
        let x2 = books.allocate(Activations, self.residual);
        books.free(attn);
        books.free_all(x);
        let norm2 = self.norm(books);
        let gate_up = books.allocate(Activations, 2 * self.hidden);
        books.free_all(norm2);
        let h = books.allocate(Activations, self.hidden);
        books.free(gate_up);
        let out = books.allocate(Activations, self.residual);
        books.free_all([h, x2]);
        out
    }

    /// A norm's scales and output.
    fn norm(&self, books: &mut Books) -> [Held; 2] {
        [books.allocate(Activations, self.row), books.allocate(Activations, self.residual)]
    }

    /// Makes again what a block's forward has not kept.
    pub(crate) fn block_recompute(&self, books: &mut Books, kept: BlockKept) -> (Held, BlockInner) {
        match kept {
            BlockKept::Everything(x, inner) => (x, inner),
            BlockKept::Input(x) => (x, self.block_inner(books)),
            BlockKept::Selective(x, expensive) => {
                let [inverse_rms1, n1] = self.norm(books);
                let [inverse_rms2, n2] = self.norm(books);
                let h = books.allocate(Activations, self.hidden);
                (x, BlockInner { inverse_rms1, n1, expensive, inverse_rms2, n2, h })
            }
        }
    }

    /// A block's backward: consumes its input and all that forward made of it, and returns the gradient of its input, in
    /// `dout`'s place.
    pub(crate) fn block_backward(
        &self,
        books: &mut Books,
        (x, kept): (Held, BlockInner),
        dout: Held,
    ) -> Held {
        let BlockExpensive { qkv, attn, log_sum, x2, gate_up } = kept.expensive;
        let dh = books.allocate(Workspace, self.hidden);
        books.free(kept.h);
        let dgate_up = books.allocate(Workspace, 2 * self.hidden);
        books.free_all([dh, gate_up]);
        let dn2 = books.allocate(Workspace, self.residual);
        books.free_all([dgate_up, kept.n2, dn2, x2, kept.inverse_rms2]);
        let dattn = books.allocate(Workspace, self.attention);
        let dqkv = books.allocate(Workspace, self.qkv);
        books.free_all([dattn, attn, log_sum, qkv]);
        let dn1 = books.allocate(Workspace, self.residual);
        books.free_all([dqkv, kept.n1, dn1, x, kept.inverse_rms1]);
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

/// What a block's forward leaves for its backward, its input first.
pub(crate) enum BlockKept {
    Everything(Held, BlockInner),
    Selective(Held, BlockExpensive),
    Input(Held),
}

/// What a block's forward makes on the way from its input to its output.
pub(crate) struct BlockInner {
    inverse_rms1: Held,
    n1: Held,
    expensive: BlockExpensive,
    inverse_rms2: Held,
    n2: Held,
    h: Held,
}

/// The part of it that is expensive to compute again.
pub(crate) struct BlockExpensive {
    qkv: Held,
    attn: Held,
    log_sum: Held,
    x2: Held,
    gate_up: Held,
}

/// What the head's forward leaves for its backward.
pub(crate) struct HeadKept {
    x: Held,
    inverse_rms: Held,
    n: Held,
    logits: Held,
}
