//! One operation at one size, on one rank.

use crate::engine::{Engine, Failure, Rank};
use collectives::{Bucket, CollectiveError, Group, Pending};
use device::{Buffer, Class, DType, Device, DeviceError};
use events::Operation;
use std::time::{Duration, Instant};

/// Bytes that all calls of one size move together, roughly.
const VOLUME: usize = 256 << 20;

/// What was measured.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) operation: Operation,
    pub(crate) engine: Engine,
    /// Bytes of a rank's buffer.
    pub(crate) size: usize,
    ranks: usize,
    median: Duration,
    best: Duration,
}

impl Row {
    /// Bus bandwidth of a call that takes `time`, in GB/s.
    fn bus(&self, time: Duration) -> f64 {
        let rounds = if self.operation == Operation::AllReduce { 2.0 } else { 1.0 };
        self.algorithm(time) * rounds * (self.ranks - 1) as f64 / self.ranks as f64
    }

    fn algorithm(&self, time: Duration) -> f64 {
        self.size as f64 / time.as_secs_f64() / 1e9
    }

    /// Bus bandwidth of the median call, in GB/s.
    pub(crate) fn bus_bandwidth(&self) -> f64 {
        self.bus(self.median)
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:<15}{:<7}{:>8} KiB{:>10.1} µs{:>10.2}{:>10.2}{:>12.2}",
            self.operation.label(),
            self.engine.label(),
            self.size >> 10,
            self.median.as_secs_f64() * 1e6,
            self.algorithm(self.median),
            self.bus(self.median),
            self.bus(self.best)
        )
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Failure::Run(error.to_string())
    }
}

/// Measures `operation` on buffers of `size` bytes; the same row on every rank.
pub(crate) fn measure(rank: &Rank, operation: Operation, size: usize) -> Result<Row, Failure> {
    let Rank { group, engine, device } = rank;
    let ranks = group.size() as usize;
    let elements = (size / size_of::<f32>()).next_multiple_of(ranks);
    let mut buffer = device.zeros(Class::Workspace, DType::F32, elements)?;
    let numbers: Vec<f32> =
        (0..elements.min(CHUNK)).map(|place| number(place, group.rank() as usize + 1)).collect();
    let mut times = Vec::new();
    for _ in 0..(VOLUME / size).clamp(5, 400) {
        fill(device, &mut buffer, &numbers)?;
        device.synchronize()?;
        group.barrier()?;
        let begin = Instant::now();
        let back = issue(group, operation, vec![buffer].into())?.wait()?.pop();
        device.synchronize()?;
        times.push(begin.elapsed().as_nanos() as u64);
        buffer = back.ok_or_else(lost)?;
        check(group, device, operation, &buffer)?;
    }
    let slowest = slowest(group, &times)?;
    let (median, best) = (slowest[slowest.len() / 2], slowest[0]);
    Ok(Row { operation, engine: *engine, size: elements * size_of::<f32>(), ranks, median, best })
}

pub(crate) fn lost() -> Failure {
    Failure::Run("a bucket came back empty".into())
}

/// The slowest rank's time of each call, the shortest first.
pub(crate) fn slowest(group: &Group, times: &[u64]) -> Result<Vec<Duration>, Failure> {
    let bytes: Vec<u8> = times.iter().flat_map(|time| time.to_le_bytes()).collect();
    let all = group.exchange(&bytes)?;
    let word = |bytes: &[u8], call: usize| {
        let (words, _) = bytes.as_chunks::<8>();
        words.get(call).map_or(0, |word| u64::from_le_bytes(*word))
    };
    let time = |call| all.iter().map(|bytes| word(bytes, call)).max().unwrap_or(0).max(1);
    let mut slowest: Vec<Duration> = (0..times.len()).map(|call| Duration::from_nanos(time(call))).collect();
    slowest.sort();
    Ok(slowest)
}

pub(crate) fn issue(group: &Group, operation: Operation, bucket: Bucket) -> Result<Pending, CollectiveError> {
    match operation {
        Operation::AllReduce => group.all_reduce(bucket),
        Operation::ReduceScatter => group.reduce_scatter(bucket),
        Operation::AllGather => group.all_gather(bucket),
        _ => group.broadcast(bucket, 0),
    }
}

/// After so many places numbers repeat: a prime, so that the slices of a buffer begin with different ones.
const PERIOD: usize = 4093;
/// Places that are written at once: whole periods.
const CHUNK: usize = PERIOD << 8;

/// What stands at `place` in the buffer of the rank whose number is `factor` − 1; what ranks' buffers add up to if `factor`
/// is the sum of these. A whole number, and exact as long as `factor` is at most 4096.
fn number(place: usize, factor: usize) -> f32 {
    ((place % PERIOD + 1) * factor) as f32
}

/// Writes this rank's numbers, whose first [`CHUNK`] are given.
fn fill(device: &Device, buffer: &mut Buffer, numbers: &[f32]) -> Result<(), DeviceError> {
    for first in (0..buffer.len()).step_by(CHUNK) {
        let range = first..buffer.len().min(first + CHUNK);
        device.write(buffer.slice_mut(range.clone()), &numbers[..range.len()])?;
    }
    Ok(())
}

/// The first place of a result that is wrong on rank `rank` of `ranks`.
fn first_wrong(values: &[f32], operation: Operation, rank: usize, ranks: usize) -> Option<usize> {
    let slice = values.len() / ranks;
    let own = rank * slice..(rank + 1) * slice;
    let sum = ranks * (ranks + 1) / 2;
    let right = |place: usize| match operation {
        Operation::AllReduce | Operation::ReduceScatter => number(place, sum),
        Operation::AllGather => number(place, place / slice + 1),
        _ => number(place, 1),
    };
    let mut checked = if operation == Operation::ReduceScatter { own } else { 0..values.len() };
    checked.find(|&place| values[place] != right(place))
}

/// Compares a result with what the ranks' numbers add up to.
fn check(group: &Group, device: &Device, operation: Operation, buffer: &Buffer) -> Result<(), Failure> {
    let (ranks, rank) = (group.size() as usize, group.rank() as usize);
    let values = device.read::<f32>(buffer.view())?;
    let Some(place) = first_wrong(&values, operation, rank, ranks) else { return Ok(()) };
    Err(Failure::Run(format!(
        "{operation} of {} elements between {ranks} ranks gave a wrong result on rank {rank}: element {place} is {}",
        values.len(),
        values[place]
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANKS: usize = 3;
    const SLICE: usize = 5000;

    /// What an operation should leave on rank 1.
    fn right(operation: Operation) -> Vec<f32> {
        let factor = |place: usize| match operation {
            Operation::AllGather => place / SLICE + 1,
            Operation::Broadcast => 1,
            _ => 1 + 2 + 3,
        };
        (0..RANKS * SLICE).map(|place| number(place, factor(place))).collect()
    }

    #[test]
    fn what_stands_in_another_place_than_its_own_is_found() {
        for operation in
            [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather, Operation::Broadcast]
        {
            let wrong = |values: &[f32]| first_wrong(values, operation, 1, RANKS);
            assert_eq!(wrong(&right(operation)), None, "{operation}");
            let mut swapped = right(operation);
            swapped.swap(SLICE + 7, SLICE + 8);
            assert_eq!(wrong(&swapped), Some(SLICE + 7), "{operation}");
            let mut shifted = right(operation);
            shifted[SLICE..2 * SLICE].rotate_left(1);
            assert_eq!(wrong(&shifted), Some(SLICE), "{operation}");
            let mut last = right(operation);
            last[2 * SLICE - 1] += 1.0;
            assert_eq!(wrong(&last), Some(2 * SLICE - 1), "{operation}");
        }
    }

    #[test]
    fn of_a_reduce_scatter_only_the_own_slice_counts() {
        let mut values = right(Operation::ReduceScatter);
        values[0] = 0.0;
        assert_eq!(first_wrong(&values, Operation::ReduceScatter, 1, RANKS), None);
        assert_eq!(first_wrong(&values, Operation::AllReduce, 1, RANKS), Some(0));
    }

    #[test]
    fn the_largest_number_is_exact() {
        let ranks = 64;
        assert_eq!(number(PERIOD - 1, ranks * (ranks + 1) / 2) as usize, PERIOD * ranks * (ranks + 1) / 2);
        assert!(PERIOD * ranks * (ranks + 1) / 2 < 1 << 24);
    }
}
