//! Run-time choice of vector instructions.
//!
//! Rust never contracts a multiplication and an addition by itself, and reductions here have fixed
//! partial sums, so the choice changes the speed and never the bits.

/// Evaluates a block compiled for the widest vector instructions that this CPU has.
///
/// Only code that is inlined into the block benefits: functions and closures called from it are
/// `#[inline(always)]`.
macro_rules! vectorized {
    ($work:expr) => {
        $crate::dispatch::dispatch(
            #[inline(always)]
            || $work,
        )
    };
}

pub(crate) use vectorized;

/// Calls `work`, compiled for the widest vector instructions that this CPU has: the implementation
/// of [`vectorized!`].
#[inline]
pub(crate) fn dispatch<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx512f")
        && std::arch::is_x86_feature_detected!("avx512bw")
        && std::arch::is_x86_feature_detected!("avx512dq")
        && std::arch::is_x86_feature_detected!("avx512vl")
    {
        // SAFETY: the CPU has these instructions, as just detected.
        return unsafe { with_avx512(work) };
    }
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has these instructions, as just detected.
        return unsafe { with_avx2(work) };
    }
    // On other architectures the target's own instructions, such as NEON, are used.
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn with_avx512<R>(work: impl FnOnce() -> R) -> R {
    work()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2<R>(work: impl FnOnce() -> R) -> R {
    work()
}
