//! Pages an optimizer's states.

use exercises::page_an_optimizer::Pager;

/// Keeps both buffers busy: one piece leaves, and the piece after the next follows into its buffer.
pub fn step(pager: &mut Pager) {
    let pieces = pager.pieces();
    for piece in 0..pieces.min(2) {
        pager.fetch(piece, piece);
    }
    for piece in 0..pieces {
        let buffer = piece % 2;
        pager.wait(buffer);
        pager.update(buffer);
        pager.store(buffer);
        if piece + 2 < pieces {
            pager.fetch(piece + 2, buffer);
        }
    }
    (0..2).for_each(|buffer| pager.wait(buffer));
}
