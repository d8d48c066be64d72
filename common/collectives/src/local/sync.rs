//! The primitives under the [coordinator](super::coordinator), in one place so that tests can
//! exchange them.

use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use events::lock;
pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Blocks until notified, or for about `time`.
pub(crate) fn park<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, time: Duration) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
}
