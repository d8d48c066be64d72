//! Connections with rank 0 for everything that is not a collective. MPI carries the token that both
//! ends prove to know: each process that MPI's launcher admits to the job is a rank.

use crate::group::Group;
use crate::tcp::JoinError;
use crate::tcp::acceptor::Acceptor;
use crate::tcp::messages::Until;
use crate::tcp::proof::{Key, prove, random};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// How long connecting may take. A rank without a connection is left out: collectives do not need
/// it.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Connects rank 0 with each other rank that reaches it; see [`crate::tcp::Joined`].
pub(crate) fn connect(setup: &Group) -> Result<Vec<(u32, TcpStream)>, JoinError> {
    let system = |source| JoinError::System { what: "listen for the other ranks", source };
    let refused = |error: crate::CollectiveError| JoinError::Refused(error.to_string());
    let (listener, invitation) = match setup.rank() {
        0 => {
            let address = outward().unwrap_or(Ipv4Addr::LOCALHOST.into());
            let listener = TcpListener::bind((address, 0)).map_err(system)?;
            let address = listener.local_addr().map_err(system)?;
            (Some(listener), Some(Invitation { token: random().map_err(system)?, address }))
        }
        _ => (None, None),
    };
    // Serialising an invitation into a vector cannot fail.
    let bytes = invitation.as_ref().and_then(|invitation| postcard::to_stdvec(invitation).ok());
    let all = setup.exchange(&bytes.unwrap_or_default()).map_err(refused)?;
    let links = match listener.zip(invitation) {
        Some((listener, invitation)) => {
            accept_all(&listener, invitation.key(), setup.size()).map_err(system)?
        }
        None => {
            let invitation = postcard::from_bytes(&all[0]).ok();
            let link = invitation.and_then(|invitation| reach(&invitation, setup.rank()));
            link.into_iter().map(|link| (0, link)).collect()
        }
    };
    // Rank 0 continues only once every rank knows whether its own connection stands.
    setup.barrier().map_err(refused)?;
    Ok(links)
}

/// The message of rank 0 to the others before they connect.
#[derive(Serialize, Deserialize)]
struct Invitation {
    /// A random token, by which ranks recognise each other.
    token: [u8; 32],
    /// Where rank 0 listens, as other machines reach it.
    address: SocketAddr,
}

impl Invitation {
    fn key(&self) -> Key {
        Key::of_token(&self.token)
    }
}

/// Returns the address by which this machine reaches others. Nothing is sent.
fn outward() -> Option<IpAddr> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Accepts, on rank 0, the ranks that connect in time and know the token.
fn accept_all(listener: &TcpListener, key: Key, size: u32) -> std::io::Result<Vec<(u32, TcpStream)>> {
    let (mut links, deadline) = (Vec::new(), Instant::now() + TIMEOUT);
    let mut acceptor = Acceptor::open(listener, key, size)?;
    while (links.len() as u32) < size - 1 {
        let Some(link) = acceptor.next(deadline)? else { break };
        links.push(link);
    }
    links.sort_by_key(|(rank, _)| *rank);
    Ok(links)
}

/// Connects to rank 0, if it can be reached and proves itself in time.
fn reach(invitation: &Invitation, rank: u32) -> Option<TcpStream> {
    let stream = TcpStream::connect_timeout(&invitation.address, TIMEOUT / 2).ok()?;
    prove(Until(&stream, Instant::now() + TIMEOUT / 2), &stream, invitation.key(), rank).ok()?;
    stream.set_read_timeout(None).ok()?;
    stream.set_nodelay(true).ok()?;
    Some(stream)
}
