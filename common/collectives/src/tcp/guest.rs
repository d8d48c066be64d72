//! Every other rank's part in the meeting: it proves itself to rank 0, greets it and learns where its
//! peers listen.

use super::JoinOptions;
use super::address::Directory;
use super::error::JoinError;
use super::greeting::{Answer, GRACE, Hello, Unread, Until, receive, send};
use super::proof::{Unproven, prove};
use std::io::ErrorKind;
use std::net::{IpAddr, TcpStream};
use std::time::Instant;

impl JoinOptions {
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
            "rank 0 at {} hung up on rank {} before the job began: its own message says why",
            self.target(),
            self.rank
        ))
    }
}

/// Greets rank 0 and blocks until it answers.
pub(crate) fn greet_rank0(
    options: &JoinOptions,
    link: &TcpStream,
    port: u16,
    deadline: Instant,
) -> Result<Directory, JoinError> {
    let (rank, patient) = (options.rank, deadline + GRACE);
    prove(Until(link, patient), link, options.key(), rank).map_err(|unproven| match unproven {
        Unproven::Foreign => options.foreign(),
        Unproven::TurnedAway => JoinError::TurnedAway { rank, address: options.target() },
        Unproven::Silent => options.no_answer(),
        Unproven::Broken => options.hung_up(),
    })?;
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
    let (token, mut listeners) = match answer {
        Answer::Refused(reason) => return Err(JoinError::Refused(reason)),
        Answer::Welcome { token, listeners } => (token, listeners),
    };
    if listeners.len() != options.world_size as usize {
        return Err(options.foreign());
    }
    let system = |source| JoinError::System { what: "see its connection to rank 0", source };
    let (server, own) = (link.peer_addr().map_err(system)?, link.local_addr().map_err(system)?);
    let [server, own] = [server, own].map(|end| end.ip().to_canonical());
    listeners[0].0 = server;
    // Rank 0 knows a process of its own machine by a loopback address, which means another machine
    // here.
    let is_elsewhere = |address: &IpAddr| address.is_loopback() && !own.is_loopback();
    let unreachable = listeners.iter_mut().filter(|listener| is_elsewhere(&listener.0));
    unreachable.for_each(|listener| listener.0 = server);
    Ok(Directory { key: options.key().of_peers(&token), listeners })
}
