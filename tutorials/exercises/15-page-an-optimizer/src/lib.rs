//! # Chapter 15: an optimizer in pages
//!
//! Goal: AdamW updates states that rest elsewhere, piece by piece, through two buffers. While one
//! piece is updated, the next arrives and the last leaves.
//!
//! Check: `cargo run -p tutorials -- check page-an-optimizer`; hints: `--hints 1`, `--hints 2`.
//! One way to write it is in `solution.rs`, beside `src`.

use exercises::page_an_optimizer::Pager;

/// Updates each of `pager.pieces()` pieces once. There are two buffers, 0 and 1.
///
/// * `pager.fetch(piece, buffer)` issues the transfer of a piece into a buffer, and returns at
///   once.
/// * `pager.store(buffer)` issues the transfer of a buffer's piece to where it rests, and returns
///   at once.
/// * `pager.update(buffer)` computes AdamW on the piece in a buffer.
/// * `pager.wait(buffer)` blocks until the transfers issued for a buffer are done.
///
/// Transfers of one buffer run in the order in which they were issued: a fetch begins when the
/// store before it is done. Transfers of the other buffer do not wait for them.
pub fn step(pager: &mut Pager) {
    // Your code here.
}
