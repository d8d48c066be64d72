//! Recordings: the events of a run in a file.
//!
//! [`Recorder`] appends frames to a file under a temporary name, which gets its own when the
//! recording is complete. It hands each frame to the operating system at once, so a killed process
//! loses only events that it had not written yet, and leaves `NAME.partial`. [`Recording`] reads
//! the file back, up to the last complete frame if the file ends early, and skips damaged frames.
//! [`Growth`] reads on while the file grows.

mod error;
mod growth;
mod reading;
mod recorder;
mod salvage;

pub use error::RecordingError;
pub use growth::Growth;
pub use reading::{Gap, Recording};
pub use recorder::Recorder;
