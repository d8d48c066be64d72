//! The directory for states stored on disk.

use crate::error::{Failure, Result};
use rustix::fs::statfs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Linux's numbers of file systems in main memory (statfs(2)): tmpfs and ramfs.
const IN_MEMORY: [i128; 2] = [0x0102_1994, 0x8584_58f6];

/// Returns the first of these directories that is on a disk: the system's for temporary files, the
/// current one.
pub(super) fn usual() -> Result<PathBuf> {
    first([std::env::temp_dir(), PathBuf::from(".")], is_on_disk)
}

fn first(candidates: [PathBuf; 2], is_on_disk: impl Fn(&Path) -> bool) -> Result<PathBuf> {
    let names = candidates.each_ref().map(|path| path.display().to_string()).join(" nor ");
    candidates.into_iter().find(|path| is_on_disk(path)).ok_or_else(|| {
        Failure::usage(format!(
            "neither {names} is a directory on a disk: what is offloaded there would stay in main memory\n\
             Name one on a disk with --offload-dir DIR."
        ))
    })
}

/// True if `path` exists and is not in a file system in main memory.
fn is_on_disk(path: &Path) -> bool {
    statfs(path).is_ok_and(|system| !IN_MEMORY.contains(&i128::from(system.f_type)))
}

/// True if `path`, or the nearest existing directory above it, is in main memory.
pub(super) fn is_in_memory(path: &Path) -> bool {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let there = absolute.ancestors().find(|path| path.exists());
    there.is_some_and(|path| !is_on_disk(path))
}

/// Creates the directory `path` if it does not exist, and writes a file there, which it removes at
/// once.
pub(super) fn probe(path: &Path) -> Result<()> {
    let fail = |what: &str, error: std::io::Error| {
        Failure::usage(format!(
            "cannot {what} {}, the directory for states on disk: {error}\n\
             Name one on a disk, where this user may write, with --offload-dir DIR.",
            path.display()
        ))
    };
    std::fs::create_dir_all(path).map_err(|error| fail("create", error))?;
    let written = tempfile::tempfile_in(path).and_then(|mut file| file.write_all(b"offload"));
    written.map_err(|error| fail("write to", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> [PathBuf; 2] {
        ["/tmp", "/work"].map(PathBuf::from)
    }

    #[test]
    fn the_usual_directory_is_the_first_on_a_disk() {
        assert_eq!(first(names(), |_| true).unwrap(), Path::new("/tmp"));
        assert_eq!(first(names(), |path| path.ends_with("work")).unwrap(), Path::new("/work"));
        let error = first(names(), |_| false).unwrap_err().to_string();
        assert!(error.contains("neither /tmp nor /work") && error.contains("--offload-dir"), "{error}");
    }

    #[test]
    fn main_memory_is_no_disk() {
        if cfg!(target_os = "linux") {
            assert!(!is_on_disk(Path::new("/dev/shm")));
            assert!(is_in_memory(Path::new("/dev/shm/no/such/directory")));
        }
        assert!(!is_on_disk(Path::new("/no/such/directory")));
    }

    #[test]
    fn a_directory_is_created_and_nothing_is_left_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        probe(&path).unwrap();
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
        std::fs::write(path.join("file"), "").unwrap();
        for (unusable, what) in [(path.join("file"), "create"), (path.join("file/inside"), "create")] {
            let error = probe(&unusable).unwrap_err().to_string();
            let names = error.contains(&unusable.display().to_string());
            assert!(names && error.contains(what) && error.contains("--offload-dir"), "{error}");
        }
    }
}
