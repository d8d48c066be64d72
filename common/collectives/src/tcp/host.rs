//! Rank 0's part in the rendezvous: it waits for all others, compares their settings and answers
//! them.

use super::JoinOptions;
use super::acceptor::Acceptor;
use super::address::Directory;
use super::error::{JoinError, ranks};
use super::messages::{Answer, GRACE, Hello, Until, receive, send};
use super::proof::random;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long a rank that has proven itself may take to register.
const REGISTRATION: Duration = Duration::from_secs(5);

/// A rank that has registered with rank 0.
struct Joiner {
    link: TcpStream,
    /// The address of its process, as rank 0 sees it.
    ip: IpAddr,
    hello: Hello,
}

/// The ranks that have registered with rank 0.
struct Joiners {
    /// By rank; `None` for rank 0, and for ranks that are missing.
    by_rank: Vec<Option<Joiner>>,
    /// The ranks whose processes ended after they had registered, and have not been replaced.
    ended: Vec<u32>,
    /// The rank that keeps the job from starting, if there was one.
    rejected: Vec<(u32, TcpStream)>,
}

impl Joiners {
    fn new(world_size: u32) -> Self {
        Joiners { by_rank: (0..world_size).map(|_| None).collect(), ended: Vec::new(), rejected: Vec::new() }
    }

    /// Returns the ranks that have not registered, or no longer run.
    fn missing(&self) -> Vec<u32> {
        let ranks = (0..).zip(&self.by_rank).skip(1);
        ranks.filter_map(|(rank, joiner)| joiner.is_none().then_some(rank)).collect()
    }

    /// Adds a joiner. Its rank is one of the job's.
    fn admit(&mut self, rank: u32, joiner: Joiner) {
        self.ended.retain(|&ended| ended != rank);
        self.by_rank[rank as usize] = Some(joiner);
    }

    /// Drops the joiners that have hung up. True if there were any.
    fn drop_ended(&mut self) -> bool {
        let before = self.ended.len();
        for (rank, place) in (0..).zip(&mut self.by_rank) {
            if place.take_if(|joiner| has_hung_up(&joiner.link)).is_some() {
                self.ended.push(rank);
            }
        }
        self.ended.len() > before
    }

    /// Returns all joiners with their ranks, in rank order.
    fn present(self) -> impl Iterator<Item = (u32, Joiner)> {
        (0..).zip(self.by_rank).filter_map(|(rank, joiner)| Some((rank, joiner?)))
    }
}

/// Waits for all other ranks, on rank 0, and tells them where every rank listens.
pub(crate) fn host(
    options: &JoinOptions,
    rendezvous: &TcpListener,
    port: u16,
    mut deadline: Instant,
) -> Result<(Vec<(u32, TcpStream)>, Directory), JoinError> {
    let begin = Instant::now();
    let mut joiners = Joiners::new(options.world_size);
    let system = |source| JoinError::System { what: "answer the other ranks", source };
    let mut acceptor = Acceptor::open(rendezvous, options.key(), options.world_size).map_err(system)?;
    if let Err(reason) = gather(options, &mut acceptor, &mut joiners, &mut deadline) {
        refuse(&mut acceptor, joiners, &reason, deadline.min(Instant::now() + GRACE));
        return Err(JoinError::Refused(reason));
    }
    let mut listeners = vec![(IpAddr::V4(Ipv4Addr::LOCALHOST), port)];
    let mut links = Vec::new();
    for (rank, Joiner { link, ip, hello }) in joiners.present() {
        listeners.push((ip, hello.port));
        links.push((rank, link));
    }
    let token = random().map_err(system)?;
    let answer = Answer::Welcome { token, listeners: listeners.clone() };
    if let Err((peer, how)) = welcome(&links, &answer) {
        return Err(JoinError::Ended { rank: 0, peer, waited: begin.elapsed(), how: how.to_string() });
    }
    let listeners = listeners.into_iter().map(SocketAddr::from).collect();
    Ok((links, Directory { key: options.key().of_peers(&token), listeners }))
}

/// Sends `answer` to all ranks. Once one cannot be reached, tells the rest that the job does not
/// start.
///
/// # Errors
/// The first rank that cannot be reached, and why.
fn welcome(links: &[(u32, TcpStream)], answer: &Answer) -> Result<(), (u32, io::Error)> {
    for (index, (rank, link)) in links.iter().enumerate() {
        let Err(error) = send(link, answer) else { continue };
        let reason = format!("rank {rank} ended before the job began ({error}): its own message says why");
        let refused = Answer::Refused(reason);
        links[index + 1..].iter().for_each(|(_, link)| drop(send(link, &refused)));
        return Err((*rank, error));
    }
    Ok(())
}

/// Collects the registrations of all other ranks. If a process ends after it has registered,
/// another may register as its rank.
///
/// # Errors
/// Why the job cannot start. Ranks count as missing at the earliest deadline of any registered
/// rank, to which `deadline` is lowered.
fn gather(
    options: &JoinOptions,
    acceptor: &mut Acceptor<'_>,
    joiners: &mut Joiners,
    deadline: &mut Instant,
) -> Result<(), String> {
    let listen = |error: io::Error| format!("rank 0 cannot listen: {error}");
    loop {
        if joiners.missing().is_empty() && !joiners.drop_ended() {
            return Ok(());
        }
        let Some((rank, link)) = acceptor.next(*deadline).map_err(listen)? else {
            joiners.drop_ended();
            return Err(incomplete(options, joiners, acceptor));
        };
        let soon = (*deadline).min(Instant::now() + REGISTRATION);
        let hello = match registration(options, joiners, (rank, &link), soon) {
            Ok(Some(hello)) => hello,
            Ok(None) => continue,
            Err(problem) => {
                joiners.rejected.push((rank, link));
                return Err(problem);
            }
        };
        let Ok(peer) = link.peer_addr() else { continue };
        *deadline = (*deadline).min(Instant::now() + hello.left.min(options.timeout));
        joiners.admit(rank, Joiner { link, ip: peer.ip().to_canonical(), hello });
    }
}

/// Reads the registration of a rank from its link, until `end`. Returns `None` if the rank's
/// process has ended, or hangs.
///
/// # Errors
/// Why the job cannot start with this rank.
fn registration(
    options: &JoinOptions,
    joiners: &Joiners,
    (rank, link): (u32, &TcpStream),
    end: Instant,
) -> Result<Option<Hello>, String> {
    match receive::<Hello>(Until(link, end)) {
        Ok(hello) => match objection(options, joiners, rank, &hello) {
            None => Ok(Some(hello)),
            Some(problem) => Err(problem),
        },
        Err(unread) => match unread.other_version(0, rank) {
            None => Ok(None),
            Some(problem) => Err(problem),
        },
    }
}

/// Tells all joiners why the job does not start, and until `end` also the ranks that are still to
/// come: rank 0's address would not answer them, and they would not learn the reason.
fn refuse(acceptor: &mut Acceptor<'_>, mut joiners: Joiners, reason: &str, end: Instant) {
    let refused = Answer::Refused(reason.into());
    let rejected = std::mem::take(&mut joiners.rejected);
    let mut missing = joiners.missing();
    missing.retain(|&rank| rejected.iter().all(|&(told, _)| told != rank));
    let present = joiners.present().map(|(rank, joiner)| (rank, joiner.link));
    present.chain(rejected).for_each(|(_, link)| drop(send(&link, &refused)));
    while !missing.is_empty() {
        let Ok(Some((rank, link))) = acceptor.next(end) else { return };
        // A connection that is closed with an unread registration may lose the answer.
        let _ = receive::<Hello>(Until(&link, end));
        let _ = send(&link, &refused);
        missing.retain(|&other| other != rank);
    }
}

/// Returns which ranks are missing at the deadline, and possible reasons, in words.
fn incomplete(options: &JoinOptions, joiners: &Joiners, acceptor: &Acceptor<'_>) -> String {
    let strangers = acceptor.wrong_keys.map_or(String::new(), |(count, last)| {
        format!(
            "\nConnections with another secret than rank 0's, or none: {count}, the last from {last}. Is \
             ZERO_JOB_SECRET the same for every rank?"
        )
    });
    let (ended, absent): (Vec<u32>, Vec<u32>) =
        joiners.missing().into_iter().partition(|rank| joiners.ended.contains(rank));
    let mut problems = Vec::new();
    let mut remedies = Vec::new();
    if !absent.is_empty() {
        problems.push(format!("{} never came", ranks(&absent)));
        remedies.push("Have they been started, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE?");
    }
    if !ended.is_empty() {
        problems.push(format!("{} came and ended before the job began", ranks(&ended)));
        remedies.push("The messages of processes that ended say why.");
    }
    format!(
        "waited {:?} at {} for all {} ranks, but {}\n{}{strangers}",
        options.timeout,
        options.target(),
        options.world_size,
        problems.join(", and "),
        remedies.join("\n"),
    )
}

/// Returns why a joiner cannot take part; `None` if it can.
fn objection(options: &JoinOptions, joiners: &Joiners, rank: u32, hello: &Hello) -> Option<String> {
    let Hello { world_size, process, .. } = *hello;
    if world_size != options.world_size {
        return Some(format!(
            "rank {rank} was started for {world_size} ranks, rank 0 for {}: give all the same WORLD_SIZE or --gpus",
            options.world_size
        ));
    }
    let taken = match joiners.by_rank.get(rank as usize) {
        Some(Some(earlier)) => (!has_hung_up(&earlier.link)).then_some(earlier.hello.process),
        Some(None) => (rank == 0).then_some(std::process::id()),
        None => return Some(format!("there is no rank {rank} among {world_size} ranks")),
    };
    if let Some(earlier) = taken {
        return Some(format!(
            "two processes say that they are rank {rank} (process numbers {earlier} and {process})\n\
             Each needs a RANK of its own; or a process of an earlier job is still there."
        ));
    }
    difference(&options.settings, &hello.settings, rank)
}

/// Returns how the settings of `rank` differ from those of rank 0; `None` if they are equal.
pub(crate) fn difference(ours: &str, theirs: &str, rank: u32) -> Option<String> {
    if ours == theirs {
        return None;
    }
    let same = ours.split('\n').zip(theirs.split('\n')).take_while(|(ours, theirs)| ours == theirs).count();
    let [ours, theirs] = [ours, theirs].map(|text| text.split('\n').nth(same).unwrap_or("(nothing more)"));
    Some(format!(
        "rank {rank} was started with other settings than rank 0\n  rank 0: {ours}\n  rank {rank}: {theirs}\n\
         All ranks must run the same program with the same flags."
    ))
}

/// True if the other end has closed or reset the connection.
pub(crate) fn has_hung_up(link: &TcpStream) -> bool {
    let peek = || -> io::Result<bool> {
        link.set_nonblocking(true)?;
        let peeked = link.peek(&mut [0]);
        link.set_nonblocking(false)?;
        Ok(match peeked {
            Ok(read) => read == 0,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        })
    };
    peek().unwrap_or(true)
}

#[cfg(test)]
mod tests;
