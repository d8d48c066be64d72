//! What a pass over a layer does on one rank: operations, and bytes that pass through memory.

use model::Checkpointing;
use prediction::Job;
use prediction::recipe::{F32, Recipe};

/// Operations and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Work {
    /// Floating-point operations of products with weights.
    pub(crate) products: f64,
    /// Bytes of these weights, which every pass reads.
    pub(crate) weights: f64,
    /// Floating-point operations of attention's products, without masked scores.
    pub(crate) attention: f64,
    /// Bytes that element-wise operations read and write, if each is one pass over its operands.
    pub(crate) elements: f64,
    /// Bytes of element-wise operations without a backward: the loss, which makes its gradients in
    /// forward.
    pub(crate) loss: f64,
}

impl Work {
    fn times(self, factor: f64) -> Work {
        let Work { products, weights, attention, elements, loss } = self;
        Work {
            products: factor * products,
            weights: factor * weights,
            attention: factor * attention,
            elements: factor * elements,
            loss: factor * loss,
        }
    }

    /// Returns the backward of this forward: gradients of inputs and of weights. Attention also
    /// computes its scores again.
    pub(crate) fn backward(self) -> Work {
        Work { attention: 2.5 * self.attention, loss: 0.0, ..self.times(2.0) }
    }
}

/// The work of each kind of layer in forward, and of an update.
#[derive(Clone, Debug)]
pub(crate) struct LayerWork {
    pub(crate) embedding: Work,
    pub(crate) block: Work,
    pub(crate) head: Work,
    /// What a block's backward recomputes.
    pub(crate) recomputed: Work,
    /// Bytes that an update reads and writes per element.
    pub(crate) update_bytes: f64,
    /// The same of the CPU's update, whose norm is computed before.
    pub(crate) cpu_update_bytes: f64,
    /// Bytes that the CPU reads and writes per element that it adds to a shard of gradients.
    pub(crate) added_bytes: f64,
}

impl LayerWork {
    /// Returns the work of `job`'s layers.
    pub(crate) fn of(job: &Job) -> Self {
        let config = &job.config;
        let rows = (job.batch_size * job.tokens) as f64;
        let sizes = [config.width, config.feed_forward, config.vocabulary];
        let [width, feed_forward, vocabulary] = sizes.map(|size| size as f64);
        let heads = [config.heads, config.kv_heads];
        let [queries, keys] = heads.map(|heads| (heads * config.head_dim) as f64);
        let (packed, gated) = (queries + 2.0 * keys, 3.0 * feed_forward);
        let element = rows * job.recipe.weights as f64;
        // Each norm, two per block, reads a row and writes one. So does the embedding.
        let norm = 2.0 * width;
        // Attention reads its operands and writes its result. The rotation reads and writes queries
        // and keys. Each of two sums reads two rows and writes one.
        let others = packed + queries + 2.0 * (queries + keys) + 6.0 * width;
        let bytes = job.recipe.weights as f64;
        let weights = width * (packed + queries + gated);
        let block = Work {
            products: 2.0 * rows * weights,
            weights: bytes * weights,
            // Two products per score; half of the scores are masked.
            attention: 2.0 * rows * job.tokens as f64 * queries,
            elements: element * (2.0 * norm + gated + others),
            loss: 0.0,
        };
        let last_product = 2.0 * rows * width * feed_forward;
        LayerWork {
            embedding: Work { elements: element * norm, ..Work::default() },
            block,
            // The loss reads the logits, which become their gradients.
            head: Work {
                products: 2.0 * rows * width * vocabulary,
                weights: bytes * width * vocabulary,
                elements: element * norm,
                loss: element * 2.0 * vocabulary,
                attention: 0.0,
            },
            recomputed: match job.checkpointing {
                Checkpointing::None => Work::default(),
                Checkpointing::Selective => {
                    Work { elements: element * (2.0 * norm + gated), ..Work::default() }
                }
                Checkpointing::Block => Work { products: block.products - last_product, ..block },
            },
            update_bytes: update_bytes(job),
            cpu_update_bytes: cpu_update_bytes(job),
            added_bytes: added_bytes(job),
        }
    }

    /// Returns this work where backward recomputes `share` of a block's whole forward.
    pub(crate) fn recomputing(self, share: f64) -> Self {
        LayerWork { recomputed: self.block.times(share), ..self }
    }
}

/// Returns the bytes that an update reads and writes per element: it reads and writes states, and
/// writes weights, which it reads if there are no master weights. The norm reads gradients before.
fn update_bytes(job: &Job) -> f64 {
    let recipe = &job.recipe;
    let weights = if recipe.master == 0 { 2 * recipe.weights } else { recipe.weights };
    (2 * recipe.optimizer() + weights + 2 * recipe.gradients) as f64
}

/// Returns the bytes that the CPU's update reads and writes per element: it reads and writes master
/// weights and moments, reads gradients and writes weights, if these are not the master weights.
fn cpu_update_bytes(job: &Job) -> f64 {
    let Recipe { weights, gradients, .. } = job.recipe;
    let weights = if weights == F32 { 0 } else { weights };
    (2 * 3 * F32 + gradients + weights) as f64
}

/// Returns the bytes that adding an element of reduced gradients to its shard reads and writes. The
/// norm reads the shard once more, while it is in a cache. The zeros before the first micro-batch
/// are left out.
fn added_bytes(job: &Job) -> f64 {
    (2 * job.recipe.gradients + job.converted_gradients.unwrap_or(job.recipe.gradients)) as f64
}
