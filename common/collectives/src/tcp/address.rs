//! Addresses of the rendezvous: where rank 0 listens, how the others reach it, and where each
//! listens for its peers.

use super::JoinOptions;
use super::error::JoinError;
use super::messages::RETRY;
use super::proof::Key;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// For how long rank 0 is tried at one address, while there may be others.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How often, at least, a name that is unknown is looked up again.
const MAX_LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// Where all ranks listen, and what all of their connections must prove.
pub(crate) struct Directory {
    pub(crate) key: Key,
    pub(crate) listeners: Vec<SocketAddr>,
}

impl JoinOptions {
    /// Returns the key of this job's rendezvous.
    pub(crate) fn key(&self) -> Key {
        Key::of_rendezvous(self.secret, self.port)
    }

    /// Returns rank 0's address and port.
    pub(crate) fn target(&self) -> String {
        format!("{}:{}", self.address, self.port)
    }

    /// True if ranks may listen on all addresses of rank 0's machine: other machines may resolve
    /// its name to another address than it does itself, and every rank has to prove a secret.
    fn listens_everywhere(&self) -> bool {
        let is_literal = self.address.parse::<IpAddr>().is_ok() || self.address == "localhost";
        self.secret.is_some() && !is_literal
    }
}

/// Resolves the address of rank 0, on other ranks until the deadline: a cluster may announce its
/// name only once its process runs. Rank 0 itself retries only while the system can reach no name
/// server.
pub(crate) fn resolve(options: &JoinOptions, deadline: Instant) -> Result<Vec<SocketAddr>, JoinError> {
    let (rank, address) = (options.rank, options.address.clone());
    let asked = (options.address.clone(), options.port);
    let lookup = move || match asked.to_socket_addrs().map(Vec::from_iter) {
        Ok(none) if none.is_empty() => Err(ErrorKind::NotFound.into()),
        found => found,
    };
    let retries = move |error: &io::Error| rank > 0 || is_temporary(error);
    let found = retry_until(deadline, lookup, retries).map_err(|source| JoinError::Unknown {
        rank,
        address: address.clone(),
        source,
    })?;
    if options.secret.is_some() {
        return Ok(found);
    }
    // Without a secret, every program that reaches the address could take a rank's place.
    let here: Vec<_> = found.into_iter().filter(|address| address.ip().is_loopback()).collect();
    if here.is_empty() { Err(JoinError::NoSecret { rank, address: options.target() }) } else { Ok(here) }
}

/// Looks a name up on a thread of its own, for the system may take longer than the deadline. Looks
/// it up again after each error that `retries` accepts. Returns the last error at the deadline.
fn retry_until(
    deadline: Instant,
    mut lookup: impl FnMut() -> io::Result<Vec<SocketAddr>> + Send + 'static,
    retries: impl Fn(&io::Error) -> bool + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    let (tell, told) = std::sync::mpsc::channel();
    let resolve = move || {
        let mut pause = RETRY;
        loop {
            let found = lookup();
            let ends = !found.as_ref().is_err_and(&retries);
            if tell.send(found).is_err() || ends {
                return;
            }
            std::thread::sleep(pause);
            pause = MAX_LOOKUP_PAUSE.min(2 * pause);
        }
    };
    std::thread::Builder::new().name("resolver".into()).spawn(resolve)?;
    let mut last = ErrorKind::TimedOut.into();
    loop {
        // The thread hangs up after its final answer, and stops once this end is dropped.
        match told.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(error)) => last = error,
            Err(_) => return Err(last),
        }
    }
}

/// True if the system could not ask whether the name exists. The library's errors of name
/// resolution have no other mark than the words of the C library: glibc's, or musl's.
fn is_temporary(error: &io::Error) -> bool {
    let words = error.to_string();
    words.contains("Temporary failure") || words.contains("Try again")
}

/// Listens at the address of the rendezvous, on rank 0. If its name resolves to a loopback
/// address, other machines may resolve it to another one. If they have to prove a secret, rank 0
/// listens where they do, or, if it knows no such address, on all of this machine's, and says so.
pub(crate) fn open(options: &JoinOptions, deadline: Instant) -> Result<TcpListener, JoinError> {
    let mut found = resolve(options, deadline)?;
    if options.listens_everywhere() && found.iter().all(is_loopback) {
        events::complain!(
            "note: {} is a loopback address here: rank 0 listens at port {} on all of this machine's addresses",
            options.address,
            options.port
        );
        found = vec![everywhere(&found)];
    } else if options.listens_everywhere() {
        found.retain(|address| !is_loopback(address));
    }
    let address = options.target();
    bind_first(&found).map_err(|source| match source.kind() {
        ErrorKind::AddrInUse => {
            let free = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|free| free.local_addr());
            JoinError::PortInUse { address, suggestion: free.map_or(29_511, |free| free.port()) }
        }
        ErrorKind::AddrNotAvailable => JoinError::Elsewhere { address },
        _ => JoinError::System { what: "listen at MASTER_ADDR and MASTER_PORT", source },
    })
}

/// Listens at the first of `found` that this machine has. A port in use is an error: at the
/// machine's next address the ranks of another job, which use the first, would not be noticed.
fn bind_first(found: &[SocketAddr]) -> io::Result<TcpListener> {
    let mut outcome = Err(ErrorKind::AddrNotAvailable.into());
    for address in found {
        outcome = TcpListener::bind(address);
        if !outcome.as_ref().is_err_and(is_of_another_machine) {
            break;
        }
    }
    outcome
}

/// True if `error` says that this machine has no such address, or none of its family.
fn is_of_another_machine(error: &io::Error) -> bool {
    error.kind() == ErrorKind::AddrNotAvailable || Errno::from_io_error(error) == Some(Errno::AFNOSUPPORT)
}

fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Returns the address that stands for all of this machine's, at the port of `found`. If all of
/// `found` are IPv6, so is it: there the system also accepts IPv4.
fn everywhere(found: &[SocketAddr]) -> SocketAddr {
    let unspecified: IpAddr = if found.iter().all(SocketAddr::is_ipv6) {
        Ipv6Addr::UNSPECIFIED.into()
    } else {
        Ipv4Addr::UNSPECIFIED.into()
    };
    (unspecified, found.first().map_or(0, SocketAddr::port)).into()
}

/// Opens a listener for the peers' connections at `here`, this rank's end of its connection to rank
/// 0 or, on rank 0, its address in the rendezvous. Returns it with its port.
pub(crate) fn listen(options: &JoinOptions, here: io::Result<SocketAddr>) -> io::Result<(TcpListener, u16)> {
    let mut here = here?;
    // A process next to rank 0 has met it at a loopback address, which no other machine can reach.
    if is_loopback(&here) && options.listens_everywhere() {
        here = everywhere(&[here]);
    }
    // The whole address: a link-local one means nothing without its interface.
    here.set_port(0);
    let listener = TcpListener::bind(here)?;
    let port = listener.local_addr()?.port();
    Ok((listener, port))
}

/// Connects to rank 0, which may not have started yet, at one of `addresses`.
pub(crate) fn reach(
    options: &JoinOptions,
    addresses: &[SocketAddr],
    deadline: Instant,
) -> Result<TcpStream, JoinError> {
    let (mut last, mut refused) = (String::from("it reached itself"), true);
    loop {
        for address in addresses {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (rank, waited, address) = (options.rank, options.timeout, options.target());
                return Err(if refused {
                    JoinError::NotListening { rank, address, waited, last }
                } else {
                    JoinError::Unreachable { rank, address, waited, last }
                });
            }
            match TcpStream::connect_timeout(address, left.min(CONNECT_TIMEOUT)) {
                Ok(link) if has_met_itself(&link) => reset(link),
                Ok(link) => return Ok(link),
                Err(error) => {
                    (last, refused) = (error.to_string(), error.kind() == ErrorKind::ConnectionRefused)
                }
            }
        }
        std::thread::sleep(RETRY);
    }
}

/// True if a connection's two ends are the same socket. That happens where no process listens yet,
/// at a port that the system also gives to sockets that connect.
fn has_met_itself(link: &TcpStream) -> bool {
    link.local_addr().ok() == link.peer_addr().ok()
}

/// Closes a connection at once. After an ordinary close the system would keep the port for a minute
/// (TIME_WAIT), and rank 0 could not listen there.
fn reset(link: TcpStream) {
    // If the option cannot be set, the close is an ordinary one.
    let _ = set_socket_linger(&link, Some(Duration::ZERO));
}

#[cfg(test)]
mod tests;
