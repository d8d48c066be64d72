//! Tables of cosines and sines on the GPU.

use super::kernels::rope_table;
use super::memory::no_room;
use super::runtime::Runtime;
use crate::Result;
use crate::operations::Rope;
use crate::rotation::RopeScaling;
use events::lock;
use std::sync::Mutex;

/// A table for the positions seen so far.
struct Table {
    theta: f32,
    scaling: RopeScaling,
    half: usize,
    positions: usize,
    address: u64,
}

/// One table per θ, scaling and width of head.
#[derive(Default)]
pub(crate) struct Rotations {
    tables: Mutex<Vec<Table>>,
}

impl Rotations {
    /// Returns the address of a table that holds every position of `rope`.
    pub(crate) fn table(&self, runtime: &Runtime, rope: &Rope) -> Result<u64> {
        let (half, positions) = (rope.attention.head_dim / 2, rope.first_position + rope.attention.tokens);
        let mut tables = lock(&self.tables);
        let same =
            |table: &Table| (table.theta, table.scaling, table.half) == (rope.theta, rope.scaling, half);
        let found = tables.iter().position(same);
        if let Some(table) = found.map(|index| &tables[index]).filter(|table| table.positions >= positions) {
            return Ok(table.address);
        }
        // Generation adds one position at a time: powers of two save most of the uploads.
        let positions = positions.next_power_of_two();
        let turns = rope_table(rope.theta, rope.scaling, half, positions);
        let bytes = size_of_val(turns.as_slice());
        let address = runtime.pool.take(bytes)?.ok_or_else(|| no_room("rotations", bytes))?;
        let uploaded = runtime.upload(address, bytemuck::cast_slice(&turns));
        uploaded.inspect_err(|_| runtime.pool.put(address, bytes))?;
        if let Some(old) = found.map(|index| tables.swap_remove(index)) {
            runtime.pool.put(old.address, old.positions * 2 * old.half * size_of::<f32>());
        }
        tables.push(Table { theta: rope.theta, scaling: rope.scaling, half, positions, address });
        Ok(address)
    }
}
