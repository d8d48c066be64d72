//! Element-wise kernels, AdamW and the reductions that do not depend on cuts.

use crate::support::{Bench, Setting, Tensor, assert_close, assert_same, cases, read, settings};
use device::{AdamW, AdamWUpdate, Buffer, Class, DType, Device};
use proptest::prelude::*;

const UPDATE: AdamW = AdamW {
    lr: 1e-3,
    beta1: 0.9,
    beta2: 0.95,
    eps: 1e-8,
    weight_decay: 0.1,
    step: Some(3),
    gradient_scale: 0.25,
};

fn dtypes() -> impl Strategy<Value = DType> {
    prop_oneof![Just(DType::F32), Just(DType::Bf16), Just(DType::F16)]
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..100, 2000usize..2100, 60_000usize..61_000]
}

/// Values rounded to `dtype`.
fn rounded(bench: &Bench, dtype: DType, values: &[f64]) -> Vec<f64> {
    bench.store(dtype, values).values
}

struct State {
    master: Tensor,
    momentum: Tensor,
    variance: Tensor,
    gradients: Tensor,
}

impl State {
    fn random(bench: &mut Bench, dtype: DType, len: usize) -> Self {
        let variance: Vec<_> = (0..len).map(|_| bench.number().powi(2)).collect();
        State {
            master: bench.tensor(DType::F32, len, 1.0),
            momentum: bench.tensor(DType::F32, len, 1.0),
            variance: bench.store(DType::F32, &variance),
            gradients: bench.tensor(dtype, len, 4.0),
        }
    }

    /// Updates elements `range`, and rounds them to `parameters` if there are any.
    fn update(
        &mut self,
        device: &Device,
        range: std::ops::Range<usize>,
        parameters: Option<&mut Buffer>,
        settings: AdamW,
    ) {
        let len = range.len();
        let arguments = AdamWUpdate {
            parameters: parameters.map(Buffer::view_mut),
            master: self.master.buffer.slice_mut(range.clone()),
            momentum: self.momentum.buffer.slice_mut(range.clone()),
            variance: self.variance.buffer.slice_mut(range.clone()),
            gradients: self.gradients.buffer.slice(range),
            len,
            settings,
        };
        device.kernels().adamw(arguments).unwrap();
    }

    fn bits(&self) -> Vec<u32> {
        let all = [&self.master, &self.momentum, &self.variance];
        all.iter().flat_map(|x| x.buffer.as_slice::<f32>()).map(|x| x.to_bits()).collect()
    }
}

/// Algorithm 2 of the paper, in f64.
fn adamw_reference(state: &State, i: usize, u: AdamW) -> [f64; 3] {
    let (lr, beta1, beta2) = (f64::from(u.lr), f64::from(u.beta1), f64::from(u.beta2));
    let gradient = state.gradients.values[i] * f64::from(u.gradient_scale);
    let momentum = beta1 * state.momentum.values[i] + (1.0 - beta1) * gradient;
    let variance = beta2 * state.variance.values[i] + (1.0 - beta2) * gradient * gradient;
    let unbiased = |beta: f64| u.step.map_or(1.0, |step| 1.0 - beta.powi(step as i32));
    let root = (variance / unbiased(beta2)).sqrt() + f64::from(u.eps);
    let adaptive = momentum / unbiased(beta1) / root;
    let master = state.master.values[i];
    [master - lr * (adaptive + f64::from(u.weight_decay) * master), momentum, variance]
}

fn fixed_point(values: &[f64], exponent: i32) -> u128 {
    let square = |x: &f64| (x * 2f64.powi(-exponent)).powi(2) * 2f64.powi(48);
    values.iter().map(|x| square(x).round_ties_even() as u128).sum()
}

proptest! {
    #![proptest_config(cases(24))]

    #[test]
    fn add(setting in settings(), other in dtypes(), len in lengths()) {
        let mut bench = setting.bench();
        let mut out = bench.tensor(setting.dtype, len, 1.0);
        let x = bench.tensor(other, len, 1.0);
        bench.device.kernels().add(out.buffer.view_mut(), x.buffer.view()).unwrap();
        let sum = |(a, b): (&f64, &f64)| f64::from((a + b) as f32);
        let want: Vec<_> = out.values.iter().zip(&x.values).map(sum).collect();
        assert_same(&out.buffer, &rounded(&bench, setting.dtype, &want));
    }

    #[test]
    fn copy_and_fill(setting in settings(), other in dtypes(), len in lengths(), value in -100f32..100.0) {
        let mut bench = setting.bench();
        let mut out = bench.tensor(setting.dtype, len, 1.0);
        let x = bench.tensor(other, len, 1e3);
        bench.device.kernels().copy(out.buffer.view_mut(), x.buffer.view()).unwrap();
        assert_same(&out.buffer, &rounded(&bench, setting.dtype, &x.values));
        bench.device.kernels().fill(out.buffer.view_mut(), value).unwrap();
        assert_same(&out.buffer, &rounded(&bench, setting.dtype, &vec![f64::from(value); len]));
    }

    #[test]
    fn adamw_matches_the_paper(setting in settings(), len in 1usize..100, step in 1u32..2000, corrects in any::<bool>()) {
        let mut bench = setting.bench();
        let mut state = State::random(&mut bench, setting.dtype, len);
        let update = AdamW { step: corrects.then_some(step), ..UPDATE };
        let want: Vec<_> = (0..len).map(|i| adamw_reference(&state, i, update)).collect();
        state.update(&bench.device, 0..len, None, update);
        for (part, tensor) in [&state.master, &state.momentum, &state.variance].into_iter().enumerate() {
            assert_close(&tensor.buffer, &want.iter().map(|x| x[part]).collect::<Vec<_>>(), 4.0);
        }
    }

    #[test]
    fn adamw_is_the_same_wherever_it_is_cut(setting in settings(), len in lengths(), cut in 0.0..1.0) {
        let cut = (len as f64 * cut) as usize;
        let run = |ranges: &[std::ops::Range<usize>]| {
            let mut bench = setting.bench();
            let mut state = State::random(&mut bench, setting.dtype, len);
            ranges.iter().for_each(|range| state.update(&bench.device, range.clone(), None, UPDATE));
            state.bits()
        };
        #[allow(clippy::single_range_in_vec_init)]
        let whole = run(&[0..len]);
        prop_assert!(whole == run(&[0..cut, cut..len]));
    }

    #[test]
    fn adamw_rounds_its_masters_to_parameters(setting in settings(), len in lengths()) {
        let mut bench = setting.bench();
        let mut plain = State::random(&mut bench, setting.dtype, len);
        let mut bench = setting.bench();
        let mut state = State::random(&mut bench, setting.dtype, len);
        let mut parameters = bench.tensor(setting.dtype, len, 1.0).buffer;
        plain.update(&bench.device, 0..len, None, UPDATE);
        state.update(&bench.device, 0..len, Some(&mut parameters), UPDATE);
        prop_assert!(plain.bits() == state.bits());
        let masters: Vec<_> = read(&state.master.buffer);
        assert_same(&parameters, &rounded(&bench, setting.dtype, &masters));
    }

    #[test]
    fn sum_of_squares_is_exact_wherever_it_is_cut(
        setting in settings(),
        len in lengths(),
        cut in 0.0..1.0,
        exponent in -9i32..9,
    ) {
        let mut bench = setting.bench();
        let x = bench.tensor(setting.dtype, len, 1.999 * 2f64.powi(exponent));
        let cut = (len as f64 * cut) as usize;
        let sum = |range| bench.device.kernels().sum_of_squares(&[x.buffer.slice(range)], exponent).unwrap();
        let whole = sum(0..len);
        prop_assert_eq!(whole, sum(0..cut) + sum(cut..len));
        prop_assert_eq!(whole, fixed_point(&x.values, exponent));
    }

    #[test]
    fn max_magnitude(setting in settings(), len in lengths(), magnitude in 1e-3..1e3) {
        let mut bench = setting.bench();
        let x = bench.tensor(setting.dtype, len, magnitude);
        let want = x.values.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
        prop_assert_eq!(f64::from(bench.device.kernels().max_magnitude(&[x.buffer.view()]).unwrap()), want);
        if len > 0 {
            let mut values = x.values;
            values[len / 2] = f64::NAN;
            let x = bench.store(setting.dtype, &values);
            prop_assert!(bench.device.kernels().max_magnitude(&[x.buffer.view()]).unwrap().is_nan());
        }
    }
}

#[test]
fn extremes_survive_conversion() {
    let bench = Bench::seeded(0);
    let values = [f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-40, 3.4e38, 65504.0, 65520.0, 6e-8, 2e-8];
    for dtype in [DType::Bf16, DType::F16] {
        let x = bench.store(DType::F32, &values);
        let mut out = bench.store(dtype, &[1.0; 10]).buffer;
        bench.device.kernels().copy(out.view_mut(), x.buffer.view()).unwrap();
        let want = rounded(&bench, dtype, &x.values);
        assert_same(&out, &want);
        let nan = bench.store(DType::F32, &[f64::NAN]);
        bench.device.kernels().copy(out.slice_mut(0..1), nan.buffer.view()).unwrap();
        assert!(read(&out)[0].is_nan());
    }
}

#[test]
fn copy_takes_token_ids() {
    let bench = Setting { seed: 0, dtype: DType::F32, threads: 1 }.bench();
    let ids = bench.device.upload(Class::Workspace, &[7u32, u32::MAX, 0]).unwrap();
    let mut out = bench.device.zeros(Class::Workspace, DType::U32, 2).unwrap();
    bench.device.kernels().copy(out.view_mut(), ids.slice(1..3)).unwrap();
    assert_eq!(out.as_slice::<u32>(), [u32::MAX, 0]);
}
