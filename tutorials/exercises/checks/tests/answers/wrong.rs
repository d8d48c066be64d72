//! Wrong answers that readers might give. Each is refused with a sentence that says why it is
//! wrong.

use super::{hybrid_reduction_solution, ring_all_reduce_solution};
use exercises::bucket::Unit;
use exercises::loss_scaler::Scale;
use exercises::{
    Verdict, bucket, hybrid_reduction, loss_scaler, overlap_a_read, page_an_optimizer, partition,
    planner_formula, reshard, ring_all_reduce, shard_norm,
};

fn refused(verdict: Verdict, words: &str) {
    match verdict {
        Ok(score) => panic!("accepted: {score}; it should be refused because {words}"),
        Err(problem) => assert!(problem.contains(words), "{problem}"),
    }
}

#[test]
fn model_states() {
    let unpadded = |parameters: u64, ranks: u64, stage: u32, [weights, gradients, optimizer]: [u64; 3]| {
        let held = |from: u32| if stage >= from { parameters / ranks } else { parameters };
        held(3) * weights + held(2) * gradients + held(1) * optimizer
    };
    refused(planner_formula::check(unpadded), "ZeRO-1, recipe mixed, 1001 parameters, 3 ranks");
    let gradients_too_late = |parameters: u64, ranks: u64, stage: u32, bytes: [u64; 3]| {
        let shards = if stage == 0 { 1 } else { ranks };
        let slice = parameters.div_ceil(shards);
        let held = |from: u32| if stage >= from { slice } else { slice * shards };
        held(3) * (bytes[0] + bytes[1]) + held(1) * bytes[2]
    };
    refused(
        planner_formula::check(gradients_too_late),
        "ZeRO-2, recipe mixed, 7000000000 parameters, 4 ranks",
    );
}

/// Gives every buffer the sum of all, without communication.
fn sum_directly(buffers: &mut [Vec<f32>]) {
    let sums: Vec<f32> =
        (0..buffers[0].len()).map(|at| buffers.iter().map(|buffer| buffer[at]).sum()).collect();
    buffers.iter_mut().for_each(|buffer| buffer.copy_from_slice(&sums));
}

#[test]
fn rings() {
    refused(ring_all_reduce::check(|_, _| ()), "in slice 0 of rank 0, rank 1's contribution is missing");
    refused(
        ring_all_reduce::check(|buffers, wire| {
            let first = buffers[0].clone();
            wire.send(0, 0, &first);
        }),
        "rank 0 sends to rank 0, which is not its right neighbour",
    );
    let twice: ring_all_reduce::AllReduce = |buffers, wire| {
        ring_all_reduce_solution::all_reduce(buffers, wire);
        buffers[1][0] += buffers[0][0];
    };
    refused(ring_all_reduce::check(twice), "in slice 0 of rank 1, rank 0's contribution is in it 2 times");
    // Every value is a sum over all ranks but belongs to another slice.
    let rotated: ring_all_reduce::AllReduce = |buffers, wire| {
        ring_all_reduce_solution::all_reduce(buffers, wire);
        let slice = buffers[0].len() / buffers.len();
        buffers.iter_mut().for_each(|buffer| buffer.rotate_left(slice));
    };
    refused(ring_all_reduce::check(rotated), "slice 0 of rank 0 is a sum of other slices");
    refused(ring_all_reduce::check(|buffers, _| sum_directly(buffers)), "2 ranks: 0 elements were sent");
    // One rank sends as much as in a ring, and the others send nothing.
    let alone: ring_all_reduce::AllReduce = |buffers, wire| {
        let ranks = buffers.len();
        let slice = buffers[0].len() / ranks;
        (0..2 * (ranks - 1)).for_each(|_| drop(wire.send(0, 1, &buffers[0][..slice])));
        sum_directly(buffers);
    };
    refused(ring_all_reduce::check(alone), "values reached a rank without the wire");
}

/// Queues a unit, and closes the bucket if `closes` is true of the number of queued elements and
/// the capacity.
fn queue(
    queue: &mut Vec<Unit>,
    unit: Unit,
    capacity: usize,
    closes: impl Fn(usize, usize) -> bool,
) -> Option<Vec<usize>> {
    queue.push(unit);
    let filled = queue.iter().map(|(_, elements)| elements).sum();
    closes(filled, capacity).then(|| std::mem::take(queue).into_iter().map(|(unit, _)| unit).collect())
}

#[test]
fn buckets() {
    let late: bucket::Push = |queued, unit, capacity, last| {
        queue(queued, unit, capacity, |filled, capacity| filled > capacity || last)
    };
    refused(bucket::check_alone(late), "capacity 213: 213 elements wait after unit");
    let early: bucket::Push = |queued, unit, capacity, _| queue(queued, unit, capacity, |_, _| true);
    refused(bucket::check_alone(early), "capacity 213: a bucket closes with 33 elements after unit 5");
    let open: bucket::Push =
        |queued, unit, capacity, _| queue(queued, unit, capacity, |filled, capacity| filled >= capacity);
    refused(bucket::check_alone(open), "were pushed, and [");
    let kept: bucket::Push = |queued, unit, capacity, last| {
        let before = queued.clone();
        let closed = queue(queued, unit, capacity, |filled, capacity| filled >= capacity || last);
        queued.extend(before.into_iter().filter(|_| closed.is_some()));
        closed
    };
    refused(bucket::check_alone(kept), "travelled");
}

#[test]
fn slices() {
    let floor = |parameters: usize, shards: usize, rank: usize| {
        let length = parameters / shards;
        rank * length..(rank + 1) * length
    };
    refused(partition::check(floor), "10 parameters over 4 ranks: no rank owns the last 2");
    let ragged = |parameters: usize, shards: usize, rank: usize| {
        let length = parameters.div_ceil(shards);
        (rank * length).min(parameters)..((rank + 1) * length).min(parameters)
    };
    refused(partition::check(ragged), "10 parameters over 4 ranks: rank 3 owns 1 elements and rank 0 3");
    let apart = |parameters: usize, shards: usize, rank: usize| {
        let length = parameters.div_ceil(shards);
        rank * (length + 1)..rank * (length + 1) + length
    };
    refused(partition::check(apart), "rank 1's slice begins at 4, and the one before ends at 3");
}

fn squares(mine: &[f32]) -> f64 {
    mine.iter().map(|&g| f64::from(g) * f64::from(g)).sum()
}

#[test]
fn norms() {
    refused(shard_norm::check_alone(|mine, _| squares(mine).sqrt()), "rank 0 clips by a norm of 3");
    refused(
        shard_norm::check_alone(|mine, over_ranks| over_ranks(squares(mine).sqrt())),
        "clips by a norm of 7",
    );
    let some: shard_norm::Norm = |mine, over_ranks| {
        let own = squares(mine);
        if mine[0] > 3.0 { over_ranks(own).sqrt() } else { own.sqrt() }
    };
    refused(shard_norm::check_alone(some), "every rank takes part in every sum");
}

/// Counts a clean step. A full window doubles the scale and sets `left`.
fn clean(scale: &mut Scale, left: u32) {
    scale.clean += 1;
    if scale.clean > 1 && (scale.clean - 1).is_multiple_of(scale.window) {
        (scale.scale, scale.left) = (scale.scale * 2.0, left);
    }
}

#[test]
fn loss_scales() {
    let impatient = |scale: &mut Scale, overflow: bool| {
        if overflow {
            (scale.clean, scale.scale) = (0, scale.scale / 2.0);
        }
    };
    refused(loss_scaler::check(impatient), "after step");
    let forgiving = |scale: &mut Scale, overflow: bool| match overflow {
        true if scale.left > 1 => (scale.clean, scale.left) = (0, scale.left - 1),
        true => (scale.clean, scale.scale) = (0, scale.scale / 2.0),
        // Wrong: a single clean step refills the hysteresis.
        false => {
            scale.left = scale.hysteresis;
            clean(scale, scale.hysteresis);
        }
    };
    refused(loss_scaler::check(forgiving), "steps x.x");
    let without_restart = |scale: &mut Scale, overflow: bool| match overflow {
        true if scale.left > 1 => scale.left -= 1,
        true => scale.scale /= 2.0,
        false => clean(scale, scale.hysteresis),
    };
    refused(loss_scaler::check(without_restart), "steps ..x....");
    // An overflow that halves the scale does not start a new window.
    let half_restarted = |scale: &mut Scale, overflow: bool| match overflow {
        true if scale.left > 1 => (scale.clean, scale.left) = (0, scale.left - 1),
        true => scale.scale /= 2.0,
        false => clean(scale, scale.hysteresis),
    };
    refused(loss_scaler::check(half_restarted), "steps x.x....");
    // A window adds to the remaining hysteresis instead of refilling it.
    let generous = |scale: &mut Scale, overflow: bool| match overflow {
        true if scale.left > 1 => (scale.clean, scale.left) = (0, scale.left - 1),
        true => (scale.clean, scale.scale) = (0, scale.scale / 2.0),
        false => clean(scale, scale.left + 1),
    };
    refused(loss_scaler::check(generous), "steps ....xx");
}

#[test]
fn sums_over_nodes() {
    let inside: hybrid_reduction::Reduce = |buffers, node, cluster| {
        for first in (0..buffers.len()).step_by(node) {
            cluster.reduce_scatter(buffers, &(first..first + node).collect::<Vec<_>>());
        }
    };
    refused(hybrid_reduction::check(inside), "in the shard of rank 0, rank 2's contribution is missing");
    let rotated: hybrid_reduction::Reduce = |buffers, node, cluster| {
        hybrid_reduction_solution::reduce(buffers, node, cluster);
        let shard = buffers[0].len() / node;
        buffers.iter_mut().for_each(|buffer| buffer.chunks_mut(shard).for_each(|shard| shard.rotate_left(1)));
    };
    refused(hybrid_reduction::check(rotated), "in the shard of rank 0 are sums of other places");
    let direct: hybrid_reduction::Reduce = |buffers, _, _| sum_directly(buffers);
    refused(hybrid_reduction::check(direct), "4 ranks in nodes of 2: 0 elements crossed between nodes");
}

#[test]
fn pages() {
    let refused = |step: page_an_optimizer::Step, words| refused(page_an_optimizer::check(step), words);
    refused(
        |pager| {
            pager.fetch(0, 0);
            pager.update(0);
        },
        "piece 0 is updated while buffer 0 still travels",
    );
    // Waits only for the first transfer. The others happen to finish after earlier updates.
    refused(
        |pager| {
            let pieces = pager.pieces();
            (0..pieces.min(2)).for_each(|piece| pager.fetch(piece, piece));
            pager.wait(0);
            for piece in 0..pieces {
                pager.update(piece % 2);
                pager.store(piece % 2);
                if piece + 2 < pieces {
                    pager.fetch(piece + 2, piece % 2);
                }
            }
            (0..2).for_each(|buffer| pager.wait(buffer));
        },
        "piece 1 is updated without a wait for the last transfer of buffer 1",
    );
    // The last transfers are issued but not waited for.
    refused(
        |pager| {
            for piece in 0..pager.pieces() {
                pager.fetch(piece, piece % 2);
                pager.wait(piece % 2);
                pager.update(piece % 2);
                pager.store(piece % 2);
            }
        },
        "the step ends while buffer 0 still leaves",
    );
    refused(
        |pager| {
            for piece in (0..pager.pieces()).chain([0]) {
                pager.fetch(piece, 0);
                pager.wait(0);
                pager.update(0);
            }
        },
        "piece 0 comes into buffer 0, and piece 0, updated, was not stored",
    );
    refused(
        |pager| {
            pager.fetch(0, 0);
            pager.store(0);
        },
        "piece 0 leaves buffer 0 before it is updated",
    );
    // Pairs of pieces: an odd last piece is skipped.
    refused(
        |pager| {
            for piece in 0..pager.pieces() / 2 * 2 {
                pager.fetch(piece, piece % 2);
                pager.wait(piece % 2);
                pager.update(piece % 2);
                pager.store(piece % 2);
                pager.wait(piece % 2);
            }
        },
        "a shard of 4 elements: piece 0 was never updated",
    );
    // The same piece in both buffers: its update is lost or made twice.
    refused(
        |pager| {
            (0..2).for_each(|buffer| pager.fetch(0, buffer));
            for buffer in 0..2 {
                pager.wait(buffer);
                pager.update(buffer);
            }
        },
        "piece 0 is updated twice",
    );
}

#[test]
fn reads() {
    let refused = |pass: overlap_a_read::Pass, words| refused(overlap_a_read::check(pass), words);
    // Reads the next number instead of the next in the order: correct in forward except at its end.
    refused(
        |order, disk| {
            disk.start(order[0]);
            for &unit in order {
                disk.start(unit + 1);
                disk.compute(unit);
            }
        },
        "unit 6 is read and never computes",
    );
    refused(
        |order, disk| {
            order.iter().for_each(|&unit| disk.start(unit));
            order.iter().for_each(|&unit| disk.compute(unit));
        },
        "the read of unit 2 has no staging buffer: [0, 1] are in them",
    );
    refused(|order, disk| order.iter().for_each(|&unit| disk.compute(unit)), "no read of it was started");
    // Reads the next in the order, but computes units by number.
    refused(
        |order, disk| {
            let units = order.len();
            for pair in 0..units.div_ceil(2) {
                let pair = 2 * pair..(2 * pair + 2).min(units);
                order[pair.clone()].iter().for_each(|&unit| disk.start(unit));
                let mut sorted = order[pair].to_vec();
                sorted.sort_unstable();
                sorted.iter().for_each(|&unit| disk.compute(unit));
            }
        },
        "order [5, 4, 3, 2, 1, 0]: these units computed: [4, 5, 2, 3, 0, 1]",
    );
    // Reads the current unit again instead of the next.
    refused(
        |order, disk| {
            for &unit in order {
                disk.start(unit);
                disk.start(unit);
                disk.compute(unit);
            }
        },
        "unit 0 is read twice",
    );
}

/// Intersects slices of `wanted` with files of `stored` elements. `range` maps elements
/// `start..end` to the range that is read from the file.
fn intersected(
    (writers, stored): (usize, usize),
    wanted: std::ops::Range<usize>,
    range: impl Fn(usize, std::ops::Range<usize>) -> std::ops::Range<usize>,
) -> Vec<reshard::Read> {
    let part = |file: usize| {
        let part = wanted.start.max(file * stored)..wanted.end.min((file + 1) * stored);
        (!part.is_empty()).then(|| reshard::Read { file, range: range(file, part) })
    };
    (0..writers).filter_map(part).collect()
}

#[test]
fn resharding() {
    let refused = |reads: reshard::Reads, words| refused(reshard::check(reads), words);
    // Rank k reads file k, as if the number of ranks had not changed.
    refused(
        |elements, writers, _, rank| vec![reshard::Read { file: rank, range: 0..elements.div_ceil(writers) }],
        "12 elements, 4 → 3 ranks: rank 0 does not read 3..4 of its 0..4",
    );
    // Counts elements in the unit, not in the file.
    refused(
        |elements, writers, readers, rank| {
            let wanted = elements.div_ceil(readers);
            let slice = rank * wanted..elements.min((rank + 1) * wanted);
            intersected((writers, elements.div_ceil(writers)), slice, |_, part| part)
        },
        "12 elements, 4 → 3 ranks: rank 0 reads 3..4 of file 1, which has 3 elements",
    );
    // Also reads the padding.
    refused(
        |elements, writers, readers, rank| {
            let (stored, wanted) = (elements.div_ceil(writers), elements.div_ceil(readers));
            intersected((writers, stored), rank * wanted..(rank + 1) * wanted, |file, part| {
                part.start - file * stored..part.end - file * stored
            })
        },
        "10 elements, 4 → 3 ranks: rank 2 reads 0..3 of file 3, which has 1 elements",
    );
    // Rounds slice lengths down.
    refused(
        |elements, writers, readers, rank| {
            let (stored, wanted) = (elements.div_ceil(writers), elements / readers);
            intersected((writers, stored), rank * wanted..(rank + 1) * wanted, |file, part| {
                part.start - file * stored..part.end - file * stored
            })
        },
        "10 elements, 4 → 3 ranks: rank 0 does not read 3..4 of its 0..4",
    );
    refused(
        |_, writers, _, _| vec![reshard::Read { file: writers, range: 0..1 }],
        "rank 0 reads file 4, and the files are 0 to 3",
    );
}
