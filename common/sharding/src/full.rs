//! Full parameters and gradients as they are handed out and handed back, and a layer's views in
//! them.

use crate::partition::{Partition, Slot, UnitId};
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

/// A place for a unit's full gradients, on loan from a stage.
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
    /// A place for gradients in `buffer`, which backward overwrites or adds to.
    pub fn new(unit: UnitId, buffer: Buffer, write: Write, partition: &Partition) -> Self {
        FullGradients { unit, buffer, write, written: vec![false; partition.units[unit].slots.len()] }
    }

    /// A place in a fresh buffer of class [`Class::CommunicationBuckets`] and element type `dtype`,
    /// its padding zeroed.
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
pub struct Micro {
    /// Its number, from 0.
    pub index: usize,
    /// Micro-batches per step.
    pub count: usize,
}

impl Micro {
    /// Whether gradients of this step start here.
    pub fn is_first(&self) -> bool {
        self.index == 0
    }

    /// Whether gradients of this step are complete after this one.
    pub fn is_last(&self) -> bool {
        self.index + 1 == self.count
    }
}

/// What holds a unit's elements between its uses.
pub enum Rest {
    /// A buffer on the device or in main memory.
    Buffer(Buffer),
    /// A part of the rank's swap file, for elements of this type.
    Disk(Extent, DType),
}

/// Where a training state of a slice of a unit rests; elements count from the slice's first.
pub enum StateRest<'a> {
    /// In memory, all of it.
    Here(View<'a>),
    /// On disk, counted under this class, in stretches of these elements. A stretch of parameters
    /// may go on beyond the slice.
    Disk(Class, Vec<(Range<usize>, &'a Extent)>),
}

impl From<Buffer> for Rest {
    fn from(buffer: Buffer) -> Self {
        Rest::Buffer(buffer)
    }
}

/// One buffer per unit, from which buffers are taken and put back: all of the unit, or a slice of
/// it. A unit may rest on disk instead.
pub struct UnitBuffers {
    units: Vec<Option<Rest>>,
    /// Per unit: the elements of the unit that are held.
    ranges: Vec<Range<usize>>,
    what: &'static str,
}

impl UnitBuffers {
    /// `held[u]` holds elements of unit u, and which; `what` names them in errors.
    pub fn new<R: Into<Rest>>(held: Vec<(R, Range<usize>)>, what: &'static str) -> Self {
        let (units, ranges) = held.into_iter().map(|(rest, range)| (Some(rest.into()), range)).unzip();
        UnitBuffers { units, ranges, what }
    }

    fn missing(&self, unit: UnitId) -> Error {
        Error::Missing { unit, what: self.what }
    }

    /// Takes `unit`'s buffer out.
    ///
    /// # Errors
    /// If it is out already, or rests on disk.
    pub fn take(&mut self, unit: UnitId) -> Result<Buffer> {
        match self.units[unit].take() {
            Some(Rest::Buffer(buffer)) => Ok(buffer),
            rest => {
                self.units[unit] = rest;
                Err(self.missing(unit))
            }
        }
    }

    /// Puts `unit`'s buffer back.
    pub fn put(&mut self, unit: UnitId, buffer: Buffer) {
        self.units[unit] = Some(Rest::Buffer(buffer));
    }

    /// Puts back what a queue of collectives has done.
    pub fn put_all(&mut self, units: Vec<(UnitId, Buffer)>) {
        units.into_iter().for_each(|(unit, buffer)| self.put(unit, buffer));
    }

    /// What holds `unit`, if it is not out.
    pub fn rest(&self, unit: UnitId) -> Option<&Rest> {
        self.units[unit].as_ref()
    }

    /// Where `unit` rests, if it is not out.
    pub fn place(&self, unit: UnitId) -> Option<Place> {
        Some(match self.rest(unit)? {
            Rest::Buffer(buffer) => buffer.place(),
            Rest::Disk(..) => Place::Disk,
        })
    }

    /// The type of `unit`'s elements; f32 while it is out.
    pub fn dtype(&self, unit: UnitId) -> DType {
        match self.rest(unit) {
            Some(Rest::Buffer(buffer)) => buffer.dtype(),
            Some(Rest::Disk(_, dtype)) => *dtype,
            None => DType::F32,
        }
    }

    /// `unit`'s buffer, to read.
    ///
    /// # Errors
    /// If it is out, or rests on disk.
    pub fn get(&self, unit: UnitId) -> Result<&Buffer> {
        match self.rest(unit) {
            Some(Rest::Buffer(buffer)) => Ok(buffer),
            _ => Err(self.missing(unit)),
        }
    }

    /// `unit`'s buffer, to write.
    ///
    /// # Errors
    /// If it is out, or rests on disk.
    pub fn get_mut(&mut self, unit: UnitId) -> Result<&mut Buffer> {
        let missing = self.missing(unit);
        match &mut self.units[unit] {
            Some(Rest::Buffer(buffer)) => Ok(buffer),
            _ => Err(missing),
        }
    }

    /// `unit`'s extent in the swap file.
    ///
    /// # Errors
    /// If it rests elsewhere.
    pub fn extent(&self, unit: UnitId) -> Result<&Extent> {
        match self.rest(unit) {
            Some(Rest::Disk(extent, _)) => Ok(extent),
            _ => Err(self.missing(unit)),
        }
    }

    /// Elements `range` of `unit`, to read.
    ///
    /// # Errors
    /// If its buffer is out, or it rests on disk.
    pub fn slice(&self, unit: UnitId, range: Range<usize>) -> Result<View<'_>> {
        Ok(self.get(unit)?.slice(self.within(unit, range)))
    }

    /// Where elements `range` of `unit` rest, all of which are held.
    ///
    /// # Errors
    /// If the unit is out.
    pub(crate) fn state_rest(&self, unit: UnitId, range: Range<usize>) -> Result<StateRest<'_>> {
        match self.rest(unit) {
            Some(Rest::Disk(extent, _)) => {
                let whole = 0..self.ranges[unit].len();
                Ok(StateRest::Disk(Class::Parameters, vec![(whole, extent)]))
            }
            _ => Ok(StateRest::Here(self.slice(unit, range)?)),
        }
    }

    /// Where elements `range` of `unit` lie in what holds it.
    ///
    /// # Panics
    /// If what is held begins after `range` does.
    pub fn within(&self, unit: UnitId, range: Range<usize>) -> Range<usize> {
        let start = self.ranges[unit].start;
        range.start - start..range.end - start
    }
}

/// The units in which consecutive tensors of a layer lie, if they lie next to each other in one
/// unit.
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

/// One layer's places for gradients inside the full gradients that are held now.
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
        let slots: &[Slot] = &self.partition.units[unit].slots;
        let inside = |slot: &Slot| range.start <= slot.start && slot.start < range.end;
        let covered: Vec<usize> = (0..slots.len()).filter(|&i| inside(&slots[i])).collect();
        let write = full.mode(*covered.first()?);
        if covered.iter().any(|&i| full.mode(i) != write) {
            return None;
        }
        covered.iter().for_each(|&i| full.written[i] = true);
        Some((full.buffer.slice_mut(range), write))
    }
}
