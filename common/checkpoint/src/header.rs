//! The header of a safetensors file: its length in 8 bytes, then JSON. The tensors' bytes follow.

use safetensors::tensor::Metadata;

/// Size of the field with the header's length, in bytes.
pub(crate) const LENGTH: usize = size_of::<u64>();

/// Returns the header `json`, preceded by its length and padded with spaces so that the data after
/// it starts at a multiple of `alignment` bytes.
pub(crate) fn with_length(mut json: Vec<u8>, alignment: usize) -> Vec<u8> {
    json.resize((LENGTH + json.len()).next_multiple_of(alignment) - LENGTH, b' ');
    [&(json.len() as u64).to_le_bytes()[..], &json].concat()
}

/// Returns the length of the header in a file that begins with the bytes `start`.
pub(crate) fn length(start: [u8; LENGTH]) -> u64 {
    u64::from_le_bytes(start)
}

/// Parses and validates a header's JSON.
///
/// # Errors
/// If it is no JSON, or its tensors have holes, overlaps or wrong lengths.
pub(crate) fn parse(json: &[u8]) -> serde_json::Result<Metadata> {
    serde_json::from_slice(json)
}
