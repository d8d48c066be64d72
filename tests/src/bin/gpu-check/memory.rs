//! Compares the bytes that the ledger counts, the bytes taken from the driver for them, and the
//! driver's own count.

use crate::parts::Outcome;
use crate::{Finding, rank};
use device::cuda::{Options, Runtime};
use device::{Buffer, Class, DType, Device, Place, Result};

/// Elements of the buffers: small and large, all of different rounded sizes.
const SIZES: [usize; 5] = [1, 1000, 262_144, 3_000_001, 7777];

/// Sizes are rounded to this many bytes.
const GRAIN: u64 = 512;

/// Size of the driver's pages in bytes. The driver cuts small blocks from pages that it already
/// has, so its count is exact only for whole pages.
const PAGE: usize = 2 << 20;

/// Maximum size of the driver's own allocations in bytes. It may still have free pages of one, so a
/// count may be lower by this much.
const CHUNK: u64 = 32 << 20;

/// Pages of the buffers that the driver's count is compared with. Each is larger than a chunk and
/// all roundings together.
const PAGES: [usize; 3] = [32, 37, 48];

/// Allocates, frees and allocates again, on a new rank that has no memory to reuse.
pub(crate) fn check() -> Result<Vec<Finding>> {
    let device = &rank(Options::default())?;
    let Some(rank) = device.gpu() else { return Ok(Vec::new()) };
    let mut findings = vec![whole_pages(device, rank)?];
    let (reserved_before, live_before) = (rank.reserved(), device.ledger().live_total(Place::Device));
    let buffers = allocate(device)?;
    let requested = device.ledger().live_total(Place::Device) - live_before;
    let reserved = rank.reserved() - reserved_before;
    let rounding = SIZES.len() as u64 * GRAIN;
    findings.push(Finding {
        what: "requested, and taken from the driver".into(),
        result: format!("{requested} and {reserved} bytes"),
        outcome: Outcome::from((requested..=requested + rounding).contains(&reserved)),
    });
    let addresses = |buffers: &[Buffer]| -> Vec<u64> {
        buffers.iter().filter_map(|buffer| buffer.on_gpu().map(|(_, address)| address)).collect()
    };
    let first = addresses(&buffers);
    drop(buffers);
    let again = allocate(device)?;
    findings.push(Finding {
        what: "freed blocks serve the next requests".into(),
        result: format!("{} bytes more", rank.reserved() - reserved_before - reserved),
        outcome: Outcome::from(rank.reserved() == reserved_before + reserved && first == addresses(&again)),
    });
    drop(again);
    let (free, total) = rank.gpu().memory()?;
    let mine = rank.reserved();
    findings.push(Finding {
        what: "in use beside this rank: contexts, libraries, others".into(),
        result: format!("{} bytes", (total - free).saturating_sub(mine)),
        outcome: Outcome::from(total - free >= mine),
    });
    Ok(findings)
}

/// Compares the driver's own count with buffers of whole pages. It may be lower than requested by
/// at most a chunk, and higher by at most a page per buffer.
fn whole_pages(device: &Device, rank: &Runtime) -> Result<Finding> {
    let (before, _) = rank.gpu().memory()?;
    let buffer = |pages| device.allocate(Class::Workspace, DType::F32, pages * PAGE / 4);
    let buffers: Vec<Buffer> = PAGES.into_iter().map(buffer).collect::<Result<_>>()?;
    let (after, _) = rank.gpu().memory()?;
    let requested: u64 = buffers.iter().map(|buffer| buffer.byte_len() as u64).sum();
    let counted = before.saturating_sub(after);
    let allowed = requested.saturating_sub(CHUNK)..=requested + (PAGES.len() * PAGE) as u64;
    Ok(Finding {
        what: format!("the driver's own count of {requested} bytes"),
        result: format!("{counted} bytes"),
        outcome: Outcome::from(allowed.contains(&counted)),
    })
}

fn allocate(device: &Device) -> Result<Vec<Buffer>> {
    SIZES.iter().map(|&len| device.allocate(Class::Workspace, DType::Bf16, len)).collect()
}
