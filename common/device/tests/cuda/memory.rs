//! Tensors for the shim, beside the CPU's, and comparisons of the two.

use crate::shim;
use device::cuda::kernels::Operand;
use device::{Buffer, Class, DType, Device, Ledger};
use events::Emitter;
use half::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// Bytes before a tensor that kernels must not write; they read as NaN.
const FENCE: usize = 256;

/// The largest page of a supported system.
const PAGE: usize = 64 << 10;

/// Readable memory with every bit set, followed by memory that cannot be accessed.
struct Guarded {
    start: *mut u8,
    bytes: usize,
}

impl Guarded {
    /// At least `bytes` bytes, in whole pages.
    fn new(bytes: usize) -> Self {
        let bytes = bytes.next_multiple_of(PAGE);
        // SAFETY: a new mapping, of which the last page is closed; nothing else knows of it.
        unsafe {
            let flags = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
            let start = mmap_anonymous(std::ptr::null_mut(), bytes + PAGE, flags.0, flags.1).unwrap();
            let start = start.cast::<u8>();
            mprotect(start.add(bytes).cast(), PAGE, MprotectFlags::empty()).unwrap();
            start.write_bytes(u8::MAX, bytes);
            Guarded { start, bytes }
        }
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: mapped until `self` is dropped; the tests run kernels and look at results in
        // turn.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size; nothing refers to it any more.
        let _ = unsafe { munmap(self.start.cast(), self.bytes + PAGE) };
    }
}

/// A tensor's memory. It ends where readable memory ends, or as few bytes before as its alignment
/// allows, so that reading past it is a segmentation fault. The bytes around it are checked when it
/// is dropped.
pub(crate) struct Memory {
    memory: Guarded,
    start: usize,
    dtype: DType,
    len: usize,
}

impl Memory {
    /// `len` elements, all bits set, `shift` elements after a multiple of 16 bytes.
    pub(crate) fn poisoned(dtype: DType, len: usize, shift: usize) -> Self {
        let size = dtype.size();
        let memory = Guarded::new(FENCE + (shift + len) * size + 16);
        let last = memory.bytes - (shift + len) * size;
        let start = last - last % 16 + shift * size;
        Memory { memory, start, dtype, len }
    }

    /// A copy of `buffer`.
    pub(crate) fn copy_of(buffer: &Buffer, shift: usize) -> Self {
        let mut memory = Memory::poisoned(buffer.dtype(), buffer.len(), shift);
        let range = memory.range();
        memory.memory.bytes_mut()[range].copy_from_slice(buffer.bytes());
        memory
    }

    /// A tensor of these indices.
    pub(crate) fn of_indices(indices: &[u32]) -> Self {
        let mut memory = Memory::poisoned(DType::U32, indices.len(), 0);
        let range = memory.range();
        memory.memory.bytes_mut()[range].copy_from_slice(bytemuck::cast_slice(indices));
        memory
    }

    /// The elements, of which each is a `T`.
    pub(crate) fn as_slice<T: bytemuck::Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.len * self.dtype.size()
    }

    pub(crate) fn pointer(&self) -> u64 {
        self.memory.start as u64 + self.start as u64
    }

    pub(crate) fn operand(&self) -> Operand {
        Operand { pointer: self.pointer(), dtype: self.dtype }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[self.range()]
    }

    /// The elements, widened.
    pub(crate) fn values(&self) -> Vec<f64> {
        values(self.dtype, self.bytes())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let (range, bytes) = (self.range(), self.memory.bytes());
        let intact = bytes[..range.start].iter().chain(&bytes[range.end..]).all(|byte| *byte == u8::MAX);
        assert!(intact || std::thread::panicking(), "a kernel wrote beside its tensor");
    }
}

fn values(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    let halves = || bytes.chunks_exact(2).map(|x| u16::from_ne_bytes([x[0], x[1]]));
    match dtype {
        DType::Bf16 => halves().map(|bits| bf16::from_bits(bits).to_f64()).collect(),
        DType::F16 => halves().map(|bits| f16::from_bits(bits).to_f64()).collect(),
        _ => bytes.chunks_exact(4).map(|x| f64::from(f32::from_ne_bytes([x[0], x[1], x[2], x[3]]))).collect(),
    }
}

/// The setting of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    /// Elements between a multiple of 16 bytes and the start of each tensor.
    pub(crate) shift: usize,
}

/// `count` random cases, the same on every run; none if there is no compiler for the shim.
pub(crate) fn cases(count: u32) -> ProptestConfig {
    let rng_seed = RngSeed::Fixed(0);
    let cases = if shim::can_be_built() { count } else { 0 };
    ProptestConfig { cases, failure_persistence: None, rng_seed, ..ProptestConfig::default() }
}

/// Mostly tensors that start on a multiple of 16 bytes, as allocated ones do.
pub(crate) fn settings() -> impl Strategy<Value = Setting> {
    let shifts = prop_oneof![3 => Just(0usize), 1 => 1usize..8];
    (any::<u64>(), shifts).prop_map(|(seed, shift)| Setting { seed, shift })
}

pub(crate) fn floats() -> impl Strategy<Value = DType> {
    prop_oneof![Just(DType::F32), Just(DType::Bf16), Just(DType::F16)]
}

/// The CPU's device, and random numbers.
pub(crate) struct Bench {
    pub(crate) device: Device,
    pub(crate) shift: usize,
    state: u64,
}

impl Setting {
    pub(crate) fn bench(self) -> Bench {
        let device = Device::cpu(Ledger::new(Emitter::silent(0), None), 1);
        Bench { device, shift: self.shift, state: self.seed }
    }
}

impl Bench {
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// `len` numbers, uniform from −magnitude to magnitude, for the CPU and for the shim.
    pub(crate) fn tensor(&mut self, dtype: DType, len: usize, magnitude: f32) -> (Buffer, Memory) {
        let number = |bits: u64| ((bits >> 40) as f32 / (1u64 << 23) as f32 - 1.0) * magnitude;
        let values: Vec<f32> = (0..len).map(|_| number(self.bits())).collect();
        self.store(dtype, &values)
    }

    pub(crate) fn store(&self, dtype: DType, values: &[f32]) -> (Buffer, Memory) {
        let buffer = self.device.upload_as(Class::Workspace, dtype, values).unwrap();
        let memory = Memory::copy_of(&buffer, self.shift);
        (buffer, memory)
    }

    pub(crate) fn indices(&mut self, len: usize, bound: usize) -> (Buffer, Memory) {
        let indices: Vec<_> = (0..len).map(|_| (self.bits() % bound as u64) as u32).collect();
        let buffer = self.device.upload(Class::Workspace, &indices).unwrap();
        let memory = Memory::copy_of(&buffer, 0);
        (buffer, memory)
    }
}

/// Fails unless both hold the same bits; any NaN equals any other.
#[track_caller]
pub(crate) fn assert_same(got: &Memory, want: &Buffer) {
    assert_eq!((got.dtype, got.len), (want.dtype(), want.len()));
    let want = values(want.dtype(), want.bytes());
    for (i, (got, want)) in got.values().iter().zip(want).enumerate() {
        let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
        assert!(same, "element {i}: {got} instead of {want}");
    }
}

/// Fails unless both agree to within a rounding each of the element, and `allowed` of the largest
/// element.
#[track_caller]
pub(crate) fn assert_close(got: &Memory, want: &Buffer, allowed: f64) {
    assert_eq!((got.dtype, got.len), (want.dtype(), want.len()));
    let want = values(want.dtype(), want.bytes());
    let largest = want.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let (relative, absolute) = match got.dtype {
        DType::Bf16 => (2f64.powi(-7), 0.0),
        DType::F16 => (2f64.powi(-10), 2f64.powi(-24)),
        _ => (2f64.powi(-23), 0.0),
    };
    for (i, (got, want)) in got.values().iter().zip(want).enumerate() {
        let allowed = allowed * largest.max(1e-3) + relative * want.abs() + absolute;
        assert!(
            (got - want).abs() <= allowed,
            "element {i}: {got} instead of {want}, off by more than {allowed:e}"
        );
    }
}

/// `count` f32 roundings.
pub(crate) fn roundings(count: f64) -> f64 {
    count * 2f64.powi(-24)
}
