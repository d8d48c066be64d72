//! Every other rank's part in the rendezvous: it proves itself to rank 0, registers and learns
//! where its peers listen.

use super::JoinOptions;
use super::address::{Directory, reach, resolve};
use super::error::JoinError;
use super::messages::{Answer, GRACE, Hello, RETRY, Unread, Until, receive, send};
use super::proof::{Unproven, prove};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Instant;

impl JoinOptions {
    /// Returns the error for a rank 0 with which no proofs were exchanged.
    fn unproven(&self, unproven: &Unproven) -> JoinError {
        match unproven {
            Unproven::Foreign => self.foreign(),
            Unproven::TurnedAway => JoinError::TurnedAway { rank: self.rank, address: self.target() },
            Unproven::Silent => self.no_answer(),
            Unproven::Broken => self.hung_up(),
        }
    }

    /// Returns the error for a program at rank 0's address that is not rank 0.
    fn foreign(&self) -> JoinError {
        JoinError::Foreign { rank: self.rank, address: self.target() }
    }

    /// Returns the error for a rank 0 that accepts this rank's connection and stays silent.
    fn no_answer(&self) -> JoinError {
        JoinError::Refused(format!(
            "rank {} reached {} but got no answer within {:?}\nIs it rank 0 of this program that listens there?",
            self.rank,
            self.target(),
            self.timeout
        ))
    }

    /// Returns the error for a rank 0 that closed this rank's connection without an answer.
    fn hung_up(&self) -> JoinError {
        JoinError::Refused(format!(
            "rank 0 at {} closed the connection to rank {} before the job began: its own message says why",
            self.target(),
            self.rank
        ))
    }
}

/// Connects to rank 0 and proves to it that this rank knows the job's secret. Tries again until the
/// deadline if the connection breaks before rank 0 has read the proof: rank 0 closes connections
/// when it has too many.
pub(crate) fn reach_rank0(options: &JoinOptions, deadline: Instant) -> Result<TcpStream, JoinError> {
    let addresses = resolve(options, deadline)?;
    loop {
        let link = reach(options, &addresses, deadline)?;
        let proven = prove(Until(&link, deadline + GRACE), &link, options.key(), options.rank);
        match proven {
            Ok(()) => return Ok(link),
            Err(Unproven::Broken) if Instant::now() < deadline => std::thread::sleep(RETRY),
            Err(unproven) => return Err(options.unproven(&unproven)),
        }
    }
}

/// Registers with rank 0, to which this rank has proven itself, and blocks until it answers.
pub(crate) fn register_with_rank0(
    options: &JoinOptions,
    link: &TcpStream,
    port: u16,
    deadline: Instant,
) -> Result<Directory, JoinError> {
    let (rank, patient) = (options.rank, deadline + GRACE);
    let hello = Hello {
        world_size: options.world_size,
        port,
        process: std::process::id(),
        left: deadline.saturating_duration_since(Instant::now()),
        settings: options.settings.clone(),
    };
    send(link, &hello).map_err(|_| options.hung_up())?;
    // Rank 0 reports at the deadline which ranks are missing: leave it time for that.
    let answer: Answer = receive(Until(link, patient)).map_err(|unread| match unread {
        Unread::Damaged => options.foreign(),
        Unread::Version(_) => JoinError::Refused(unread.other_version(rank, 0).unwrap_or_default()),
        Unread::Connection(ErrorKind::TimedOut) => options.no_answer(),
        Unread::Connection(_) => options.hung_up(),
    })?;
    learn_listeners(options, answer, link)
}

/// Returns where every rank listens, by rank 0's answer over `link`.
fn learn_listeners(options: &JoinOptions, answer: Answer, link: &TcpStream) -> Result<Directory, JoinError> {
    let (token, listeners) = match answer {
        Answer::Refused(reason) => return Err(JoinError::Refused(reason)),
        Answer::Welcome { token, listeners } => (token, listeners),
    };
    if listeners.len() != options.world_size as usize {
        return Err(options.foreign());
    }
    let system = |source| JoinError::System { what: "see its connection to rank 0", source };
    let ends = Ends { own: link.local_addr().map_err(system)?, rank0: link.peer_addr().map_err(system)? };
    let listeners = (0..).zip(listeners).map(|(rank, listener)| ends.seen_from_here(rank, listener));
    Ok(Directory { key: options.key().of_peers(&token), listeners: listeners.collect() })
}

/// Both ends of this rank's connection to rank 0.
struct Ends {
    own: SocketAddr,
    rank0: SocketAddr,
}

impl Ends {
    /// Returns the address at which this rank reaches `rank`, which rank 0 sees at `ip`.
    fn seen_from_here(&self, rank: u32, (ip, port): (IpAddr, u16)) -> SocketAddr {
        // Rank 0 sees a process of its own machine at a loopback address, which means another
        // machine here.
        let is_next_to_rank0 = ip.is_loopback() && !self.own.ip().to_canonical().is_loopback();
        let mut address = self.rank0;
        if rank > 0 && !is_next_to_rank0 {
            address = (ip, port).into();
        }
        address.set_port(port);
        // The number of a link's interface differs between machines: it is that of this rank's own.
        if let (SocketAddr::V6(peer), SocketAddr::V6(own)) = (&mut address, self.own)
            && peer.ip().is_unicast_link_local()
        {
            peer.set_scope_id(own.scope_id());
        }
        address
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn seen(own: &str, rank0: &str, rank: u32, ip: &str) -> String {
        let ends = Ends { own: own.parse().unwrap(), rank0: rank0.parse().unwrap() };
        ends.seen_from_here(rank, (ip.parse().unwrap(), 7)).to_string()
    }

    #[test]
    fn peers_are_reached_where_this_rank_sees_them() {
        assert_eq!(seen("10.0.0.2:9", "10.0.0.1:80", 0, "127.0.0.1"), "10.0.0.1:7");
        assert_eq!(seen("10.0.0.2:9", "10.0.0.1:80", 1, "127.0.0.1"), "10.0.0.1:7");
        assert_eq!(seen("10.0.0.2:9", "10.0.0.1:80", 1, "10.0.0.3"), "10.0.0.3:7");
        assert_eq!(seen("127.0.0.1:9", "127.0.0.1:80", 1, "127.0.0.1"), "127.0.0.1:7");
    }

    #[test]
    fn link_local_peers_are_reached_over_this_ranks_own_interface() {
        assert_eq!(seen("[fe80::2%3]:9", "[fe80::1%3]:80", 0, "127.0.0.1"), "[fe80::1%3]:7");
        assert_eq!(seen("[fe80::2%3]:9", "[fe80::1%3]:80", 1, "fe80::4"), "[fe80::4%3]:7");
        assert_eq!(seen("[2001:db8::2]:9", "[2001:db8::1]:80", 1, "2001:db8::4"), "[2001:db8::4]:7");
    }
}
