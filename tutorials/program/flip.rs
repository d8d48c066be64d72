//! `flip`: flips a bit of a file, as a failing disk, cable or memory does silently.

use clap::Args;
use events::say::grouped;
use std::fs::{Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use trainer::{Failure, Result};

/// The arguments of `flip`.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The file, which is changed in place
    file: PathBuf,
    /// The bit, counted from the file's start
    bit: u64,
}

/// Flips the bit and prints its byte before and after.
///
/// # Errors
/// If the file cannot be read or written, or is too short to have that bit.
pub fn run(Arguments { file, bit }: &Arguments) -> Result<()> {
    let fail = |e: io::Error| {
        let why = outside(file, *bit).unwrap_or_else(|| e.to_string());
        Failure::usage(format!("cannot flip bit {bit} of {}: {why}", file.display()))
    };
    let (was, is) = flip(file, *bit).map_err(fail)?;
    events::say!("{}: byte {} was {was:#04x} and is {is:#04x}", file.display(), grouped(bit / 8));
    Ok(())
}

/// Describes the bits of a file that is too short to have `bit`.
fn outside(path: &Path, bit: u64) -> Option<String> {
    let bits = path.metadata().ok().filter(Metadata::is_file)?.len() * 8;
    match bits {
        0 => Some("it is empty".into()),
        _ if bit < bits => None,
        _ => Some(format!("it has {} bits, 0 to {}", grouped(bits), grouped(bits - 1))),
    }
}

/// Flips the bit. Returns its byte before and after.
fn flip(path: &Path, bit: u64) -> io::Result<(u8, u8)> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, bit / 8)?;
    let flipped = byte[0] ^ 1 << (bit % 8);
    file.write_all_at(&[flipped], bit / 8)?;
    Ok((byte[0], flipped))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_bit_flips_and_flips_back_and_no_bit_is_added() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, [0, 0b1010]).unwrap();
        assert_eq!(flip(&path, 11).unwrap(), (0b1010, 0b0010));
        assert_eq!(std::fs::read(&path).unwrap(), [0, 0b0010]);
        assert_eq!(flip(&path, 11).unwrap(), (0b0010, 0b1010));
        assert!(flip(&path, 16).is_err());
        let error = run(&Arguments { file: path.clone(), bit: 16 }).unwrap_err().to_string();
        assert!(error.ends_with(": it has 16 bits, 0 to 15"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), [0, 0b1010]);
    }
}
