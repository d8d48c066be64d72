//! One operation at one size, on one rank.

use crate::Result;
use crate::launch::MeasuredRank;
use crate::row::Row;
use collectives::Group;
use device::{Buffer, Class, DType, Device, DeviceError};
use events::Operation;
use std::time::{Duration, Instant};

/// Bytes that all calls of one size move together, roughly.
const VOLUME: usize = 256 << 20;

/// Measures `operation` on buffers of `size` bytes. Returns the same row on every rank.
pub(crate) fn measure(rank: &MeasuredRank, operation: Operation, size: usize) -> Result<Row> {
    let MeasuredRank { group, engine, device } = rank;
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
        let back = group.issue(operation, 0, vec![buffer].into())?.wait()?.pop();
        device.synchronize()?;
        times.push(begin.elapsed().as_nanos() as u64);
        buffer = back.ok_or(LOST)?;
        check(group, device, operation, &buffer)?;
    }
    let slowest = slowest(group, &times)?;
    let (median, best) = (slowest[slowest.len() / 2], slowest[0]);
    let (size, calls) = (elements * size_of::<f32>(), slowest.len());
    Ok(Row { operation, engine: *engine, size, ranks, calls, median, best })
}

pub(crate) const LOST: &str = "a bucket came back empty";

/// Returns the slowest rank's time of each call, the shortest first.
pub(crate) fn slowest(group: &Group, times: &[u64]) -> Result<Vec<Duration>> {
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

/// Places after which numbers repeat: a prime, so that the slices of a buffer begin with different
/// numbers.
const PERIOD: usize = 4093;
/// Places that are written at once, in whole periods.
const CHUNK: usize = PERIOD << 8;

/// Returns the number at `place` in the buffer of rank `factor` − 1; with the sum of several ranks'
/// factors, the sum of their numbers. It is a whole number, and exact as long as `factor` is at
/// most 4096.
fn number(place: usize, factor: usize) -> f32 {
    ((place % PERIOD + 1) * factor) as f32
}

/// Fills the buffer with this rank's numbers; the first [`CHUNK`] are given.
fn fill(device: &Device, buffer: &mut Buffer, numbers: &[f32]) -> Result<(), DeviceError> {
    for first in (0..buffer.len()).step_by(CHUNK) {
        let range = first..buffer.len().min(first + CHUNK);
        device.write(buffer.slice_mut(range.clone()), &numbers[..range.len()])?;
    }
    Ok(())
}

/// Returns the first wrong place of a result on rank `rank` of `ranks`; `None` if all are right.
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

/// Fails if a result differs from the sum of the ranks' numbers.
fn check(group: &Group, device: &Device, operation: Operation, buffer: &Buffer) -> Result<()> {
    let (ranks, rank) = (group.size() as usize, group.rank() as usize);
    let values = device.read::<f32>(buffer.view())?;
    let Some(place) = first_wrong(&values, operation, rank, ranks) else { return Ok(()) };
    Err(format!(
        "{operation} of {} elements between {ranks} ranks gave a wrong result on rank {rank}: element {place} is {}",
        values.len(),
        values[place]
    )
    .into())
}

#[cfg(test)]
mod tests;
