#![allow(clippy::unwrap_used)]

use super::*;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

/// Returns a free port of this machine's loopback address.
fn free() -> SocketAddr {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
}

#[test]
fn a_connection_that_has_met_itself_leaves_the_port_free() {
    let address = free();
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &address).unwrap();
    connect(&socket, &address).unwrap();
    let link = TcpStream::from(socket);
    assert!(has_met_itself(&link));
    reset(link);
    TcpListener::bind(address).unwrap();
}

#[test]
fn a_port_in_use_at_the_first_address_is_not_taken_for_anothers() {
    let first = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = first.local_addr().unwrap().port();
    let [here, next, elsewhere] =
        ["127.0.0.1", "127.0.0.2", "192.0.2.1"].map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
    assert_eq!(bind_first(&[here, next]).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(bind_first(&[elsewhere, here]).unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(bind_first(&[elsewhere, next]).unwrap().local_addr().unwrap(), next);
    assert_eq!(bind_first(&[elsewhere]).unwrap_err().kind(), ErrorKind::AddrNotAvailable);
}

/// Returns a lookup that fails `failures` times before it finds an address.
fn late(mut failures: usize) -> impl FnMut() -> io::Result<Vec<SocketAddr>> {
    move || match failures.checked_sub(1) {
        None => Ok(vec![([10, 0, 0, 1], 80).into()]),
        Some(left) => {
            failures = left;
            Err(io::Error::other(format!("{left} failures left")))
        }
    }
}

#[test]
fn a_name_that_appears_late_is_found() {
    let deadline = || Instant::now() + Duration::from_secs(60);
    assert_eq!(retry_until(deadline(), late(3), |_| true).unwrap(), [([10, 0, 0, 1], 80).into()]);
    let permanent = retry_until(deadline(), late(3), |_| false).unwrap_err();
    assert_eq!(permanent.to_string(), "2 failures left");
}

#[test]
fn the_last_error_is_reported_at_the_deadline() {
    let deadline = Instant::now() + Duration::from_millis(200);
    let error = retry_until(deadline, late(usize::MAX), |_| true).unwrap_err();
    assert!(error.to_string().ends_with("failures left"), "{error}");
    assert!(Instant::now() >= deadline);
}

#[test]
fn a_name_of_loopback_addresses_stands_for_all_of_the_family_that_ranks_look_at() {
    let everywhere_of = |found: &[&str]| {
        let found: Vec<SocketAddr> = found.iter().map(|address| address.parse().unwrap()).collect();
        assert!(found.iter().all(is_loopback));
        everywhere(&found).to_string()
    };
    assert_eq!(everywhere_of(&["[::1]:80"]), "[::]:80");
    assert_eq!(everywhere_of(&["127.0.1.1:80"]), "0.0.0.0:80");
    assert_eq!(everywhere_of(&["[::1]:80", "127.0.0.1:80"]), "0.0.0.0:80");
    assert!(is_loopback(&"[::ffff:127.0.0.1]:80".parse().unwrap()));
}
