//! Finds undamaged frames in a damaged stream.

use crate::frame::{self, RawFrame};

/// How many bytes of failed candidates are checksummed, per byte of the stream, before the rest of
/// it counts as damaged.
const EFFORT: usize = 8;

/// Finds the frames of a stream one after another.
#[derive(Debug, Default)]
pub(super) struct Salvage {
    /// Bytes of candidates that turned out to be no frames.
    checked: usize,
}

impl Salvage {
    /// Returns where the first complete and undamaged frame at or after `from` begins, and the
    /// frame. A frame whose length is intact and whose content is not ends where it would.
    pub(super) fn next<'a>(&mut self, bytes: &'a [u8], from: usize) -> Option<(usize, RawFrame<'a>)> {
        let after = || frame_at(bytes, from + frame::length(bytes.get(from..)?)?);
        frame_at(bytes, from).or_else(after).or_else(|| self.search(bytes, from + 1))
    }

    fn search<'a>(&mut self, bytes: &'a [u8], from: usize) -> Option<(usize, RawFrame<'a>)> {
        for start in from..bytes.len() {
            let Some(length) = frame::length(&bytes[start..]) else { continue };
            let found = frame_at(bytes, start);
            if found.is_some() {
                return found;
            }
            self.checked += length.min(bytes.len() - start);
            if self.checked > EFFORT * bytes.len() {
                return None;
            }
        }
        None
    }
}

fn frame_at(bytes: &[u8], start: usize) -> Option<(usize, RawFrame<'_>)> {
    Some((start, RawFrame::first(bytes.get(start..)?, start as u64).ok()??))
}
