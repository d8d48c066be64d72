//! Messages through MPI. There is no thread of its own: MPI moves on whenever this rank sends or waits.

use super::raw::{BLOCK, MpiWorld, Transfer};
use crate::wire::{self, HEAD, Head, Kind, Mailbox, Message, Payload, PayloadPool, Stalled, Transport};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a wait looks for messages without pause, and how long it pauses then.
const EAGER: Duration = Duration::from_micros(200);
const PAUSE: Duration = Duration::from_micros(50);
/// How long the end of a process waits for the others to be done with it.
const LINGER: Duration = Duration::from_secs(2);

/// This process's post office.
pub(crate) struct MpiTransport {
    state: Mutex<Transfers>,
    pool: PayloadPool,
}

struct Transfers {
    world: MpiWorld,
    outgoing: Vec<Transfer>,
    /// With their senders.
    incoming: Vec<(u32, Transfer)>,
    /// Who has said farewell to the world.
    departed: Vec<bool>,
    /// Whether anybody has told of a failure: then MPI is not ended in order.
    failed: bool,
}

impl MpiTransport {
    pub(crate) fn new(world: MpiWorld) -> Self {
        let departed = (0..world.size).map(|rank| rank == world.rank).collect();
        let (outgoing, incoming) = (Vec::new(), Vec::new());
        MpiTransport {
            state: Mutex::new(Transfers { world, outgoing, incoming, departed, failed: false }),
            pool: PayloadPool::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Transfers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves what can be moved without waiting.
    fn pump(&self, mailbox: Option<&Mailbox>) -> Result<(), String> {
        let mut state = self.lock();
        let state = &mut *state;
        for sent in finished(&mut state.outgoing, |transfer| state.world.is_done(transfer))? {
            self.pool.give(sent.into_payload());
        }
        while let Some((from, bytes)) = state.world.probe()? {
            let transfer = state.world.receive(from, self.pool.take(bytes))?;
            state.incoming.push((from, transfer));
        }
        for (from, transfer) in finished(&mut state.incoming, |(_, transfer)| state.world.is_done(transfer))?
        {
            let payload = transfer.into_payload();
            let note = state.sort(from, payload, mailbox);
            note.ok_or("what arrived is no message: all ranks must run the same program")?;
        }
        Ok(())
    }
}

/// Takes those out that are done, in their order.
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
    /// Puts a message where it belongs; `None` if it is none.
    fn sort(&mut self, from: u32, payload: Payload, mailbox: Option<&Mailbox>) -> Option<()> {
        let bytes = payload.bytes();
        let Head { kind, note, payload } = wire::decode(bytes.first_chunk::<HEAD>()?)?;
        let text = bytes.get(HEAD..HEAD + note)?;
        match kind {
            Kind::Message(address) => {
                let call = wire::call(text, address.sequence)?;
                let payload = payload.part(HEAD + note, payload)?;
                let address = wire::Address { from, ..address };
                if let Some(mailbox) = mailbox {
                    mailbox.deliver(address, Message { call, payload });
                }
            }
            Kind::Failed { group } => {
                self.failed = true;
                let failure = wire::failure(text)?;
                if let Some(mailbox) = mailbox {
                    mailbox.fail(group, failure);
                }
            }
            Kind::Report { group, count } => {
                if let Some(mailbox) = mailbox {
                    mailbox.report(group, from, count);
                }
            }
            Kind::Waits { rank } => {
                if let Some(mailbox) = mailbox {
                    mailbox.waiting.set(from, rank);
                }
            }
            Kind::Departed { group } => {
                if group == wire::WORLD {
                    self.departed[from as usize] = true;
                }
                if let Some(mailbox) = mailbox {
                    mailbox.depart(group, from);
                }
            }
        }
        Some(())
    }
}

impl Transport for MpiTransport {
    /// MPI takes every message at once.
    fn send(&self, to: u32, head: &[u8], pieces: &[&[u8]], _: Stalled<'_>) -> Result<(), String> {
        let size = head.len() + pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let mut payload = self.pool.take(size.next_multiple_of(BLOCK));
        let mut rest = payload.bytes_mut();
        for piece in std::iter::once(&head).chain(pieces) {
            let (room, more) = rest.split_at_mut(piece.len());
            room.copy_from_slice(piece);
            rest = more;
        }
        rest.fill(0);
        let mut state = self.lock();
        state.failed |= head.first() == Some(&b'F');
        let transfer = state.world.send(to, payload)?;
        state.outgoing.push(transfer);
        Ok(())
    }

    fn offer(&self, to: u32, head: &[u8]) {
        let _ = self.send(to, head, &[], &mut |_| {});
    }

    fn progress(&self, mailbox: &Mailbox, seen: u64, time: Duration) {
        let since = Instant::now();
        while mailbox.is_quiet(seen) && since.elapsed() < time {
            if let Err(reason) = self.pump(Some(mailbox)) {
                let rank = self.lock().world.rank;
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
    /// Gets everything out, waits for the others' farewells, and ends MPI in order if all is well.
    fn drop(&mut self) {
        let since = Instant::now();
        loop {
            let broken = self.pump(None).is_err();
            let mut state = self.lock();
            let done = state.outgoing.is_empty() && state.departed.iter().all(|departed| *departed);
            if done && !state.failed && !broken {
                return state.world.end();
            }
            // After a failure the launcher ends the job: ending MPI in order would wait for those who are gone.
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
