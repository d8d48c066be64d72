//! Every kernel on the device, against the CPU's over the same inputs: one function per operation,
//! run on both, over several shapes.

mod attention;
mod flat;
mod matmul;
mod rows;

use crate::parts::{Outcome, Part};
use crate::{Finding, rank};
use device::cuda::Options;
use device::{Buffer, Class, DType, Device, Ledger, Result};
use events::Emitter;

/// What an operation has written in one place, as f32.
pub(crate) struct Output {
    name: &'static str,
    values: Vec<f32>,
    /// Differences count as they are, not relative to the largest magnitude.
    absolute: bool,
}

/// How far an operation may differ: not in a bit, or by rounding.
#[derive(Clone, Copy, PartialEq)]
enum Closeness {
    Bits,
    Rounding,
}

/// Runs an operation over inputs that it makes itself. Returns everything that it has written.
type Run = dyn Fn(&Device, DType) -> Result<Vec<Output>>;

/// An operation over one shape, this in words.
struct Case {
    shape: String,
    run: Box<Run>,
}

/// The same over several shapes.
struct Operation {
    name: &'static str,
    closeness: Closeness,
    cases: Vec<Case>,
    /// The types of its operands.
    types: &'static [DType],
}

impl Operation {
    fn new<const N: usize>(
        name: &'static str,
        closeness: Closeness,
        shapes: impl IntoIterator<Item = [usize; N]>,
        run: fn(&Device, DType, [usize; N]) -> Result<Vec<Output>>,
    ) -> Self {
        let case = |shape: [usize; N]| {
            let words = shape.map(|size| size.to_string()).join("×");
            Case { shape: words, run: Box::new(move |device, dtype| run(device, dtype, shape)) }
        };
        let cases = shapes.into_iter().map(case).collect();
        Operation { name, closeness, cases, types: &[DType::F32, DType::F16, DType::Bf16] }
    }
}

/// Every operation in every type that the GPU has, against the CPU's.
pub(crate) fn parts<'a>(longest: usize, bf16: bool) -> Vec<Part<'a>> {
    let cpu = || Ok(Device::cpu(Ledger::new(Emitter::silent(0), None), 1));
    let all = [matmul::all(bf16), rows::all(), attention::all(longest), flat::all()];
    all.into_iter().flatten().map(|operation| part("", operation, cpu, bf16)).collect()
}

/// Tiled attention against attention by matrix products, both on the GPU.
pub(crate) fn attention_parts<'a>(longest: usize, bf16: bool) -> Vec<Part<'a>> {
    let by_products = || rank(Options { attention_by_products: true, ..Options::default() });
    attention::tiled(longest)
        .into_iter()
        .map(|operation| part("tiled ", operation, by_products, bf16))
        .collect()
}

/// One operation on the GPU against what `reference` computes.
fn part<'a>(kind: &str, operation: Operation, reference: fn() -> Result<Device>, bf16: bool) -> Part<'a> {
    Part::new(format!("{kind}{}", operation.name), move || {
        let (expected, got) = (reference()?, rank(Options::default())?);
        let types = operation.types.iter().filter(|&&dtype| bf16 || dtype != DType::Bf16);
        Result::Ok(types.map(|&dtype| compare(&expected, &got, &operation, dtype)).collect())
    })
}

/// The largest absolute difference of an output that is compared so. It is f32 for every type.
const ABSOLUTE: f32 = 1e-4;

/// Returns the largest difference that an output may have.
fn allowed(closeness: Closeness, output: &Output, dtype: DType) -> f32 {
    match (closeness, dtype) {
        (Closeness::Bits, _) => 0.0,
        (Closeness::Rounding, _) if output.absolute => ABSOLUTE,
        (Closeness::Rounding, DType::F32) => 2e-5,
        (Closeness::Rounding, DType::F16) => 4e-3,
        (Closeness::Rounding, _) => 2e-2,
    }
}

/// Returns the worst of all shapes and outputs: the one nearest to, or farthest beyond, the
/// difference that it may have.
fn compare(expected: &Device, got: &Device, operation: &Operation, dtype: DType) -> Finding {
    let what = format!("{}, {dtype}", operation.name);
    let mut worst = (f32::NEG_INFINITY, String::new());
    for Case { shape, run } in &operation.cases {
        // A case's errors are known before the next case starts, so the case that an error names
        // caused it.
        let whole = |device: &Device| run(device, dtype).and_then(|all| device.synchronize().map(|()| all));
        let (expected, got) = match (whole(expected), whole(got)) {
            (Ok(expected), Ok(got)) => (expected, got),
            (Err(error), _) | (_, Err(error)) => {
                return Finding { what, result: format!("{shape}: {error}"), outcome: Outcome::Fails };
            }
        };
        for (expected, got) in expected.iter().zip(&got) {
            let allowed = allowed(operation.closeness, expected, dtype);
            let error = apart(expected, got);
            let excess = if error == 0.0 { 0.0 } else { error / allowed };
            if excess > worst.0 {
                let allowed = if allowed == 0.0 { "no bit".into() } else { format!("at most {allowed:.0e}") };
                worst = (excess, format!("{error:.1e} in {}, {shape} ({allowed})", expected.name));
            }
        }
    }
    Finding { what, result: worst.1, outcome: Outcome::from((0.0..=1.0).contains(&worst.0)) }
}

/// The largest difference, as the output's differences count; infinite for other lengths or stray
/// NaNs.
fn apart(expected: &Output, got: &Output) -> f32 {
    let (expected, got, absolute) = (&expected.values, &got.values, expected.absolute);
    if expected.len() != got.len() || got.is_empty() {
        return f32::INFINITY;
    }
    let largest = expected.iter().fold(f32::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
    let unit = if absolute { 1.0 } else { largest };
    let apart = |(a, b): (&f32, &f32)| if a.to_bits() == b.to_bits() { 0.0 } else { (a - b).abs() / unit };
    let worst = |worst: f32, x: f32| if x.is_nan() { f32::INFINITY } else { worst.max(x) };
    // Numbers that differ in nothing but a sign bit or a NaN's bits differ.
    let differ = expected.iter().zip(got).any(|(a, b)| a.to_bits() != b.to_bits());
    let most = expected.iter().zip(got).map(apart).fold(0.0, worst);
    if differ { most.max(f32::MIN_POSITIVE) } else { most }
}

/// Numbers from a seed, the same on every call.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 32
    }

    /// From −1 to 1.
    fn value(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// At least 1, at most `most`.
    fn size(&mut self, most: usize) -> usize {
        1 + self.bits() as usize % most
    }
}

/// `count` shapes, each size at least 1 and at most that in `most`.
fn shapes<const N: usize>(seed: u64, count: usize, most: [usize; N]) -> Vec<[usize; N]> {
    let mut random = Random::new(seed);
    (0..count).map(|_| most.map(|most| random.size(most))).collect()
}

/// `len` numbers from −1 to 1.
fn values(seed: u64, len: usize) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.value()).collect()
}

fn tensor(device: &Device, dtype: DType, seed: u64, len: usize) -> Result<Buffer> {
    device.upload_as(Class::Workspace, dtype, &values(seed, len))
}

/// A buffer's elements, widened.
fn numbers(device: &Device, buffer: &Buffer) -> Result<Vec<f32>> {
    let mut wide = device.allocate(Class::Workspace, DType::F32, buffer.len())?;
    device.kernels().copy(wide.view_mut(), buffer.view())?;
    Ok(device.read::<f32>(wide.view())?.into_owned())
}

fn output(device: &Device, name: &'static str, buffer: &Buffer) -> Result<Output> {
    Ok(Output { name, values: numbers(device, buffer)?, absolute: false })
}

fn outputs<const N: usize>(device: &Device, all: [(&'static str, &Buffer); N]) -> Result<Vec<Output>> {
    all.into_iter().map(|(name, buffer)| output(device, name, buffer)).collect()
}

/// Logarithms, whose size says nothing about how far they may be apart.
fn logarithms(device: &Device, name: &'static str, buffer: &Buffer) -> Result<Output> {
    Ok(Output { absolute: true, ..output(device, name, buffer)? })
}
