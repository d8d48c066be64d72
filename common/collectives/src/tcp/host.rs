//! Rank 0's part in the meeting: it waits for all others, compares what they run and answers them.

use super::JoinOptions;
use super::address::Directory;
use super::error::{JoinError, ranks};
use super::greeting::{Answer, Hello, Until, receive, send};
use super::proof::random;
use super::reception::Reception;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// How long a rank that has proven itself may take to say what it runs.
const GREETING: Duration = Duration::from_secs(5);

/// Waits for all other ranks, on rank 0, and tells them where every rank listens.
pub(crate) fn host(
    options: &JoinOptions,
    meeting: &TcpListener,
    port: u16,
    deadline: Instant,
) -> Result<(Vec<(u32, TcpStream)>, Directory), JoinError> {
    let mut guests: Vec<Option<(TcpStream, Hello)>> = (0..options.world_size).map(|_| None).collect();
    let outcome = gather(options, meeting, &mut guests, deadline);
    let mut present = guests.into_iter().enumerate().filter_map(|(rank, guest)| Some((rank as u32, guest?)));
    if let Err(reason) = outcome {
        present.for_each(|(_, (link, _))| drop(send(&link, &Answer::Refused(reason.clone()))));
        return Err(JoinError::Refused(reason));
    }
    let system = |source| JoinError::System { what: "answer the other ranks", source };
    let mut listeners = vec![(IpAddr::V4(Ipv4Addr::LOCALHOST), port)];
    let mut links = Vec::new();
    for (rank, (link, hello)) in present.by_ref() {
        listeners.push((link.peer_addr().map_err(system)?.ip().to_canonical(), hello.port));
        links.push((rank, link));
    }
    let token = random().map_err(system)?;
    let answer = Answer::Welcome { token, listeners: listeners.clone() };
    links.iter().try_for_each(|(_, link)| send(link, &answer)).map_err(system)?;
    let listeners = listeners.into_iter().map(SocketAddr::from).collect();
    Ok((links, Directory { key: options.key().of_peers(&token), listeners }))
}

/// Collects the greetings of all other ranks, on rank 0.
///
/// # Errors
/// Why the job cannot start; for missing ranks, once the first of those that came has waited long
/// enough.
fn gather(
    options: &JoinOptions,
    meeting: &TcpListener,
    guests: &mut [Option<(TcpStream, Hello)>],
    mut deadline: Instant,
) -> Result<(), String> {
    let listen = |error: io::Error| format!("rank 0 cannot listen: {error}");
    let mut reception = Reception::open(meeting, options.key()).map_err(listen)?;
    loop {
        let missing: Vec<u32> =
            (1..options.world_size).filter(|&rank| guests[rank as usize].is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let Some((rank, link)) = reception.next(deadline).map_err(listen)? else {
            return Err(incomplete(options, &missing, &reception));
        };
        let soon = deadline.min(Instant::now() + GREETING);
        let problem = match receive::<Hello>(Until(&link, soon)) {
            Ok(hello) => match objection(options, guests, rank, &hello) {
                None => {
                    deadline = deadline.min(Instant::now() + hello.left.min(options.timeout));
                    guests[rank as usize] = Some((link, hello));
                    continue;
                }
                Some(problem) => problem,
            },
            Err(unread) => match unread.other_version(0, rank) {
                Some(problem) => problem,
                // It has ended, or hangs.
                None => continue,
            },
        };
        let _ = send(&link, &Answer::Refused(problem.clone()));
        return Err(problem);
    }
}

/// Says which ranks are missing at the deadline, and what may have kept them away.
fn incomplete(options: &JoinOptions, missing: &[u32], reception: &Reception<'_>) -> String {
    let strangers = reception.strangers.map_or(String::new(), |(count, last)| {
        format!(
            "\nConnections with another secret than rank 0's, or none: {count}, the last from {last}. Is \
             ZERO_JOB_SECRET the same for every rank?"
        )
    });
    format!(
        "waited {:?} at {} for all {} ranks, but {} never came\n\
         Have they been started, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE?{strangers}",
        options.timeout,
        options.target(),
        options.world_size,
        ranks(missing),
    )
}

/// Returns why a guest cannot take part, if so.
fn objection(
    options: &JoinOptions,
    guests: &[Option<(TcpStream, Hello)>],
    rank: u32,
    hello: &Hello,
) -> Option<String> {
    let Hello { world_size, process, .. } = *hello;
    if world_size != options.world_size {
        return Some(format!(
            "rank {rank} was started for {world_size} ranks, rank 0 for {}: give all the same WORLD_SIZE or --gpus",
            options.world_size
        ));
    }
    let taken = match guests.get(rank as usize) {
        Some(Some((link, earlier))) => (!has_hung_up(link)).then_some(earlier.process),
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

/// Returns how the settings of `rank` differ from those of rank 0, if they do.
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

/// True if a guest has hung up while it waited.
fn has_hung_up(link: &TcpStream) -> bool {
    let peek = || -> io::Result<bool> {
        link.set_nonblocking(true)?;
        let gone = matches!(link.peek(&mut [0]), Ok(0));
        link.set_nonblocking(false)?;
        Ok(gone)
    };
    peek().unwrap_or(true)
}
