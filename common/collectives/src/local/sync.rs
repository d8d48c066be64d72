//! The primitives under [`protocol`](super::protocol), in one place so that its schedules can be explored with others.

use std::sync::PoisonError;
use std::time::Duration;

pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

/// Locks. A holder that panicked leaves the state as it was before its critical section or poisoned in our own sense.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parks until notified, or for about `time`.
pub(crate) fn park<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>, time: Duration) -> MutexGuard<'a, T> {
    condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
}
