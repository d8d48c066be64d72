//! Messages between two ends of a connection that come early, are too long or are not taken.

#![allow(clippy::unwrap_used)]

use super::*;
use crate::core::call::Signature;
use crate::wire::{Address, Message, Phase};
use events::Operation;
use std::net::TcpListener;

/// Both ends of a connection.
fn connection() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

fn waits(rank: u32) -> Vec<u8> {
    wire::encode(&Head::Waits { rank: Some(rank) }, 0)
}

const ADDRESS: Address = Address { group: 0, sequence: 7, phase: Phase::Contribution };

/// A message to an all-reduce, without its payload of `announced` bytes.
fn announcing(announced: usize) -> Vec<u8> {
    let shapes = vec![crate::core::call::BufferShape { len: announced / 4, dtype: device::DType::F32 }];
    let signature = Signature { shapes, ..Signature::new(Operation::AllReduce) };
    wire::encode(&Head::Data { address: ADDRESS, signature }, announced)
}

/// Blocks until the message of rank 1 is there.
fn taken(mailbox: &Mailbox) -> Message {
    loop {
        match mailbox.take(ADDRESS, &[1], &[]) {
            Ok(mut messages) => return messages.remove(0),
            Err(missing) => mailbox.park(missing.seen, Duration::from_secs(20)),
        }
    }
}

/// Rank 1 announces 2⁴⁴ bytes, of which none or a few come, to a call that expects 1024, before
/// or after that call is issued.
#[test]
fn a_message_that_is_longer_than_the_call_expects_takes_no_memory() {
    for (issued, sent) in [(true, 0), (false, 0), (false, 3 * SMALL_MESSAGE)] {
        let ((here, mut there), mailbox) = (connection(), Arc::new(Mailbox::default()));
        if issued {
            mailbox.expect(0, 7, 1024);
        }
        there.write_all(&[&announcing(1 << 44)[..], &vec![0; sent]].concat()).unwrap();
        let timeout = Duration::from_secs(20);
        let connections = Connections::start(vec![None, Some(here)], &mailbox, timeout).unwrap();
        if !issued {
            while !mailbox.is_announced(ADDRESS, 1) {
                std::thread::yield_now();
            }
            mailbox.expect(0, 7, 1024);
        }
        let message = taken(&mailbox);
        assert_eq!((message.announced, message.payload.bytes().len()), (1 << 44, 0));
        drop(there);
        drop(connections);
    }
}

#[test]
fn a_message_that_comes_early_is_taken_whole() {
    let (bytes, mailbox) = (5 * SMALL_MESSAGE + 8, Mailbox::default());
    let data: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
    let stream = [&announcing(bytes)[..], &data, &announcing(8), &[9; 8]].concat();
    let mut stream = &stream[..];
    read_message(&mut stream, 1, &mailbox).unwrap();
    mailbox.expect(0, 7, bytes);
    assert_eq!(taken(&mailbox).payload.bytes(), data);
    read_message(&mut stream, 1, &mailbox).unwrap();
    assert_eq!(taken(&mailbox).payload.bytes(), [9; 8]);
}

/// Ranks 1 and 3 read nothing. While rank 0 sends to rank 1, its callback is called repeatedly,
/// and rank 0 can send to rank 2; an offer to rank 1 does not block. It gives up on rank 1
/// after the timeout, and on rank 3 sooner. Rank 2 receives everything in order.
#[test]
fn a_rank_that_takes_nothing_is_given_up_and_delays_no_other() {
    let [(to_1, at_1), (to_2, mut at_2), (to_3, at_3)] = [(); 3].map(|()| connection());
    let (mailbox, timeout) = (Arc::new(Mailbox::default()), Duration::from_secs(2));
    let connections =
        Connections::start(vec![None, Some(to_1), Some(to_2), Some(to_3)], &mailbox, timeout).unwrap();
    let (mut stalls, bulk) = (Vec::new(), vec![0; 64 << 20]);
    let given_up = connections.send(1, &[], &[&bulk], &mut |time| {
        stalls.push(time);
        connections.offer(1, &waits(7));
        connections.offer(2, &waits(1));
    });
    assert_eq!(given_up, Err("it has taken no data for 2s".into()));
    assert!(
        stalls.len() >= 3 && stalls.is_sorted() && stalls.iter().all(|time| *time < timeout),
        "{stalls:?}"
    );

    let since = Instant::now();
    assert!(connections.send(1, &waits(2), &[], &mut |_| {}).is_err(), "rank 1 would take it for the rest");
    connections.offer(1, &waits(2));
    assert!(connections.send(3, &[], &[&bulk], &mut |_| {}).is_err());
    assert!(since.elapsed() < timeout, "rank 0 does not wait for the whole timeout again");

    let told = Mailbox::default();
    for _ in &stalls {
        read_message(&mut at_2, 0, &told).unwrap();
    }
    assert!(told.waiting.is_blocked(0, 2) && !told.waiting.is_blocked(0, 1));
    // Rank 0's end waits for theirs.
    drop([at_1, at_2, at_3]);
}
