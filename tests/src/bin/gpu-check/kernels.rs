//! Compares every kernel on the device with the CPU's on the same inputs: one function per
//! operation, run on both, over several shapes.

mod attention;
mod flat;
mod matmul;
mod rows;

use crate::parts::{Outcome, Part};
use crate::{Finding, rank};
use device::cuda::Options;
use device::{Buffer, Class, DType, Device, Ledger, Result};
use events::Emitter;

/// The output of an operation in one buffer, as f32.
pub(crate) struct Output {
    name: &'static str,
    values: Vec<f32>,
    /// Whether differences are absolute, not relative to the largest magnitude.
    absolute: bool,
}

/// Permitted difference of an operation: none, or rounding.
#[derive(Clone, Copy, PartialEq)]
enum Closeness {
    Bits,
    Rounding,
}

/// Runs an operation on inputs that it generates. Returns all of its outputs.
type Run = dyn Fn(&Device, DType) -> Result<Vec<Output>>;

/// An operation on one shape, with the shape in words.
struct Case {
    shape: String,
    run: Box<Run>,
}

/// An operation on several shapes.
struct Operation {
    name: &'static str,
    closeness: Closeness,
    cases: Vec<Case>,
    /// The types of the operands.
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

/// Returns a part for every operation in every type that the GPU supports, compared with the CPU.
pub(crate) fn parts<'a>(longest: usize, bf16: bool) -> Vec<Part<'a>> {
    let cpu = || Ok(Device::cpu(Ledger::new(Emitter::silent(0), None), 1));
    let all = [matmul::all(bf16), rows::all(), attention::all(longest), flat::all()];
    all.into_iter().flatten().map(|operation| part("", operation, cpu, bf16)).collect()
}

/// Returns parts that compare tiled attention with attention by matrix products, both on the GPU.
pub(crate) fn attention_parts<'a>(longest: usize, bf16: bool) -> Vec<Part<'a>> {
    let by_products = || rank(Options { attention_by_products: true, ..Options::default() });
    attention::tiled(longest)
        .into_iter()
        .map(|operation| part("tiled ", operation, by_products, bf16))
        .collect()
}

/// Returns a part that compares one operation on the GPU with the result on `reference`.
fn part<'a>(kind: &str, operation: Operation, reference: fn() -> Result<Device>, bf16: bool) -> Part<'a> {
    Part::new(format!("{kind}{}", operation.name), move || {
        let (expected, got) = (reference()?, rank(Options::default())?);
        let types = operation.types.iter().filter(|&&dtype| bf16 || dtype != DType::Bf16);
        Result::Ok(types.map(|&dtype| compare(&expected, &got, &operation, dtype)).collect())
    })
}

/// Maximum difference of an output that is compared absolutely. Such outputs are f32 for every
/// type.
const ABSOLUTE: f32 = 1e-4;

/// Returns the maximum difference that an output may have.
fn allowed(closeness: Closeness, output: &Output, dtype: DType) -> f32 {
    match (closeness, dtype) {
        (Closeness::Bits, _) => 0.0,
        (Closeness::Rounding, _) if output.absolute => ABSOLUTE,
        (Closeness::Rounding, DType::F32) => 2e-5,
        (Closeness::Rounding, DType::F16) => 4e-3,
        (Closeness::Rounding, _) => 2e-2,
    }
}

/// Returns the worst result over all shapes and outputs: the one nearest to, or farthest beyond,
/// its permitted difference.
fn compare(expected: &Device, got: &Device, operation: &Operation, dtype: DType) -> Finding {
    let what = format!("{}, {dtype}", operation.name);
    let mut worst = (f32::NEG_INFINITY, String::new());
    for Case { shape, run } in &operation.cases {
        // Errors of a case are reported before the next case starts, so an error names the case
        // that caused it.
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

/// Returns the largest difference, absolute or relative as the output demands. It is infinite if
/// lengths differ or NaNs are misplaced.
fn apart(expected: &Output, got: &Output) -> f32 {
    let (expected, got, absolute) = (&expected.values, &got.values, expected.absolute);
    if expected.len() != got.len() || got.is_empty() {
        return f32::INFINITY;
    }
    let largest = expected.iter().fold(f32::MIN_POSITIVE, |largest, x| largest.max(x.abs()));
    let unit = if absolute { 1.0 } else { largest };
    let apart = |(a, b): (&f32, &f32)| if a.to_bits() == b.to_bits() { 0.0 } else { (a - b).abs() / unit };
    let worst = |worst: f32, x: f32| if x.is_nan() { f32::INFINITY } else { worst.max(x) };
    // Numbers differ even if only a sign bit or a NaN's bits differ.
    let differ = expected.iter().zip(got).any(|(a, b)| a.to_bits() != b.to_bits());
    let most = expected.iter().zip(got).map(apart).fold(0.0, worst);
    if differ { most.max(f32::MIN_POSITIVE) } else { most }
}

/// Seeded random numbers, the same on every call.
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

    /// Returns a number from −1 to 1.
    fn value(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Returns a size of at least 1 and at most `most`.
    fn size(&mut self, most: usize) -> usize {
        1 + self.bits() as usize % most
    }
}

/// Returns `count` shapes. Each size is at least 1 and at most the one in `most`.
fn shapes<const N: usize>(seed: u64, count: usize, most: [usize; N]) -> Vec<[usize; N]> {
    let mut random = Random::new(seed);
    (0..count).map(|_| most.map(|most| random.size(most))).collect()
}

/// Returns `len` numbers from −1 to 1.
fn values(seed: u64, len: usize) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..len).map(|_| random.value()).collect()
}

fn tensor(device: &Device, dtype: DType, seed: u64, len: usize) -> Result<Buffer> {
    device.upload_as(Class::Workspace, dtype, &values(seed, len))
}

/// Returns a buffer's elements, widened to f32.
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

/// Returns logarithms, whose magnitude does not determine the permitted difference.
fn logarithms(device: &Device, name: &'static str, buffer: &Buffer) -> Result<Output> {
    Ok(Output { absolute: true, ..output(device, name, buffer)? })
}
