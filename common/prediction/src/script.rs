//! A script is what a rank does in program order, without times: a list of actions.

use crate::traffic::{Algorithm, Among, ByteCounter, Sender};
use events::{Class, Operation, Pass, Place, Route, UnitSet};
use model::LayerKind;

/// One thing that a rank does.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Bytes are allocated (`delta > 0`) or freed (`delta < 0`).
    Memory {
        /// Where the bytes are stored.
        place: Place,
        /// What the bytes are used for.
        class: Class,
        /// Bytes allocated or freed.
        delta: i64,
        /// Bytes of this class in this place that are live afterwards.
        live: u64,
    },
    /// A collective is issued; the rank continues while it is in flight.
    Issue(Issued),
    /// A transfer between places is issued; the rank continues while it is in flight.
    Transfer(Moved),
    /// The CPU is given work; the device continues.
    OnCpu(CpuWork),
    /// The rank waits for a collective, a transfer or the CPU.
    Wait {
        /// Its number.
        number: usize,
    },
    /// A micro-batch begins.
    MicroBatch {
        /// Its number within the step.
        number: u16,
    },
    /// A pass over a layer begins.
    Begin {
        /// The pass.
        pass: Pass,
        /// The layer's unit.
        unit: u16,
        /// The layer.
        layer: LayerKind,
    },
    /// The pass that began last ends.
    End,
    /// The optimizer updates a part of the rank's slice of a unit, on the device.
    Update {
        /// The unit.
        unit: u16,
        /// The part's number within the slice.
        piece: u16,
        /// The number of elements.
        elements: u64,
    },
    /// All of a unit's update is issued: of an offloaded one, or of one that is gathered.
    Updated {
        /// The unit.
        unit: u16,
        /// The actions after which passes may use its parameters.
        parameters: Vec<usize>,
        /// Those after which its parameters are on disk, if they are stored there.
        on_disk: Vec<usize>,
        /// The other actions after which its update is complete.
        others: Vec<usize>,
    },
    /// All of an offloaded update is issued.
    SlotsInUse {
        /// The actions after which each slot is free, in the order of [`After::Slot`].
        until: Vec<Vec<After>>,
    },
    /// The rank waits for the latest update.
    WaitForUpdate {
        /// The unit whose parameters it needs; `None` if it waits for all units, and until what
        /// leaves the CPU is written.
        unit: Option<u16>,
    },
}

/// What an action waits for, besides those before it on its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The end of another action of the script, by number.
    Action(usize),
    /// The latest update of a unit's parameters, which a step before may have issued.
    Update(u16),
    /// The latest update of a unit, whose parameters are on disk then.
    OnDisk(u16),
    /// The end of the latest update's use of a slot. Slot 0 becomes free first.
    Slot(u16),
}

/// A transfer, as the rank issues it.
#[derive(Clone, Debug, PartialEq)]
pub struct Moved {
    /// Its number on this rank.
    pub number: usize,
    /// The places between which it moves bytes.
    pub route: Route,
    /// What is moved.
    pub class: Class,
    /// The unit whose data are moved; for activations, the block's number.
    pub unit: u16,
    /// The number of bytes.
    pub bytes: u64,
    /// What it waits for.
    pub after: Vec<After>,
    /// When it may begin.
    pub begins: Begins,
}

/// When a transfer may begin, and what it goes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// When the script issues it. A pass needs what it moves: it goes before an update's transfers.
    Now,
    /// Before the script issues it. A pass needs what it moves.
    Ahead,
    /// When the script issues it. An update needs what it moves.
    ForUpdate,
}

/// Work of the CPU.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuWork {
    /// Its number on this rank.
    pub number: usize,
    /// What it does.
    pub task: CpuTask,
    /// The unit.
    pub unit: u16,
    /// The number of elements.
    pub elements: u64,
    /// What it waits for.
    pub after: Vec<After>,
}

/// What the CPU does for offloaded states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuTask {
    /// It adds reduced gradients to their shard.
    AddGradients,
    /// It updates a part of the rank's slice.
    Update {
        /// The part's number within the slice.
        piece: u16,
    },
}

/// A collective, as the rank issues it.
#[derive(Clone, Debug, PartialEq)]
pub struct Issued {
    /// Its number on this rank: collectives, transfers and the CPU's work are counted together.
    pub number: usize,
    /// The ranks that take part.
    pub among: Among,
    /// The operation.
    pub operation: Operation,
    /// The units whose data it moves; none in an exchange of scalars.
    pub units: UnitSet,
    /// Elements of each unit's full buffer, padding included; none in an exchange.
    pub elements: Vec<u64>,
    /// Bytes of the full buffers; in an exchange, of one rank's scalars.
    pub bytes: u64,
    /// What it waits for.
    pub after: Vec<After>,
}

impl Issued {
    /// Returns the payload bytes that `rank` of `ranks` sends.
    pub fn sent(&self, algorithm: Algorithm, ranks: usize, rank: usize) -> u64 {
        let mut counter = ByteCounter::default();
        match self.operation {
            Operation::Scalars => counter.exchange(self.among, self.bytes),
            operation => {
                let element_bytes = self.bytes / self.elements.iter().sum::<u64>().max(1);
                counter.collective(self.among, operation, self.elements.iter().copied(), element_bytes);
            }
        }
        let sender = Sender { algorithm, ranks: ranks as u64, rank: rank as u64 };
        counter.of(sender).bytes(self.operation)
    }
}
