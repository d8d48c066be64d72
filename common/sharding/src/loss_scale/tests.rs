//! The loss scale, step by step, against DeepSpeed's.

use super::*;

/// Follows `steps` (`x` overflows, `.` does not) and returns the scale before each of them, and
/// at the end.
fn scales(scaling: LossScaling, steps: &str) -> Vec<f64> {
    let mut scaler = LossScaler::new(scaling);
    let mut scales = vec![scaler.at().scale];
    for step in steps.chars() {
        scaler.finished(step == 'x').unwrap();
        scales.push(scaler.at().scale);
    }
    scales
}

const SMALL: LossScaling = LossScaling {
    fixed: None,
    initial_power: 4,
    window: 3,
    hysteresis: 2,
    consecutive_hysteresis: false,
    minimum: 1.0,
};

/// The scales that DeepSpeed's `DynamicLossScaler` goes through: what `update_scale` of 0.18 gave
/// when it was run with these steps. Versions before 0.18 doubled one step earlier.
#[test]
fn the_scale_follows_deepspeeds() {
    let cases: [(&str, &[f64]); 7] = [
        ("....", &[16., 16., 16., 16., 32.]),
        (".......", &[16., 16., 16., 16., 32., 32., 32., 64.]),
        ("xxx", &[16., 16., 8., 4.]),
        // A clean step does not fill the hysteresis; a clean window, which follows a first step,
        // does.
        ("x.x", &[16., 16., 16., 8.]),
        ("x...x", &[16., 16., 16., 16., 16., 8.]),
        ("x....x", &[16., 16., 16., 16., 16., 32., 32.]),
        // The window starts again after an overflow.
        ("..x....", &[16., 16., 16., 16., 16., 16., 16., 32.]),
    ];
    for (steps, expected) in cases {
        assert_eq!(scales(SMALL, steps), expected, "{steps}");
    }
    let consecutive = LossScaling { consecutive_hysteresis: true, ..SMALL };
    assert_eq!(scales(consecutive, "x.xx"), [16., 16., 16., 16., 8.]);
    let eager = LossScaling { hysteresis: 1, ..SMALL };
    assert_eq!(scales(eager, "xx....x"), [16., 8., 4., 4., 4., 4., 8., 4.]);
    let hasty = LossScaling { window: 1, ..SMALL };
    assert_eq!(scales(hasty, "...."), [16., 16., 32., 64., 128.]);
}

#[test]
fn an_overflow_at_the_minimum_is_an_error_and_no_scale_is_below_it() {
    let scaling = LossScaling { minimum: 6.0, ..SMALL };
    let mut scaler = LossScaler::new(scaling);
    for expected in [16.0, 8.0, 6.0] {
        assert_eq!(scaler.finished(true), Ok(()));
        assert_eq!(scaler.at().scale, expected);
    }
    assert_eq!(scaler.finished(true), Err(Error::LossScaleAtMinimum { scale: 6.0, skipped: 4 }));
    assert_eq!(scaler.at().skipped, 4);
}

/// A run may resume with a higher minimum or less hysteresis than that of its checkpoint.
#[test]
fn an_overflow_never_raises_a_resumed_scale() {
    let scaling = LossScaling { minimum: 1024.0, hysteresis: 1, ..SMALL };
    let at = LossScale { scale: 16.0, hysteresis: 2, clean: 0, skipped: 0 };
    let mut scaler = LossScaler::resumed(scaling, at);
    assert_eq!(scaler.at(), LossScale { hysteresis: 1, ..at });
    assert_eq!(scaler.finished(true), Err(Error::LossScaleAtMinimum { scale: 16.0, skipped: 1 }));
    assert_eq!(scaler.at().scale, 16.0);

    let mut scaler = LossScaler::resumed(scaling, at);
    (0..4).for_each(|_| scaler.finished(false).unwrap());
    assert_eq!(scaler.at().scale, 32.0);
    assert_eq!(scaler.finished(true), Ok(()), "the scale can fall to where the run resumed");
    assert_eq!(scaler.at().scale, 16.0);
}

#[test]
fn a_fixed_scale_stays() {
    let fixed = LossScaling { fixed: Some(128.0), window: 1, hysteresis: 1, ..SMALL };
    assert_eq!(scales(fixed, "..xx.x"), [128.0; 7]);
}

#[test]
fn the_defaults_are_deepspeeds() {
    assert_eq!(LossScaler::new(LossScaling::default()).at().scale, 65536.0);
}
