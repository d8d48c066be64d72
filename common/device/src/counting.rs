//! An allocator that counts, for programs that test how much memory something takes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes that this thread holds, and the maximum that it has held at once.
    static HELD: Cell<(isize, isize)> = const { Cell::new((0, 0)) };
}

/// The system's allocator, with a count per thread. Use it as a program's `#[global_allocator]`.
pub struct CountingAllocator;

impl CountingAllocator {
    /// Runs `work`. Returns its result and the maximum number of bytes that this thread held at
    /// once during it, in addition to those that it held before.
    pub fn peak<R>(work: impl FnOnce() -> R) -> (R, usize) {
        let before = HELD.get().0;
        HELD.set((before, before));
        let result = work();
        (result, (HELD.get().1 - before).max(0) as usize)
    }
}

/// Counts `bytes` more. Does nothing while the thread ends.
fn count(bytes: isize) {
    let _ = HELD.try_with(|held| {
        let (now, most) = held.get();
        held.set((now + bytes, most.max(now + bytes)));
    });
}

// SAFETY: every call is passed to the system's allocator unchanged.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller's promise.
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}
