//! What the ledger counts, what was taken from the driver for it, and what the driver says is in use.

use crate::Finding;
use device::{Buffer, Class, DType, Device, Place, Result};

/// Elements of the buffers: small and large, and no two of one size when rounded.
const SIZES: [usize; 5] = [1, 1000, 262_144, 3_000_001, 7777];

/// Bytes that the driver's sizes are multiples of.
const GRAIN: u64 = 512;

/// Allocates, frees and allocates again.
pub(crate) fn check(device: &Device) -> Result<Vec<Finding>> {
    let Some(rank) = device.gpu() else { return Ok(Vec::new()) };
    let (free_before, _) = rank.gpu().memory()?;
    let (reserved_before, live_before) = (rank.reserved(), device.ledger().live_total(Place::Device));
    let buffers = allocate(device)?;
    let requested = device.ledger().live_total(Place::Device) - live_before;
    let reserved = rank.reserved() - reserved_before;
    let (free_after, _) = rank.gpu().memory()?;
    let rounding = SIZES.len() as u64 * GRAIN;
    let mut findings = vec![Finding {
        what: "requested, and taken from the driver".into(),
        result: format!("{requested} and {reserved} bytes"),
        holds: (requested..=requested + rounding).contains(&reserved),
    }];
    findings.push(Finding {
        what: "the driver's own count of the same".into(),
        result: format!("{} bytes", free_before.saturating_sub(free_after)),
        holds: free_before.saturating_sub(free_after) >= requested,
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
        holds: rank.reserved() == reserved_before + reserved && first == addresses(&again),
    });
    drop(again);
    let (free, total) = rank.gpu().memory()?;
    let mine = rank.reserved();
    findings.push(Finding {
        what: "in use beside this rank: contexts, libraries, others".into(),
        result: format!("{} bytes", (total - free).saturating_sub(mine)),
        holds: total - free >= mine,
    });
    Ok(findings)
}

fn allocate(device: &Device) -> Result<Vec<Buffer>> {
    SIZES.iter().map(|&len| device.allocate(Class::Workspace, DType::Bf16, len)).collect()
}
