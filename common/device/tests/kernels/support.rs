//! Random operands, and comparison within what rounding allows.

use device::{Buffer, Class, DType, Device, Ledger};
use events::Emitter;
use half::{bf16, f16};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// The setting of a case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) dtype: DType,
    pub(crate) threads: usize,
}

/// `count` random cases, the same on every run. Failures are reported with their input, not stored
/// in files.
pub(crate) fn cases(count: u32) -> ProptestConfig {
    ProptestConfig {
        cases: count,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(0),
        ..ProptestConfig::default()
    }
}

pub(crate) fn settings() -> impl Strategy<Value = Setting> {
    let dtypes = prop_oneof![Just(DType::F32), Just(DType::Bf16), Just(DType::F16)];
    (any::<u64>(), dtypes, 1usize..4).prop_map(|(seed, dtype, threads)| Setting { seed, dtype, threads })
}

/// A device and a stream of random numbers.
pub(crate) struct Bench {
    pub(crate) device: Device,
    state: u64,
}

impl Setting {
    pub(crate) fn bench(self) -> Bench {
        Bench { device: device(self.threads), state: self.seed }
    }
}

/// A device that keeps freed blocks full of NaN, so that most scratch memory of up to a MiB starts
/// as NaN: its contents are unspecified. A kernel's scratch is a freed block whose size is a power
/// of two.
pub(crate) fn device(threads: usize) -> Device {
    let device = Device::cpu(Ledger::new(Emitter::silent(0), None), threads);
    for bytes in (8..=20).map(|power| 1 << power) {
        let block = vec![f32::NAN; bytes / size_of::<f32>()];
        let _freed: Vec<_> =
            (0..threads + 1).map(|_| device.upload(Class::Workspace, &block).unwrap()).collect();
    }
    device
}

/// A buffer with its contents in f64.
pub(crate) struct Tensor {
    pub(crate) buffer: Buffer,
    pub(crate) values: Vec<f64>,
}

impl Bench {
    pub(crate) fn seeded(seed: u64) -> Self {
        Bench { device: device(1), state: seed }
    }

    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }

    /// Uniform from −1 to 1.
    pub(crate) fn number(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    pub(crate) fn index(&mut self, bound: usize) -> u32 {
        (self.bits() % bound as u64) as u32
    }

    /// `len` numbers, uniform from −magnitude to magnitude, as the buffer stores them.
    pub(crate) fn tensor(&mut self, dtype: DType, len: usize, magnitude: f64) -> Tensor {
        let values: Vec<_> = (0..len).map(|_| self.number() * magnitude).collect();
        self.store(dtype, &values)
    }

    pub(crate) fn store(&self, dtype: DType, values: &[f64]) -> Tensor {
        let class = Class::Workspace;
        let values = values.iter().map(|x| *x as f32);
        let buffer = match dtype {
            DType::Bf16 => self.device.upload(class, &values.map(bf16::from_f32).collect::<Vec<_>>()),
            DType::F16 => self.device.upload(class, &values.map(f16::from_f32).collect::<Vec<_>>()),
            _ => self.device.upload(class, &values.collect::<Vec<_>>()),
        };
        let buffer = buffer.unwrap();
        let values = read(&buffer);
        Tensor { buffer, values }
    }

    pub(crate) fn indices(&mut self, len: usize, bound: usize) -> (Buffer, Vec<usize>) {
        let ids: Vec<_> = (0..len).map(|_| self.index(bound)).collect();
        let buffer = self.device.upload(Class::Workspace, &ids).unwrap();
        (buffer, ids.iter().map(|id| *id as usize).collect())
    }
}

/// A buffer's floats.
pub(crate) fn read(buffer: &Buffer) -> Vec<f64> {
    match buffer.dtype() {
        DType::Bf16 => buffer.as_slice::<bf16>().iter().map(|x| x.to_f64()).collect(),
        DType::F16 => buffer.as_slice::<f16>().iter().map(|x| x.to_f64()).collect(),
        _ => buffer.as_slice::<f32>().iter().map(|x| f64::from(*x)).collect(),
    }
}

/// Half a unit in the last place of 1, and half of the smallest number.
fn rounding(dtype: DType) -> (f64, f64) {
    match dtype {
        DType::Bf16 => (2f64.powi(-8), 0.0),
        DType::F16 => (2f64.powi(-11), 2f64.powi(-25)),
        _ => (2f64.powi(-24), 0.0),
    }
}

/// Fails unless the buffer holds `want` to within one rounding to its type and `roundings` f32
/// roundings of the largest magnitude in `want`, by which sums of that many terms may differ.
#[track_caller]
pub(crate) fn assert_close(buffer: &Buffer, want: &[f64], roundings: f64) {
    let got = read(buffer);
    assert_eq!(got.len(), want.len());
    let largest = want.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    let (relative, absolute) = rounding(buffer.dtype());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let allowed = roundings * 2f64.powi(-24) * largest.max(1e-3) + relative * want.abs() + absolute;
        assert!(
            (got - want).abs() <= allowed,
            "element {i}: {got} instead of {want}, off by more than {allowed:e}"
        );
    }
}

/// Fails unless the buffer holds exactly `want`.
#[track_caller]
pub(crate) fn assert_same(buffer: &Buffer, want: &[f64]) {
    let got = read(buffer);
    assert_eq!(got.len(), want.len());
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!(got.to_bits() == want.to_bits(), "element {i}: {got} instead of {want}");
    }
}

/// The derivative of `f` at `x` in each direction, by central differences.
pub(crate) fn finite_differences(x: &[f64], f: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    const STEP: f64 = 1e-5;
    let mut x = x.to_vec();
    (0..x.len())
        .map(|i| {
            let at = x[i];
            x[i] = at + STEP;
            let above = f(&x);
            x[i] = at - STEP;
            let below = f(&x);
            x[i] = at;
            (above - below) / (2.0 * STEP)
        })
        .collect()
}

/// Σ a·b.
pub(crate) fn inner(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
