#![allow(clippy::unwrap_used)]

use super::*;

const PATIENT: Duration = Duration::from_secs(60);

fn place(rank: u32) -> JoinOptions {
    let (address, settings) = ("127.0.0.1".to_string(), String::new());
    JoinOptions { rank, world_size: 2, address, port: 1, timeout: PATIENT, settings, secret: None }
}

fn listener() -> TcpListener {
    TcpListener::bind(("127.0.0.1", 0)).unwrap()
}

/// Returns the error of `rank`, where rank 0 listens at `address`.
fn error_of(rank: u32, address: SocketAddr, links: &[(u32, TcpStream)]) -> JoinError {
    let place = place(rank);
    let directory = Directory { key: place.key(), listeners: vec![address; 2] };
    connect(&place, &listener(), &directory, links, Instant::now() + PATIENT).unwrap_err()
}

#[test]
fn a_peer_that_has_ended_is_not_blamed_on_firewalls_and_the_timeout() {
    let nothing_listens = listener().local_addr().unwrap();
    let error = error_of(1, nothing_listens, &[]);
    let JoinError::Ended { rank: 1, peer: 0, waited, .. } = error else { panic!("{error}") };
    assert!(waited < PATIENT, "{waited:?}");
    let words = error_of(1, nothing_listens, &[]).to_string();
    assert!(words.contains("its process has ended") && words.contains("refused"), "{words}");
}

#[test]
fn rank_0_notices_at_once_that_a_rank_it_waits_for_has_ended() {
    let rendezvous = listener();
    let address = rendezvous.local_addr().unwrap();
    drop(TcpStream::connect(address).unwrap());
    let (link, _) = rendezvous.accept().unwrap();
    let error = error_of(0, address, &[(1, link)]);
    assert!(matches!(&error, JoinError::Ended { rank: 0, peer: 1, .. }), "{error}");
}
