//! Compares collectives of several ranks on one GPU with the GPU's own copies.

use crate::{REPEATS, rank};
use collectives::Group;
use collectives::local::{Options, groups};
use device::cuda::Gpu;
use device::{Class, DType};
use events::Operation;
use settings::size::human;
use std::sync::Arc;
use std::time::Instant;
use tests::median;

const OPERATIONS: [Operation; 3] = [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather];

/// Times each operation for each number of ranks and prints the table. `copies` is the GPU's copy
/// bandwidth in bytes per second.
pub(crate) fn table(gpu: &Arc<Gpu>, ranks: &[u32], bytes: usize, copies: f64) -> Result<(), String> {
    events::say!(
        "Collectives of ranks that share the GPU, {} of bf16: bytes read plus written by all ranks together, as \
         the GPU's own copies are counted. Target: 45 % of these.\n",
        human(bytes as u64)
    );
    events::say!("| | ranks | GB/s, read plus written | of the GPU's copies |");
    events::say!("|---|--:|--:|--:|");
    for &size in ranks {
        for operation in OPERATIONS {
            let seconds = time(gpu, size, operation, bytes)?;
            let speed = touched(operation, size, bytes) as f64 / seconds;
            events::say!("| {operation} | {size} | {:.0} | {:.0} % |", speed / 1e9, 100.0 * speed / copies);
        }
    }
    events::say!();
    Ok(())
}

/// Returns the bytes that all ranks read and write in one collective over buffers of `bytes` bytes.
/// Each rank sums its slice over all buffers and writes it to all or only its own, or copies it to
/// all.
fn touched(operation: Operation, ranks: u32, bytes: usize) -> usize {
    let ranks = ranks as usize;
    match operation {
        Operation::AllReduce => 2 * ranks * bytes,
        Operation::ReduceScatter => (ranks + 1) * bytes,
        _ => 2 * (ranks - 1) * bytes,
    }
}

/// Returns the seconds of one collective on the slowest rank: the median of several runs, each of
/// which queues several collectives at once.
fn time(gpu: &Arc<Gpu>, size: u32, operation: Operation, bytes: usize) -> Result<f64, String> {
    let groups = groups(size, Options::default());
    let run = |group| move || member(gpu, group, operation, bytes);
    let all: Result<Vec<Vec<f64>>, String> = std::thread::scope(|scope| {
        let threads: Vec<_> = groups.into_iter().map(|group| scope.spawn(run(group))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a rank panicked".into()))
        };
        threads.into_iter().map(join).collect()
    });
    let slowest = all?.into_iter().reduce(|a, b| a.iter().zip(&b).map(|(a, b)| a.max(*b)).collect());
    Ok(median(&slowest.unwrap_or_default()))
}

fn member(gpu: &Arc<Gpu>, group: Group, operation: Operation, bytes: usize) -> Result<Vec<f64>, String> {
    let device = rank(gpu).map_err(|error| error.to_string())?;
    let len = bytes / 2 / group.size() as usize * group.size() as usize;
    let mut buffer = device.zeros(Class::Workspace, DType::Bf16, len).map_err(|error| error.to_string())?;
    let mut seconds = Vec::new();
    for _ in 0..5 {
        device.synchronize().map_err(|error| error.to_string())?;
        group.barrier().map_err(|error| error.to_string())?;
        let started = Instant::now();
        for _ in 0..REPEATS {
            let pending = group.issue(operation, 0, vec![buffer].into());
            let back = pending.and_then(|pending| pending.wait()).map_err(|error| error.to_string())?;
            buffer = back.into_iter().next().ok_or("a bucket came back empty")?;
        }
        device.synchronize().map_err(|error| error.to_string())?;
        seconds.push(started.elapsed().as_secs_f64() / REPEATS as f64);
    }
    // A rank waits until the others no longer use its memory.
    group.barrier().map_err(|error| error.to_string())?;
    Ok(seconds.split_off(1))
}
