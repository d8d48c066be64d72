//! # Chapter 15: an optimizer in pages
//!
//! Goal: AdamW updates states that are stored elsewhere, piece by piece, through two buffers. While
//! one piece is updated, the next arrives and the previous one leaves.
//!
//! Check: `cargo run -p tutorials -- check page-an-optimizer`; hints: `--hints 1`, `--hints 2`.
//! One solution is in `solution.rs`, next to `src`.

use exercises::page_an_optimizer::Pager;

/// Updates each of the `pager.pieces()` pieces once. The buffers are 0 and 1.
///
/// * `pager.fetch(piece, buffer)` issues the transfer of a piece into a buffer, and returns at
///   once.
/// * `pager.store(buffer)` issues the transfer of a buffer's piece back to storage, and returns at
///   once.
/// * `pager.update(buffer)` computes AdamW on the piece in a buffer.
/// * `pager.wait(buffer)` blocks until all transfers issued for a buffer are done.
///
/// A buffer's transfers run in the order in which they were issued: a fetch begins when the store
/// before it is done. They do not wait for the other buffer's transfers.
pub fn step(pager: &mut Pager) {
    // Your code here.
}
