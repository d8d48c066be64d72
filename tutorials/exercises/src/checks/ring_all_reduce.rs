//! A ring all-reduce over vectors.

use super::provenance::{complaint, contribution};
use crate::Verdict;

/// The links of a ring: counts what travels.
pub struct Wire {
    ranks: usize,
    sent: Vec<usize>,
    stranger: Option<(usize, usize)>,
}

impl Wire {
    /// Sends `values` from rank `from` to rank `to`; returns what arrives.
    pub fn send(&mut self, from: usize, to: usize, values: &[f32]) -> Vec<f32> {
        if to != (from + 1) % self.ranks {
            self.stranger = Some((from, to));
        }
        self.sent[from] += values.len();
        values.to_vec()
    }
}

/// What is checked.
pub(crate) type AllReduce = fn(&mut [Vec<f32>], &mut Wire);

const PER_SLICE: usize = 5;

pub(crate) fn check(all_reduce: AllReduce) -> Verdict {
    for ranks in [2, 3, 4, 6] {
        run(all_reduce, ranks)?;
    }
    Ok("each rank sends 2(N−1)/N of its buffer, the least there is, to its neighbour alone".into())
}

fn run(all_reduce: AllReduce, ranks: usize) -> Result<(), String> {
    let length = ranks * PER_SLICE;
    let mut buffers: Vec<Vec<f32>> = (0..ranks).map(|rank| vec![contribution(rank); length]).collect();
    let mut wire = Wire { ranks, sent: vec![0; ranks], stranger: None };
    all_reduce(&mut buffers, &mut wire);
    if let Some((from, to)) = wire.stranger {
        return Err(format!(
            "{ranks} ranks: rank {from} sends to rank {to}, which is not its right neighbour"
        ));
    }
    for (rank, buffer) in buffers.iter().enumerate() {
        for (at, &value) in buffer.iter().enumerate() {
            if let Some(complaint) = complaint(value, ranks) {
                return Err(format!(
                    "{ranks} ranks: in slice {} of rank {rank}, {complaint}",
                    at / PER_SLICE
                ));
            }
        }
    }
    let least = 2 * (ranks - 1) * PER_SLICE;
    match wire.sent.iter().position(|&sent| sent > least) {
        Some(rank) => {
            Err(format!("{ranks} ranks: rank {rank} sends {} elements; {least} are enough", wire.sent[rank]))
        }
        None => Ok(()),
    }
}
