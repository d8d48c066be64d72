//! Run-time choice of vector instructions.

/// Calls `work` compiled for the widest vector instructions that this CPU has.
///
/// Rust contracts no multiplication with an addition by itself, so the bits do not depend on the choice. `work` must
/// be inlined to profit: let it call `#[inline(always)]` functions only.
#[inline]
pub(super) fn vectorized<R>(work: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(work)
}
