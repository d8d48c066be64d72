//! Connections with rank 0 for whatever is not a collective.

use crate::group::Group;
use crate::tcp::JoinError;
use crate::wire::{Reader, put_text};
use std::hash::{BuildHasher, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// How long connecting may take. Who does not come is left out: collectives do without.
const PATIENCE: Duration = Duration::from_secs(3);

/// A connection with rank 0 for each other rank that reaches it; see [`crate::tcp::Joined`].
pub(crate) fn connect(setup: &Group) -> Result<Vec<(u32, TcpStream)>, JoinError> {
    let system = |source| JoinError::System { what: "listen for the other ranks", source };
    let refused = |error: crate::CollectiveError| JoinError::Refused(error.to_string());
    let listener = match setup.rank() {
        0 => Some(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(system)?),
        _ => None,
    };
    let word = match &listener {
        Some(listener) => invitation(listener.local_addr().map_err(system)?.port()),
        None => Vec::new(),
    };
    let all = setup.exchange(&word).map_err(refused)?;
    let links = match listener {
        Some(listener) => welcome(&listener, token(&all[0]), setup.size()).map_err(system)?,
        None => reach(&all[0], setup.rank()).into_iter().map(|link| (0, link)).collect(),
    };
    // Everybody knows whether its own connection stands; rank 0 must not count on more.
    setup.barrier().map_err(refused)?;
    Ok(links)
}

/// A random word, the port, and the numbers under which this machine may be known.
fn invitation(port: u16) -> Vec<u8> {
    let mut bytes = std::hash::RandomState::new().build_hasher().finish().to_le_bytes().to_vec();
    bytes.extend(u32::from(port).to_le_bytes());
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST)].into_iter().chain(outward()) {
        put_text(&mut bytes, &address.to_string());
    }
    bytes
}

/// The number of this machine on the way out of it. Nothing is sent.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn token(invitation: &[u8]) -> [u8; 8] {
    Reader(invitation).array().unwrap_or_default()
}

/// Rank 0 takes in who comes in time and knows the word.
fn welcome(listener: &TcpListener, token: [u8; 8], size: u32) -> std::io::Result<Vec<(u32, TcpStream)>> {
    listener.set_nonblocking(true)?;
    let (mut links, since) = (Vec::new(), Instant::now());
    while (links.len() as u32) < size - 1 && since.elapsed() < PATIENCE {
        match listener.accept() {
            Ok((stream, _)) => links.extend(introduced(stream, token)?),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(Duration::from_millis(5))
            }
            Err(_) => {}
        }
    }
    links.sort_by_key(|(rank, _)| *rank);
    Ok(links)
}

fn introduced(mut stream: TcpStream, token: [u8; 8]) -> std::io::Result<Option<(u32, TcpStream)>> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut word = [0; 12];
    let known = stream.read_exact(&mut word).is_ok() && word[..8] == token;
    stream.set_read_timeout(None)?;
    let rank = u32::from_le_bytes([word[8], word[9], word[10], word[11]]);
    let answered = known && stream.write_all(&token).is_ok();
    Ok(answered.then_some((rank, stream)))
}

/// Tries the numbers of rank 0's machine until one answers with the word.
fn reach(invitation: &[u8], rank: u32) -> Option<TcpStream> {
    let mut reader = Reader(invitation);
    let (token, port) = (reader.array::<8>()?, reader.u32()? as u16);
    while let Some(text) = reader.text() {
        let Ok(address) = text.parse::<IpAddr>() else { continue };
        let attempt = || -> std::io::Result<Option<TcpStream>> {
            let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), PATIENCE / 2)?;
            stream.set_read_timeout(Some(PATIENCE / 2))?;
            stream.write_all(&[&token[..], &rank.to_le_bytes()].concat())?;
            let mut answer = [0; 8];
            stream.read_exact(&mut answer)?;
            stream.set_read_timeout(None)?;
            stream.set_nodelay(true)?;
            Ok((answer == token).then_some(stream))
        };
        if let Ok(Some(stream)) = attempt() {
            return Some(stream);
        }
    }
    None
}
