//! The meeting at the address of rank 0, and the connections between every two ranks.

use super::JoinOptions;
use super::address::{Directory, listen, open};
use super::error::{JoinError, ranks};
use super::greeting::{GRACE, Until};
use super::guest::{greet_rank0, reach_rank0};
use super::host::host;
use super::proof::prove;
use super::reception::Reception;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A process's connections.
pub(crate) struct Met {
    /// To every other rank, by rank.
    pub(crate) peers: Vec<Option<TcpStream>>,
    /// Those of the meeting: to rank 0, or at rank 0 to all others.
    pub(crate) links: Vec<(u32, TcpStream)>,
}

/// Meets the other processes and connects to each of them.
pub(crate) fn meet(options: &JoinOptions) -> Result<Met, JoinError> {
    let deadline = Instant::now() + options.timeout;
    let system = |source| JoinError::System { what: "listen for the other ranks", source };
    let (mut links, directory, listener, port);
    if options.rank == 0 {
        let meeting = open(options, deadline)?;
        (listener, port) = listen(options, meeting.local_addr()).map_err(system)?;
        (links, directory) = host(options, &meeting, port, deadline)?;
    } else {
        let link = reach_rank0(options, deadline)?;
        (listener, port) = listen(options, link.local_addr()).map_err(system)?;
        directory = greet_rank0(options, &link, port, deadline)?;
        links = vec![(0, link)];
    }
    let peers = connect(options, &listener, &directory, deadline)?;
    for (_, link) in &mut links {
        link.set_read_timeout(None).map_err(system)?;
        link.set_nodelay(true).map_err(system)?;
    }
    Ok(Met { peers, links })
}

/// Connects to all lower ranks and accepts connections of all higher ones.
fn connect(
    options: &JoinOptions,
    listener: &TcpListener,
    directory: &Directory,
    deadline: Instant,
) -> Result<Vec<Option<TcpStream>>, JoinError> {
    // The ranks that came last have the least time left: give every rank some more.
    let deadline = deadline.max(Instant::now() + GRACE);
    let mut peers: Vec<Option<TcpStream>> = (0..options.world_size).map(|_| None).collect();
    let apart = |missing: &[u32]| JoinError::Apart {
        rank: options.rank,
        missing: ranks(missing),
        waited: options.timeout,
    };
    for rank in 0..options.rank {
        let address = directory.listeners[rank as usize];
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let stream = TcpStream::connect_timeout(&address, left).map_err(|_| apart(&[rank]))?;
        prove(Until(&stream, deadline), &stream, directory.key, options.rank).map_err(|_| apart(&[rank]))?;
        peers[rank as usize] = Some(stream);
    }
    let system = |source| JoinError::System { what: "accept the other ranks' connections", source };
    let mut reception = Reception::open(listener, directory.key).map_err(system)?;
    loop {
        let missing: Vec<u32> = (0..options.world_size)
            .filter(|&rank| rank > options.rank && peers[rank as usize].is_none())
            .collect();
        if missing.is_empty() {
            return Ok(peers);
        }
        match reception.next(deadline).map_err(system)? {
            None => return Err(apart(&missing)),
            Some((rank, stream)) if missing.contains(&rank) => peers[rank as usize] = Some(stream),
            Some(_) => {}
        }
    }
}
