//! The meeting at the address of rank 0, and the connections between every two ranks.

use super::JoinOptions;
use super::error::{JoinError, ranks};
use super::greeting::{Answer, Hello, Unread, Until, receive, send};
use super::proof::{Key, Unproven, prove, random};
use super::reception::Reception;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long a rank that has proven itself may take to say what it runs.
const GREETING: Duration = Duration::from_secs(5);
/// How much later than the deadline the answer of rank 0 may arrive, and the last connection stand.
const GRACE: Duration = Duration::from_secs(2);
/// How often to retry.
const RETRY: Duration = Duration::from_millis(20);
/// For how long rank 0 is tried at one address, while there may be others.
const ATTEMPT: Duration = Duration::from_secs(3);

/// A process's connections.
pub(crate) struct Met {
    /// To every other rank, by rank.
    pub(crate) peers: Vec<Option<TcpStream>>,
    /// Those of the meeting: to rank 0, or at rank 0 to all others.
    pub(crate) links: Vec<(u32, TcpStream)>,
}

/// Where all ranks listen, and what all of their connections must prove.
struct Directory {
    key: Key,
    listeners: Vec<(IpAddr, u16)>,
}

/// Meets the other processes and connects to each of them.
pub(crate) fn meet(options: &JoinOptions) -> Result<Met, JoinError> {
    let deadline = Instant::now() + options.timeout;
    let system = |source| JoinError::System { what: "listen for the other ranks", source };
    let listen_at = |here: io::Result<SocketAddr>| {
        // A process beside rank 0 has met it at a loopback address, at which no other machine finds it.
        let here = match here?.ip() {
            IpAddr::V4(here) if here.is_loopback() && listens_everywhere(options) => {
                Ipv4Addr::UNSPECIFIED.into()
            }
            here => here,
        };
        let listener = TcpListener::bind((here, 0))?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    };
    let (mut links, directory, listener, port);
    if options.rank == 0 {
        let meeting = open(options, deadline)?;
        (listener, port) = listen_at(meeting.local_addr()).map_err(system)?;
        (links, directory) = host(options, &meeting, port, deadline)?;
    } else {
        let link = reach(options, deadline)?;
        (listener, port) = listen_at(link.local_addr()).map_err(system)?;
        directory = introduce(options, &link, port, deadline)?;
        links = vec![(0, link)];
    }
    let peers = connect(options, &listener, &directory, deadline)?;
    for (_, link) in &mut links {
        link.set_read_timeout(None).map_err(system)?;
        link.set_nodelay(true).map_err(system)?;
    }
    Ok(Met { peers, links })
}

/// Resolves the address of rank 0. The system may ask other machines, for longer than the deadline.
fn resolve(options: &JoinOptions, deadline: Instant) -> Result<Vec<SocketAddr>, JoinError> {
    let (rank, address) = (options.rank, options.address.clone());
    let unknown = |source| JoinError::Unknown { rank, address: address.clone(), source };
    let (tell, told) = std::sync::mpsc::channel();
    let asked = (options.address.clone(), options.port);
    std::thread::spawn(move || tell.send(asked.to_socket_addrs().map(Vec::from_iter)));
    let found = told.recv_timeout(deadline.saturating_duration_since(Instant::now()));
    let found = found.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())).map_err(unknown)?;
    if found.is_empty() {
        return Err(unknown(ErrorKind::NotFound.into()));
    }
    if options.secret.is_some() {
        return Ok(found);
    }
    // Without a secret, every program that reaches the address could take a rank's place.
    let here: Vec<_> = found.into_iter().filter(|address| address.ip().is_loopback()).collect();
    if here.is_empty() { Err(JoinError::NoSecret { rank, address: target(options) }) } else { Ok(here) }
}

/// The key of this job's meeting.
fn key(options: &JoinOptions) -> Key {
    Key::of_meeting(options.secret, options.port)
}

fn target(options: &JoinOptions) -> String {
    format!("{}:{}", options.address, options.port)
}

/// True if ranks may listen on all addresses of rank 0's machine: other machines may resolve its name to
/// another address than it does itself, and every rank has to prove a secret.
fn listens_everywhere(options: &JoinOptions) -> bool {
    let is_literal = options.address.parse::<IpAddr>().is_ok() || options.address == "localhost";
    options.secret.is_some() && !is_literal
}

/// Listens at the meeting's address, on rank 0. If its name resolves to a loopback address, other
/// machines may resolve it to another one. If they have to prove a secret, rank 0 listens where they
/// do, or, if it knows no such address, on all of this machine's, and says so.
fn open(options: &JoinOptions, deadline: Instant) -> Result<TcpListener, JoinError> {
    let mut found = resolve(options, deadline)?;
    if listens_everywhere(options) {
        found.retain(|address| !address.ip().is_loopback());
    }
    if found.is_empty() {
        events::complain!(
            "note: {} is a loopback address here: rank 0 listens at port {} on all of this machine's addresses",
            options.address,
            options.port
        );
        found = vec![(Ipv4Addr::UNSPECIFIED, options.port).into()];
    }
    let address = target(options);
    TcpListener::bind(&found[..]).map_err(|source| match source.kind() {
        ErrorKind::AddrInUse => {
            let free = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|free| free.local_addr());
            JoinError::PortInUse { address, suggestion: free.map_or(29_511, |free| free.port()) }
        }
        ErrorKind::AddrNotAvailable => JoinError::Elsewhere { address },
        _ => JoinError::System { what: "listen at MASTER_ADDR and MASTER_PORT", source },
    })
}

/// Waits for all other ranks, on rank 0, and tells them where every rank listens.
fn host(
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
        listeners.push((link.peer_addr().map_err(system)?.ip(), hello.port));
        links.push((rank, link));
    }
    let token = random().map_err(system)?;
    let answer = Answer::Welcome { token, listeners: listeners.clone() };
    links.iter().try_for_each(|(_, link)| send(link, &answer)).map_err(system)?;
    Ok((links, Directory { key: key(options).of_peers(&token), listeners }))
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
    let mut reception = Reception::open(meeting, key(options)).map_err(listen)?;
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
        target(options),
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

/// Connects to rank 0, which may not have started yet.
fn reach(options: &JoinOptions, deadline: Instant) -> Result<TcpStream, JoinError> {
    let addresses = resolve(options, deadline)?;
    let mut last = String::from("no attempt was made");
    loop {
        for address in &addresses {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let (rank, waited, address) = (options.rank, options.timeout, target(options));
                return Err(JoinError::Unreachable { rank, address, waited, last });
            }
            match TcpStream::connect_timeout(address, left.min(ATTEMPT)) {
                // Where no process listens yet, a connection can meet itself.
                Ok(link) if link.local_addr().ok() == link.peer_addr().ok() => {}
                Ok(link) => return Ok(link),
                Err(error) => last = error.to_string(),
            }
        }
        std::thread::sleep(RETRY);
    }
}

/// Greets rank 0 and blocks until it answers.
fn introduce(
    options: &JoinOptions,
    link: &TcpStream,
    port: u16,
    deadline: Instant,
) -> Result<Directory, JoinError> {
    let rank = options.rank;
    let (at, patient) = (|| target(options), deadline + GRACE);
    let foreign = || JoinError::Foreign { rank, address: at() };
    let silent = || {
        JoinError::Refused(format!(
            "rank {rank} reached {} but got no answer within {:?}\nIs it rank 0 of this program that listens there?",
            at(),
            options.timeout
        ))
    };
    let ended = || {
        JoinError::Refused(format!(
            "rank 0 at {} hung up on rank {rank} before the job began: its own message says why",
            at()
        ))
    };
    prove(Until(link, patient), link, key(options), rank).map_err(|unproven| match unproven {
        Unproven::Foreign => foreign(),
        Unproven::TurnedAway => JoinError::TurnedAway { rank, address: at() },
        Unproven::Silent => silent(),
        Unproven::Broken => ended(),
    })?;
    let hello = Hello {
        world_size: options.world_size,
        port,
        process: std::process::id(),
        left: deadline.saturating_duration_since(Instant::now()),
        settings: options.settings.clone(),
    };
    send(link, &hello).map_err(|_| ended())?;
    // Rank 0 tells at the deadline which ranks are missing: leave it time for that.
    let answer: Answer = receive(Until(link, patient)).map_err(|unread| match unread {
        Unread::Damaged => foreign(),
        Unread::Version(_) => JoinError::Refused(unread.other_version(rank, 0).unwrap_or_default()),
        Unread::Connection(ErrorKind::TimedOut) => silent(),
        Unread::Connection(_) => ended(),
    })?;
    match answer {
        Answer::Refused(reason) => Err(JoinError::Refused(reason)),
        Answer::Welcome { listeners, .. } if listeners.len() != options.world_size as usize => Err(foreign()),
        Answer::Welcome { token, mut listeners } => {
            let system = |source| JoinError::System { what: "see its connection to rank 0", source };
            let (server, own) =
                (link.peer_addr().map_err(system)?.ip(), link.local_addr().map_err(system)?.ip());
            listeners[0].0 = server;
            // Rank 0 knows a process of its own machine by a loopback address, which means another
            // machine here.
            let elsewhere = |address: &IpAddr| address.is_loopback() && !own.is_loopback();
            let unreachable = listeners.iter_mut().filter(|listener| elsewhere(&listener.0));
            unreachable.for_each(|listener| listener.0 = server);
            Ok(Directory { key: key(options).of_peers(&token), listeners })
        }
    }
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
        let stream = TcpStream::connect_timeout(&address.into(), left).map_err(|_| apart(&[rank]))?;
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
