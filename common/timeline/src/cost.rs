//! How long each thing takes: operations and bytes over the rates that a device reaches.

use crate::efficiency::{Efficiency, Software};
use crate::hardware::Cluster;
use events::{Operation, Pass};
use model::{Checkpointing, LayerKind};
use prediction::recipe::F32;
use prediction::{Among, Issued, Job};

/// What one pass over a layer does on one rank.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Work {
    /// Floating-point operations of products with weights.
    products: f64,
    /// Floating-point operations of attention's products, masked scores left out.
    attention: f64,
    /// Bytes that element-wise operations read and write, if each is one pass over its operands.
    elements: f64,
}

impl Work {
    fn times(self, factor: f64) -> Work {
        let Work { products, attention, elements } = self;
        Work { products: factor * products, attention: factor * attention, elements: factor * elements }
    }
}

/// The costs of one rank's actions.
#[derive(Clone, Debug)]
pub struct Costs {
    cluster: Cluster,
    efficiency: Efficiency,
    /// Passes over memory that the software makes for one that fused kernels make.
    passes: f64,
    /// The part of a block's forward that backward recomputes.
    recomputed: f64,
    ranks: u64,
    is_16_bit: bool,
    head: Work,
    block: Work,
    embedding: Work,
    /// Bytes that an update reads and writes per element.
    updated: f64,
}

impl Costs {
    /// Returns the costs of `job` on `cluster`.
    pub fn new(job: &Job, cluster: Cluster, software: Software, efficiency: Efficiency) -> Self {
        let config = &job.config;
        let rows = (job.batch_size * job.tokens) as f64;
        let [width, feed_forward, vocabulary] =
            [config.width, config.feed_forward, config.vocabulary].map(|size| size as f64);
        let queries = (config.heads * config.head_dim) as f64;
        let keys = (config.kv_heads * config.head_dim) as f64;
        let packed = queries + 2.0 * keys;
        let weights = width * (packed + queries + 3.0 * feed_forward);
        let element = job.recipe.weights as f64;
        // Two norms read a row and write one; the rotation does both in place; attention reads its
        // operands and writes its result; SwiGLU reads two rows and writes one; two sums read two
        // rows and write one.
        let touched = 4.0 * width + 2.0 * packed + packed + queries + 3.0 * feed_forward + 6.0 * width;
        let block = Work {
            products: 2.0 * rows * weights,
            // Two products per score; half of the scores are masked.
            attention: 2.0 * rows * job.tokens as f64 * queries,
            elements: rows * element * touched,
        };
        // The norm, and two passes over the logits: they become their gradients.
        let head = Work {
            products: 2.0 * rows * width * vocabulary,
            attention: 0.0,
            elements: rows * element * (2.0 * width + 2.0 * vocabulary),
        };
        let embedding = Work { elements: rows * element * 2.0 * width, ..Work::default() };
        let recipe = &job.recipe;
        let states = 2 * (recipe.optimizer() + recipe.weights) + recipe.gradients.max(F32);
        Costs {
            passes: match software {
                Software::Fused => 1.0,
                Software::Eager => efficiency.eager_passes,
            },
            cluster,
            efficiency,
            recomputed: match job.checkpointing {
                Checkpointing::Block => 1.0,
                Checkpointing::None | Checkpointing::Selective => 0.0,
            },
            ranks: job.world_size as u64,
            is_16_bit: job.recipe.weights < F32,
            head,
            block,
            embedding,
            updated: states as f64,
        }
    }

    /// Returns these costs where backward recomputes `share` of a checkpointed block's forward.
    pub fn recomputing(self, share: f64) -> Self {
        Costs { recomputed: share, ..self }
    }

    /// Returns the seconds of `pass` over `layer`.
    pub fn pass(&self, pass: Pass, layer: LayerKind) -> f64 {
        let work = match layer {
            LayerKind::Embedding => self.embedding,
            LayerKind::Block(_) => self.block,
            LayerKind::Head => self.head,
        };
        match pass {
            Pass::Forward | Pass::Evaluate => self.seconds(work),
            Pass::Recompute => self.seconds(work.times(self.recomputed)),
            // Gradients of inputs and of weights; attention also computes its scores again.
            Pass::Backward => self.seconds(Work { attention: 2.5 * work.attention, ..work.times(2.0) }),
            Pass::Step => 0.0,
        }
    }

    /// Returns the floating-point operations per second that the GPU's data sheet promises for
    /// products of the job's weights.
    pub fn product_rate(&self) -> f64 {
        let gpu = self.cluster.gpu;
        if self.is_16_bit { gpu.products_16 } else { gpu.products_32 }
    }

    /// Returns the machines in words, for a run's header. Screens look for "predicted" and
    /// "simulated link".
    pub(crate) fn describe_device(&self) -> String {
        let Cluster { gpu, gpus_per_node, network } = self.cluster;
        let across = if self.ranks > gpus_per_node as u64 {
            format!(", {:.0} GB/s between machines", network / 1e9)
        } else {
            String::new()
        };
        format!("{gpu}, predicted, simulated link ({:.0} GB/s{across})", gpu.link / 1e9)
    }

    /// Returns the bytes of the GPU's memory.
    pub(crate) fn capacity(&self) -> u64 {
        self.cluster.gpu.memory
    }

    fn seconds(&self, work: Work) -> f64 {
        let Efficiency { products, attention, memory, .. } = self.efficiency;
        let gpu = self.cluster.gpu;
        let rate = self.product_rate();
        work.products / (products * rate)
            + work.attention / (attention * rate)
            + self.passes * work.elements / (memory * gpu.memory_rate)
    }

    /// Returns the seconds of an update of `elements` elements.
    pub fn update(&self, elements: u64) -> f64 {
        elements as f64 * self.updated / (self.efficiency.memory * self.cluster.gpu.memory_rate)
    }

    /// Returns the seconds of a collective, once every rank has issued it: a latency per hop of a
    /// ring, and its bytes over the slowest link of the ring.
    pub fn collective(&self, issued: &Issued) -> f64 {
        let Efficiency { link, network, hop, .. } = self.efficiency;
        let per_node = self.cluster.gpus_per_node as u64;
        let (size, distance) = match issued.among {
            Among::World => (self.ranks, 1),
            Among::Neighbours(size) => (size, 1),
            Among::Across(size) => (self.ranks / size, size),
        };
        if size == 1 {
            return 0.0;
        }
        // The members of one group in a machine. Other groups use the rest of its network.
        let together = (per_node / distance).clamp(1, size);
        let nodes = size.div_ceil(together);
        let inside = link * self.cluster.gpu.link;
        let across = network * self.cluster.network * together.min(per_node) as f64 / per_node as f64;
        let rate = match (nodes, together) {
            (1, _) => inside,
            (_, 1) => across,
            _ => across.min(inside),
        };
        let hops = (size - 1) as f64;
        let payload = issued.bytes() as f64 * hops / size as f64;
        // A ring passes every rank. Sums and scalars take a tree of machines, and a chain in each.
        let latency = match issued.operation {
            Operation::AllReduce | Operation::Scalars => (together - 1) as f64 + (nodes as f64).log2(),
            _ => hops,
        };
        issued.operation.rounds() as f64 * (latency * hop + payload / rate)
    }
}
