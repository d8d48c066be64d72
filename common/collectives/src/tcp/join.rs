//! The meeting at the address of rank 0, and the connections between every two ranks.

use super::JoinOptions;
use super::error::{JoinError, ranks};
use super::greeting::{Answer, Hello, Introduction, receive, send};
use std::hash::{BuildHasher, Hasher};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long a process that has connected may take to introduce itself.
const GREETING: Duration = Duration::from_secs(5);
/// How much later than the deadline the answer of rank 0 may arrive, and the last connection stand.
const GRACE: Duration = Duration::from_secs(2);
/// How often to retry.
const RETRY: Duration = Duration::from_millis(20);

/// A process's connections.
pub(crate) struct Met {
    /// To every other rank, by rank.
    pub(crate) peers: Vec<Option<TcpStream>>,
    /// Those of the meeting: to rank 0, or at rank 0 to all others.
    pub(crate) links: Vec<(u32, TcpStream)>,
}

/// Where all ranks listen, and the token by which they recognise each other.
struct Directory {
    token: u64,
    listeners: Vec<(IpAddr, u16)>,
}

/// Meets the other processes and connects to each of them.
pub(crate) fn meet(options: &JoinOptions) -> Result<Met, JoinError> {
    let deadline = Instant::now() + options.timeout;
    let system = |source| JoinError::System { what: "listen for the other ranks", source };
    let (mut links, directory, listener);
    if options.rank == 0 {
        let meeting = open(options, deadline)?;
        let here = meeting.local_addr().map_err(system)?.ip();
        listener = TcpListener::bind((here, 0)).map_err(system)?;
        let port = listener.local_addr().map_err(system)?.port();
        (links, directory) = host(options, &meeting, port, deadline)?;
    } else {
        let link = reach(options, deadline)?;
        let here = link.local_addr().map_err(system)?.ip();
        listener = TcpListener::bind((here, 0)).map_err(system)?;
        let port = listener.local_addr().map_err(system)?.port();
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
    Ok(found)
}

fn target(options: &JoinOptions) -> String {
    format!("{}:{}", options.address, options.port)
}

/// Listens at the meeting's address, on rank 0. If the name resolves to loopback only, other
/// machines may resolve it to another address, so rank 0 listens on all of this machine's.
fn open(options: &JoinOptions, deadline: Instant) -> Result<TcpListener, JoinError> {
    let mut found = resolve(options, deadline)?;
    let literal = options.address.parse::<IpAddr>().is_ok() || options.address == "localhost";
    if found.iter().all(|address| address.ip().is_loopback()) && !literal {
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
    let token = std::hash::RandomState::new().build_hasher().finish();
    let answer = Answer::Welcome { token, listeners: listeners.clone() };
    links.iter().try_for_each(|(_, link)| send(link, &answer)).map_err(system)?;
    Ok((links, Directory { token, listeners }))
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
    loop {
        let missing: Vec<u32> =
            (1..options.world_size).filter(|&rank| guests[rank as usize].is_none()).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let Some(link) = accept(meeting, deadline).map_err(|e| format!("rank 0 cannot listen: {e}"))? else {
            return Err(format!(
                "waited {:?} at {} for all {} ranks, but {} never came\n\
                 Have they been started, with the same MASTER_ADDR, MASTER_PORT and WORLD_SIZE?",
                options.timeout,
                target(options),
                options.world_size,
                ranks(&missing),
            ));
        };
        // A connection that sends something else, or nothing, is no rank's: any program can reach
        // the port.
        let soon = deadline.min(Instant::now() + GREETING);
        let Ok(hello) = receive::<Hello>(&link, soon) else { continue };
        let problem = objection(options, guests, &hello);
        match problem {
            None => {
                let seat = hello.rank as usize;
                deadline = deadline.min(Instant::now() + hello.left.min(options.timeout));
                guests[seat] = Some((link, hello));
            }
            Some(reason) => {
                let _ = send(&link, &Answer::Refused(reason.clone()));
                return Err(reason);
            }
        }
    }
}

/// Returns why a guest cannot take part, if so.
fn objection(options: &JoinOptions, guests: &[Option<(TcpStream, Hello)>], hello: &Hello) -> Option<String> {
    let Hello { rank, world_size, process, .. } = *hello;
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
    let differs = |(ours, theirs): &(&str, &str)| ours != theirs;
    let (ours, theirs) = ours.lines().zip(theirs.lines()).find(differs)?;
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

/// Blocks until the next connection; `None` at the deadline.
fn accept(listener: &TcpListener, deadline: Instant) -> io::Result<Option<TcpStream>> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(Some(stream));
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // The other side has hung up before it was accepted.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(error),
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(RETRY);
    }
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
            match TcpStream::connect_timeout(address, left) {
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
    let foreign = || JoinError::Foreign { rank, address: target(options) };
    let hello = Hello {
        rank,
        world_size: options.world_size,
        port,
        process: std::process::id(),
        left: deadline.saturating_duration_since(Instant::now()),
        settings: options.settings.clone(),
    };
    send(link, &hello).map_err(|_| foreign())?;
    // Rank 0 tells at the deadline which ranks are missing: leave it time for that.
    let answer: Answer = receive(link, deadline + GRACE).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => foreign(),
        ErrorKind::TimedOut => JoinError::Refused(format!(
            "rank {rank} reached {} but got no answer within {:?}\nIs it rank 0 of this program that listens there?",
            target(options),
            options.timeout
        )),
        _ => JoinError::Refused(format!(
            "rank 0 at {} hung up on rank {rank} before the job began: its own message says why",
            target(options)
        )),
    })?;
    match answer {
        Answer::Refused(reason) => Err(JoinError::Refused(reason)),
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
            Ok(Directory { token, listeners })
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
        let introduction = Introduction { token: directory.token, rank: options.rank };
        send(&stream, &introduction).map_err(|_| apart(&[rank]))?;
        peers[rank as usize] = Some(stream);
    }
    loop {
        let missing: Vec<u32> = (0..options.world_size)
            .filter(|&rank| rank > options.rank && peers[rank as usize].is_none())
            .collect();
        if missing.is_empty() {
            return Ok(peers);
        }
        let system = |source| JoinError::System { what: "accept the other ranks' connections", source };
        let Some(stream) = accept(listener, deadline).map_err(system)? else { return Err(apart(&missing)) };
        let soon = deadline.min(Instant::now() + GREETING);
        let Ok(Introduction { token, rank }) = receive(&stream, soon) else { continue };
        if token == directory.token && missing.contains(&rank) {
            peers[rank as usize] = Some(stream);
        }
    }
}
