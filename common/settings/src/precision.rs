//! The flags about element types and loss scaling, checked.

use crate::cli::{LARGEST, PrecisionArgs, SMALLEST};
use crate::error::{Failure, Result};
use crate::float_type::{PrecisionName, name};
use crate::given::{Given, flag_name};
use device::Rounding;
use sharding::{LossScaling, Precision};

/// Returns the element types that `args` ask for.
pub fn precision(args: &PrecisionArgs) -> Precision {
    let parameters = args.precision.stored();
    let gradients = args.grad_dtype.unwrap_or(parameters);
    let reduce = args.reduce_dtype.unwrap_or(gradients);
    Precision { parameters, gradients, reduce, rounding: args.precision.rounding() }
}

/// Returns the value of `--precision` for the parameters' type and the projections' rounding.
pub fn named(precision: Precision) -> PrecisionName {
    match precision.rounding {
        Rounding::Bf16 => PrecisionName::Autocast,
        Rounding::None => PrecisionName::of(precision.parameters),
    }
}

/// Flags about how the loss scale is found.
const DYNAMIC: [&str; 5] =
    ["initial_scale_power", "loss_scale_window", "hysteresis", "consecutive_hysteresis", "min_loss_scale"];

/// Returns how the loss is scaled; `None` if `precision` does not need it. A file may contain
/// settings of dynamic scaling next to a fixed scale, but the `given` flags may not.
///
/// # Errors
/// A usage failure that names the flag and its range, or says that the loss is not scaled in this
/// precision, or that the scale is fixed.
pub fn loss_scaling(
    args: &PrecisionArgs,
    given: &Given,
    precision: Precision,
) -> Result<Option<LossScaling>> {
    let set = [
        ("--loss-scale", args.loss_scale.is_some()),
        ("--initial-scale-power", args.initial_scale_power.is_some()),
        ("--loss-scale-window", args.loss_scale_window.is_some()),
        ("--hysteresis", args.hysteresis.is_some()),
        ("--consecutive-hysteresis", args.consecutive_hysteresis.is_some()),
        ("--min-loss-scale", args.min_loss_scale.is_some()),
    ];
    if !precision.scales_loss() {
        return match set.iter().find(|(_, set)| *set) {
            None => Ok(None),
            Some((flag, _)) => Err(Failure::usage(format!(
                "{flag} is for fp16, whose range is small, and this run has no fp16: add --precision fp16, or leave {flag} out"
            ))),
        };
    }
    let fixed = args.loss_scale.filter(|&scale| scale != 0.0);
    if let (Some(scale), Some(id)) = (fixed, DYNAMIC.into_iter().find(|id| given.typed(id).is_some())) {
        return Err(Failure::usage(format!(
            "{} says how the loss scale is found, and --loss-scale {scale} is fixed: leave one of them out",
            flag_name(id)
        )));
    }
    let default = LossScaling::default();
    let scaling = LossScaling {
        fixed,
        initial_power: args.initial_scale_power.unwrap_or(default.initial_power),
        window: args.loss_scale_window.unwrap_or(default.window),
        hysteresis: args.hysteresis.unwrap_or(default.hysteresis),
        consecutive_hysteresis: args.consecutive_hysteresis.unwrap_or(default.consecutive_hysteresis),
        minimum: args.min_loss_scale.unwrap_or(default.minimum),
    };
    check(&scaling).map(|()| Some(scaling)).map_err(Failure::usage)
}

/// Refuses scales under which any f16 gradient overflows, scales whose reciprocal f32 does not
/// hold, a minimum above the initial scale, and a scale that would double in every step. Settings
/// that a fixed scale does not read are not checked.
fn check(scaling: &LossScaling) -> std::result::Result<(), String> {
    let LossScaling { fixed, initial_power, minimum, window, .. } = *scaling;
    let sensible = |scale: f64| (SMALLEST..=LARGEST).contains(&scale);
    if let Some(scale) = fixed.filter(|&scale| !sensible(scale)) {
        return Err(format!("--loss-scale {scale}: choose 0 (dynamic), or a number from 2^-64 up to 2^64"));
    }
    if fixed.is_some() {
        return Ok(());
    }
    if window == 0 {
        return Err("--loss-scale-window 0: choose a number of steps from 1".into());
    }
    if !sensible(minimum) || minimum > 2f64.powi(initial_power as i32) {
        return Err(format!(
            "--min-loss-scale {minimum}: choose a number from 2^-64 up to the initial scale, 2^{initial_power} \
             (--initial-scale-power)"
        ));
    }
    Ok(())
}

/// Describes a run's element types in a few words.
pub fn describe(precision: Precision) -> String {
    let Precision { parameters, gradients, reduce, .. } = precision;
    let mut described = named(precision).to_string();
    if gradients != parameters {
        described.push_str(&format!(", gradients {}", name(gradients)));
    }
    if reduce != gradients {
        described.push_str(&format!(", reduced in {}", name(reduce)));
    }
    described
}
