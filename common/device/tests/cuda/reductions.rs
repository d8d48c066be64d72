//! Maxima, and sums in fixed point: to the bit.

use crate::memory::{Memory, Setting, cases, floats, settings};
use crate::shim::{Shim, shim_or_return};
use device::DType;
use device::cuda::kernels;
use proptest::prelude::*;

fn largest(shim: &Shim, x: &Memory, len: usize) -> f32 {
    let result = Memory::poisoned(DType::F32, 1, 0);
    kernels::max_magnitude(shim, result.pointer(), x.operand(), len).unwrap();
    f32::from_ne_bytes(result.bytes().try_into().unwrap())
}

fn check(setting: Setting, dtype: DType, len: usize, magnitude: f32) {
    let mut bench = setting.bench();
    let (x, memory) = bench.tensor(dtype, len, magnitude);
    let (device, shim) = (bench.device.clone(), Shim::new(setting.seed));
    let want = device.kernels().max_magnitude(&[x.view()]).unwrap();
    assert_eq!(largest(&shim, &memory, len), want);
    let exponent = magnitude.log2().ceil() as i32;
    let sum = Memory::poisoned(DType::U32, 4, 0);
    kernels::sum_of_squares(&shim, sum.pointer(), memory.operand(), exponent, len).unwrap();
    let want = device.kernels().sum_of_squares(&[x.view()], exponent).unwrap();
    assert_eq!(u128::from_le_bytes(sum.bytes().try_into().unwrap()), want);
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn magnitudes_and_squares(
        setting in settings(),
        dtype in floats(),
        len in prop_oneof![0usize..70, 8000usize..9000],
        magnitude in prop_oneof![Just(1e-6f32), Just(1.0), Just(300.0)],
    ) {
        check(setting, dtype, len, magnitude);
    }
}

#[test]
fn more_elements_than_blocks_take_in_one_round() {
    shim_or_return!();
    check(Setting { seed: 1, shift: 0 }, DType::Bf16, 1024 * 256 * 8 * 2 + 5, 1.0);
}

#[test]
fn sums_carry_into_the_high_half() {
    shim_or_return!();
    // Squares just below 4 in units of 2^-48: 2^50 each, so that 2^15 of them need more than 64
    // bits.
    let len = 40_000;
    let bench = Setting { seed: 0, shift: 0 }.bench();
    let (x, memory) = bench.store(DType::F32, &vec![1.999_999; len]);
    let sum = Memory::poisoned(DType::U32, 4, 0);
    kernels::sum_of_squares(&Shim::new(2), sum.pointer(), memory.operand(), 0, len).unwrap();
    let got = u128::from_le_bytes(sum.bytes().try_into().unwrap());
    assert!(got > u128::from(u64::MAX));
    assert_eq!(got, bench.device.kernels().sum_of_squares(&[x.view()], 0).unwrap());
}

#[test]
fn nan_is_above_all_magnitudes() {
    shim_or_return!();
    let bench = Setting { seed: 0, shift: 0 }.bench();
    let mut values = vec![-3.0; 5000];
    assert_eq!(largest(&Shim::new(0), &bench.store(DType::F16, &values).1, 5000), 3.0);
    values[4000] = f32::NEG_INFINITY;
    assert_eq!(largest(&Shim::new(0), &bench.store(DType::F16, &values).1, 5000), f32::INFINITY);
    values[17] = f32::NAN;
    assert!(largest(&Shim::new(0), &bench.store(DType::F16, &values).1, 5000).is_nan());
}
