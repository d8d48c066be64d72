//! How a rank waits for its transfers.

use super::{DiskTransfer, Issued, Transfers};
use crate::wait::POLL_INTERVAL;
use crate::{Error, Result};
use device::Buffer;
use events::{Route, What};
use std::io;
use std::time::Duration;
use storage::{Answers, Call, CallKind};

impl Transfers {
    /// Blocks until the disk has answered. Returns its answer.
    pub(super) fn receive<M>(&self, staged: DiskTransfer<M>) -> Result<storage::Completed<M>> {
        let DiskTransfer { issued, ticket, mut answer, .. } = staged;
        let (disk, mut wait) = (&self.swap().disk, self.limits.begin(self.now()));
        let mut returned = None;
        let outcome = loop {
            if let Some(outcome) = answer.take().or_else(|| ticket.wait_for(POLL_INTERVAL)) {
                break outcome.map_err(Error::from);
            }
            let answers = disk.answers();
            if returned.replace(answers.returned) != Some(answers.returned) {
                wait.answered();
            }
            let late = wait.too_long().map(|idle| self.hangs(issued, answers, idle));
            if let Some(error) = wait.poll(self.now()).err().or(late) {
                break Err(error);
            }
        };
        match outcome {
            Ok(_) => wait.finish(),
            // The failure is emitted before the rank frees anything.
            Err(_) => self.emitter.emit(What::Failing),
        }
        outcome
    }

    /// Returns the error of a disk that has not answered for `idle`. It names the oldest call.
    fn hangs(&self, issued: Issued, Answers { oldest, .. }: Answers, idle: Duration) -> Error {
        let kind = if issued.route == Route::DiskToHost { CallKind::Read } else { CallKind::Write };
        let path = self.swap().file.path().to_path_buf();
        let Call { kind: call, path, offset } = oldest.unwrap_or(Call { kind, path, offset: None });
        let words = format!("the disk has not answered for {} s", idle.as_secs());
        storage::Error { call, path, offset, cause: io::Error::new(io::ErrorKind::TimedOut, words) }.into()
    }

    /// Ends all waits for simulated links at once from now on: the run ends, and transfers in
    /// flight are not wanted.
    pub fn wind_down(&self) {
        self.winding_down.set(true);
    }

    fn skips_simulated_waits(&self) -> bool {
        self.winding_down.get() || self.limits.is_stopped()
    }

    /// Blocks until the disk is done with `staged`, whose contents are not wanted. Returns its
    /// buffer. The transfer does not count.
    ///
    /// # Errors
    /// As [`Transfers::wait_staged`].
    pub fn discard(&self, staged: DiskTransfer) -> Result<Buffer> {
        if let Some(booked) = staged.booked {
            self.queues.borrow_mut()[staged.issued.route.index()].forget(self.now(), booked);
        }
        Ok(self.receive(staged)?.memory.buffer)
    }

    /// Blocks until `due`, when a simulated link delivers, or until the run ends.
    pub(super) fn sleep_until(&self, issued: Issued, due: Duration) -> Result<()> {
        let left = || {
            let left = due.saturating_sub(self.now());
            if left.is_zero() || self.skips_simulated_waits() { Duration::ZERO } else { left }
        };
        if let Some(timeout) = self.limits.timeout.filter(|&timeout| left() > timeout) {
            let Issued { route, bytes, .. } = issued;
            self.emitter.emit(What::Failing);
            return Err(Error::Slow { route, bytes, seconds: left().as_secs(), timeout: timeout.as_secs() });
        }
        let mut wait = self.limits.begin(self.now());
        while !left().is_zero() {
            std::thread::sleep(left().min(POLL_INTERVAL));
            wait.poll(self.now()).inspect_err(|_| self.emitter.emit(What::Failing))?;
        }
        wait.finish();
        Ok(())
    }
}
