//! The files that `viz` writes: each has its old contents or all of its new ones, whatever fails.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::{Disk, Publication};

/// Maximum number of links followed to a file, as on Linux.
const LINKS: usize = 40;

/// An output that cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {}", .0.display(), .1)]
pub struct CannotWrite(PathBuf, io::Error);

/// Returns an error if `out` is one of the `recordings`, which it would overwrite.
///
/// # Errors
/// A sentence that names `out`.
pub fn check(recordings: &[impl AsRef<Path>], out: &Path) -> Result<(), String> {
    let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let taken = file(out).filter(|_| out != Path::new("-"));
    if taken.is_some() && recordings.iter().any(|recording| file(recording.as_ref()) == taken) {
        Err(format!("{} is the recording itself: name another file to write", out.display()))
    } else {
        Ok(())
    }
}

/// Returns an error if the outputs of two flags are one file. Several outputs may go to one
/// terminal or pipe.
///
/// # Errors
/// A sentence that names the flags and the file.
pub fn check_distinct(first: (&str, &Path), second: (&str, &Path)) -> Result<(), String> {
    let found = |out: &Path| Some(out).filter(|out| *out != Path::new("-")).and_then(leads_to);
    match (found(first.1), found(second.1)) {
        (Some(one), Some(other)) if one == other => Err(format!(
            "{} and {} are one file, {}: the one would replace the other\nGive two files.",
            first.0,
            second.0,
            one.display()
        )),
        _ => Ok(()),
    }
}

/// Writes `text` to a file, or to standard output if `out` is `-`. A file is replaced once all of
/// its new contents are on the disk, unless nothing can be created in its directory. Pipes, devices
/// and descriptors of a process, such as `/dev/stdout`, are written to as they are.
///
/// # Errors
/// [`CannotWrite`]. A file that is replaced then has its old contents.
pub fn write(out: &Path, text: &str) -> Result<(), CannotWrite> {
    if out == Path::new("-") {
        events::say::raw(text);
        return Ok(());
    }
    let written = file(out).and_then(|file| match file {
        Some(file) => replace(&file, text),
        None => fs::write(out, text),
    });
    written.map_err(|error| CannotWrite(out.into(), error))
}

/// Returns the path of the regular file that `out` leads to, also through a descriptor.
fn leads_to(out: &Path) -> Option<PathBuf> {
    if fs::metadata(out).is_ok_and(|found| found.is_file()) {
        return out.canonicalize().ok();
    }
    // An output whose directory is missing cannot be written either, which `write` reports.
    file(out).ok().flatten()
}

/// Returns the file that `out` leads to through links, which need not exist; `None` if it is no
/// regular file or a descriptor of a process.
fn file(out: &Path) -> io::Result<Option<PathBuf>> {
    let is_directory = out.as_os_str().as_bytes().ends_with(b"/");
    if is_directory || fs::metadata(out).is_ok_and(|found| !found.is_file()) {
        return Ok(None);
    }
    let mut path = out.to_path_buf();
    for _ in 0..LINKS {
        let (directory, Some(name)) = (storage::parent(&path).canonicalize()?, path.file_name()) else {
            break;
        };
        if directory.starts_with("/proc") || directory.starts_with("/dev/fd") {
            break;
        }
        let whole = directory.join(name);
        let Ok(target) = whole.read_link() else { return Ok(Some(whole)) };
        path = directory.join(target);
    }
    Ok(None)
}

/// Replaces `path`, which is no link, by a file of `text`, with the permissions of the file that it
/// replaces.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A file that must not be written is not replaced either.
    let permissions = match File::options().write(true).open(path) {
        Ok(file) => Some(file.metadata()?.permissions()),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let cause = |error: storage::Error| error.cause;
    let mut file = match Publication::create(&Arc::new(Disk::new(1)), path).map_err(cause) {
        // Only its directory is closed to this user.
        Err(error) if error.kind() == ErrorKind::PermissionDenied && permissions.is_some() => {
            return fs::write(path, text);
        }
        created => created?,
    };
    let permitted = permissions.map_or(Ok(()), |same| fs::set_permissions(file.partial(), same));
    let mut publish = || file.append(text.into()).wait().and_then(|_| file.publish()).map_err(cause);
    permitted.and_then(|()| publish()).inspect_err(|_| {
        // The caller gets the first error.
        let _ = file.discard();
    })
}
