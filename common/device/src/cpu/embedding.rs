//! Table look-up and its gradient.

use super::Cpu;
use super::elementwise::add_slice;
use super::operand::{Floats, FloatsMut};
use crate::Result;
use crate::dispatch::vectorized;
use crate::operations::{Embedding, EmbeddingBackward};
use crate::shapes::{RowShape, Write};
use crate::view::{View, ViewMut};

pub(super) fn embedding(cpu: &Cpu, arguments: Embedding<View<'_>, ViewMut<'_>>) -> Result<()> {
    let Embedding { out, table, ids, shape: RowShape { rows, width }, .. } = arguments;
    let (out, table, ids) = (FloatsMut::from(out), Floats::from(table), ids.as_slice::<u32>());
    cpu.workers.each_run(out, rows, width, |run, mut out| {
        let mut wide = cpu.scratch(width)?;
        vectorized!(for (i, &id) in ids[run.clone()].iter().enumerate() {
            let id = id as usize;
            let row = table.read(id * width..(id + 1) * width, &mut wide);
            out.store(i * width..(i + 1) * width, row);
        });
        Ok(())
    })
}

pub(super) fn embedding_backward(
    cpu: &Cpu,
    arguments: EmbeddingBackward<View<'_>, ViewMut<'_>>,
) -> Result<()> {
    let EmbeddingBackward { dtable, write, dout, ids, vocabulary, shape } = arguments;
    let RowShape { rows, width } = shape;
    let (dtable, dout, ids) = (FloatsMut::from(dtable), Floats::from(dout), ids.as_slice::<u32>());
    // Positions by the id at them, then by position.
    let mut order = cpu.vec_with_capacity(rows)?;
    order.extend(0..rows);
    order.sort_unstable_by_key(|&i| (ids[i], i));
    cpu.workers.each_run(dtable, vocabulary, width, |run, mut dtable| {
        let mut scratch = cpu.scratch(2 * width)?;
        let [wide_row, wide] = scratch.parts([width; 2]);
        if write == Write::Replace {
            dtable.zero();
        }
        let before = |row: usize| order.partition_point(|&i| (ids[i] as usize) < row);
        let own = &order[before(run.start)..before(run.end)];
        // Row by row of the table, so that each is rounded once.
        vectorized!(for positions in own.chunk_by(|&a, &b| ids[a] == ids[b]) {
            let row = ids[positions[0]] as usize - run.start;
            dtable.update(
                row * width..(row + 1) * width,
                wide_row,
                #[inline(always)]
                |row| {
                    for &i in positions {
                        add_slice(row, dout.read(i * width..(i + 1) * width, wide));
                    }
                },
            );
        });
        Ok(())
    })
}
