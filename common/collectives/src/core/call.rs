//! One collective as one rank issues it.

use super::observer::Observer;
use crate::call_id::CallId;
use device::DType;
use events::{CollectiveEvent, Operation, Progress, UnitSet, What};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Length and element type of one buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BufferShape {
    /// Elements.
    pub(crate) len: usize,
    #[serde(with = "SerialDType")]
    pub(crate) dtype: DType,
}

impl BufferShape {
    pub(crate) fn bytes(&self) -> usize {
        self.len * self.dtype.size()
    }
}

/// How an element type is serialised.
#[derive(Serialize, Deserialize)]
#[serde(remote = "DType")]
enum SerialDType {
    F32,
    Bf16,
    F16,
    U32,
}

/// The content of a call. All ranks of a group must issue the same under one sequence number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Signature {
    pub(crate) operation: Operation,
    /// The member whose buffers a broadcast sends; 0 in other operations.
    pub(crate) root: usize,
    /// One per buffer.
    pub(crate) shapes: Vec<BufferShape>,
    /// The units whose data the buffers hold.
    pub(crate) units: UnitSet,
    /// True if the buffers lie on a GPU.
    pub(crate) on_gpu: bool,
    /// True if another engine moves the data. The group then only compares signatures.
    pub(crate) external_engine: bool,
}

impl Signature {
    /// Returns a signature without buffers.
    pub(crate) fn new(operation: Operation) -> Self {
        Signature {
            operation,
            root: 0,
            shapes: Vec::new(),
            units: UnitSet::default(),
            on_gpu: false,
            external_engine: false,
        }
    }

    fn units_held(&self) -> String {
        match self.units.len() {
            0 => " of no unit".into(),
            1 => format!(" of unit {}", self.units),
            _ => format!(" of units {}", self.units),
        }
    }

    /// Returns in words the first buffer whose shape differs from `other`'s, else the first of all.
    fn differing_buffer(&self, other: &Self) -> String {
        let differing = self.shapes.iter().zip(&other.shapes).position(|(a, b)| a != b);
        let index = differing.unwrap_or(other.shapes.len());
        match self.shapes.get(index).or(self.shapes.first()) {
            Some(BufferShape { len, dtype }) => {
                format!(" (buffer {}: {len} × {dtype})", index.min(self.shapes.len() - 1))
            }
            None => String::new(),
        }
    }

    /// Returns `self` in words, for a message about how it differs from `other`.
    pub(crate) fn describe(&self, other: &Self) -> String {
        let root = match self.operation {
            Operation::Broadcast => format!(" from root {}", self.root),
            _ => String::new(),
        };
        let buffers = match self.shapes.len() {
            0 => String::new(),
            1 => " of 1 buffer".to_string(),
            count => format!(" of {count} buffers"),
        };
        let buffer = self.differing_buffer(other);
        let units = if self.units == other.units { String::new() } else { self.units_held() };
        let place = match (self.on_gpu, other.on_gpu) {
            (true, false) => " on a GPU",
            (false, true) => " in main memory",
            _ => "",
        };
        format!("{}{root}{buffers}{buffer}{units}{place}", self.operation)
    }
}

/// One collective of one rank, from issue until its wait has returned.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) signature: Signature,
    /// Number within the group. Calls are numbered from 0 without gaps.
    pub(crate) sequence: u64,
    /// Bytes of all buffers, or of the scalars.
    pub(crate) bytes: u64,
    pub(crate) observer: Observer,
}

impl Call {
    /// Returns a call without buffers.
    pub(crate) fn new(operation: Operation, sequence: u64, observer: Observer) -> Self {
        Call { signature: Signature::new(operation), sequence, bytes: 0, observer }
    }

    pub(crate) fn operation(&self) -> Operation {
        self.signature.operation
    }

    pub(crate) fn id(&self) -> CallId {
        CallId { operation: self.operation(), sequence: self.sequence }
    }

    /// Emits this rank's progress in the call.
    pub(crate) fn emit(&self, progress: Progress) {
        let operation = self.operation();
        self.observer.emitter.emit(What::Collective(CollectiveEvent {
            progress,
            sequence: self.sequence,
            operation,
            group: self.observer.group,
            units: self.signature.units.clone(),
            bytes: self.bytes,
            sent: self.observer.overall.snapshot().sent(operation),
        }));
    }

    /// Emits one transfer of the call's data. `from` and `to` are ranks of the world.
    pub(crate) fn emit_hop(&self, from: u32, to: u32, chunk: usize, bytes: u64) {
        self.observer.emitter.emit(What::Hop {
            group: self.observer.group,
            sequence: self.sequence,
            from: from as u16,
            to: to as u16,
            chunk: chunk as u16,
            bytes,
        });
    }

    /// Emits when the call's data crossed the simulated link.
    pub(crate) fn emit_crossing(&self, crossing: Crossing) {
        let nanoseconds = |time: Duration| time.as_nanos() as u64;
        self.observer.emitter.emit(What::Crossed {
            group: self.observer.group,
            sequence: self.sequence,
            began: nanoseconds(crossing.began),
            ended: nanoseconds(crossing.ended),
            exposed: nanoseconds(crossing.exposed),
        });
    }
}

/// A transfer over a simulated link. `began` and `ended` are times before now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Crossing {
    pub(crate) began: Duration,
    pub(crate) ended: Duration,
    /// How long the rank waited for the link.
    pub(crate) exposed: Duration,
}
