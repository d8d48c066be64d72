//! The gate that every call passes: it counts and records calls, and injects faults.

use crate::fault::{Answers, Call, CallKind, DiskFault, Effect};
use crate::{Error, Result};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Counts calls and injects the faults that are due.
#[derive(Default)]
pub(crate) struct Calls {
    faults: Vec<DiskFault>,
    recorded: bool,
    counted: Mutex<Counted>,
}

#[derive(Default)]
struct Counted {
    of_kind: HashMap<CallKind, u64>,
    of_any: u64,
    /// The effect on every later call that it applies to.
    lasting: Option<Effect>,
    record: Vec<Call>,
    /// Calls that have not returned, by number.
    in_flight: BTreeMap<u64, Call>,
    returned: u64,
}

impl Calls {
    pub(crate) fn new(faults: Vec<DiskFault>, recorded: bool) -> Self {
        Calls { faults, recorded, counted: Mutex::default() }
    }

    /// Returns the calls so far, if they are recorded.
    pub(crate) fn record(&self) -> Vec<Call> {
        self.lock().record.clone()
    }

    /// Returns how many calls have returned, and the oldest that has not.
    pub(crate) fn answers(&self) -> Answers {
        let counted = self.lock();
        let oldest = counted.in_flight.first_key_value().map(|(_, call)| call.clone());
        Answers { returned: counted.returned, oldest }
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies `effect` to every later call that it can affect.
    pub(crate) fn fail(&self, effect: Effect) {
        self.lock().lasting = Some(effect);
    }

    /// Passes a call that is not a transfer.
    pub(crate) fn run<T>(
        &self,
        kind: CallKind,
        path: &Path,
        call: impl FnOnce() -> io::Result<T>,
    ) -> Result<T> {
        self.transfer(kind, path, None, |_| call())
    }

    /// Passes a transfer that begins at `offset`. `call` receives the maximum number of bytes that
    /// it may move.
    pub(crate) fn transfer<T>(
        &self,
        kind: CallKind,
        path: &Path,
        offset: Option<u64>,
        call: impl FnOnce(usize) -> io::Result<T>,
    ) -> Result<T> {
        let (number, due) = self.count(kind, path, offset);
        let outcome = strike(due).and_then(call);
        self.returned(number);
        outcome.map_err(|cause| Error { call: kind, path: path.to_path_buf(), offset, cause })
    }

    /// Counts and records the call. Returns its number, and the effect of the fault that hits it.
    fn count(&self, kind: CallKind, path: &Path, offset: Option<u64>) -> (u64, Option<Effect>) {
        let mut counted = self.lock();
        let call = Call { kind, path: path.to_path_buf(), offset };
        if self.recorded {
            counted.record.push(call.clone());
        }
        counted.of_any += 1;
        let number = counted.of_any;
        counted.in_flight.insert(number, call);
        let of_kind = counted.of_kind.entry(kind).or_default();
        *of_kind += 1;
        let of_kind = *of_kind;
        let hits = |fault: &&DiskFault| match fault.kind {
            Some(wanted) => wanted == kind && fault.number == of_kind,
            None => fault.number == number,
        };
        let due = self.faults.iter().find(hits).map(|fault| fault.effect);
        if matches!(due, Some(Effect::Full | Effect::Crash)) {
            counted.lasting = due;
        }
        let takes_room = matches!(
            kind,
            CallKind::Create | CallKind::Write | CallKind::Reserve | CallKind::CreateDirectory
        );
        let lasts = |effect: &Effect| match effect {
            Effect::Full => takes_room,
            Effect::Hang => matches!(kind, CallKind::Read | CallKind::Write),
            _ => true,
        };
        (number, due.or(counted.lasting.filter(lasts)))
    }

    fn returned(&self, number: u64) {
        let mut counted = self.lock();
        counted.in_flight.remove(&number);
        counted.returned += 1;
    }
}

/// Applies the fault that is `due`, if any. Returns the maximum number of bytes that the call may
/// move.
fn strike(due: Option<Effect>) -> io::Result<usize> {
    match due {
        None => Ok(usize::MAX),
        Some(Effect::Short(bytes)) => Ok(bytes.max(1)),
        Some(Effect::Delay(time)) => {
            std::thread::sleep(time);
            Ok(usize::MAX)
        }
        Some(Effect::Hang) => loop {
            std::thread::park();
        },
        Some(Effect::Error(error)) => Err(error.into()),
        Some(Effect::Full) => Err(io::ErrorKind::StorageFull.into()),
        Some(Effect::Crash) => Err(io::Error::other("the machine has crashed")),
    }
}
