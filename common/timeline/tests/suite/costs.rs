//! Costs by hand, with efficiencies of 1.

use events::{Operation, Pass};
use model::{LayerKind, ModelConfig};
use prediction::{Among, Issued, Job, Stage};
use timeline::{A100, Cluster, Costs, Efficiency, Gpu, Software};

const PERFECT: Efficiency = Efficiency {
    products: 1.0,
    attention: 1.0,
    memory: 1.0,
    link: 1.0,
    network: 1.0,
    hop: 1.0,
    eager_passes: 3.0,
};

/// A GPU with one FLOP per second and infinite memory bandwidth, or the other way round; links of
/// ten bytes per second.
fn gpu(products: f64, memory_rate: f64) -> Gpu {
    Gpu { products_32: products, memory_rate, link: 10.0, ..A100 }
}

fn job(ranks: usize) -> Job {
    let config = ModelConfig { batch_size: 2, sequence_length: 16, ..ModelConfig::tiny() };
    Job::new(config, Stage::Zero3, ranks)
}

fn costs(gpu: Gpu, ranks: usize, per_node: usize, software: Software) -> Costs {
    let cluster = Cluster { gpu, gpus_per_node: per_node, network: 8.0 };
    Costs::new(&job(ranks), cluster, software, PERFECT)
}

#[test]
fn operations_of_tiny() {
    let costs = costs(gpu(1.0, f64::INFINITY), 4, 8, Software::Fused);
    let (rows, block) = (2.0 * 16.0, LayerKind::Block(0));
    // q, k, v, o 4 · 128², gate, up, down 3 · 128 · 384; attention over half of 16 tokens.
    let products = 2.0 * rows * (4.0 * 128.0 * 128.0 + 3.0 * 128.0 * 384.0);
    let attention = 2.0 * rows * 16.0 * 128.0;
    assert_eq!(costs.pass(Pass::Forward, block), products + attention);
    assert_eq!(costs.pass(Pass::Backward, block), 2.0 * products + 2.5 * attention);
    assert_eq!(costs.pass(Pass::Forward, LayerKind::Head), 2.0 * rows * 128.0 * 256.0);
    assert_eq!(costs.pass(Pass::Forward, LayerKind::Embedding), 0.0);
    // Every weight takes 2 operations per row forward; a model's 6 count both backward products.
    let layers = [costs.pass(Pass::Forward, LayerKind::Head), 4.0 * products];
    let norms = (2 * 4 + 1) * 128;
    let weights = 6 * (ModelConfig::tiny().flops_per_token(0) / 6 - norms);
    assert_eq!(3.0 * layers.iter().sum::<f64>(), rows * weights as f64);
}

#[test]
fn eager_programs_move_more() {
    let block = LayerKind::Block(0);
    let time = |software| costs(gpu(f64::INFINITY, 1.0), 4, 8, software).pass(Pass::Forward, block);
    assert!(time(Software::Fused) > 0.0);
    assert_eq!(time(Software::Eager), 3.0 * time(Software::Fused));
}

#[test]
fn an_update_reads_and_writes_states() {
    // Momentum and variance, read and written; the weights too; gradients, read.
    let costs = costs(gpu(f64::INFINITY, 1.0), 4, 8, Software::Fused);
    assert_eq!(costs.update(10), 10.0 * (2.0 * 8.0 + 2.0 * 4.0 + 4.0));
}

fn collective(among: Among, operation: Operation, bytes: u64) -> Issued {
    let units = Default::default();
    Issued { number: 0, among, operation, units, elements: vec![bytes], element_bytes: 1 }
}

/// A hop takes a second; a link moves 10 bytes per second, a machine sends 8.
#[test]
fn collectives_cross_their_slowest_link() {
    let gpu = gpu(1.0, 1.0);
    let time = |ranks, per_node, among, operation| {
        costs(gpu, ranks, per_node, Software::Fused).collective(&collective(among, operation, 80))
    };
    // Inside a machine of 8: 3 hops, 3/4 of the bytes over a link.
    assert_eq!(time(4, 8, Among::World, Operation::AllGather), 3.0 + 60.0 / 10.0);
    // In two machines of 2 the ring crosses what a machine sends.
    assert_eq!(time(4, 2, Among::World, Operation::ReduceScatter), 3.0 + 60.0 / 8.0);
    // A sum is two rounds, each over a chain of 2 and a tree of 2.
    assert_eq!(time(4, 2, Among::World, Operation::AllReduce), 2.0 * (2.0 + 60.0 / 8.0));
    // Neighbours stay inside; groups across machines share what a machine sends.
    assert_eq!(time(4, 2, Among::Neighbours(2), Operation::AllGather), 1.0 + 40.0 / 10.0);
    assert_eq!(time(4, 2, Among::Across(2), Operation::AllReduce), 2.0 * (1.0 + 40.0 / 4.0));
    assert_eq!(time(1, 8, Among::World, Operation::AllReduce), 0.0);
}
