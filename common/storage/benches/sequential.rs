//! Sequential writes and reads in pieces of 64 MiB through two buffers. `scripts/storage-bench`
//! runs it alongside fio.
//!
//!     cargo bench -p storage --bench sequential -- DIR [GIB] [THREADS]

use block::Block;
use std::collections::VecDeque;
use std::error::Error;
use std::path::PathBuf;
use std::time::Instant;
use storage::{Disk, Ticket};

#[path = "../tests/block/mod.rs"]
mod block;

const TRANSFER_BYTES: usize = 64 << 20;
const BUFFERS: usize = 2;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    let number = |at: usize, default: u64| arguments.get(at).map_or(Ok(default), |word| word.parse());
    let folder = PathBuf::from(arguments.first().ok_or("give the directory to write in")?);
    let (pieces, threads) = ((number(1, 1)? << 30) / TRANSFER_BYTES as u64, number(2, BUFFERS as u64)?);
    let disk = Disk::new(threads as usize);
    let mut free: Vec<Block> = (0..BUFFERS).map(|_| Block::new(TRANSFER_BYTES)).collect();
    let file = disk.scratch(&folder.join(format!("sequential-{}", std::process::id())))?;
    let write = |block: Block, offset| disk.write(&file, offset, block);
    let read = |block: Block, offset| disk.read(&file, offset, block);
    let written = rate(pieces, &mut free, &write, || disk.flush(&file))?;
    let read = rate(pieces, &mut free, &read, || Ok(()))?;
    println!("{written:.3} {read:.3} {}", if file.is_direct() { "direct" } else { "buffered" });
    Ok(())
}

/// Returns the rate in GB/s of `pieces` transfers, at most one per `free` buffer at a time, and of
/// `end`.
fn rate(
    pieces: u64,
    free: &mut Vec<Block>,
    transfer: &dyn Fn(Block, u64) -> Ticket<Block>,
    end: impl FnOnce() -> storage::Result<()>,
) -> storage::Result<f64> {
    let started = Instant::now();
    let mut in_flight: VecDeque<Ticket<Block>> = VecDeque::new();
    for piece in 0..pieces {
        if free.is_empty()
            && let Some(oldest) = in_flight.pop_front()
        {
            free.push(oldest.wait()?.memory);
        }
        in_flight.extend(free.pop().map(|block| transfer(block, piece * TRANSFER_BYTES as u64)));
    }
    for ticket in in_flight {
        free.push(ticket.wait()?.memory);
    }
    end()?;
    Ok((pieces * TRANSFER_BYTES as u64) as f64 / 1e9 / started.elapsed().as_secs_f64())
}
