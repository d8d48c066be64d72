#![allow(clippy::unwrap_used)]

use super::*;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

/// A free port of this machine's loopback address.
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
