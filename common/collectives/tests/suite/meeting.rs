//! Meetings in which a rank ends, or starts again, before all are connected.

use crate::processes::{PATIENT, meet, place};
use collectives::tcp::join;
use std::net::TcpListener;

#[test]
fn a_rank_whose_connection_breaks_before_the_proof_tries_again() {
    let met = meet(&place(2, PATIENT), |place| {
        if place.rank == 0 {
            // The first process at the address ends once rank 1 has connected to it.
            let first = TcpListener::bind((&place.address[..], place.port)).unwrap();
            drop(first.accept().unwrap());
        }
        join(&place).unwrap().group.exchange(&[place.rank as u8]).unwrap()
    });
    assert_eq!(met, [[[0], [1]]; 2]);
}
