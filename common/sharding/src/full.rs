//! Full parameters and gradients as they are handed out and handed back, and a layer's views in
//! them.

use crate::partition::{Partition, TensorSlot, UnitId};
use crate::rank::Rank;
use crate::{Error, Result};
use device::{Buffer, Class, DType, Place, View, ViewMut, Write};
use model::{Gradients, TensorId, Weights};
use offload::Extent;
use std::ops::Range;

/// A unit's full weights, on loan from a stage.
pub struct FullParameters {
    /// The unit.
    pub unit: UnitId,
    /// Its flat segment.
    pub buffer: Buffer,
}

/// A buffer for a unit's full gradients, on loan from a stage.
pub struct FullGradients {
    /// The unit.
    pub unit: UnitId,
    /// Its flat segment.
    pub buffer: Buffer,
    /// Whether backward's first write to a tensor overwrites or adds.
    write: Write,
    written: Vec<bool>,
}

impl FullGradients {
    /// Returns full gradients in `buffer`, which backward overwrites or adds to.
    pub fn new(unit: UnitId, buffer: Buffer, write: Write, partition: &Partition) -> Self {
        FullGradients { unit, buffer, write, written: vec![false; partition.units[unit].slots.len()] }
    }

    /// Allocates full gradients of class [`Class::CommunicationBuckets`] and element type `dtype`,
    /// and zeroes their padding.
    ///
    /// # Errors
    /// If the rank is out of memory.
    pub fn fresh(unit: UnitId, rank: &Rank, partition: &Partition, dtype: DType) -> Result<Self> {
        let Range { start: parameters, end: padded } =
            partition.units[unit].parameters..partition.units[unit].padded;
        let mut buffer = rank.device.allocate(Class::CommunicationBuckets, dtype, padded)?;
        rank.kernels().fill(buffer.slice_mut(parameters..padded), 0.0)?;
        Ok(FullGradients::new(unit, buffer, Write::Replace, partition))
    }

    fn mode(&self, slot: usize) -> Write {
        if self.written[slot] { Write::Accumulate } else { self.write }
    }
}

/// A micro-batch within an optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroBatch {
    /// Its number, from 0.
    pub index: usize,
    /// Micro-batches per step.
    pub count: usize,
}

impl MicroBatch {
    /// True for the first micro-batch of a step.
    pub fn is_first(&self) -> bool {
        self.index == 0
    }

    /// True for the last micro-batch of a step: gradients are complete after it.
    pub fn is_last(&self) -> bool {
        self.index + 1 == self.count
    }
}

/// Where a unit's elements are stored between uses.
pub enum Storage {
    /// A buffer on the device or in main memory.
    Buffer(Buffer),
    /// A part of the rank's swap file, for elements of this type.
    Disk(Extent, DType),
}

/// Where a training state of a slice of a unit is stored; elements count from the slice's first.
pub enum StateStorage<'a> {
    /// In memory, all of it.
    Memory(View<'a>),
    /// On disk, counted under this class: extents, and the elements that each stores. An extent of
    /// parameters may store elements beyond the slice.
    Disk(Class, Vec<(Range<usize>, &'a Extent)>),
}

impl From<Buffer> for Storage {
    fn from(buffer: Buffer) -> Self {
        Storage::Buffer(buffer)
    }
}

/// One buffer per unit, which holds the whole unit or a slice of it, and which is taken out and put
/// back. A unit may be stored on disk instead.
pub struct UnitBuffers {
    units: Vec<Option<Storage>>,
    /// Per unit: the elements of the unit that are held.
    ranges: Vec<Range<usize>>,
    /// The name of the buffers in errors.
    what: &'static str,
}

impl UnitBuffers {
    /// Returns buffers of which `held[u]` stores these elements of unit u. `what` names them in
    /// errors.
    pub fn new<S: Into<Storage>>(held: Vec<(S, Range<usize>)>, what: &'static str) -> Self {
        let (units, ranges) = held.into_iter().map(|(storage, range)| (Some(storage.into()), range)).unzip();
        UnitBuffers { units, ranges, what }
    }

    fn missing(&self, unit: UnitId) -> Error {
        Error::Missing { unit, what: self.what }
    }

    /// Takes `unit`'s buffer out.
    ///
    /// # Errors
    /// If it is out already, or stored on disk.
    pub fn take(&mut self, unit: UnitId) -> Result<Buffer> {
        match self.units[unit].take() {
            Some(Storage::Buffer(buffer)) => Ok(buffer),
            storage => {
                self.units[unit] = storage;
                Err(self.missing(unit))
            }
        }
    }

    /// Puts `unit`'s buffer back.
    pub fn put(&mut self, unit: UnitId, buffer: Buffer) {
        self.units[unit] = Some(Storage::Buffer(buffer));
    }

    /// Puts back the buffers of `units`, which have come back from collectives.
    pub fn put_all(&mut self, units: Vec<(UnitId, Buffer)>) {
        units.into_iter().for_each(|(unit, buffer)| self.put(unit, buffer));
    }

    /// Returns where `unit` is stored; `None` while it is out.
    pub fn storage(&self, unit: UnitId) -> Option<&Storage> {
        self.units[unit].as_ref()
    }

    /// Returns the place where `unit` is stored; `None` while it is out.
    pub fn place(&self, unit: UnitId) -> Option<Place> {
        Some(match self.storage(unit)? {
            Storage::Buffer(buffer) => buffer.place(),
            Storage::Disk(..) => Place::Disk,
        })
    }

    /// Returns the type of `unit`'s elements.
    ///
    /// # Errors
    /// If it is out.
    pub fn dtype(&self, unit: UnitId) -> Result<DType> {
        match self.storage(unit) {
            Some(Storage::Buffer(buffer)) => Ok(buffer.dtype()),
            Some(Storage::Disk(_, dtype)) => Ok(*dtype),
            None => Err(self.missing(unit)),
        }
    }

    /// Returns `unit`'s buffer, to read.
    ///
    /// # Errors
    /// If it is out, or stored on disk.
    pub fn get(&self, unit: UnitId) -> Result<&Buffer> {
        match self.storage(unit) {
            Some(Storage::Buffer(buffer)) => Ok(buffer),
            _ => Err(self.missing(unit)),
        }
    }

    /// Returns `unit`'s buffer, to write.
    ///
    /// # Errors
    /// If it is out, or stored on disk.
    pub fn get_mut(&mut self, unit: UnitId) -> Result<&mut Buffer> {
        let missing = self.missing(unit);
        match &mut self.units[unit] {
            Some(Storage::Buffer(buffer)) => Ok(buffer),
            _ => Err(missing),
        }
    }

    /// Returns `unit`'s extent in the swap file.
    ///
    /// # Errors
    /// If it is stored elsewhere.
    pub fn extent(&self, unit: UnitId) -> Result<&Extent> {
        match self.storage(unit) {
            Some(Storage::Disk(extent, _)) => Ok(extent),
            _ => Err(self.missing(unit)),
        }
    }

    /// Returns elements `range` of `unit`, to read.
    ///
    /// # Errors
    /// If its buffer is out, or it is stored on disk.
    pub fn slice(&self, unit: UnitId, range: Range<usize>) -> Result<View<'_>> {
        Ok(self.get(unit)?.slice(self.within(unit, range)))
    }

    /// Returns where elements `range` of `unit`, all of which are held, are stored.
    ///
    /// # Errors
    /// If the unit is out.
    pub(crate) fn state_storage(&self, unit: UnitId, range: Range<usize>) -> Result<StateStorage<'_>> {
        match self.storage(unit) {
            Some(Storage::Disk(extent, _)) => {
                let whole = 0..self.ranges[unit].len();
                Ok(StateStorage::Disk(Class::Parameters, vec![(whole, extent)]))
            }
            _ => Ok(StateStorage::Memory(self.slice(unit, range)?)),
        }
    }

    /// Returns elements `range` of `unit` as a range of its buffer.
    ///
    /// # Panics
    /// If the buffer begins after `range` does.
    pub fn within(&self, unit: UnitId, range: Range<usize>) -> Range<usize> {
        let start = self.ranges[unit].start;
        range.start - start..range.end - start
    }
}

/// Returns the unit and the elements of consecutive tensors of a layer; `None` unless they are next
/// to each other in one unit.
fn joint(tensors: &[TensorId], partition: &Partition) -> Option<(UnitId, Range<usize>)> {
    let (unit, first) = partition.home(*tensors.first()?);
    let mut range = first.range();
    for &tensor in &tensors[1..] {
        let (other, slot) = partition.home(tensor);
        if other != unit || slot.start != range.end {
            return None;
        }
        range.end = slot.range().end;
    }
    Some((unit, range))
}

/// One layer's weights inside the full parameters that are held now.
pub struct LayerWeights<'a> {
    /// The layer's tensors.
    pub tensors: &'a [TensorId],
    /// The partition that they are placed by.
    pub partition: &'a Partition,
    /// Full parameters by unit.
    pub held: &'a [Option<FullParameters>],
}

impl Weights for LayerWeights<'_> {
    fn weights(&self, tensors: Range<usize>) -> Option<View<'_>> {
        let (unit, range) = joint(&self.tensors[tensors], self.partition)?;
        Some(self.held[unit].as_ref()?.buffer.slice(range))
    }
}

/// One layer's gradients inside the full gradients that are held now.
pub struct LayerGradients<'a> {
    /// The layer's tensors.
    pub tensors: &'a [TensorId],
    /// The partition that they are placed by.
    pub partition: &'a Partition,
    /// Full gradients by unit.
    pub held: &'a mut [Option<FullGradients>],
}

impl Gradients for LayerGradients<'_> {
    fn gradients(&mut self, tensors: Range<usize>) -> Option<(ViewMut<'_>, Write)> {
        let (unit, range) = joint(&self.tensors[tensors], self.partition)?;
        let full = self.held[unit].as_mut()?;
        let slots: &[TensorSlot] = &self.partition.units[unit].slots;
        let inside = |slot: &TensorSlot| range.start <= slot.start && slot.start < range.end;
        let covered: Vec<usize> = (0..slots.len()).filter(|&i| inside(&slots[i])).collect();
        let write = full.mode(*covered.first()?);
        if covered.iter().any(|&i| full.mode(i) != write) {
            return None;
        }
        covered.iter().for_each(|&i| full.written[i] = true);
        Some((full.buffer.slice_mut(range), write))
    }
}
