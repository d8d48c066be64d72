//! Learning rates against each schedule's closed form.

use super::*;

fn near(schedule: LrSchedule, expected: &[(u32, f64)]) {
    for &(step, rate) in expected {
        let got = schedule.rate(step);
        assert!((got - rate).abs() < 1e-12, "{schedule:?}: step {step} gives {got}, not {rate}");
    }
}

#[test]
fn the_built_in_one_warms_up_and_decays_to_a_tenth() {
    let schedule = WarmupThenCosine { peak: 0.01, warmup: 10, steps: 110 };
    near(schedule, &[(0, 0.001), (9, 0.01), (10, 0.01), (60, 0.0055)]);
    assert!(schedule.rate(109) < 0.00101);
    near(WarmupThenCosine { peak: 1.0, warmup: 300, steps: 100 }, &[(99, 1.0 / 3.0)]);
}

#[test]
fn warmup_lr_climbs_like_a_logarithm_or_a_line_and_stays() {
    let warmup = WarmUp { steps: 8, climb: Climb::Log };
    let log = WarmupLr { low: 1.0, high: 4.0, warmup };
    // ln 2 / ln 8 = 1/3, ln 4 / ln 8 = 2/3, ln 8 / ln 8 = 1.
    near(log, &[(0, 1.0), (1, 1.0), (2, 2.0), (4, 3.0), (8, 4.0), (9, 4.0), (4000, 4.0)]);
    let linear = WarmupLr { low: 1.0, high: 5.0, warmup: WarmUp { climb: Climb::Linear, ..warmup } };
    near(linear, &[(0, 1.0), (1, 1.0), (3, 2.0), (5, 3.0), (9, 5.0)]);
}

#[test]
fn warmup_decay_lr_comes_back_to_its_lowest_rate_at_the_last_iteration() {
    let warmup = WarmUp { steps: 4, climb: Climb::Linear };
    let schedule = WarmupDecayLr { low: 2.0, high: 10.0, warmup, total: 12 };
    near(schedule, &[(0, 2.0), (1, 2.0), (3, 6.0), (5, 10.0), (7, 8.0), (9, 6.0), (13, 2.0), (99, 2.0)]);
}

#[test]
fn warmup_cosine_lr_ends_at_its_ratio_of_the_peak() {
    let warmup = WarmUp { steps: 4, climb: Climb::Linear };
    let schedule =
        WarmupCosineLr { peak: 10.0, warmup_min_ratio: 0.2, cos_min_ratio: 0.1, warmup, total: 12 };
    let quarter = 10.0 * (0.1 + 0.9 * (1.0 + 0.5f64.sqrt()) / 2.0);
    near(schedule, &[(0, 0.0), (1, 2.0), (3, 6.0), (6, quarter), (8, 5.5), (12, 1.0), (13, 1.0), (50, 1.0)]);
}

#[test]
fn degenerate_lengths_give_finite_rates() {
    for steps in [0, 1, 2, 50] {
        for climb in [Climb::Log, Climb::Linear] {
            let warmup = WarmUp { steps, climb };
            for schedule in [
                WarmupLr { low: 0.0, high: 1.0, warmup },
                WarmupDecayLr { low: 0.0, high: 1.0, warmup, total: 1 },
                WarmupCosineLr { peak: 1.0, warmup_min_ratio: 0.0, cos_min_ratio: 0.1, warmup, total: 1 },
                WarmupThenCosine { peak: 1.0, warmup: steps, steps: 1 },
            ] {
                assert!((0..60).all(|step| (0.0..=1.0).contains(&schedule.rate(step))), "{schedule:?}");
            }
        }
    }
}
