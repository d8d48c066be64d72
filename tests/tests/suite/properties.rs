//! Whatever is trained, and however it is sharded, predictions match measurements, and the stages
//! agree.
//!
//! Cases are drawn at random from a fixed seed: models with odd sizes, tied or not, with grouped
//! heads or not; world sizes, micro-batches, element types, evaluations. For each stage separately,
//! settings are drawn that must not matter: the buffers that blocks keep for backward, the tensors
//! that form a unit, buckets, overlap, how far ahead units are gathered, from which ranks, how long
//! they stay, and the states that are stored beyond the device.

#![allow(clippy::unwrap_used, clippy::panic)]

use prediction::Stage;
use std::fmt::Write;
use tests::random::Random;
use tests::{STAGES, assert_same, largest_difference, losses, train};

const CASES: usize = 50;
const SEED: u64 = 0x2E20;

/// Returns a `config.json` of a random shape.
fn model(random: &mut Random) -> String {
    let (kv_heads, group) = (random.between(1, 3), random.between(1, 3));
    let heads = kv_heads * group;
    let (width, head_dim) = (heads * random.between(1, 7), 2 * random.between(1, 5));
    // The peak is in the head for narrow models, and in a block for wide ones.
    let (narrow, wide) = (random.between(1, 60), random.between(300, 500));
    let (vocabulary, feed_forward) = (random.between(256, 300), *random.pick(&[narrow, wide]));
    let (layers, tied) = (random.between(1, 4), *random.pick(&[true, false]));
    format!(
        r#"{{"model_type": "llama", "vocab_size": {vocabulary}, "hidden_size": {width}, "head_dim": {head_dim},
            "intermediate_size": {feed_forward}, "num_hidden_layers": {layers}, "num_attention_heads": {heads},
            "num_key_value_heads": {kv_heads}, "tie_word_embeddings": {tied}, "hidden_act": "silu",
            "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0}}"#
    )
}

/// Returns a run's shape: ranks, micro-batches per step, and the flags that every stage gets.
fn shape(random: &mut Random) -> (usize, usize, String) {
    let ranks = *random.pick(&[1, 2, 3, 4, 4, 5, 6]);
    let micro_batches = *random.pick(&[1, 1, 2, 3]);
    let mut flags = format!(
        "--gpus {ranks} --grad-accum {micro_batches} --batch-size {} --seq-len {} --steps 3 --threads 1 --device cpu \
         --seed {}",
        random.between(1, 3),
        random.between(1, 20),
        random.between(0, 1000),
    );
    if *random.pick(&[true, false]) {
        let (every, batches) = (random.between(1, 3), random.between(1, 3));
        write!(flags, " --val-fraction 0.2 --eval-every {every} --eval-batches {batches}").unwrap();
    }
    (ranks, micro_batches, flags)
}

/// Returns flags for element types.
fn precision(random: &mut Random) -> String {
    let types = ["fp32", "bf16", "fp16"];
    let mut flags = format!("--precision {}", random.pick(&["fp32", "fp32", "bf16", "fp16"]));
    for flag in ["--grad-dtype", "--reduce-dtype"] {
        if *random.pick(&[true, false, false]) {
            write!(flags, " {flag} {}", random.pick(&types)).unwrap();
        }
    }
    flags
}

/// Returns flags that change neither losses nor weights.
fn indifferent(random: &mut Random, stage: Stage, ranks: (usize, bool)) -> String {
    let mut flags = format!("--checkpoint-activations {}", random.pick(&["none", "block", "selective"]));
    let size = format!("size:{}", random.between(1, 50_000));
    let wrap = *random.pick(&["block", "model", "module", "parameter", &size]);
    write!(flags, " --wrap {wrap}").unwrap();
    let places = places(random, stage);
    flags.push_str(&places);
    let overlap = *random.pick(&[true, true, false]);
    if !overlap {
        flags.push_str(" --no-overlap");
    }
    let mut sometimes = |flag: &str, values: &[usize]| {
        if *random.pick(&[true, false]) {
            write!(flags, " --{flag} {}", random.pick(values)).unwrap();
        }
    };
    let sizes = [1, 700, 5_000, 30_000, 100_000, 1 << 40];
    sometimes("reduce-bucket", &sizes);
    // On disk, a piece occupies a page.
    sometimes("sub-group-size", if places.is_empty() { &[7, 1_000, 1 << 40] } else { &[1_000, 1 << 40] });
    if stage != Stage::Ddp {
        sometimes("allgather-bucket", &sizes);
    }
    if stage == Stage::Zero3 {
        sometimes("param-persistence-threshold", &[0, 20, 500, 3_000, 1 << 40]);
        sometimes("model-persistence-threshold", &[0, 300, 10_000]);
        sometimes("max-live-parameters", &[0, 5_000, 30_000, 100_000]);
        sometimes("max-reuse-distance", &[0, 1, 10_000, 100_000, 1 << 40]);
        if overlap {
            sometimes("prefetch-bucket", &[0, 1, 5_000, 30_000, 1 << 40]);
            sometimes("limit-all-gathers", &[1, 2, 3, 8]);
            write!(flags, " --backward-prefetch {}", random.pick(&["pre", "post", "none"])).unwrap();
        }
    }
    if *random.pick(&[true, false, false]) {
        flags.push_str(" --contiguous-gradients false");
    }
    if stage == Stage::Zero3 {
        flags.push_str(&strategy(random, ranks));
    }
    if stage == Stage::Zero1 && *random.pick(&[true, false]) {
        flags.push_str(" --grad-sync all-reduce");
    }
    flags
}

/// Returns flags for where states are stored, and how many buffers they pass through.
fn places(random: &mut Random, stage: Stage) -> String {
    let mut flags = String::new();
    for (flag, travels) in [("optimizer", true), ("parameters", stage == Stage::Zero3)] {
        let place = *random.pick(&["none", "none", "cpu", "disk"]);
        if travels && place != "none" {
            write!(flags, " --offload-{flag} {place}").unwrap();
        }
    }
    if !flags.is_empty() {
        write!(flags, " --offload-buffers {}", random.between(1, 6)).unwrap();
    }
    flags
}

/// Returns flags of a ZeRO-3 strategy that changes no bit: hybrid sharding in groups of a power of
/// two, whose sums form the sums over all ranks. Requires `once`, a single micro-batch, because a
/// group sums its micro-batches before it adds other groups' sums.
fn strategy(random: &mut Random, (ranks, once): (usize, bool)) -> String {
    let divisors: Vec<usize> = (1..=ranks).filter(|size| ranks.is_multiple_of(*size)).collect();
    let powers: Vec<usize> = divisors.iter().copied().filter(|size| size.is_power_of_two()).collect();
    match random.between(0, 3) {
        0 => String::new(),
        1 => " --strategy shard-grad-op".into(),
        2 if once => {
            format!(" --strategy hybrid-shard --shard-group-size {}", random.pick(&powers))
        }
        _ => format!(" --strategy full-shard --secondary-shard-size {}", random.pick(&divisors)),
    }
}

#[test]
fn predictions_hold_and_stages_agree() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(SEED);
    for number in 0..CASES {
        let config = model(&mut random);
        let path = folder.path().join(format!("{number}.json"));
        std::fs::write(&path, &config).unwrap();
        let (ranks, micro_batches, flags) = shape(&mut random);
        let types = precision(&mut random);
        let flags = format!("{flags} {types}");
        let exact = !types.contains("16");
        let mut case = format!("case {number}: {config}\n{flags}");
        let reports = STAGES.map(|stage| {
            let own = indifferent(&mut random, stage, (ranks, micro_batches == 1));
            write!(case, "\n{stage}: {own}").unwrap();
            let report = train(stage, &format!("--model {} {flags} {own}", path.display()))
                .unwrap_or_else(|failure| panic!("{case}\n{failure}"));
            assert_eq!(report.mispredictions(), Vec::<String>::new(), "{case}");
            assert!(losses(&report).iter().all(|loss| loss.is_finite()), "{case}");
            report
        });
        let [ddp, zero1, zero2, zero3] = &reports;
        assert_same(ddp, zero1, &case);
        assert_same(zero2, zero3, &case);
        if micro_batches == 1 {
            assert_same(ddp, zero2, &case);
        } else {
            let rounding = if exact { 1e-4 } else { 0.05 };
            let apart = largest_difference(&losses(ddp), &losses(zero2));
            assert!(apart < rounding, "the two pairs differ by {apart}: {case}");
        }
    }
}

/// Hybrid sharding in groups of any size, with any element types and any number of micro-batches.
/// Bits may differ, but predictions still hold, and in fp32 losses differ only by rounding.
#[test]
fn hybrid_sharding_is_predicted_in_any_groups() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(SEED + 1);
    for number in 0..CASES {
        let path = folder.path().join(format!("{number}.json"));
        std::fs::write(&path, model(&mut random)).unwrap();
        let (ranks, _, flags) = shape(&mut random);
        let types = precision(&mut random);
        let size = *random.pick(&(1..=ranks).filter(|size| ranks.is_multiple_of(*size)).collect::<Vec<_>>());
        // All settings that must not matter except for bits, without the strategy itself.
        let own = indifferent(&mut random, Stage::Zero2, (ranks, false));
        let flags = format!("--model {} {flags} {types} {own}", path.display());
        let hybrid = format!("{flags} --strategy hybrid-shard --shard-group-size {size}");
        let report = train(Stage::Zero3, &hybrid).unwrap_or_else(|failure| panic!("{hybrid}\n{failure}"));
        assert_eq!(report.mispredictions(), Vec::<String>::new(), "{hybrid}");
        assert!(report.predictions_hold() && losses(&report).iter().all(|loss| loss.is_finite()), "{hybrid}");
        if !types.contains("16") {
            let full = train(Stage::Zero3, &flags).unwrap();
            let apart = largest_difference(&losses(&report), &losses(&full));
            assert!(apart < 1e-5, "{apart}: {hybrid}");
        }
    }
}

/// Around a ring, bits depend on how buffers are split, but predictions are no less accurate: any
/// stage, ranks, types and flags.
#[test]
fn rings_are_predicted() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(SEED + 2);
    for number in 0..CASES {
        let path = folder.path().join(format!("{number}.json"));
        std::fs::write(&path, model(&mut random)).unwrap();
        let (ranks, _, flags) = shape(&mut random);
        let (types, stage) = (precision(&mut random), *random.pick(&STAGES));
        let own = indifferent(&mut random, stage, (ranks, true));
        let flags = format!("--model {} {flags} {types} {own} --algorithm ring", path.display());
        let report = train(stage, &flags).unwrap_or_else(|failure| panic!("{stage} {flags}\n{failure}"));
        assert_eq!(report.mispredictions(), Vec::<String>::new(), "{flags}");
        assert!(losses(&report).iter().all(|loss| loss.is_finite()), "{stage} {flags}");
    }
}
