//! Bandwidth of the local collectives: `cargo run --release -p collectives --example bandwidth [max MiB] [ranks]`.
//!
//! Algorithm bandwidth is buffer size over time; bus bandwidth scales it by 2(N−1)/N for all-reduce and (N−1)/N for the
//! others, which makes it comparable between rank counts. The time of a call is that of the slowest rank; shown are the
//! median over calls and the best call. Results are checked after the last call.

use collectives::local::{Algorithm, Options, World};
use collectives::{Bucket, CollectiveError, Group, Pending};
use device::{Buffer, Class, Device, Ledger};
use events::{Emitter, Operation};
use std::time::{Duration, Instant};

const OPERATIONS: [Operation; 4] =
    [Operation::AllReduce, Operation::ReduceScatter, Operation::AllGather, Operation::Broadcast];

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let (Ok(max), Ok(ranks)) = (arguments.next().unwrap_or(Ok(64)), arguments.next().unwrap_or(Ok(4))) else {
        eprintln!("usage: bandwidth [max MiB] [ranks], both whole numbers");
        std::process::exit(2);
    };
    println!("{ranks} ranks, f32; GB/s = 1e9 bytes per second");
    println!(
        "{:<15}{:<8}{:>10}{:>12}{:>10}{:>10}{:>12}",
        "operation", "", "size", "time", "algbw", "busbw", "best busbw"
    );
    for operation in OPERATIONS {
        for algorithm in [Algorithm::Direct, Algorithm::Ring] {
            for size in sizes(max << 20) {
                report(operation, algorithm, size, ranks.max(1));
            }
        }
    }
}

/// 1 KiB, 8 KiB, ... and `max` bytes.
fn sizes(max: usize) -> impl Iterator<Item = usize> {
    (0..8).map(|power| 1024usize << (3 * power)).take_while(move |&size| size < max).chain([max])
}

fn report(operation: Operation, algorithm: Algorithm, size: usize, ranks: usize) {
    let (median, best) = measure(operation, algorithm, size, ranks);
    let factor =
        (ranks - 1) as f64 / ranks as f64 * if operation == Operation::AllReduce { 2.0 } else { 1.0 };
    let bandwidth = |time: Duration| size as f64 / time.as_secs_f64() / 1e9;
    println!(
        "{:<15}{:<8}{:>6} KiB{:>9.1} µs{:>10.2}{:>10.2}{:>12.2}",
        operation.label(),
        algorithm.label(),
        size >> 10,
        median.as_secs_f64() * 1e6,
        bandwidth(median),
        bandwidth(median) * factor,
        bandwidth(best) * factor
    );
}

/// The median time of a call, and the shortest.
fn measure(operation: Operation, algorithm: Algorithm, size: usize, ranks: usize) -> (Duration, Duration) {
    let options = Options { algorithm, ..Options::default() };
    let calls = ((256 << 20) / size).clamp(7, 400);
    let per_rank: Vec<Vec<Duration>> = std::thread::scope(|scope| {
        let start = |group| scope.spawn(move || run(group, operation, size, calls));
        let threads: Vec<_> = World::new(ranks as u32, options).into_iter().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<_, CollectiveError>>| match thread.join()
        {
            Ok(Ok(times)) => times,
            Ok(Err(error)) => fail(&error.to_string()),
            Err(_) => fail("a rank panicked"),
        };
        threads.into_iter().map(join).collect()
    });
    let slowest = |call: usize| per_rank.iter().map(|times| times[call]).max().unwrap_or_default();
    let mut times: Vec<Duration> = (0..calls).map(slowest).collect();
    times.sort();
    (times[calls / 2], times[0])
}

fn fail(message: &str) -> ! {
    eprintln!("bandwidth: {message}");
    std::process::exit(1);
}

/// One rank's calls, and how long each took.
fn run(
    group: Group,
    operation: Operation,
    size: usize,
    calls: usize,
) -> Result<Vec<Duration>, CollectiveError> {
    let device = Device::cpu(Ledger::new(Emitter::silent(group.rank()), None), 1);
    let Ok(mut buffer) = device.zeros(Class::Workspace, device::DType::F32, size / 4) else {
        fail("a device without capacity ran out of memory");
    };
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        buffer.as_mut_slice::<f32>().fill((group.rank() + 1) as f32);
        group.barrier()?;
        let begin = Instant::now();
        let pending = issue(&group, operation, vec![buffer].into())?;
        let Some(back) = pending.wait()?.pop() else { fail("a bucket came back empty") };
        times.push(begin.elapsed());
        buffer = back;
    }
    check(&group, operation, &buffer);
    Ok(times)
}

fn issue(group: &Group, operation: Operation, bucket: Bucket) -> Result<Pending, CollectiveError> {
    match operation {
        Operation::AllReduce => group.all_reduce(bucket),
        Operation::ReduceScatter => group.reduce_scatter(bucket),
        Operation::AllGather => group.all_gather(bucket),
        _ => group.broadcast(bucket, 0),
    }
}

fn check(group: &Group, operation: Operation, buffer: &Buffer) {
    let (ranks, rank) = (group.size() as usize, group.rank() as usize);
    let values = buffer.as_slice::<f32>();
    let slice = values.len() / ranks;
    let sum = (ranks * (ranks + 1) / 2) as f32;
    let right = match operation {
        Operation::AllReduce => values.iter().all(|&value| value == sum),
        Operation::ReduceScatter => {
            values[rank * slice..(rank + 1) * slice].iter().all(|&value| value == sum)
        }
        Operation::AllGather => {
            values.iter().enumerate().all(|(index, &value)| value == (index / slice + 1) as f32)
        }
        _ => values.iter().all(|&value| value == 1.0),
    };
    if !right {
        fail(&format!("{operation} of {} elements gave a wrong result on rank {rank}", values.len()));
    }
}
