//! Messages of other processes, for tests that mutate them: bytes as they come over a connection,
//! read by the code that reads connections.

use crate::core::call::{BufferShape, Signature};
use crate::core::failure::{Cause, Failure};
use crate::tcp::connections::read_message;
use crate::tcp::messages::{Answer, Hello, receive, send};
use crate::tcp::proof::{ANSWER, Challenge, Key, prove};
use crate::wire::{Address, Head, Mailbox, Phase, encode};
use device::DType;
use events::Operation;
use std::io;
use std::time::Duration;

/// Number of elements in the buffer of the expecting call.
const EXPECTED: usize = 64;

/// Returns a stream of messages: an all-reduce's, a scalar's, a failure, a departure.
pub fn messages() -> Vec<u8> {
    let data = |operation, len: usize| {
        let shapes =
            vec![BufferShape { len, dtype: DType::F32 }; usize::from(operation != Operation::Scalars)];
        let signature = Signature { shapes, ..Signature::new(operation) };
        let address = Address { group: 0, sequence: 7, phase: Phase::Contribution };
        [encode(&Head::Data { address, signature }, 4 * len), vec![0; 4 * len]].concat()
    };
    let cause = Cause::Poisoned { during: "step 3".into(), reason: "out of memory".into() };
    let others = [
        Head::Failed { group: 0, failure: Failure { culprit: 1, cause } },
        Head::Steps { group: 3, steps: 1 << 50 },
        Head::Waits { rank: Some(2) },
        Head::Departed { group: 0 },
    ];
    let others = others.map(|head| encode(&head, 0)).concat();
    [data(Operation::AllReduce, EXPECTED), data(Operation::Scalars, 2), others].concat()
}

/// Reads `bytes` as messages of rank 1, while a call expects some of them. Returns how many were
/// whole.
pub fn read_messages(mut bytes: &[u8]) -> usize {
    let mailbox = Mailbox::default();
    mailbox.expect(0, 7, 4 * EXPECTED);
    let whole = std::iter::from_fn(|| read_message(&mut bytes, 1, &mailbox).ok()).count();
    mailbox.lost(1, String::new());
    whole
}

/// Returns the registration of a rank that has proven itself, and rank 0's possible answers.
pub fn registrations() -> [Vec<u8>; 3] {
    let (left, settings) = (Duration::from_secs(60), "program 0.1.0\nsteps: 3\nlr: 0.5".to_string());
    let hello = Hello { world_size: 4, port: 29_500, process: 9, left, settings };
    let listeners = vec![([10, 0, 0, 1].into(), 1), ([0, 0, 0, 0, 0, 0, 0, 1].into(), 2)];
    let answers = [Answer::Welcome { token: [7; 32], listeners }, Answer::Refused("no".into())];
    let mut said = [(); 3].map(|()| Vec::new());
    // Writing to a vector cannot fail.
    let _ = send(&mut said[0], &hello);
    said[1..].iter_mut().zip(&answers).for_each(|(said, answer)| drop(send(said, answer)));
    said
}

/// Reads `bytes` as each message of a meeting. True if they are one of them.
pub fn read_registration(bytes: &[u8]) -> bool {
    receive::<Hello>(bytes).is_ok() || receive::<Answer>(bytes).is_ok()
}

/// Reads `bytes` as a stranger's proof, at either end of a connection. True if it was accepted.
pub fn accepts_proof(bytes: &[u8]) -> bool {
    let key = Key::of_rendezvous(None, 29_500);
    let answer = bytes.first_chunk::<ANSWER>();
    let accepted = Challenge::send(io::sink())
        .ok()
        .zip(answer)
        .is_some_and(|(own, answer)| own.verify(key, answer).is_some());
    accepted || prove(bytes, io::sink(), key, 1).is_ok()
}
