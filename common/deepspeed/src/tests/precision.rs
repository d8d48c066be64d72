//! How DeepSpeed averages and scales gradients.

use super::*;

fn warnings(text: &str) -> Vec<String> {
    json(text, "").unwrap().findings.warnings
}

/// DeepSpeed all-reduces in stages 1 and 2, and its stage 3 averages in a different way.
#[test]
fn reduce_scatter_means_something_in_zero1_alone() {
    for (stage, expected, warns) in [(0, false, false), (1, true, false), (2, false, true), (3, false, true)]
    {
        let text = format!(r#"{{"zero_optimization": {{"stage": {stage}, "reduce_scatter": false}}}}"#);
        let config = json(&text, "").unwrap();
        let all_reduces = config.grad_sync == settings::GradSync::AllReduce;
        assert_eq!(all_reduces, expected, "stage {stage}");
        assert_eq!(config.findings.warnings.iter().any(|line| line.contains("reduce_scatter")), warns);
    }
}

#[test]
fn the_scaler_of_stage_0_halves_at_the_first_overflow() {
    let hysteresis = |stage: usize, more: &str| {
        let text =
            format!(r#"{{"zero_optimization": {{"stage": {stage}}}, "fp16": {{"enabled": true{more}}}}}"#);
        let config = json(&text, "").unwrap();
        (config.loss_scaling.unwrap().hysteresis, config.findings.warnings.len())
    };
    assert_eq!((hysteresis(0, ""), hysteresis(1, "")), ((1, 0), (2, 0)));
    assert_eq!(hysteresis(0, r#", "hysteresis": 4"#), (1, 1));
    assert_eq!(hysteresis(2, r#", "hysteresis": 4"#), (4, 0));
}

/// DeepSpeed skips such a step, or does not look.
#[test]
fn a_gradient_that_is_not_finite_ends_the_run_whatever_the_file_says() {
    for value in [true, false] {
        let text = format!(r#"{{"bf16": {{"enabled": true, "check_grad_overflow": {value}}}}}"#);
        assert!(warnings(&text).concat().contains("check_grad_overflow"), "{value}");
    }
    assert_eq!(warnings(r#"{"bf16": {"enabled": true}}"#), [""; 0]);
}

#[test]
fn gradients_in_fp16_alone_are_scaled_and_that_is_said() {
    for section in [r#""communication_data_type": "fp16""#, r#""data_types": {"grad_accum_dtype": "fp16"}"#] {
        let said = warnings(&format!("{{{section}}}")).concat();
        assert!(said.contains("fp16.enabled alone"), "{said}");
        assert!(
            !warnings(&format!(r#"{{{section}, "fp16": {{"enabled": true}}}}"#)).concat().contains("alone")
        );
    }
}

/// As in DeepSpeed, the settings of dynamic scaling are checked only if the scale is dynamic.
#[test]
fn what_a_fixed_scale_does_not_read_may_be_anything() {
    let fp16 = |keys: &str| json(&format!(r#"{{"fp16": {{{keys}}}}}"#), "");
    fp16(r#""enabled": true, "loss_scale": 128, "min_loss_scale": 0, "loss_scale_window": 0"#).unwrap();
    fp16(r#""enabled": false, "loss_scale_window": 0"#).unwrap();
    fp16(r#""enabled": true, "initial_scale_power": 40"#).unwrap();
    let error = fp16(r#""enabled": true, "loss_scale_window": 0"#).unwrap_err().to_string();
    assert!(error.contains("--loss-scale-window 0") && error.contains("from 1"), "{error}");
}

#[test]
fn what_is_gathered_ahead_needs_overlap() {
    let zero = |keys: &str| format!(r#"{{"zero_optimization": {{"stage": 3{keys}}}}}"#);
    let ahead = r#", "stage3_prefetch_bucket_size": 1000"#;
    assert_eq!(warnings(&zero(ahead)), [""; 0]);
    let [said] = &warnings(&zero(&format!(r#"{ahead}, "overlap_comm": false"#)))[..] else { panic!() };
    assert!(said.contains("stage3_prefetch_bucket_size 1000 changes nothing"), "{said}");
    let [said] = &json(&zero(ahead), "--no-overlap").unwrap().findings.warnings[..] else { panic!() };
    assert!(said.contains("--no-overlap gathers nothing ahead"), "{said}");
}

#[test]
fn what_asks_for_nothing_is_not_refused() {
    let text = r#"{"tensor_parallel": {"autotp_size": 1}, "pipeline": {"activation_checkpoint_interval": 1},
        "zero_optimization": {"stage": 2, "allgather_partitions": false},
        "optimizer": {"type": "AdamW", "params": {"torch_adam": true, "fused": true}}}"#;
    let config = json(text, "").unwrap();
    assert_eq!(config.findings.check(Stage::Zero2), Ok(()));
    let said = config.findings.warnings.concat();
    assert!(said.contains("allgather_partitions") && said.contains("pipeline"), "{said}");
    let error = json(r#"{"tensor_parallel": {"autotp_size": 2}}"#, "").unwrap().findings.check(Stage::Ddp);
    assert!(error.unwrap_err().to_string().contains("tensor parallelism"));
}
