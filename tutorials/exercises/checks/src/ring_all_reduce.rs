//! Checks a ring all-reduce over vectors.

use crate::provenance::{buffers, complaint, contribution, misplaced, placed};
use crate::{Figure, Score, Verdict};
use events::Operation;
use prediction::Algorithm;

/// The links of a ring. Counts the elements sent.
pub struct Wire {
    ranks: usize,
    sent: Vec<u64>,
    messages: Vec<u64>,
    stranger: Option<(usize, usize)>,
}

impl Wire {
    /// Sends `values` from rank `from` to rank `to`. Returns the values that arrive.
    pub fn send(&mut self, from: usize, to: usize, values: &[f32]) -> Vec<f32> {
        if to != (from + 1) % self.ranks {
            self.stranger = Some((from, to));
        }
        self.sent[from] += values.len() as u64;
        self.messages[from] += 1;
        values.to_vec()
    }
}

/// The function under check: (buffers, the wire).
pub type AllReduce = fn(&mut [Vec<f32>], &mut Wire);

const PER_SLICE: usize = 5;

/// Sums over rings of several sizes.
pub fn check(all_reduce: AllReduce) -> Verdict {
    let [mut sent, mut messages] = ["elements sent by a rank", "messages of a rank"].map(Figure::of);
    for ranks in [2, 3, 4, 6] {
        let wire = run(all_reduce, ranks)?;
        let count = ranks as u64;
        let least = Algorithm::Ring.elements_sent(Operation::AllReduce, count * PER_SLICE as u64, count, 0);
        // No algorithm sends fewer in total: N−1 sends add up an element, and N−1 more spread the
        // sum.
        let (all, needed) = (wire.sent.iter().sum::<u64>(), count * least);
        if all < needed {
            return Err(format!(
                "{ranks} ranks: {all} elements were sent, and every rank has a sum that takes {needed}: values \
                 reached a rank without the wire"
            ));
        }
        sent.add(most(&wire.sent), least);
        messages.add(most(&wire.messages), 2 * (count - 1));
    }
    Ok(Score::right("every rank has the sum, and sends to its neighbour only").with(sent).with(messages))
}

fn most(by_rank: &[u64]) -> u64 {
    by_rank.iter().copied().max().unwrap_or(0)
}

fn run(all_reduce: AllReduce, ranks: usize) -> Result<Wire, String> {
    let (buffers, wire) = summed(all_reduce, ranks, |rank, _| contribution(rank));
    if let Some((from, to)) = wire.stranger {
        return Err(format!(
            "{ranks} ranks: rank {from} sends to rank {to}, which is not its right neighbour"
        ));
    }
    let slice = |place: usize| place / PER_SLICE;
    for (rank, buffer) in buffers.iter().enumerate() {
        for (at, &value) in buffer.iter().enumerate() {
            if let Some(complaint) = complaint(value, ranks) {
                return Err(format!("{ranks} ranks: in slice {} of rank {rank}, {complaint}", slice(at)));
            }
        }
    }
    let (buffers, _) = summed(all_reduce, ranks, placed);
    for (rank, buffer) in buffers.iter().enumerate() {
        if let Some(at) = misplaced(buffer, 0..buffer.len(), ranks) {
            return Err(format!(
                "{ranks} ranks: slice {} of rank {rank} is a sum of other slices: what arrives belongs in the slice that was sent",
                slice(at)
            ));
        }
    }
    Ok(wire)
}

/// Runs `all_reduce` on each rank's `values`, a function of rank and place. Returns the buffers,
/// and the wire with its counts.
fn summed(all_reduce: AllReduce, ranks: usize, values: fn(usize, usize) -> f32) -> (Vec<Vec<f32>>, Wire) {
    let mut buffers = buffers(ranks, ranks * PER_SLICE, values);
    let mut wire = Wire { ranks, sent: vec![0; ranks], messages: vec![0; ranks], stranger: None };
    all_reduce(&mut buffers, &mut wire);
    (buffers, wire)
}
