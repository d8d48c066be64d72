//! Treats denormal numbers as zero, like the processors' dot products of bf16.

#[cfg(target_arch = "x86_64")]
use std::arch::asm;

/// While it lives, this thread's arithmetic takes denormal operands for zero and returns zero for a
/// denormal result. Elsewhere than on x86-64 and aarch64, and on aarch64 where a result is rounded
/// up to the least normal number, denormals are not zero and the bits of such products differ.
pub(super) struct Flushed {
    before: Control,
}

#[cfg(target_arch = "x86_64")]
type Control = u32;
#[cfg(not(target_arch = "x86_64"))]
type Control = u64;

impl Flushed {
    pub(super) fn begin() -> Self {
        let before = control();
        set_control(before | FLUSH);
        Flushed { before }
    }
}

impl Drop for Flushed {
    fn drop(&mut self) {
        set_control(self.before);
    }
}

/// MXCSR's bits for denormal operands and for denormal results.
#[cfg(target_arch = "x86_64")]
const FLUSH: Control = 1 << 6 | 1 << 15;

#[cfg(target_arch = "x86_64")]
fn control() -> Control {
    let mut control = 0;
    // SAFETY: the instruction writes these four bytes.
    unsafe { asm!("stmxcsr [{}]", in(reg) &raw mut control, options(nostack, preserves_flags)) };
    control
}

#[cfg(target_arch = "x86_64")]
fn set_control(control: Control) {
    // SAFETY: the value is the register's own with other modes for denormals, and it is restored.
    // The compiler assumes the default modes. It takes this instruction to read and write memory,
    // so it moves no load or store across it. Operands are loaded and sums stored between the two
    // changes, so products stay between them. Only constants could be computed elsewhere; none is
    // denormal.
    unsafe { asm!("ldmxcsr [{}]", in(reg) &raw const control, options(nostack, preserves_flags)) };
}

/// FPCR's bit for both.
#[cfg(target_arch = "aarch64")]
const FLUSH: Control = 1 << 24;

#[cfg(target_arch = "aarch64")]
fn control() -> Control {
    let control;
    // SAFETY: the register may be read.
    unsafe { std::arch::asm!("mrs {}, fpcr", out(reg) control, options(nomem, nostack, preserves_flags)) };
    control
}

#[cfg(target_arch = "aarch64")]
fn set_control(control: Control) {
    // SAFETY: as above, this instruction, too, is taken to read and write memory.
    unsafe { std::arch::asm!("msr fpcr, {}", in(reg) control, options(nostack, preserves_flags)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const FLUSH: Control = 0;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn control() -> Control {
    0
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn set_control(_: Control) {}
