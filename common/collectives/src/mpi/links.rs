//! Connections with rank 0 for everything that is not a collective.

use crate::group::Group;
use crate::tcp::JoinError;
use serde::{Deserialize, Serialize};
use std::hash::{BuildHasher, Hasher};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// How long connecting may take. A rank without a connection is left out: collectives do not need
/// it.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Connects rank 0 with each other rank that reaches it; see [`crate::tcp::Joined`].
pub(crate) fn connect(setup: &Group) -> Result<Vec<(u32, TcpStream)>, JoinError> {
    let system = |source| JoinError::System { what: "listen for the other ranks", source };
    let refused = |error: crate::CollectiveError| JoinError::Refused(error.to_string());
    let listener = match setup.rank() {
        0 => Some(TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(system)?),
        _ => None,
    };
    let invitation = match &listener {
        Some(listener) => Some(Invitation::new(listener.local_addr().map_err(system)?.port())),
        None => None,
    };
    // Serialising an invitation into a vector cannot fail.
    let bytes = invitation.as_ref().and_then(|invitation| postcard::to_stdvec(invitation).ok());
    let all = setup.exchange(&bytes.unwrap_or_default()).map_err(refused)?;
    let links = match listener.zip(invitation) {
        Some((listener, invitation)) => {
            accept_all(&listener, invitation.token, setup.size()).map_err(system)?
        }
        None => {
            let invitation = postcard::from_bytes(&all[0]).ok();
            let link = invitation.and_then(|invitation| reach(&invitation, setup.rank()));
            link.into_iter().map(|link| (0, link)).collect()
        }
    };
    // Rank 0 goes on only once every rank knows whether its own connection stands.
    setup.barrier().map_err(refused)?;
    Ok(links)
}

/// What rank 0 tells the others before they connect.
#[derive(Serialize, Deserialize)]
struct Invitation {
    /// Random; ranks recognise each other by it.
    token: [u8; 8],
    port: u16,
    /// Addresses under which rank 0's machine may be known.
    addresses: Vec<IpAddr>,
}

impl Invitation {
    fn new(port: u16) -> Self {
        let token = std::hash::RandomState::new().build_hasher().finish().to_le_bytes();
        let addresses = [IpAddr::V4(Ipv4Addr::LOCALHOST)].into_iter().chain(outward()).collect();
        Invitation { token, port, addresses }
    }
}

/// Returns the address by which this machine reaches others. Nothing is sent.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Accepts, on rank 0, the ranks that connect in time and know the token.
fn accept_all(listener: &TcpListener, token: [u8; 8], size: u32) -> std::io::Result<Vec<(u32, TcpStream)>> {
    listener.set_nonblocking(true)?;
    let (mut links, since) = (Vec::new(), Instant::now());
    while (links.len() as u32) < size - 1 && since.elapsed() < TIMEOUT {
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
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut word = [0; 12];
    let known = stream.read_exact(&mut word).is_ok() && word[..8] == token;
    stream.set_read_timeout(None)?;
    let rank = u32::from_le_bytes([word[8], word[9], word[10], word[11]]);
    let answered = known && stream.write_all(&token).is_ok();
    Ok(answered.then_some((rank, stream)))
}

/// Tries the addresses of rank 0's machine until one answers with the token.
fn reach(&Invitation { token, port, ref addresses }: &Invitation, rank: u32) -> Option<TcpStream> {
    for &address in addresses {
        let attempt = || -> std::io::Result<Option<TcpStream>> {
            let mut stream = TcpStream::connect_timeout(&SocketAddr::new(address, port), TIMEOUT / 2)?;
            stream.set_read_timeout(Some(TIMEOUT / 2))?;
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
