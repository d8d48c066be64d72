//! Finds undamaged frames in a damaged stream.

use crate::frame::{self, RawFrame};

/// Number of bytes of failed candidates that are checksummed, per byte of the stream, before the
/// rest of it counts as damaged.
const EFFORT: usize = 8;

/// Returns the first complete and undamaged frame of `bytes` at or after `from`, and its offset. A
/// frame with an intact length and damaged content is skipped as a whole. Adds the bytes of
/// candidates that turned out not to be frames to `checked`.
pub(super) fn next<'a>(bytes: &'a [u8], from: usize, checked: &mut usize) -> Option<(usize, RawFrame<'a>)> {
    let after = || frame_at(bytes, from + frame::length(bytes.get(from..)?)?);
    frame_at(bytes, from).or_else(after).or_else(|| search(bytes, from + 1, checked))
}

fn search<'a>(bytes: &'a [u8], from: usize, checked: &mut usize) -> Option<(usize, RawFrame<'a>)> {
    for start in from..bytes.len() {
        let Some(length) = frame::length(&bytes[start..]) else { continue };
        let found = frame_at(bytes, start);
        if found.is_some() {
            return found;
        }
        *checked += length.min(bytes.len() - start);
        if *checked > EFFORT * bytes.len() {
            return None;
        }
    }
    None
}

fn frame_at(bytes: &[u8], start: usize) -> Option<(usize, RawFrame<'_>)> {
    Some((start, RawFrame::first(bytes.get(start..)?, start as u64).ok()??))
}
