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
