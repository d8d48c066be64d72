//! Locks after panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks. A thread that panicked with the lock has left the state as it was before its critical
/// section, or has poisoned the group.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
