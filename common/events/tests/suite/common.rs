//! Helpers that the tests share.

use events::header::{Choices, Offload, PredictedBytes, PredictedPlace, Sharded, Sweep, UnitHeader};
use events::{
    Class, CollectiveEvent, Control, Event, Operation, Pace, Place, Progress, Purpose, Route, RunHeader,
    TransferEvent, What,
};

/// Returns a header with `ranks` ranks and two units.
pub(crate) fn header(ranks: u32) -> RunHeader {
    let unit = |name: &str| UnitHeader { name: name.into(), parameters: 10, padded: 12, persistent: false };
    RunHeader {
        stage: "ZeRO-3".into(),
        model: "test".into(),
        parameters: 20,
        world_size: ranks,
        device: "CPU".into(),
        precision: "fp32".into(),
        communicated_bytes: 4,
        algorithm: "direct".into(),
        steps: 2,
        micro_batches: 1,
        batch_size: 1,
        sequence_length: 8,
        capacity: None,
        shard_group: ranks,
        sharded: Sharded { parameters: true, gradients: true, optimizer: true },
        units: vec![unit("a"), unit("b")],
        predicted_memory: vec![],
        predicted_total: vec![],
        replicated_total: vec![],
        predicted_traffic: vec![],
        version: "0".into(),
        theory: vec![Sweep {
            purpose: Purpose::Gradients,
            operation: Operation::ReduceScatter,
            times: 1,
            elements: 24,
            element_bytes: 4,
            ranks,
        }],
        offload: Offload {
            resting: vec![(Class::Optimizer, Place::Disk)],
            memory: vec![PredictedPlace { rank: 0, place: Place::Disk, peaks: vec![0; 7], total: 0 }],
            transfers: vec![PredictedBytes { rank: 0, of: Route::DiskToHost, bytes: 4096 }],
        },
        choices: Choices { strategy: "hybrid-shard".into(), checkpointing: "block".into() },
    }
}

/// Returns a memory event of the device.
pub(crate) fn memory(class: Class, delta: i64, live: u64) -> What {
    What::Memory { place: Place::Device, class, delta, live }
}

/// Returns an event of a collective over `unit`.
pub(crate) fn collective(
    operation: Operation,
    progress: Progress,
    sequence: u64,
    unit: u16,
    sent: u64,
) -> What {
    What::Collective(CollectiveEvent {
        progress,
        sequence,
        operation,
        group: 0,
        units: unit.into(),
        bytes: 48,
        sent,
    })
}

/// Returns an event of a transfer from disk to main memory, after which `moved` bytes have moved.
pub(crate) fn transfer(progress: Progress, sequence: u64, moved: u64) -> What {
    What::Transfer(TransferEvent {
        progress,
        sequence,
        route: Route::DiskToHost,
        class: Class::Optimizer,
        unit: 0,
        bytes: 4096,
        moved,
        began: 3,
        ended: 1,
        exposed: 2,
    })
}

/// Returns an event on `rank` at time `at`.
pub(crate) fn at(at: u64, rank: u32, what: What) -> Event {
    Event { at, rank, what }
}

/// True if ranks are held at boundaries until a viewer steps or resumes the run.
pub(crate) fn is_paused(pace: &Pace) -> bool {
    pace.asked() == Control::Pause
}
