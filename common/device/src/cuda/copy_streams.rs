//! A rank's streams of copies between page-locked memory and its GPU, one per direction.

use super::stream::{Stream, StreamPriority};
use super::timeline::Lane;
use crate::Result;
use std::sync::OnceLock;

/// A rank's streams of copies, made when the first copy is issued: most runs need none.
#[derive(Default)]
pub(super) struct CopyStreams {
    to_gpu: OnceLock<Stream>,
    to_host: OnceLock<Stream>,
}

impl CopyStreams {
    /// Returns the streams created so far.
    pub(super) fn made(&self) -> impl Iterator<Item = &Stream> {
        [&self.to_gpu, &self.to_host].into_iter().filter_map(OnceLock::get)
    }

    /// Returns the stream of `lane`; a context is current.
    pub(super) fn stream(&self, lane: Lane) -> Result<&Stream> {
        let place = if let Lane::ToGpu = lane { &self.to_gpu } else { &self.to_host };
        if let Some(stream) = place.get() {
            return Ok(stream);
        }
        let stream = Stream::new(StreamPriority::Usual)?;
        Ok(place.get_or_init(|| stream))
    }
}
