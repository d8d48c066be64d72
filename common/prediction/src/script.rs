//! The script of a rank: what it does in a step, in program order, without times.

use crate::traffic::Among;
use events::{Class, Operation, Pass, Place, UnitSet};
use model::LayerKind;

/// What one rank does, in program order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Script {
    /// The actions.
    pub actions: Vec<Action>,
}

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
    /// Bytes of the full buffers, padding included; in an exchange, of one rank's scalars.
    pub bytes: u64,
}
