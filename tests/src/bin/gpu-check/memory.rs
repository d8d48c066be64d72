//! What the ledger counts, what was taken from the driver for it, and what the driver says is in
//! use.

use crate::parts::Outcome;
use crate::{Finding, rank};
use device::cuda::{Options, Runtime};
use device::{Buffer, Class, DType, Device, Place, Result};

/// Elements of the buffers: small and large, and no two of one size when rounded.
const SIZES: [usize; 5] = [1, 1000, 262_144, 3_000_001, 7777];

/// Bytes that sizes are rounded to.
const GRAIN: u64 = 512;

/// Bytes of the driver's pages. It cuts small blocks from a page that it has, so that its count is
/// exact of whole pages alone.
const PAGE: usize = 2 << 20;

/// Bytes of what the driver takes at once, at most, and may still have pages of: so much less may a
/// count be.
const CHUNK: u64 = 32 << 20;

/// Pages of the buffers that the driver's count is compared with: each is more than a chunk and all
/// roundings together.
const PAGES: [usize; 3] = [32, 37, 48];

/// Allocates, frees and allocates again, on a rank of its own: nothing is kept for reuse yet.
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

/// The driver's own count, of buffers of whole pages: at most a chunk less than was requested, and
/// at most a page more for each.
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
