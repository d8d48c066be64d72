//! Ranks that are processes, connected by TCP.
//!
//! All processes meet at one address, where rank 0 listens ([`join()`]); then every two of them
//! connect. Both ends of every connection prove that they know the job's secret before anything
//! else is read. Nothing is encrypted: a program that can read or change the network's packets can
//! read and change the ranks' messages.

pub(crate) mod acceptor;
mod address;
pub(crate) mod connections;
mod error;
mod host;
mod join;
mod joiner;
pub(crate) mod messages;
pub(crate) mod proof;

pub use error::JoinError;
#[cfg(feature = "mpi")]
pub(crate) use host::difference;
pub use proof::Secret;

use crate::group::Group;
use crate::wire::{Endpoint, Mailbox, WORLD};
use connections::Connections;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

/// The rank of this process, the number of processes, and where they meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinOptions {
    /// This process's rank.
    pub rank: u32,
    /// Number of processes.
    pub world_size: u32,
    /// Name or IP address of rank 0's machine.
    pub address: String,
    /// Port on which rank 0 listens.
    pub port: u16,
    /// How long to wait for the others, here and in collectives.
    pub timeout: Duration,
    /// Settings that must be the same in all processes, one per line.
    pub settings: String,
    /// The secret that only the job's processes know. Without one they meet on this machine only.
    pub secret: Option<Secret>,
}

/// A process's connections once all processes have met.
pub struct Joined {
    /// Its end of the group of all ranks.
    pub group: Group,
    /// A connection to rank 0 for everything that is not a collective; on rank 0, one to each other
    /// rank.
    pub links: Vec<(u32, TcpStream)>,
}

/// Blocks until all processes of the job have met and are connected.
///
/// # Errors
/// [`JoinError`], in all processes that have reached rank 0 so far.
pub fn join(options: &JoinOptions) -> Result<Joined, JoinError> {
    let connected = join::rendezvous(options)?;
    let failed = |source| JoinError::System { what: "set up its connections to the others", source };
    let mailbox = Arc::new(Mailbox::default());
    let connections = Connections::start(connected.peers, &mailbox, options.timeout).map_err(failed)?;
    let endpoint = Endpoint {
        rank: options.rank,
        size: options.world_size,
        mailbox,
        transport: Box::new(connections),
        timeout: options.timeout,
    };
    Ok(Joined { group: Arc::new(endpoint).group(WORLD), links: connected.links })
}
