//! Simulated runs: each stage's allocations, gathers, reductions and releases, on a simulated
//! clock.
//!
//! Tests and examples draw screens from them, for any stage and world size, without training.

mod clockwork;
mod steps;
mod transfers;

use clockwork::Simulation;
use events::header::{Choices, Offload, Sharded, Sweep, UnitHeader};
use events::{Class, Event, Operation, Place, Purpose, RunHeader};

/// Bytes per element.
const ELEMENT: u64 = 4;

/// A simulated run.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedRun {
    /// Its header.
    pub(crate) header: RunHeader,
    /// Its events, sorted by time.
    pub(crate) events: Vec<Event>,
}

/// The parameters of a simulated run.
#[derive(Clone, Debug)]
pub(crate) struct SimulationPlan {
    /// 0 is DDP, 1 to 3 are the ZeRO stages.
    pub(crate) stage: u8,
    /// World size.
    pub(crate) ranks: u32,
    /// Optimizer steps.
    pub(crate) steps: u32,
    /// Transformer blocks.
    pub(crate) blocks: usize,
    /// Micro-batches per step.
    pub(crate) micro_batches: u16,
    /// Batches of the validation after the last step.
    pub(crate) validation_batches: u16,
    /// Whether collectives use the ring algorithm, with an event per hop.
    pub(crate) ring: bool,
    /// The step in which the last rank fails.
    pub(crate) fail_at: Option<u32>,
    /// The offloaded classes, each with its place: parameters (of stage 3), optimizer states,
    /// activations.
    pub(crate) resting: Vec<(Class, Place)>,
}

impl SimulationPlan {
    /// Returns a plan for `stage` on `ranks` ranks: tiny model, three steps, one micro-batch.
    pub(crate) fn new(stage: u8, ranks: u32) -> Self {
        SimulationPlan {
            stage,
            ranks,
            steps: 3,
            blocks: 4,
            micro_batches: 1,
            validation_batches: 1,
            ring: false,
            fail_at: None,
            resting: Vec::new(),
        }
    }

    /// Returns where the bytes of `class` are stored. Reduced gradients follow the optimizer states
    /// to main memory.
    fn place(&self, class: Class) -> Place {
        let rests = |class: Class| {
            let found = self.resting.iter().find(|(other, _)| *other == class);
            found.map_or(Place::Device, |(_, place)| *place)
        };
        match class {
            Class::Parameters if self.stage < 3 => Place::Device,
            Class::Gradients if self.stage >= 2 && rests(Class::Optimizer) == Place::Host => Place::Host,
            other => rests(other),
        }
    }

    /// Returns the offloaded classes.
    fn offload(&self) -> Offload {
        let resting = Class::ALL.iter().map(|&class| (class, self.place(class)));
        Offload {
            resting: resting.filter(|(_, place)| *place != Place::Device).collect(),
            ..Offload::default()
        }
    }

    /// Simulates the run.
    pub(crate) fn run(&self) -> SimulatedRun {
        let mut simulation = Simulation::new(self);
        simulation.run();
        simulation.finish()
    }
}

fn units(plan: &SimulationPlan) -> Vec<UnitHeader> {
    let unit = |name: String, parameters: u64| {
        let padded = parameters.next_multiple_of(u64::from(plan.ranks));
        UnitHeader { name, parameters, padded, persistent: false }
    };
    let mut units = vec![unit("embedding".into(), 32_768)];
    units.extend((0..plan.blocks).map(|block| unit(format!("block {block}"), 213_248)));
    units.push(unit("head".into(), 32_896));
    units
}

fn theory(plan: &SimulationPlan, units: &[UnitHeader]) -> Vec<Sweep> {
    use Operation::{AllGather, AllReduce, ReduceScatter};
    let all: u64 = units.iter().map(|unit| unit.padded).sum();
    // The last unit stays gathered until backward begins with it.
    let kept = units.last().map_or(0, |unit| unit.padded);
    let every = u32::from(plan.micro_batches);
    let sweep = |purpose, operation, times, elements| Sweep {
        purpose,
        operation,
        times,
        elements,
        element_bytes: ELEMENT as u32,
        ranks: plan.ranks,
    };
    let updates = sweep(Purpose::Updates, AllGather, 1, all);
    match plan.stage {
        0 => vec![sweep(Purpose::Gradients, AllReduce, 1, all)],
        1 => vec![sweep(Purpose::Gradients, ReduceScatter, 1, all), updates],
        2 => vec![sweep(Purpose::Gradients, ReduceScatter, every, all), updates],
        _ => vec![
            sweep(Purpose::Forward, AllGather, every, all),
            sweep(Purpose::Backward, AllGather, every, all - kept),
            sweep(Purpose::Gradients, ReduceScatter, every, all),
        ],
    }
}

fn header(plan: &SimulationPlan) -> RunHeader {
    let units = units(plan);
    let theory = theory(plan, &units);
    let names = ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"];
    RunHeader {
        stage: names[usize::from(plan.stage.min(3))].into(),
        model: "tiny".into(),
        parameters: units.iter().map(|unit| unit.parameters).sum(),
        world_size: plan.ranks,
        device: "CPU".into(),
        precision: "fp32".into(),
        communicated_bytes: ELEMENT as u32,
        algorithm: if plan.ring { "ring" } else { "direct" }.into(),
        steps: plan.steps,
        micro_batches: u32::from(plan.micro_batches),
        batch_size: 8,
        sequence_length: 128,
        capacity: Some(64 << 20),
        shard_group: plan.ranks,
        sharded: Sharded {
            optimizer: plan.stage >= 1,
            gradients: plan.stage >= 2,
            parameters: plan.stage >= 3,
        },
        units,
        predicted_memory: Vec::new(),
        predicted_total: Vec::new(),
        replicated_total: Vec::new(),
        predicted_traffic: Vec::new(),
        version: "simulated".into(),
        theory,
        offload: plan.offload(),
        choices: Choices::default(),
    }
}
