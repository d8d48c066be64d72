//! Keeps launches of kernels that need each other apart from calls that wait for kernels.
//!
//! A kernel of NCCL's ends only once the other ranks' kernels of its call run too. Freeing memory,
//! locking pages and loading machine code wait for everything that runs in a context, and the
//! driver may prevent all threads of the process from launching during that time. If such a call
//! begins after one rank has launched its kernel and before another rank has, it never returns. So
//! neither begins while the other is in progress, whichever ranks and GPUs they are for.

use events::lock;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The number of threads of this process in each kind of call.
struct Counts {
    launching: usize,
    waiting: usize,
}

static COUNTS: Mutex<Counts> = Mutex::new(Counts { launching: 0, waiting: 0 });
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// Number of [`ContextWait`]s that this thread holds, nested in each other.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Blocks while `busy` is true of the counts.
fn wait_while(
    counts: MutexGuard<'static, Counts>,
    busy: impl Fn(&Counts) -> bool,
) -> MutexGuard<'static, Counts> {
    CHANGED.wait_while(counts, |counts| busy(counts)).unwrap_or_else(PoisonError::into_inner)
}

/// Held from before a rank launches its kernel of a call until all ranks have launched theirs. All
/// ranks must be ready before any of them begins: a rank that is not there yet may still free
/// memory.
pub struct Launching(());

impl Launching {
    /// Blocks until no [`ContextWait`] is held; none begins before this is dropped.
    pub fn begin() -> Self {
        let mut counts = lock(&COUNTS);
        counts.launching += 1;
        drop(wait_while(counts, |counts| counts.waiting > 0));
        Launching(())
    }
}

impl Drop for Launching {
    fn drop(&mut self) {
        lock(&COUNTS).launching -= 1;
        CHANGED.notify_all();
    }
}

/// Held during a call that may wait for everything that runs in a context.
pub struct ContextWait(PhantomData<*const ()>);

impl ContextWait {
    /// Blocks until no thread is [`Launching`], unless this thread holds one already; then none
    /// launches before this is dropped.
    pub fn begin() -> Self {
        if HELD.replace(HELD.get() + 1) == 0 {
            wait_while(lock(&COUNTS), |counts| counts.launching > 0).waiting += 1;
        }
        ContextWait(PhantomData)
    }
}

impl Drop for ContextWait {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
        if HELD.get() == 0 {
            lock(&COUNTS).waiting -= 1;
            CHANGED.notify_all();
        }
    }
}
