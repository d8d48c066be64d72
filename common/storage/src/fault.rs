//! Faults that tests inject, and a record of calls.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A kind of call to the file system. Its `Display` is the verb in an error message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallKind {
    /// Creates a file.
    Create,
    /// Opens an existing file.
    Open,
    /// Reads at an offset.
    Read,
    /// Writes at an offset.
    Write,
    /// Reserves disk space for a part of a file.
    Reserve,
    /// Asks for a file's length.
    Length,
    /// Flushes a file to the disk.
    Flush,
    /// Creates a directory and its parents.
    CreateDirectory,
    /// Flushes a directory's entries to the disk.
    FlushDirectory,
    /// Renames a file or directory.
    Rename,
    /// Exchanges the names of two directories.
    Exchange,
    /// Gives a file a second name.
    Link,
    /// Removes a file.
    Unlink,
    /// Lists a directory.
    List,
    /// Removes a directory.
    RemoveDirectory,
    /// Asks for the free space of the file system.
    Room,
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallKind::Create => "create",
            CallKind::Open => "open",
            CallKind::Read => "read",
            CallKind::Write => "write",
            CallKind::Reserve => "reserve room for",
            CallKind::Length => "ask for the length of",
            CallKind::Flush => "flush",
            CallKind::CreateDirectory => "create the directory",
            CallKind::FlushDirectory => "flush the directory",
            CallKind::Rename => "rename",
            CallKind::Exchange => "replace",
            CallKind::Link => "link",
            CallKind::Unlink => "remove",
            CallKind::List => "list",
            CallKind::RemoveDirectory => "remove the directory",
            CallKind::Room => "ask for the room on the disk of",
        })
    }
}

/// A call that reached a [`Disk`](crate::Disk).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The kind of call.
    pub kind: CallKind,
    /// The file or directory; for a rename, the old name.
    pub path: PathBuf,
    /// The offset at which a transfer began.
    pub offset: Option<u64>,
}

/// The progress of a disk's calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// The number of calls that have returned.
    pub returned: u64,
    /// The call that began first among those that have not returned.
    pub oldest: Option<Call>,
}

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskFault {
    /// The kind of call that it hits. `None`: any kind.
    pub kind: Option<CallKind>,
    /// The number of the call that it hits, counting calls of this kind from 1.
    pub number: u64,
    /// The effect on the call.
    pub effect: Effect,
}

/// The effect of a fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// The call fails with this error.
    Error(io::ErrorKind),
    /// A transfer moves at most this many bytes; the disk has to request the rest again.
    Short(usize),
    /// This call and every later one that needs room on the disk fail: the disk is full.
    Full,
    /// The call takes this much longer.
    Delay(Duration),
    /// This call never returns. Set by [`Disk::fail`](crate::Disk::fail), it hits reads and writes.
    Hang,
    /// This call and every later one do nothing and fail, as after the machine has lost power.
    Crash,
}
