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
    let mut times = Vec::new();
    for _ in 0..(VOLUME / size).clamp(5, 400) {
        device.kernels().fill(buffer.view_mut(), (group.rank() + 1) as f32)?;
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

/// Compares a result with what the ranks' numbers add up to.
fn check(group: &Group, device: &Device, operation: Operation, buffer: &Buffer) -> Result<(), Failure> {
    let (ranks, rank) = (group.size() as usize, group.rank() as usize);
    let values = device.read::<f32>(buffer.view())?;
    let slice = values.len() / ranks;
    let sum = (ranks * (ranks + 1) / 2) as f32;
    let right = match operation {
        Operation::AllReduce => values.iter().all(|&value| value == sum),
        Operation::ReduceScatter => {
            values[rank * slice..(rank + 1) * slice].iter().all(|&value| value == sum)
        }
        Operation::AllGather => {
            let mut slices = values.chunks_exact(slice).zip(1..);
            slices.all(|(slice, owner)| slice.iter().all(|&value| value == owner as f32))
        }
        _ => values.iter().all(|&value| value == 1.0),
    };
    if right {
        return Ok(());
    }
    Err(Failure::Run(format!(
        "{operation} of {} elements between {ranks} ranks gave a wrong result on rank {rank}",
        values.len()
    )))
}
