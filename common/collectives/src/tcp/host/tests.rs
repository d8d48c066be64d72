#![allow(clippy::unwrap_used)]

use super::*;
use crate::tcp::proof::prove;

const PATIENT: Duration = Duration::from_secs(60);

/// Returns the options of a rendezvous of three ranks on this machine, and rank 0's listener.
fn rendezvous(timeout: Duration) -> (JoinOptions, TcpListener) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (address, port) = ("127.0.0.1".to_string(), listener.local_addr().unwrap().port());
    let settings = String::new();
    (JoinOptions { rank: 0, world_size: 3, address, port, timeout, settings, secret: None }, listener)
}

/// Registers with rank 0 as `rank`, which listens at `port`.
fn register(options: &JoinOptions, rank: u32, port: u16) -> TcpStream {
    let link = TcpStream::connect((&options.address[..], options.port)).unwrap();
    prove(&link, &link, options.key(), rank).unwrap_or_else(|_| panic!("rank 0 has not proven itself"));
    let (world_size, settings) = (options.world_size, options.settings.clone());
    send(&link, &Hello { world_size, port, process: 1, left: options.timeout, settings }).unwrap();
    link
}

#[test]
fn another_process_takes_the_place_of_a_rank_that_ended() {
    let (options, listener) = rendezvous(PATIENT);
    let hosting = options.clone();
    let rank0 = std::thread::spawn(move || {
        host(&hosting, &listener, 70, Instant::now() + PATIENT).map(|(links, _)| links.len())
    });
    drop(register(&options, 1, 71));
    let others = [register(&options, 2, 72), register(&options, 1, 73)];
    for link in &others {
        let Answer::Welcome { listeners, .. } = receive(link).unwrap() else { panic!("refused") };
        assert_eq!(listeners.iter().map(|listener| listener.1).collect::<Vec<_>>(), [70, 73, 72]);
    }
    assert_eq!(rank0.join().unwrap().unwrap(), 2);
}

#[test]
fn a_rank_that_ended_is_not_said_to_have_never_come() {
    let (options, listener) = rendezvous(Duration::from_millis(300));
    let hosting = options.clone();
    // Rank 1's registration shortens the deadline.
    let rank0 = std::thread::spawn(move || {
        host(&hosting, &listener, 70, Instant::now() + PATIENT).map(|_| ()).unwrap_err()
    });
    drop(register(&options, 1, 71));
    let error = rank0.join().unwrap().to_string();
    assert!(error.contains("rank 2 never came, and rank 1 came and ended"), "{error}");
}

#[test]
fn a_rank_that_cannot_be_welcomed_is_named_to_the_rest() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let connect = |rank| {
        let theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (theirs, (rank, listener.accept().unwrap().0))
    };
    let (theirs, links): (Vec<_>, Vec<_>) = (1..4).map(connect).unzip();
    links[1].1.shutdown(std::net::Shutdown::Write).unwrap();
    let answer = Answer::Welcome { token: [0; 32], listeners: Vec::new() };
    let (rank, _) = welcome(&links, &answer).unwrap_err();
    assert_eq!(rank, 2);
    assert_eq!(receive::<Answer>(&theirs[0]).unwrap(), answer);
    let Answer::Refused(reason) = receive(&theirs[2]).unwrap() else { panic!("welcomed") };
    assert!(reason.starts_with("rank 2 ended before the job began"), "{reason}");
}
