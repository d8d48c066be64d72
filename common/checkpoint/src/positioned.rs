//! Reads and writes at an offset of a shared file, so that several ranks can read one file at once.

use std::fs::File;
use std::io;

#[cfg(unix)]
pub(crate) use shared::{read_exact_at, write_all_at};

#[cfg(not(unix))]
pub(crate) use seeking::{read_exact_at, write_all_at};

#[cfg(unix)]
mod shared {
    use super::*;
    use std::os::unix::fs::FileExt;

    pub(crate) fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        file.read_exact_at(bytes, offset)
    }

    pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }
}

/// For systems without positioned access: uses the file's one cursor, under a lock for the whole
/// program.
#[cfg(any(not(unix), test))]
mod seeking {
    use super::*;
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::sync::{Mutex, PoisonError};

    static CURSOR: Mutex<()> = Mutex::new(());

    pub(crate) fn read_exact_at(mut file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let _guard = CURSOR.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset))?;
        file.read_exact(bytes)
    }

    pub(crate) fn write_all_at(mut file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let _guard = CURSOR.lock().unwrap_or_else(PoisonError::into_inner);
        file.seek(SeekFrom::Start(offset))?;
        file.write_all(bytes)
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_portable_version_agrees_with_the_system_call() {
        let file = tempfile::tempfile().unwrap();
        seeking::write_all_at(&file, b"forward", 3).unwrap();
        shared::write_all_at(&file, b"back", 0).unwrap();
        let (mut a, mut b) = ([0; 8], [0; 8]);
        seeking::read_exact_at(&file, &mut a, 1).unwrap();
        shared::read_exact_at(&file, &mut b, 1).unwrap();
        assert_eq!((a, b), (*b"ackorwar", *b"ackorwar"));
        let past_the_end = seeking::read_exact_at(&file, &mut a, 5).unwrap_err();
        assert_eq!(past_the_end.kind(), io::ErrorKind::UnexpectedEof);
    }
}
