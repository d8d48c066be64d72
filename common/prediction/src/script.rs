//! A script is what a rank does in program order, without times: a list of actions.

use crate::traffic::{Algorithm, Among, ByteCounter, Sender};
use events::{Class, Operation, Pass, Place, UnitSet};
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
    /// The rank waits for a collective.
    Wait {
        /// The collective's number.
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
    /// The optimizer updates a part of the rank's slice of a unit.
    Update {
        /// The unit.
        unit: u16,
        /// The part's number within the slice.
        piece: u16,
        /// The number of elements.
        elements: u64,
    },
}

/// A collective, as the rank issues it.
#[derive(Clone, Debug, PartialEq)]
pub struct Issued {
    /// Its number on this rank, from 0.
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
