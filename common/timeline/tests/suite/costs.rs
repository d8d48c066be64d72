//! Costs by hand, with efficiencies of 1.

use events::{Operation, Pass, Route};
use model::{Checkpointing, LayerKind, ModelConfig};
use prediction::{Among, CpuTask, CpuWork, Issued, Job, Recipe, Stage, Strategy};
use timeline::{A100, Cluster, Costs, Efficiency, Gpu, Machine, Software};

const PERFECT: Efficiency = Efficiency {
    products: 1.0,
    attention: 1.0,
    memory: 1.0,
    link: 1.0,
    network: 1.0,
    host_link: 1.0,
    cpu: 1.0,
    hop: 1.0,
    eager_passes: 3.0,
};

/// A GPU with one FLOP per second and infinite memory bandwidth, or the other way round; links of
/// ten bytes per second.
fn gpu(products: f64, memory_rate: f64) -> Gpu {
    Gpu { peak_flops: products, memory_rate, link: 10.0, ..A100 }
}

fn job(ranks: usize) -> Job {
    let config = ModelConfig { batch_size: 2, sequence_length: 16, ..ModelConfig::tiny() };
    Job { recipe: Recipe::MIXED, ..Job::new(config, Stage::Zero3, ranks) }
}

fn costs(gpu: Gpu, ranks: usize, per_node: usize, software: Software) -> Costs {
    let cluster = Cluster { network: 8.0, ..Cluster::of(gpu, per_node) };
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
    // The weights arrive once.
    let weights = 2.0 * (4.0 * 128.0 * 128.0 + 3.0 * 128.0 * 384.0);
    assert!(time(Software::Fused) > weights);
    assert_eq!(time(Software::Eager) - weights, 3.0 * (time(Software::Fused) - weights));
}

/// Forward but for the last product, or norms and SwiGLU alone.
#[test]
fn backward_recomputes_what_forward_did_not_keep() {
    let recomputed = |checkpointing, gpu| {
        let job = Job { checkpointing, ..job(4) };
        let cluster = Cluster { network: 8.0, ..Cluster::of(gpu, 8) };
        Costs::new(&job, cluster, Software::Fused, PERFECT).pass(Pass::Recompute, LayerKind::Block(0))
    };
    let (compute, memory) = (gpu(1.0, f64::INFINITY), gpu(f64::INFINITY, 1.0));
    let forward = costs(compute, 4, 8, Software::Fused).pass(Pass::Forward, LayerKind::Block(0));
    let down = 2.0 * 32.0 * 128.0 * 384.0;
    assert_eq!(recomputed(Checkpointing::Block, compute), forward - down);
    assert_eq!(recomputed(Checkpointing::Selective, compute), 0.0);
    let elements = 32.0 * (2.0 * 2.0 * 128.0 + 3.0 * 384.0);
    assert_eq!(recomputed(Checkpointing::Selective, memory), 2.0 * elements);
    assert_eq!(recomputed(Checkpointing::None, memory), 0.0);
}

/// A product of few rows takes as long as its weights take to arrive.
#[test]
fn products_wait_for_their_weights() {
    let weights = 2.0 * (4.0 * 128.0 * 128.0 + 3.0 * 128.0 * 384.0);
    let slow = Gpu { peak_flops: 1e30, ..gpu(1.0, 1.0) };
    let seconds = costs(slow, 4, 8, Software::Fused).pass(Pass::Forward, LayerKind::Block(0));
    assert!(seconds > weights && seconds < 2.0 * weights, "{seconds} and {weights}");
}

#[test]
fn an_update_reads_and_writes_states() {
    let costs = |recipe| {
        let cluster = Cluster { network: 8.0, ..Cluster::of(gpu(1.0, 1.0), 8) };
        Costs::new(&Job { recipe, ..job(4) }, cluster, Software::Fused, PERFECT)
    };
    // Master weights and moments, read and written; the weights, written; gradients, read twice.
    assert_eq!(costs(Recipe::MIXED).update(10), 10.0 * (2.0 * 12.0 + 2.0 + 2.0 * 2.0));
    // Moments and weights, read and written; gradients.
    assert_eq!(costs(Recipe::FP32).update(10), 10.0 * (2.0 * 8.0 + 2.0 * 4.0 + 2.0 * 4.0));
}

fn collective(among: Among, operation: Operation, bytes: u64) -> Issued {
    let units = Default::default();
    Issued { number: 0, among, operation, units, elements: vec![bytes], bytes, after: Vec::new() }
}

/// A hop takes a second; a link moves 10 bytes per second, a machine sends 8.
#[test]
fn collectives_cross_their_slowest_link() {
    let time = |ranks, per_node, among, operation| {
        let cluster = Cluster { network: 8.0, ..Cluster::of(gpu(1.0, 1.0), per_node) };
        let neighbours = match among {
            Among::World => None,
            Among::Neighbours(size) | Among::Across(size) => Some(size as usize),
        };
        let job = Job { strategy: Strategy::HybridShard, shard_group: neighbours, ..job(ranks) };
        let costs = Costs::new(&job, cluster, Software::Fused, PERFECT);
        costs.collective(&collective(among, operation, 240))
    };
    let (gather, sum) = (Operation::AllGather, Operation::AllReduce);
    // Inside a machine of 8: 3 hops, 3/4 of the bytes over a link.
    assert_eq!(time(4, 8, Among::World, gather), 3.0 + 180.0 / 10.0);
    // In two machines of 2 the ring crosses what a machine sends.
    assert_eq!(time(4, 2, Among::World, Operation::ReduceScatter), 3.0 + 180.0 / 8.0);
    // A sum is two rounds, each over a chain of 2 and a tree of 2.
    assert_eq!(time(4, 2, Among::World, sum), 2.0 * (2.0 + 180.0 / 8.0));
    // Neighbours stay inside; groups across machines share what a machine sends.
    assert_eq!(time(4, 2, Among::Neighbours(2), gather), 1.0 + 120.0 / 10.0);
    assert_eq!(time(4, 2, Among::Across(2), sum), 2.0 * (1.0 + 120.0 / 4.0));
    // Groups of 3 in machines of 4: the second is in two machines, and shares one with the third.
    assert_eq!(time(12, 4, Among::Neighbours(3), gather), 2.0 + 160.0 / 4.0);
    // With one GPU per machine every hop is between machines.
    assert_eq!(time(4, 1, Among::World, gather), 3.0 + 180.0 / 8.0);
    assert_eq!(time(1, 8, Among::World, sum), 0.0);
}

#[test]
fn machines_with_fewer_gpus_have_less_network() {
    assert_eq!(Cluster::of(A100, 8).network, A100.network);
    assert_eq!(Cluster::of(A100, 2).network, A100.network / 4.0);
    assert_eq!(Cluster::of(A100, 2).machine.disk_read, A100.machine.disk_read / 4.0);
}

/// Two ranks share a machine's CPUs and disks, and have a link to main memory each.
#[test]
fn transfers_and_the_cpus_work() {
    let machine = Machine { memory_rate: 300.0, cpu_rate: None, disk_read: 20.0, disk_write: 10.0 };
    let gpu = Gpu { host_link: 5.0, ..gpu(1.0, 1.0) };
    let costs = |machine| {
        let cluster = Cluster { machine, ..Cluster::of(gpu, 8) };
        Costs::new(&job(2), cluster, Software::Fused, PERFECT)
    };
    let seconds = Route::ALL.map(|route| costs(machine).transfer(route, 40));
    assert_eq!(seconds, [8.0, 8.0, 8.0, 4.0]);
    let work = |task, machine| {
        let work = CpuWork { number: 0, task, unit: 0, elements: 15, after: Vec::new() };
        costs(machine).on_cpu(&work)
    };
    // Master weights and moments, read and written; gradients, read; weights, written.
    let update = CpuTask::Update { piece: 0 };
    assert_eq!(work(update, machine), 15.0 * (2.0 * 12.0 + 2.0 + 2.0) / 150.0);
    assert_eq!(work(update, Machine { cpu_rate: Some(28.0), ..machine }), 15.0 * 2.0);
    assert_eq!(work(CpuTask::AddGradients, machine), 15.0 * (2.0 * 2.0 + 2.0) / 150.0);
}
