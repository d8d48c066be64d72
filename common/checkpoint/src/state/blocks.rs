//! Hashes of a file's blocks (BLAKE3).

/// Size of a block in bytes. Blocks are counted from the file's start; the last may be shorter.
pub const BLOCK: usize = 1 << 20;

/// Hashes data block by block as it is written.
#[derive(Default)]
pub(super) struct BlockHasher {
    hasher: blake3::Hasher,
    filled: usize,
    hashes: Vec<String>,
}

impl BlockHasher {
    /// Adds the next `bytes` of the file.
    pub(super) fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - self.filled));
            self.hasher.update(now);
            self.filled += now.len();
            if self.filled == BLOCK {
                self.close();
            }
            bytes = rest;
        }
    }

    fn close(&mut self) {
        self.hashes.push(self.hasher.finalize().to_hex().to_string());
        self.hasher.reset();
        self.filled = 0;
    }

    /// Returns the hashes of all blocks, in hexadecimal digits.
    pub(super) fn finish(mut self) -> Vec<String> {
        if self.filled > 0 {
            self.close();
        }
        self.hashes
    }
}

/// True if `bytes` are the block that has this hash.
pub(super) fn is_intact(bytes: &[u8], hash: &str) -> bool {
    blake3::hash(bytes).to_hex().as_str() == hash
}
