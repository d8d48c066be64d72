//! The effect of clipping and flags on an update.

use super::*;

#[test]
fn clipping_follows_the_norm() {
    let scale = |update: Update, norm| update.clip(norm).unwrap().map(|update| update.gradient_scale);
    let update = Update {
        step: 5,
        updates: 3,
        lr: 1e-3,
        betas: (0.9, 0.95),
        eps: 1e-8,
        bias_correction: true,
        weight_decay: 0.1,
        max_grad_norm: 1.0,
        loss_scale: None,
    };
    assert_eq!(scale(update, 0.5), Some(1.0));
    assert!((scale(update, 4.0).unwrap() - 0.25).abs() < 1e-6);
    assert!(matches!(update.clip(f64::NAN), Err(Error::NonFinite { step: 5, updates: 3, .. })));
    let scaled = Update { loss_scale: Some(1024.0), ..update };
    assert_eq!(scaled.unscale_norm(512.0), 0.5);
    assert_eq!(scale(scaled, 0.5), Some(1.0 / 1024.0));
    assert_eq!(scale(scaled, f64::INFINITY), None, "an overflow skips the step");
}

#[test]
fn a_norm_that_is_not_finite_has_a_remedy_that_can_help() {
    for (updates, remedy) in [(0, "check the initial weights and the data"), (2, "lower --lr")] {
        let text = Error::NonFinite { norm: f64::NAN, step: 4, updates }.to_string();
        assert!(text.contains("NaN in step 4: ") && text.contains(remedy), "{text}");
    }
}

#[test]
fn a_kernel_is_told_what_the_update_says() {
    let update = Update {
        step: 5,
        updates: 3,
        lr: 0.5,
        betas: (0.25, 0.75),
        eps: 1e-3,
        bias_correction: true,
        weight_decay: 0.125,
        max_grad_norm: 2.0,
        loss_scale: None,
    };
    let kernel = AdamW {
        lr: 0.5,
        beta1: 0.25,
        beta2: 0.75,
        eps: 1e-3,
        weight_decay: 0.125,
        step: Some(4),
        gradient_scale: 0.0625,
    };
    let scaled = ScaledUpdate { update, gradient_scale: 0.0625 };
    assert_eq!(scaled.kernel(true), kernel);
    assert_eq!(scaled.kernel(false), AdamW { weight_decay: 0.0, ..kernel });
    let biased = ScaledUpdate { update: Update { bias_correction: false, ..update }, ..scaled };
    assert_eq!(biased.kernel(true), AdamW { step: None, ..kernel });
}
