//! Reads shards with another number of ranks.

use exercises::reshard::Read;

/// Intersects the new slice with every old one.
pub fn reads(elements: usize, writers: usize, readers: usize, rank: usize) -> Vec<Read> {
    let (stored, wanted) = (elements.div_ceil(writers), elements.div_ceil(readers));
    let last = elements.min((rank + 1) * wanted);
    let part = |file: usize| {
        let (first, start) = (file * stored, (file * stored).max(rank * wanted));
        let end = last.min(first + stored);
        (start < end).then(|| Read { file, range: start - first..end - first })
    };
    (0..writers).filter_map(part).collect()
}
