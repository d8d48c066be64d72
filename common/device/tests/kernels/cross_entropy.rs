//! Cross-entropy and its gradient.

use crate::oracle;
use crate::support::{Bench, Setting, assert_close, cases, finite_differences, read, settings};
use device::{CrossEntropy, DType, RowShape};
use proptest::prelude::*;

fn check(setting: Setting, shape: RowShape, scale: f64) {
    let mut bench = setting.bench();
    let mut logits = bench.tensor(setting.dtype, shape.rows * shape.width, 8.0);
    let mut losses = bench.tensor(DType::F32, shape.rows, 1.0);
    let (targets, indices) = bench.indices(shape.rows, shape.width + 1);
    let kernels = bench.device.kernels();
    let (losses_view, logits_view) = (losses.buffer.view_mut(), logits.buffer.view_mut());
    kernels
        .cross_entropy(CrossEntropy {
            losses: losses_view,
            logits: logits_view,
            targets: targets.view(),
            gradient_scale: scale as f32,
            shape,
        })
        .unwrap();
    let (want, gradient) = oracle::cross_entropy(&logits.values, &indices, shape.width);
    let gradient: Vec<_> = gradient.iter().map(|x| x * scale).collect();
    assert_close(&losses.buffer, &want, 16.0);
    assert_close(&logits.buffer, &gradient, 64.0);
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn matches_the_reference(
        setting in settings(),
        shape in prop_oneof![4 => (1usize..9, 1usize..300), 1 => (200usize..300, 100usize..300)],
        scale in prop_oneof![Just(1.0), Just(0.125), Just(1024.0)],
    ) {
        check(setting, RowShape { rows: shape.0, width: shape.1 }, scale);
    }
}

#[test]
fn gradient_is_the_slope() {
    let mut bench = Bench::seeded(5);
    let mut logits = bench.tensor(DType::F32, 3 * 21, 4.0);
    let (targets, indices) = bench.indices(3, 22);
    let want = finite_differences(&logits.values, |x| oracle::cross_entropy(x, &indices, 21).0.iter().sum());
    let mut losses = bench.tensor(DType::F32, 3, 1.0).buffer;
    let shape = RowShape { rows: 3, width: 21 };
    let (losses, logits_view) = (losses.view_mut(), logits.buffer.view_mut());
    bench
        .device
        .kernels()
        .cross_entropy(CrossEntropy {
            losses,
            logits: logits_view,
            targets: targets.view(),
            gradient_scale: 1.0,
            shape,
        })
        .unwrap();
    assert_close(&logits.buffer, &want, 32.0);
}

#[test]
fn large_logits_do_not_overflow_and_divergence_shows() {
    let bench = Bench::seeded(0);
    let mut logits =
        bench.store(DType::F32, &[1e4, -1e4, 9990.0, f64::NAN, 0.0, 0.0, f64::INFINITY, 0.0, 0.0]);
    let targets = bench.device.upload(device::Class::Workspace, &[2u32, 1, 1]).unwrap();
    let mut losses = bench.store(DType::F32, &[0.0; 3]).buffer;
    let shape = RowShape { rows: 3, width: 3 };
    let (losses_view, logits_view) = (losses.view_mut(), logits.buffer.view_mut());
    bench
        .device
        .kernels()
        .cross_entropy(CrossEntropy {
            losses: losses_view,
            logits: logits_view,
            targets: targets.view(),
            gradient_scale: 1.0,
            shape,
        })
        .unwrap();
    let losses = read(&losses);
    assert!((losses[0] - (10.0 + (-10f64).exp().ln_1p())).abs() < 1e-5);
    assert!(losses[1].is_nan() && losses[2].is_nan());
}

/// Whatever a row without a target holds, its loss and its gradient are 0.
#[test]
fn a_row_without_a_target_has_no_loss() {
    let bench = Bench::seeded(0);
    let mut logits = bench.store(DType::F32, &[1.0, 2.0, 3.0, f64::NAN, f64::INFINITY, 0.0]);
    let targets = bench.device.upload(device::Class::Workspace, &[0u32, 3]).unwrap();
    let mut losses = bench.store(DType::F32, &[7.0; 2]).buffer;
    let shape = RowShape { rows: 2, width: 3 };
    let (losses_view, logits_view) = (losses.view_mut(), logits.buffer.view_mut());
    let arguments = CrossEntropy {
        losses: losses_view,
        logits: logits_view,
        targets: targets.view(),
        gradient_scale: 1.0,
        shape,
    };
    bench.device.kernels().cross_entropy(arguments).unwrap();
    assert!(read(&losses)[0] > 0.0 && read(&losses)[1] == 0.0);
    assert_eq!(read(&logits.buffer)[3..], [0.0; 3]);
}
