//! The gate that every call passes: it counts, records and injects faults.

use crate::fault::{Call, Effect, Fault, Kind};
use crate::{Error, Result};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Counts calls and injects the faults that are due.
#[derive(Default)]
pub(crate) struct Calls {
    faults: Vec<Fault>,
    recorded: bool,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    of_kind: HashMap<Kind, u64>,
    of_any: u64,
    /// The error that every later call fails with.
    lasting: Option<Effect>,
    record: Vec<Call>,
}

impl Calls {
    pub(crate) fn new(faults: Vec<Fault>, recorded: bool) -> Self {
        Calls { faults, recorded, counted: Mutex::default() }
    }

    /// The calls so far, if they are recorded.
    pub(crate) fn record(&self) -> Vec<Call> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).record.clone()
    }

    /// From now on `effect` hits every call that it can hit.
    pub(crate) fn fail(&self, effect: Effect) {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner).lasting = Some(effect);
    }

    /// Passes a call that is not a transfer.
    pub(crate) fn run<T>(&self, kind: Kind, path: &Path, call: impl FnOnce() -> io::Result<T>) -> Result<T> {
        self.transfer(kind, path, None, |_| call())
    }

    /// Passes a transfer that begins at `offset`. `call` may move at most so many bytes as it is given.
    pub(crate) fn transfer<T>(
        &self,
        kind: Kind,
        path: &Path,
        offset: Option<u64>,
        call: impl FnOnce(usize) -> io::Result<T>,
    ) -> Result<T> {
        let outcome = self.enter(kind, path, offset).and_then(call);
        outcome.map_err(|cause| Error { call: kind, path: path.to_path_buf(), offset, cause })
    }

    /// Counts the call and returns the most bytes that it may move.
    fn enter(&self, kind: Kind, path: &Path, offset: Option<u64>) -> io::Result<usize> {
        let due = self.count(kind, path, offset);
        match due {
            None => Ok(usize::MAX),
            Some(Effect::Short(bytes)) => Ok(bytes.max(1)),
            Some(Effect::Delay(time)) => {
                std::thread::sleep(time);
                Ok(usize::MAX)
            }
            Some(Effect::Error(error)) => Err(error.into()),
            Some(Effect::Full) => Err(io::ErrorKind::StorageFull.into()),
            Some(Effect::Crash) => Err(io::Error::other("the machine has crashed")),
        }
    }

    /// Counts and records the call. Returns the fault that hits it.
    fn count(&self, kind: Kind, path: &Path, offset: Option<u64>) -> Option<Effect> {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if self.recorded {
            counted.record.push(Call { kind, path: path.to_path_buf(), offset });
        }
        counted.of_any += 1;
        let of_kind = counted.of_kind.entry(kind).or_default();
        *of_kind += 1;
        let (of_kind, of_any) = (*of_kind, counted.of_any);
        let hits = |fault: &&Fault| match fault.kind {
            Some(wanted) => wanted == kind && fault.number == of_kind,
            None => fault.number == of_any,
        };
        let due = self.faults.iter().find(hits).map(|fault| fault.effect);
        if matches!(due, Some(Effect::Full | Effect::Crash)) {
            counted.lasting = due;
        }
        let takes_room = matches!(
            kind,
            Kind::Create | Kind::Write | Kind::SetLength | Kind::Reserve | Kind::CreateDirectory
        );
        let lasts = |effect: &Effect| *effect != Effect::Full || takes_room;
        due.or(counted.lasting.filter(lasts))
    }
}
