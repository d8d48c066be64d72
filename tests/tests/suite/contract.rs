//! The stage contract: every stage trains the same model, whatever it shards, and uses exactly the
//! memory and traffic that the planner predicted.

use events::{Class, CollectiveEvent, Operation, Progress, What};
use prediction::{Job, Partition, Stage};
use stages::contract;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock};
use tests::{STAGES, fixture, largest_difference, losses, padding, recorded};
use trainer::Report;

/// Models in which no unit is divisible by 3, 4 or 8. None is divisible by 2 either, except the
/// first model's head: a table of V rows plus a head of V + 1 is even.
const MODELS: [&str; 2] = ["uneven.json", "uneven-tied.json"];

/// Steps of runs that are compared: enough for the loss to fall.
const STEPS: u32 = 20;

/// Returns flags for 48 sequences of 8 tokens per step.
fn flags(model: &str, world: usize, micro_batches: usize, steps: u32) -> String {
    format!(
        "--model {} --gpus {world} --batch-size {} --grad-accum {micro_batches} --seq-len 8 --steps {steps} \
         --threads 1 --device cpu",
        fixture(model),
        48 / world / micro_batches,
    )
}

/// Reports by stage and flags.
type Runs = BTreeMap<(Stage, String), Arc<OnceLock<Report>>>;

/// Runs made so far, which several tests share.
static RUNS: Mutex<Runs> = Mutex::new(BTreeMap::new());

fn run(stage: Stage, flags: &str) -> Report {
    let slot = RUNS.lock().unwrap().entry((stage, flags.into())).or_default().clone();
    slot.get_or_init(|| measured(stage, flags)).clone()
}

fn measured(stage: Stage, flags: &str) -> Report {
    let report = tests::run(stage, flags);
    assert!(report.predictions_hold());
    let parameters = report.memory.iter().find(|row| row.class == Class::Parameters).unwrap();
    assert!(parameters.peak_bytes > 0, "a ledger that counts nothing proves nothing");
    report
}

fn assert_same(a: &Report, b: &Report) {
    assert_eq!(contract::first_difference(b, a), None, "{} and {}", a.stage, b.stage);
    assert_eq!((a.weights_blake3.len(), b.weights_blake3.len()), (64, 64));
}

#[test]
fn the_models_units_are_padded_on_any_number_of_ranks() {
    for (model, even) in MODELS.into_iter().zip([1, 0]) {
        let config = stages::config(&flags(model, 1, 1, 1)).unwrap().model;
        for world in [2, 3, 4, 8] {
            let units = Partition::of(&Job::new(config.clone(), Stage::Zero3, world)).units;
            let unpadded = units.iter().filter(|unit| unit.padded == unit.parameters).count();
            assert_eq!(unpadded, if world == 2 { even } else { 0 }, "{model}, {world} ranks: {units:?}");
        }
    }
}

fn stages_agree(model: &str, world: usize) {
    let flags = flags(model, world, 1, STEPS);
    let reports = STAGES.map(|stage| run(stage, &flags));
    assert_eq!(padding(&reports[3]) > 0, world > 1, "{model}, {world} ranks: shards end in padding");
    for report in &reports[1..] {
        assert_same(&reports[0], report);
    }
    let learned = losses(&reports[0]);
    let (first, last) = (learned[0], learned[learned.len() - 1]);
    assert!(last < first - 1.0, "{STEPS} steps teach something: {first} to {last}");
}

#[test]
fn stages_agree_bit_for_bit_on_1_rank() {
    stages_agree("uneven.json", 1);
}

#[test]
fn stages_agree_bit_for_bit_on_2_ranks() {
    stages_agree("uneven.json", 2);
}

#[test]
fn stages_agree_bit_for_bit_on_3_ranks() {
    stages_agree("uneven.json", 3);
}

#[test]
fn stages_agree_bit_for_bit_on_4_ranks() {
    stages_agree("uneven.json", 4);
}

#[test]
fn stages_agree_bit_for_bit_on_8_ranks() {
    stages_agree("uneven.json", 8);
}

#[test]
fn stages_agree_bit_for_bit_with_a_tied_head() {
    stages_agree("uneven-tied.json", 3);
}

#[test]
fn with_accumulation_ddp_agrees_with_zero1_and_zero2_with_zero3() {
    for world in [1, 2, 3, 4, 8] {
        let [ddp, zero1, zero2, zero3] =
            STAGES.map(|stage| run(stage, &flags("uneven.json", world, 2, STEPS)));
        assert_same(&ddp, &zero1);
        assert_same(&zero2, &zero3);
        let apart = largest_difference(&losses(&ddp), &losses(&zero2));
        assert!(apart < 1e-4, "{world} ranks: the two pairs differ by {apart}");
    }
}

#[test]
fn more_ranks_follow_one_rank_with_the_same_global_batch() {
    for model in MODELS {
        let one = losses(&run(Stage::Ddp, &flags(model, 1, 1, STEPS)));
        for world in [2, 3, 4, 8] {
            for micro_batches in [1, 2] {
                let many = losses(&run(Stage::Zero3, &flags(model, world, micro_batches, STEPS)));
                let apart = largest_difference(&one, &many);
                assert!(apart < 1e-4, "{world} ranks, {micro_batches} micro-batches: {apart}");
            }
        }
    }
}

#[test]
fn the_textbook_all_reduce_gives_the_same_weights_for_more_traffic() {
    let flags = flags("uneven.json", 4, 1, 10);
    let plain = run(Stage::Zero1, &flags);
    let textbook = run(Stage::Zero1, &format!("{flags} --grad-sync all-reduce"));
    assert_same(&plain, &textbook);
    let sent = |report: &Report| -> u64 {
        report
            .traffic
            .iter()
            .filter(|row| row.rank == 0 && row.operation != Operation::Scalars)
            .map(|r| r.bytes_sent)
            .sum()
    };
    assert_eq!(2 * sent(&textbook), 3 * sent(&plain), "three model sizes where two would do");
}

#[test]
fn bucket_sizes_change_neither_weights_nor_payload() {
    let flags = flags("uneven.json", 4, 1, 10);
    for stage in STAGES {
        let default = run(stage, &flags);
        for elements in [1, 30_000, 1_000_000] {
            let other = run(stage, &format!("{flags} --reduce-bucket {elements}"));
            assert_same(&default, &other);
            let payload =
                |report: &Report| report.traffic.iter().map(|row| row.bytes_sent).collect::<Vec<_>>();
            assert_eq!(payload(&default), payload(&other));
        }
    }
}

#[test]
fn the_ring_follows_the_tree_and_sends_as_much() {
    let flags = flags("uneven.json", 4, 1, 20);
    for stage in [Stage::Zero2, Stage::Zero3] {
        let tree = run(stage, &flags);
        let ring = run(stage, &format!("{flags} --algorithm ring"));
        assert!(largest_difference(&losses(&tree), &losses(&ring)) < 1e-4);
    }
}

/// Around a ring, too, every rank sends the predicted bytes. If slices are uneven, these differ
/// from direct sends: in DDP, whose units are not padded, and between groups, where shards are
/// split once more.
#[test]
fn around_a_ring_predictions_hold_where_slices_are_uneven() {
    let odd = fixture("odd.json");
    let sent = |report: &Report| report.traffic.iter().map(|row| row.bytes_sent).collect::<Vec<_>>();
    let uneven = |stage: Stage, flags: &str| {
        let (direct, ring) = (run(stage, flags), run(stage, &format!("{flags} --algorithm ring")));
        assert_ne!(sent(&direct), sent(&ring), "{stage} {flags}: slices are uneven");
        assert_eq!(sent(&direct).iter().sum::<u64>(), sent(&ring).iter().sum::<u64>(), "{stage} {flags}");
    };
    for (model, world) in [("tiny", 3), ("tiny", 5), (&odd, 8), (&odd, 10)] {
        let flags = format!(
            "--model {model} --gpus {world} --batch-size 1 --seq-len 16 --steps 2 --threads 1 --device cpu"
        );
        uneven(Stage::Ddp, &flags);
        for grad_sync in ["reduce-scatter", "all-reduce"] {
            run(Stage::Zero1, &format!("{flags} --grad-sync {grad_sync} --algorithm ring"));
        }
        if world == 10 {
            uneven(Stage::Zero3, &format!("{flags} --strategy hybrid-shard --shard-group-size 2"));
        }
    }
}

/// Runs a stage with these flags under the contract, which also covers the parameters in every
/// step.
fn held(stage: Stage, flags: &str, reference: Stage) -> Result<Report, String> {
    contract::trains_like(stages::of(stage), &stages::config(flags).map_err(|e| e.to_string())?, reference)
}

#[test]
fn every_rank_computes_with_the_same_parameters_in_every_step() {
    for model in MODELS {
        let one = flags(model, 3, 1, 4);
        for stage in STAGES {
            let report = held(stage, &one, Stage::Ddp).unwrap();
            assert_eq!(report.mispredictions(), Vec::<String>::new());
        }
        let two = flags(model, 4, 2, 4);
        held(Stage::Zero1, &two, Stage::Ddp).unwrap();
        held(Stage::Zero3, &two, Stage::Zero2).unwrap();
    }
}

#[test]
fn what_breaks_the_contract_is_said_in_words() {
    let run = |stage, fault: &str| {
        let flags = format!("{} --inject {fault}", flags("uneven.json", 3, 1, 5));
        held(stage, &flags, stage)
    };
    for stage in [Stage::Zero1, Stage::Zero2, Stage::Zero3] {
        let problem = run(stage, "stale@rank2,step3").unwrap_err();
        let words =
            ["rank 2's forward of step 3", "embedding", "the slice owned by rank 0", "was not gathered"];
        assert!(words.iter().all(|word| problem.contains(word)), "{stage}: {problem}");
    }
}

/// Returns, for each step of rank 0, the number of all-gathers that are issued in it and waited for
/// in the next one, after its first pass.
fn gathered_in_forward(stage: Stage, flags: &str) -> Vec<usize> {
    let file = tempfile::NamedTempFile::new().unwrap();
    tests::run(stage, &format!("{flags} --record {}", file.path().display()));
    let (mut issued_in, mut late, mut passes) = (BTreeMap::new(), Vec::new(), 0);
    for event in recorded(file.path()).into_iter().filter(|event| event.rank == 0) {
        match event.what {
            What::StepStarted { .. } => {
                late.push(0);
                passes = 0;
            }
            What::PassFinished { .. } => passes += 1,
            What::Collective(CollectiveEvent {
                operation: Operation::AllGather, progress, sequence, ..
            }) => {
                let step = late.len();
                match progress {
                    Progress::Issued => _ = issued_in.insert(sequence, step),
                    Progress::Finished if issued_in[&sequence] < step && passes > 0 => {
                        late[issued_in[&sequence] - 1] += 1;
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }
    late
}

/// The model has five units, all of which but the first can arrive while the next forward computes.
/// A validation waits for all of them, as do the last step and a run without overlap.
#[test]
fn updated_parameters_are_gathered_while_the_next_forward_computes() {
    let base = format!(
        "--model {} --gpus 2 --batch-size 1 --seq-len 16 --steps 5 --threads 1 --device cpu --headless \
         --eval-every 3 --val-fraction 0.2 --allgather-bucket 1",
        fixture("odd.json")
    );
    for stage in [Stage::Zero1, Stage::Zero2] {
        assert_eq!(gathered_in_forward(stage, &base), [4, 4, 0, 4, 0], "{stage}");
        assert_eq!(gathered_in_forward(stage, &format!("{base} --no-overlap")), [0; 5], "{stage}");
    }
    // Of ZeRO-3, only what stays whole.
    assert_eq!(gathered_in_forward(Stage::Zero3, &base), [0; 5]);
    let whole = format!("{base} --param-persistence-threshold 1000000");
    assert_eq!(gathered_in_forward(Stage::Zero3, &whole), [4, 4, 0, 4, 0]);
}
