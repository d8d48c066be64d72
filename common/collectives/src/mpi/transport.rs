//! Messages through MPI. No thread serves MPI: MPI makes progress whenever this rank sends or
//! waits.

use super::raw::{BLOCK, MpiWorld, Transfer};
use crate::wire::{self, Head, Lengths, Mailbox, PREFIX, Payload, Stalled, Transport};
use events::lock;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How long a wait polls without pauses, and how long its pauses are afterwards.
const EAGER: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(50);
/// How long a process that ends waits for the others to depart.
const LINGER: Duration = Duration::from_secs(2);

/// This process's end of MPI.
pub(crate) struct MpiTransport {
    state: Mutex<Transfers>,
    mailbox: Arc<Mailbox>,
}

struct Transfers {
    world: MpiWorld,
    outgoing: Vec<Transfer>,
    /// Transfers with their senders.
    incoming: Vec<(u32, Transfer)>,
    /// By rank: true if it has departed from the world.
    departed: Vec<bool>,
    /// True once a group has failed: then MPI is not finalized.
    failed: bool,
}

impl MpiTransport {
    pub(crate) fn new(world: MpiWorld, mailbox: Arc<Mailbox>) -> Self {
        let departed = (0..world.size).map(|rank| rank == world.rank).collect();
        let (outgoing, incoming) = (Vec::new(), Vec::new());
        MpiTransport {
            state: Mutex::new(Transfers { world, outgoing, incoming, departed, failed: false }),
            mailbox,
        }
    }

    /// Makes what progress is possible without blocking.
    fn pump(&self) -> Result<(), String> {
        let mut state = lock(&self.state);
        let state = &mut *state;
        for sent in finished(&mut state.outgoing, |transfer| state.world.is_done(transfer))? {
            self.mailbox.pool.give(sent.payload);
        }
        while let Some((from, bytes)) = state.world.probe()? {
            let transfer = state.world.receive(from, self.mailbox.pool.take(bytes))?;
            state.incoming.push((from, transfer));
        }
        // MPI may complete a short message before a long one that the same rank sent first. They
        // are delivered in the order in which they were sent.
        let mut late = BTreeSet::new();
        let in_turn = |(from, transfer): &mut (u32, _)| {
            let done = !late.contains(from) && state.world.is_done(transfer)?;
            if !done {
                late.insert(*from);
            }
            Ok(done)
        };
        for (from, transfer) in finished(&mut state.incoming, in_turn)? {
            let delivered = state.deliver(from, transfer.payload, &self.mailbox);
            delivered.ok_or("something other than a message arrived: all ranks must run the same program")?;
        }
        Ok(())
    }
}

/// Removes and returns the transfers that are done, in their order.
fn finished<T>(
    all: &mut Vec<T>,
    mut is_done: impl FnMut(&mut T) -> Result<bool, String>,
) -> Result<Vec<T>, String> {
    let mut done = Vec::new();
    let mut index = 0;
    while index < all.len() {
        if is_done(&mut all[index])? {
            done.push(all.remove(index));
        } else {
            index += 1;
        }
    }
    Ok(done)
}

impl Transfers {
    /// Delivers a message of rank `from`; `None` if the bytes are not one.
    fn deliver(&mut self, from: u32, message: Payload, mailbox: &Mailbox) -> Option<()> {
        let Lengths { head, payload: len } = wire::lengths(message.bytes().first_chunk::<PREFIX>()?)?;
        let start = PREFIX + head;
        let head = wire::decode(message.bytes().get(PREFIX..start)?, len)?;
        let payload = message.part(start, len)?;
        match head {
            Head::Failed { .. } => self.failed = true,
            Head::Departed { group: wire::WORLD } => self.departed[from as usize] = true,
            _ => {}
        }
        mailbox.receive(from, head, payload);
        Some(())
    }
}

impl Transport for MpiTransport {
    /// MPI accepts every message without blocking.
    fn send(&self, to: u32, head: &[u8], pieces: &[&[u8]], _: Stalled<'_>) -> Result<(), String> {
        let size = head.len() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let mut payload = self.mailbox.pool.take(size.next_multiple_of(BLOCK));
        let mut rest = payload.bytes_mut();
        for piece in std::iter::once(&head).chain(pieces) {
            let (room, more) = rest.split_at_mut(piece.len());
            room.copy_from_slice(piece);
            rest = more;
        }
        rest.fill(0);
        let mut state = lock(&self.state);
        let transfer = state.world.send(to, payload)?;
        state.outgoing.push(transfer);
        Ok(())
    }

    fn offer(&self, to: u32, head: &[u8]) {
        let _ = self.send(to, head, &[], &mut |_| {});
    }

    fn note_failure(&self) {
        lock(&self.state).failed = true;
    }

    fn progress(&self, mailbox: &Mailbox, seen: u64, time: Duration) {
        let since = Instant::now();
        while mailbox.epoch() == seen && since.elapsed() < time {
            if let Err(reason) = self.pump() {
                let rank = lock(&self.state).world.rank;
                return mailbox.lost(rank, reason);
            }
            if since.elapsed() < EAGER {
                std::thread::yield_now();
            } else {
                std::thread::sleep(PAUSE);
            }
        }
    }
}

impl Drop for MpiTransport {
    /// Sends everything, waits until the other ranks have departed, and finalizes MPI unless a
    /// group has failed.
    fn drop(&mut self) {
        let since = Instant::now();
        loop {
            let broken = self.pump().is_err();
            let mut state = lock(&self.state);
            let done = state.outgoing.is_empty() && state.departed.iter().all(|departed| *departed);
            if done && !state.failed && !broken {
                return state.world.end();
            }
            // After a failure the launcher ends the job: finalizing MPI would wait for processes
            // that have ended.
            if broken || done || since.elapsed() > LINGER {
                let state = &mut *state;
                // MPI may still read and write their memory.
                state.outgoing.drain(..).for_each(std::mem::forget);
                return state.incoming.drain(..).for_each(std::mem::forget);
            }
            drop(state);
            std::thread::sleep(PAUSE);
        }
    }
}
