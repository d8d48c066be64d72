//! The cost of the layer over NCCL: equal calls through it and without it, many queued at once, as
//! in training.

use crate::launch::MeasuredRank;
use crate::measure::{LOST, slowest};
use crate::{Flags, Result};
use collectives::nccl::Repeater;
use device::{Class, DType};
use std::time::{Duration, Instant};

/// Bytes of a buffer, unless the largest that is measured is smaller.
const SIZE: usize = 16 << 20;
/// Calls that are timed together.
const CALLS: usize = 20;
/// How often each way is measured, in turn.
const ROUNDS: usize = 5;

/// Returns a line per operation, equal on every rank; no lines without GPUs.
pub(crate) fn measure(rank: &MeasuredRank, flags: &Flags) -> Result<Vec<String>> {
    let MeasuredRank { group, device, .. } = rank;
    let Some(runtime) = device.gpu() else { return Ok(Vec::new()) };
    let mut raw = Repeater::new(group, runtime, flags.timeout)?;
    let size = SIZE.min(flags.max << 10);
    let elements = (size / size_of::<f32>()).next_multiple_of(group.size() as usize);
    // Zeros stay finite, however often they are summed.
    let mut buffer = device.zeros(Class::Workspace, DType::F32, elements)?;
    let mut lines = Vec::new();
    for &operation in &flags.operation {
        let (mut without, mut with) = (Vec::new(), Vec::new());
        raw.time(operation, &buffer, 1)?;
        for _ in 0..ROUNDS {
            without.push(raw.time(operation, &buffer, CALLS)?.as_nanos() as u64);
            device.synchronize()?;
            group.barrier()?;
            let began = Instant::now();
            for _ in 0..CALLS {
                buffer = group.issue(operation, 0, vec![buffer].into())?.wait()?.pop().ok_or(LOST)?;
            }
            device.synchronize()?;
            with.push(began.elapsed().as_nanos() as u64);
        }
        let [without, with] =
            [slowest(group, &without)?, slowest(group, &with)?].map(|times| times[ROUNDS / 2]);
        let micros = |time: Duration| time.as_secs_f64() * 1e6 / CALLS as f64;
        lines.push(format!(
            "{:<15}at {} KiB: {:.1} µs per call, raw NCCL {:.1} µs: {:+.2} %",
            operation.label(),
            size >> 10,
            micros(with),
            micros(without),
            (with.as_secs_f64() / without.as_secs_f64() - 1.0) * 100.0
        ));
    }
    Ok(lines)
}
