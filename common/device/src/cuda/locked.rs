//! Main memory whose pages the driver has locked, so that a GPU reaches them.
//!
//! `cuMemHostAlloc` fetches and clears pages on one thread. A large block is therefore mapped here,
//! in huge pages where the system has them; the rank's threads fetch its pages together, and then
//! the driver locks them.

use super::call::Named;
use super::gate::ContextWait;
use crate::Result;
use cudarc::driver::{result, sys};
#[cfg(target_os = "linux")]
use rustix::mm::{Advice, madvise};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::null_mut;
use std::thread;

/// Size in bytes from which a block is mapped here.
const LARGE: usize = 16 << 20;

/// Bytes of a huge page.
const HUGE: usize = 2 << 20;

/// Bytes of a page; larger ones are multiples of it.
const PAGE: usize = 4 << 10;

/// A block of locked pages, zero at first. The context in which it was locked must be current when
/// it is dropped.
pub(super) enum Locked {
    /// The driver's own memory.
    Allocated(*mut c_void),
    /// Memory that the driver has been told to lock.
    Registered(Mapping),
}

impl Locked {
    /// Locks `bytes` bytes in the current context. A large block's pages are fetched by `threads`
    /// threads, at least one; if the system does not map it, or the driver does not lock it, the
    /// driver allocates it.
    ///
    /// # Errors
    /// The driver's, of `cuMemHostAlloc`.
    pub(super) fn new(bytes: usize, threads: usize) -> Result<Self> {
        let large = if bytes < LARGE { None } else { Locked::registered(bytes, threads) };
        large.map_or_else(|| Locked::allocated(bytes), Ok)
    }

    fn allocated(bytes: usize) -> Result<Self> {
        let start = {
            let _wait = ContextWait::begin();
            // SAFETY: the driver takes a size and touches nothing of ours; a context is current.
            unsafe { result::malloc_host(bytes.max(1), 0) }.named("cuMemHostAlloc")?
        };
        // SAFETY: just allocated with this many bytes; no other reference exists.
        unsafe { start.cast::<u8>().write_bytes(0, bytes) };
        Ok(Locked::Allocated(start))
    }

    /// `None` if the system or the driver refuses.
    fn registered(bytes: usize, threads: usize) -> Option<Self> {
        let mut mapping = Mapping::new(bytes)?;
        mapping.fetch(threads);
        let _wait = ContextWait::begin();
        // SAFETY: the driver locks these pages and touches no byte of them; they stay mapped until
        // `drop` has unlocked them.
        let locked = unsafe {
            sys::cuMemHostRegister_v2(mapping.start().cast(), bytes, sys::CU_MEMHOSTREGISTER_PORTABLE)
        };
        locked.result().ok().map(|()| Locked::Registered(mapping))
    }

    /// Returns the address of the first byte.
    pub(super) fn start(&self) -> *mut u8 {
        match self {
            Locked::Allocated(start) => start.cast(),
            Locked::Registered(mapping) => mapping.start(),
        }
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        let _wait = ContextWait::begin();
        match self {
            // SAFETY: allocated once, freed once; the owner's copies are done.
            Locked::Allocated(start) => drop(unsafe { result::free_host(*start) }),
            // SAFETY: locked once, unlocked once, before the pages go.
            Locked::Registered(mapping) => drop(unsafe { sys::cuMemHostUnregister(mapping.start().cast()) }),
        }
    }
}

/// Zeroed pages of the system's.
pub(super) struct Mapping {
    /// The address that the system has mapped, with room to begin at a huge page.
    mapped: *mut c_void,
    /// Bytes in use, from [`Mapping::start`].
    bytes: usize,
}

impl Mapping {
    /// Maps `bytes` bytes, in huge pages where a whole one fits; `None` if the system refuses.
    fn new(bytes: usize) -> Option<Self> {
        let room = bytes.checked_add(HUGE)?;
        // SAFETY: the system chooses where it maps the memory.
        let mapped = unsafe {
            mmap_anonymous(null_mut(), room, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let mapping = Mapping { mapped: mapped.ok()?, bytes };
        #[cfg(target_os = "linux")]
        // SAFETY: the pages were just mapped. A system without huge pages refuses, and uses others.
        let _ = unsafe { madvise(mapping.start().cast(), bytes / HUGE * HUGE, Advice::LinuxHugepage) };
        Some(mapping)
    }

    fn start(&self) -> *mut u8 {
        let past = self.mapped.addr() % HUGE;
        self.mapped.cast::<u8>().wrapping_add((HUGE - past) % HUGE)
    }

    /// Has `threads` threads write to every page, so that the system fetches it. The driver fetches
    /// the pages of a thread that does not start.
    fn fetch(&mut self, threads: usize) {
        // SAFETY: mapped with this many bytes, which are zero, and borrowed mutably as `self` is.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.start(), self.bytes) };
        let share = bytes.len().div_ceil(threads.max(1)).next_multiple_of(HUGE);
        let mut shares = bytes.chunks_mut(share);
        let own = shares.next().unwrap_or_default();
        thread::scope(|scope| {
            for share in shares {
                let _ = thread::Builder::new().spawn_scoped(scope, || fetch(share));
            }
            fetch(own);
        });
    }
}

fn fetch(share: &mut [u8]) {
    share.chunks_mut(PAGE).for_each(|page| page[0] = 0);
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped once, with this size, and nothing refers to it.
        let _ = unsafe { munmap(self.mapped, self.bytes + HUGE) };
    }
}
