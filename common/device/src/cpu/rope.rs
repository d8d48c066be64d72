//! Rotary position embedding (Su et al., 2021), in the rotate-half layout of Llama.

use super::Cpu;
use super::operand::FloatsMut;
use crate::Result;
use crate::dispatch::vectorized;
use crate::operations::Rope;
use crate::rotation::{RopeScaling, fill_turns};
use crate::view::ViewMut;
use events::lock;
use std::sync::{Arc, Mutex};

/// Cosines and sines of the positions seen so far, as [`fill_turns`] lays them out.
struct Table {
    theta: f32,
    scaling: RopeScaling,
    half: usize,
    positions: usize,
    turns: Vec<f32>,
}

impl Table {
    fn new(cpu: &Cpu, rope: Rope, half: usize, positions: usize) -> Result<Self> {
        let mut turns = cpu.vec_with_capacity(positions * 2 * half)?;
        turns.resize(positions * 2 * half, 0.0);
        let Rope { theta, scaling, .. } = rope;
        fill_turns(&mut turns, theta, scaling, half);
        Ok(Table { theta, scaling, half, positions, turns })
    }

    #[inline(always)]
    fn turn(&self, position: usize) -> (&[f32], &[f32]) {
        self.turns[position * 2 * self.half..][..2 * self.half].split_at(self.half)
    }
}

/// The tables in use.
#[derive(Default)]
pub(super) struct Rotations(Mutex<Vec<Arc<Table>>>);

impl Rotations {
    /// Returns a table that holds every position of `rope`.
    fn table(&self, cpu: &Cpu, rope: Rope) -> Result<Arc<Table>> {
        let half = rope.attention.head_dim / 2;
        let positions = rope.first_position + rope.attention.tokens;
        let mut tables = lock(&self.0);
        let same =
            |table: &Arc<Table>| (table.theta, table.scaling, table.half) == (rope.theta, rope.scaling, half);
        if let Some(table) = tables.iter().find(|table| same(table) && table.positions >= positions) {
            return Ok(table.clone());
        }
        tables.retain(|table| !same(table));
        let table = Arc::new(Table::new(cpu, rope, half, positions.next_power_of_two())?);
        tables.push(table.clone());
        Ok(table)
    }
}

pub(super) fn rope(cpu: &Cpu, qkv: ViewMut<'_>, rope: Rope) -> Result<()> {
    let shape = rope.attention;
    let (width, rotated) = (shape.packed_width(), (shape.heads + shape.kv_heads) * shape.head_dim);
    let table = cpu.rotations.table(cpu, rope)?;
    cpu.workers.each_run(FloatsMut::from(qkv), shape.rows(), width, |run, mut qkv| {
        let mut scratch = cpu.scratch(rotated)?;
        vectorized!(for (i, row) in run.enumerate() {
            let turn = table.turn(rope.first_position + row % shape.tokens);
            qkv.update(
                i * width..i * width + rotated,
                &mut scratch,
                #[inline(always)]
                |heads| rotate_heads(heads, turn, rope.inverse),
            );
        });
        Ok(())
    })
}

/// Turns each head's pairs (i, i + half) by their angles.
#[inline(always)]
fn rotate_heads(heads: &mut [f32], (cosines, sines): (&[f32], &[f32]), inverse: bool) {
    let half = cosines.len();
    let sign = if inverse { -1.0 } else { 1.0 };
    for head in heads.chunks_exact_mut((2 * half).max(1)) {
        let (first, second) = head.split_at_mut(half);
        for (((x, y), cos), sin) in first.iter_mut().zip(second).zip(cosines).zip(sines) {
            let sin = sign * sin;
            (*x, *y) = (*x * cos - *y * sin, *y * cos + *x * sin);
        }
    }
}
