//! Overlaps reads with computation.

use exercises::overlap_a_read::Disk;

/// Starts the next read before computing.
pub fn pass(order: &[usize], disk: &mut Disk) {
    if let Some(&first) = order.first() {
        disk.start(first);
    }
    for (at, &unit) in order.iter().enumerate() {
        if let Some(&next) = order.get(at + 1) {
            disk.start(next);
        }
        disk.compute(unit);
    }
}
