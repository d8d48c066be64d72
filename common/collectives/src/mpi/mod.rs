//! Ranks that are the processes of an MPI job.
//!
//! MPI carries messages; sums are computed as between threads, so their bits are the same. MPI does
//! not tell when a process has died. Its launcher ends the job then; if it does not, the other
//! ranks time out.

mod links;
mod raw;
mod transport;

use crate::group::Group;
use crate::tcp::{JoinError, Joined};
use crate::wire::{Endpoint, Mailbox, SETUP, WORLD};
use std::sync::Arc;
use std::time::Duration;
use transport::MpiTransport;

/// The rank of this process and the number of processes, as its launcher says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinOptions {
    /// This process's rank.
    pub rank: u32,
    /// Number of processes.
    pub world_size: u32,
    /// How long to wait for the other ranks.
    pub timeout: Duration,
    /// Settings that must be the same in all processes, one per line.
    pub settings: String,
}

/// Joins the other processes of the MPI job. Call it at most once per process.
///
/// # Errors
/// If MPI cannot be used, or the processes do not belong together.
pub fn join(place: &JoinOptions) -> Result<Joined, JoinError> {
    let world = raw::MpiWorld::start().map_err(JoinError::Refused)?;
    if (world.rank, world.size) != (place.rank, place.world_size) {
        return Err(JoinError::Refused(format!(
            "MPI says that this is rank {} of {}, its launcher says rank {} of {}\n\
             Was the program built with the same MPI whose mpirun has started it?",
            world.rank, world.size, place.rank, place.world_size
        )));
    }
    let mailbox = Arc::new(Mailbox::default());
    let endpoint = Arc::new(Endpoint {
        rank: place.rank,
        size: place.world_size,
        mailbox: mailbox.clone(),
        transport: Box::new(MpiTransport::new(world, mailbox)),
        timeout: place.timeout,
    });
    let setup = endpoint.clone().group(SETUP);
    let links = agree(&setup, place).and_then(|()| links::connect(&setup))?;
    Ok(Joined { group: endpoint.group(WORLD), links })
}

/// Compares all processes' settings with those of rank 0.
fn agree(setup: &Group, place: &JoinOptions) -> Result<(), JoinError> {
    let refused = |error: crate::CollectiveError| JoinError::Refused(error.to_string());
    let all = setup.exchange(place.settings.as_bytes()).map_err(refused)?;
    let all: Vec<_> = all.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
    let problem =
        (1..).zip(&all[1..]).find_map(|(rank, theirs)| crate::tcp::difference(&all[0], theirs, rank));
    problem.map_or(Ok(()), |problem| Err(JoinError::Refused(problem)))
}
