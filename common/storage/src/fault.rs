//! Faults on request, and a record of calls.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A kind of call to the file system. Its `Display` is the verb of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Creates a file.
    Create,
    /// Opens a file that exists.
    Open,
    /// Reads at an offset.
    Read,
    /// Writes at an offset.
    Write,
    /// Takes room for a part of a file.
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
    /// Lets two directories change names with each other.
    Exchange,
    /// Gives a file a second name.
    Link,
    /// Removes a file.
    Unlink,
    /// Lists a directory.
    List,
    /// Removes a directory.
    RemoveDirectory,
    /// Asks how much room the file system has.
    Room,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Create => "create",
            Kind::Open => "open",
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Reserve => "reserve room for",
            Kind::Length => "ask for the length of",
            Kind::Flush => "flush",
            Kind::CreateDirectory => "create the directory",
            Kind::FlushDirectory => "flush the directory",
            Kind::Rename => "rename",
            Kind::Exchange => "replace",
            Kind::Link => "link",
            Kind::Unlink => "remove",
            Kind::List => "list",
            Kind::RemoveDirectory => "remove the directory",
            Kind::Room => "ask for the room on the disk of",
        })
    }
}

/// A call that reached a [`Disk`](crate::Disk).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What it was.
    pub kind: Kind,
    /// The file or directory; of a rename the old name.
    pub path: PathBuf,
    /// Where a transfer began.
    pub offset: Option<u64>,
}

/// How a disk is getting on with what it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Calls that have returned.
    pub returned: u64,
    /// Of the calls that have not, the one that began first.
    pub oldest: Option<Call>,
}

/// A fault to inject.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    /// The kind of call that it hits; any kind if none is given.
    pub kind: Option<Kind>,
    /// Which of these calls it hits, from 1.
    pub number: u64,
    /// What happens.
    pub effect: Effect,
}

/// What a fault does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// The call fails with this error.
    Error(io::ErrorKind),
    /// A transfer moves at most so many bytes; the disk has to ask again for the rest.
    Short(usize),
    /// This call and every later one that needs room on the disk fail: the disk is full.
    Full,
    /// The call takes so much longer.
    Delay(Duration),
    /// This call never returns. From [`Disk::fail`](crate::Disk::fail) it hits reads and writes.
    Hang,
    /// This call and every later one do nothing and fail, as after the machine has lost power.
    Crash,
}
