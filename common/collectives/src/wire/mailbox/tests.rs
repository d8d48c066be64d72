//! A waiting rank learns the right state of a mailbox, whatever arrives between two looks.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a panic")]

use super::*;
use crate::core::failure::Cause;
use crate::wire::message::Phase;
use events::Operation;

const GROUP: u64 = 9;

fn address() -> Address {
    Address { group: GROUP, sequence: 0, phase: Phase::Contribution }
}

/// Rank 1's message, and its departure from `group`.
fn arrives(mailbox: &Mailbox, sends: bool, group: u64) {
    if sends {
        let head = Head::Data { address: address(), signature: Signature::new(Operation::Barrier) };
        mailbox.receive(1, head, Payload::default());
    }
    mailbox.receive(1, Head::Departed { group }, Payload::default());
}

#[test]
fn a_rank_that_departs_after_its_last_message_is_missed_by_nobody() {
    let mailbox = Mailbox::default();
    let early = mailbox.take(address(), &[1], &[GROUP, WORLD]).map(|_| ()).unwrap_err();
    arrives(&mailbox, true, GROUP);
    assert_eq!((early.ranks, early.departed), (vec![1], None), "what it looked like then");
    assert_eq!(mailbox.take(address(), &[1], &[GROUP, WORLD]).map_or(0, |all| all.len()), 1);
}

#[test]
fn a_rank_that_departs_from_the_world_is_gone_from_its_sub_groups() {
    for group in [GROUP, WORLD] {
        let mailbox = Mailbox::default();
        arrives(&mailbox, false, group);
        let missing = mailbox.take(address(), &[1], &[GROUP, WORLD]).map(|_| ()).unwrap_err();
        assert_eq!(missing.departed, Some(1), "{group}");
    }
}

#[test]
fn a_failure_is_new_until_it_is_relayed() {
    let mailbox = Mailbox::default();
    let failure = |culprit| Failure { culprit, cause: Cause::Departed };
    mailbox.fail(WORLD, failure(1));
    mailbox.fail(GROUP, failure(2));
    let found = |is_new| Some(GroupFailure { group: WORLD, failure: failure(1), is_new });
    assert_eq!(mailbox.failure(&[GROUP, WORLD]), found(true), "the first counts");
    assert_eq!(mailbox.failure(&[GROUP, WORLD]), found(true));
    mailbox.mark_relayed(WORLD);
    assert_eq!(mailbox.failure(&[GROUP, WORLD]), found(false));
}

#[test]
fn reports_never_go_backwards() {
    let mailbox = Mailbox::default();
    [3, 5, 4].into_iter().for_each(|count| mailbox.note_steps(GROUP, 1, count));
    assert_eq!(mailbox.steps(GROUP, 1), 5);
}
