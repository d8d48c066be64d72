//! The rendezvous at the address of rank 0, and the connections between every two ranks.

use super::JoinOptions;
use super::acceptor::Acceptor;
use super::address::{Directory, listen, open};
use super::error::{JoinError, ranks};
use super::host::{has_hung_up, host};
use super::joiner::{reach_rank0, register_with_rank0};
use super::messages::{GRACE, Until};
use super::proof::{Key, Unproven, prove};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How often rank 0 checks whether a rank that has not connected has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A process's connections.
pub(crate) struct Connected {
    /// To every other rank, by rank.
    pub(crate) peers: Vec<Option<TcpStream>>,
    /// Those of the rendezvous: to rank 0, or at rank 0 to all others.
    pub(crate) links: Vec<(u32, TcpStream)>,
}

/// Meets the other processes at rank 0's address and connects to each of them.
pub(crate) fn rendezvous(options: &JoinOptions) -> Result<Connected, JoinError> {
    let deadline = Instant::now() + options.timeout;
    let system = |source| JoinError::System { what: "listen for the other ranks", source };
    let (mut links, directory, listener, port);
    if options.rank == 0 {
        let rendezvous = open(options, deadline)?;
        (listener, port) = listen(options, rendezvous.local_addr()).map_err(system)?;
        (links, directory) = host(options, &rendezvous, port, deadline)?;
    } else {
        let link = reach_rank0(options, deadline)?;
        (listener, port) = listen(options, link.local_addr()).map_err(system)?;
        directory = register_with_rank0(options, &link, port, deadline)?;
        links = vec![(0, link)];
    }
    let peers = connect(options, &listener, &directory, &links, deadline)?;
    for (_, link) in &mut links {
        link.set_read_timeout(None).map_err(system)?;
        link.set_nodelay(true).map_err(system)?;
    }
    Ok(Connected { peers, links })
}

/// Connects to all lower ranks and accepts connections of all higher ones.
fn connect(
    options: &JoinOptions,
    listener: &TcpListener,
    directory: &Directory,
    links: &[(u32, TcpStream)],
    deadline: Instant,
) -> Result<Vec<Option<TcpStream>>, JoinError> {
    // The ranks that came last have the least time left: give every rank some more.
    let begin = Instant::now();
    let deadline = deadline.max(begin + GRACE);
    let mut peers: Vec<Option<TcpStream>> = (0..options.world_size).map(|_| None).collect();
    let rank = options.rank;
    let ended = |peer, how| JoinError::Ended { rank, peer, waited: begin.elapsed(), how };
    let apart = |missing: &[u32]| JoinError::Apart { rank, missing: ranks(missing), waited: begin.elapsed() };
    for peer in 0..rank {
        let address = directory.listeners[peer as usize];
        let stream =
            connect_to(address, (directory.key, rank), deadline).map_err(|absence| match absence {
                Absence::Silent => apart(&[peer]),
                Absence::Ended(how) => ended(peer, how),
            })?;
        peers[peer as usize] = Some(stream);
    }
    let system = |source| JoinError::System { what: "accept the other ranks' connections", source };
    let mut acceptor = Acceptor::open(listener, directory.key, options.world_size).map_err(system)?;
    loop {
        let is_missing = |peer: u32| peer > rank && peers[peer as usize].is_none();
        let missing: Vec<u32> = (0..options.world_size).filter(|&peer| is_missing(peer)).collect();
        if missing.is_empty() {
            return Ok(peers);
        }
        // Rank 0 also has the connections of the rendezvous, which end with the processes.
        let lost = |(peer, link): &&(u32, TcpStream)| missing.contains(peer) && has_hung_up(link);
        if let Some(&(peer, _)) = links.iter().find(lost) {
            return Err(ended(peer, "it closed its connection to rank 0".into()));
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(apart(&missing));
        }
        let next = acceptor.next(deadline.min(now + POLL_INTERVAL)).map_err(system)?;
        if let Some((peer, stream)) = next.filter(|(peer, _)| missing.contains(peer)) {
            peers[peer as usize] = Some(stream);
        }
    }
}

/// Why a rank that has reached rank 0 cannot be reached.
enum Absence {
    /// It did not answer until the deadline, or this machine has no way to it.
    Silent,
    /// Its process has ended; how this rank noticed.
    Ended(String),
}

/// Connects to the rank that listens at `address`, as `rank`, which knows `key`.
fn connect_to(address: SocketAddr, (key, rank): (Key, u32), deadline: Instant) -> Result<TcpStream, Absence> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let stream = TcpStream::connect_timeout(&address, left).map_err(|error| match error.kind() {
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => Absence::Ended(error.to_string()),
        _ => Absence::Silent,
    })?;
    prove(Until(&stream, deadline), &stream, key, rank).map_err(|unproven| match unproven {
        Unproven::Silent => Absence::Silent,
        Unproven::Broken | Unproven::TurnedAway => Absence::Ended("it closed the connection".into()),
        Unproven::Foreign => Absence::Ended("another program listens at its port".into()),
    })?;
    Ok(stream)
}

#[cfg(test)]
mod tests;
