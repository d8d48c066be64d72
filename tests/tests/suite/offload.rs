//! Offload moves a rank's states and changes no bit of what is learnt. In every case [`tests::run`]
//! checks to the byte the predictions of what is stored where, staged and transferred.

#![allow(clippy::unwrap_used, clippy::panic)]

use events::event::TransferEvent;
use events::{Class, Pass, Place, Progress, Route, What};
use prediction::Stage;
use std::path::Path;
use tests::{assert_same, at_once, copy_directory, fixture, recorded, run, train};
use trainer::Report;

/// Returns flags of a small model with units that do not divide evenly, a validation and two
/// micro-batches.
fn flags(world: usize, more: &str) -> String {
    format!(
        "--model {} --gpus {world} --batch-size 1 --grad-accum 2 --seq-len 16 --steps 3 --threads 1 \
         --device cpu --val-fraction 0.1 --eval-every 2 --eval-batches 2 {more}",
        fixture("odd-tied.json"),
    )
}

/// Runs `stage` with `base` and each of `cases`. All must learn the same.
fn none_changes_a_bit(stage: Stage, base: &str, cases: &[&str]) {
    let plain = run(stage, base);
    assert!(plain.transfers.is_empty() && !plain.placement.any());
    for case in cases {
        let away = run(stage, &format!("{base} {case}"));
        assert_same(&plain, &away, &format!("{stage} {base} {case}"));
        assert!(away.transfers.iter().any(|row| row.bytes > 0), "{stage} {base} {case}: nothing has moved");
    }
}

fn bytes(report: &Report, place: Place, class: Class) -> u64 {
    let row = report.memory.iter().find(|row| (row.rank, row.place, row.class) == (0, place, class));
    row.unwrap().peak_bytes
}

const OPTIMIZER: [&str; 2] = ["--offload-optimizer cpu", "--offload-optimizer disk"];

/// Placements for ZeRO-3, in pairs.
const EVERYTHING: [&str; 8] = [
    "--offload-optimizer cpu",
    "--offload-optimizer disk --offload-buffers 1",
    "--offload-parameters cpu",
    "--offload-parameters disk --offload-buffers 2",
    "--offload-optimizer cpu --offload-parameters cpu --offload-buffers 1",
    "--offload-optimizer cpu --offload-parameters disk",
    "--offload-optimizer disk --offload-parameters cpu --offload-buffers 2",
    "--offload-optimizer disk --offload-parameters disk --offload-buffers 5",
];

#[test]
fn an_optimizer_beyond_the_device_changes_no_bit_of_any_stage() {
    for stage in [Stage::Ddp, Stage::Zero1, Stage::Zero2] {
        none_changes_a_bit(stage, &flags(2, ""), &OPTIMIZER);
        none_changes_a_bit(stage, &flags(3, "--precision bf16 --sub-group-size 1000"), &OPTIMIZER);
    }
    none_changes_a_bit(Stage::Zero1, &flags(2, "--grad-sync all-reduce"), &OPTIMIZER);
    none_changes_a_bit(Stage::Zero2, &flags(1, ""), &OPTIMIZER);
    // The last two units share a bucket.
    for stage in [Stage::Zero1, Stage::Zero2] {
        none_changes_a_bit(stage, &flags(2, "--allgather-bucket 20000"), &OPTIMIZER);
    }
}

#[test]
fn whatever_zero3_moves_it_learns_the_same() {
    none_changes_a_bit(Stage::Zero3, &flags(2, ""), &EVERYTHING);
    none_changes_a_bit(Stage::Zero3, &flags(3, "--precision bf16 --sub-group-size 700"), &EVERYTHING);
    for (world, precision) in [(1, "fp32"), (4, "bf16")] {
        let base = flags(world, &format!("--precision {precision}"));
        none_changes_a_bit(Stage::Zero3, &base, &[EVERYTHING[2], EVERYTHING[5], EVERYTHING[6]]);
    }
}

/// With one micro-batch, only the next update requests states that the previous one has not written
/// yet.
#[test]
fn an_update_waits_for_the_last_writes_of_the_one_before() {
    let base = of_odd!("--gpus 2 --batch-size 1 --seq-len 16 --steps 4 --threads 1 --device cpu");
    none_changes_a_bit(Stage::Zero3, base, &[EVERYTHING[1], EVERYTHING[5], EVERYTHING[6], EVERYTHING[7]]);
}

#[test]
fn offload_composes_with_zero3s_variants() {
    for variant in [
        "--strategy hybrid-shard --shard-group-size 2",
        "--strategy hybrid-shard --shard-group-size 2 --precision bf16 --param-persistence-threshold 100",
        "--secondary-shard-size 2 --precision bf16",
        "--strategy shard-grad-op --wrap module",
        "--param-persistence-threshold 400 --precision bf16 --wrap parameter",
        "--reduce-bucket 3000 --grad-dtype fp32 --precision bf16",
    ] {
        let cases = [EVERYTHING[0], EVERYTHING[3], EVERYTHING[4], EVERYTHING[7]];
        none_changes_a_bit(Stage::Zero3, &flags(4, variant), &cases);
    }
}

/// Under this limit, forward frees units that should have stayed until backward. Fetching them
/// again was not foreseen.
#[test]
fn a_limit_of_live_parameters_leaves_room_for_every_fetch() {
    let base = flags(2, "--max-live-parameters 1 --max-reuse-distance 1000000");
    let cases =
        ["--offload-parameters cpu --offload-buffers 1", "--offload-parameters disk --offload-buffers 2"];
    none_changes_a_bit(Stage::Zero3, &base, &cases);
}

/// Returns rank 0's transfers of `class` on `route`, in the order of issue. Each has its unit, and
/// the micro-batch, the pass and its unit that had begun last.
fn issued(flags: &str, route: Route, class: Class) -> Vec<(u16, (u16, Pass, u16))> {
    let file = tempfile::NamedTempFile::new().unwrap();
    run(Stage::Zero3, &format!("{flags} --record {}", file.path().display()));
    let (mut begun, mut issued) = (None, Vec::new());
    for event in recorded(file.path()).into_iter().filter(|event| event.rank == 0) {
        match event.what {
            What::PassStarted { pass, micro, unit } => begun = Some((micro, pass, unit)),
            What::Transfer(TransferEvent {
                progress: Progress::Issued, route: on, class: of, unit, ..
            }) if (on, of) == (route, class) => {
                issued.extend(begun.map(|begun| (unit, begun)));
            }
            _ => {}
        }
    }
    issued
}

/// The head's layer is the fifth of five and shares unit 0 with the embedding. Unit 0 is gathered
/// throughout, and backward ends with it.
#[test]
fn backward_fetches_for_the_forward_after_it() {
    let base = flags(2, "--offload-parameters cpu --offload-buffers 2");
    let issued = issued(&base, Route::HostToDevice, Class::Parameters);
    let before_its_end = |micro| {
        let within = |&&(_, (at, pass, unit)): &&(u16, (u16, Pass, u16))| {
            at == micro && pass == Pass::Backward && unit != 0
        };
        issued.iter().filter(within).map(|(unit, _)| *unit).collect::<Vec<_>>()
    };
    assert_eq!(before_its_end(0), [1, 0, 1].repeat(3), "the first two of forward follow");
    assert_eq!(before_its_end(1), [1].repeat(3), "an update follows");
}

/// As many are read ahead as there are buffers. The others are read when forward has gathered those
/// before them.
#[test]
fn shards_leave_main_memory_as_soon_as_they_are_updated() {
    let base = flags(2, "--offload-optimizer cpu --offload-parameters cpu --offload-buffers 2");
    let issued = issued(&base, Route::HostToDevice, Class::Parameters);
    let in_update = issued.iter().filter(|(_, (_, pass, _))| *pass == Pass::Step);
    let (units, updated): (Vec<u16>, Vec<u16>) = in_update.map(|(unit, (_, _, of))| (*unit, *of)).unzip();
    assert_eq!(units[..2], [0, 1], "{units:?}");
    assert_eq!(units[..2], updated[..2], "nothing is updated in between");
}

/// The norm needs all gradients, so nothing is written before it. As many pieces are read as there
/// are buffers.
#[test]
fn the_first_states_are_read_while_the_last_backward_computes() {
    let base = flags(2, "--offload-optimizer disk --offload-buffers 2");
    let reads = issued(&base, Route::DiskToHost, Class::Optimizer);
    let writes = issued(&base, Route::HostToDisk, Class::Optimizer);
    // Backward begins while the first ones are in flight.
    let last_backward = |(_, (micro, pass, _)): &&(u16, (u16, Pass, u16))| *micro == 1 && *pass != Pass::Step;
    assert_eq!(
        reads.iter().filter(last_backward).count(),
        3 * 3 * 2,
        "three states, two pieces, three steps"
    );
    let update = |(_, (_, pass, _)): &(u16, (u16, Pass, u16))| *pass == Pass::Step;
    assert!(!writes.is_empty() && writes.iter().all(update));
}

/// Whatever fraction of an update's pieces have buffers, the pieces that are updated first are read
/// first.
#[test]
fn states_are_read_in_the_order_of_their_update() {
    for buffers in 1..=5 {
        let base = flags(2, &format!("--offload-optimizer disk --offload-buffers {buffers}"));
        let reads = issued(&base, Route::DiskToHost, Class::Optimizer);
        let units: Vec<u16> = reads.into_iter().map(|(unit, _)| unit).collect();
        // Three states of five units, three times; then the master weights once, for the hash.
        let step: Vec<u16> = (0..5).flat_map(|unit| [unit; 3]).collect();
        assert_eq!(units[..45], step.repeat(3), "{buffers} buffers");
    }
}

/// Returns, for each step, the number of pieces that are updated after the next forward has begun.
fn updated_in_forward(stage: Stage, flags: &str) -> Vec<usize> {
    let file = tempfile::NamedTempFile::new().unwrap();
    run(stage, &format!("{flags} --record {}", file.path().display()));
    let (mut begun, mut late) = (false, Vec::new());
    for event in recorded(file.path()).into_iter().filter(|event| event.rank == 0) {
        match event.what {
            What::StepStarted { .. } => late.push(0),
            What::PassStarted { pass, .. } => {
                late.last_mut()
                    .into_iter()
                    .for_each(|late| *late += usize::from(begun && pass == Pass::Step));
                begun = pass == Pass::Forward || begun && pass == Pass::Step;
            }
            _ => {}
        }
    }
    late
}

/// The model has five units. When forward begins, the first has been updated and one or two more,
/// which are transferred while forward computes. A validation waits for all of them, as does a run
/// without overlap.
#[test]
fn an_update_beyond_the_device_goes_on_while_the_next_forward_computes() {
    for stage in Stage::ALL {
        // The second unit is also in flight to other ranks, or ZeRO-3 gathers it already.
        let late = if stage == Stage::Ddp { 3 } else { 2 };
        let base = flags(2, "--offload-optimizer cpu --steps 5");
        assert_eq!(updated_in_forward(stage, &base), [0, late, 0, late, 0], "{stage}");
        // States that arrive from a disk before they are needed may be updated at once.
        let late = updated_in_forward(stage, &flags(2, "--offload-optimizer disk --steps 5"));
        let most = [0, 3, 0, 3, 0];
        assert!(
            late.len() == most.len() && late.iter().zip(most).all(|(late, most)| *late <= most),
            "{late:?}"
        );
    }
    let disk = format!("{} --steps 5", EVERYTHING[7]);
    assert_eq!(updated_in_forward(Stage::Zero3, &flags(2, &format!("{disk} --no-overlap"))), [0; 5]);
    assert_eq!(updated_in_forward(Stage::Zero3, &flags(2, "--steps 5")), [0; 5]);
}

/// States in main memory are updated while the first shard is in flight.
#[test]
fn an_update_in_main_memory_goes_on_while_a_rank_would_wait() {
    let away = "--offload-optimizer cpu --offload-parameters cpu --offload-buffers 1";
    let base = flags(2, &format!("{away} --grad-accum 1 --steps 2"));
    assert_eq!(updated_in_forward(Stage::Zero3, &base), [0, 2]);
    assert_eq!(updated_in_forward(Stage::Zero3, &format!("{base} --host-link 150ms,1GB/s")), [0, 0]);
}

/// Norms stay whole on the device. Which of them an update reaches during a wait would depend on
/// timing, but ranks gather in a fixed order.
#[test]
fn ranks_gather_what_stays_whole_in_one_order_however_long_they_wait() {
    let whole = "--wrap parameter --param-persistence-threshold 36 --allgather-bucket 1";
    let away = "--offload-optimizer cpu --offload-parameters cpu --host-link 300us,1GB/s";
    let base = flags(3, whole);
    none_changes_a_bit(Stage::Zero3, &base, &[away]);
}

/// With one buffer, only the first states arrive ahead of the update. Shards that it hands over are
/// available at once, unless a link to the device is simulated. In that case one more is updated,
/// and transferred.
#[test]
fn an_update_waits_for_no_more_of_a_slow_disk_than_forward_needs() {
    let slow = "--steps 2 --offload-buffers 1 --disk-link 40ms,1GB/s";
    let optimizer = flags(2, &format!("--offload-optimizer disk {slow}"));
    let all = flags(2, &format!("{} {slow}", EVERYTHING[7]));
    let two_buffers = all.replace("--offload-buffers 1", "--offload-buffers 2") + " --host-link 1us,100GB/s";
    let cases = [
        (Stage::Ddp, &optimizer, 4),
        (Stage::Zero2, &optimizer, 3),
        (Stage::Zero3, &optimizer, 3),
        (Stage::Zero3, &all, 3),
        (Stage::Zero3, &two_buffers, 2),
    ];
    at_once(cases, |(stage, flags, late)| {
        assert_eq!(updated_in_forward(stage, flags), [0, late], "{stage} {flags}");
    });
}

#[test]
fn skipped_steps_move_less_and_as_predicted() {
    let base = flags(2, "--precision fp16 --initial-scale-power 9 --inject overflow@rank1,step1");
    let plain = run(Stage::Zero3, &base);
    assert_eq!(plain.skipped_steps, 1);
    none_changes_a_bit(Stage::Zero3, &base, &[EVERYTHING[4], EVERYTHING[7]]);
}

#[test]
fn a_run_that_updates_nothing_holds_what_it_was_predicted_to() {
    let base = flags(2, "--precision fp16 --initial-scale-power 50");
    let plain = run(Stage::Zero3, &base);
    assert_eq!(plain.skipped_steps as usize, plain.steps.len());
    none_changes_a_bit(Stage::Zero3, &base, &[EVERYTHING[0], EVERYTHING[4], EVERYTHING[7]]);
}

#[test]
fn activations_leave_and_come_back_as_they_were() {
    for stage in [Stage::Ddp, Stage::Zero3] {
        let base = flags(2, "--checkpoint-activations block");
        none_changes_a_bit(stage, &base, &["--offload-activations cpu", "--offload-activations disk"]);
    }
    let base = flags(2, "--checkpoint-activations block --precision bf16");
    let all = "--offload-activations disk --offload-optimizer disk --offload-parameters disk";
    none_changes_a_bit(Stage::Zero3, &base, &[all]);
}

#[test]
fn twelve_bytes_per_parameter_leave_the_device() {
    let base = flags(2, "");
    let plain = run(Stage::Zero3, &base);
    let away = run(Stage::Zero3, &format!("{base} --offload-optimizer cpu --offload-parameters cpu"));
    let held = bytes(&plain, Place::Device, Class::Parameters);
    assert_eq!(
        bytes(&plain, Place::Device, Class::Optimizer),
        2 * held,
        "f32 needs no master weights on the device"
    );
    assert_eq!(
        bytes(&away, Place::Device, Class::Optimizer) + bytes(&away, Place::Device, Class::Parameters),
        0
    );
    assert_eq!(bytes(&away, Place::Host, Class::Optimizer), 3 * held);
    assert_eq!(bytes(&away, Place::Host, Class::Parameters), held);
    assert_eq!(bytes(&away, Place::Host, Class::Gradients), held, "gradients follow the optimizer");
}

#[test]
fn a_run_resumes_whatever_rests_where() {
    let folder = tempfile::tempdir().unwrap();
    let whole = run(Stage::Zero3, &flags(2, ""));
    let kept = |more: &str| flags(2, &format!("--checkpoint {} {more}", folder.path().display()));
    let broken = "--checkpoint-wait --checkpoint-every 1 --inject panic@rank1,step2,backward";
    train(Stage::Zero3, &kept(&format!("{} {broken}", EVERYTHING[7]))).unwrap_err();
    for (stage, then) in [(Stage::Zero2, EVERYTHING[0]), (Stage::Zero3, EVERYTHING[7])] {
        let copy = tempfile::tempdir().unwrap();
        copy_directory(folder.path(), copy.path());
        let flags = flags(2, &format!("--checkpoint {} {then}", copy.path().display()));
        let resumed = run(stage, &flags);
        assert_eq!(resumed.steps.len(), 1);
        assert_eq!(resumed.weights_blake3, whole.weights_blake3);
    }
}

#[test]
fn nothing_is_left_in_the_directory() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("new/swap");
    run(Stage::Zero3, &flags(2, &format!("{} --offload-dir {}", EVERYTHING[7], directory.display())));
    assert_eq!(files(&directory), 0);
}

fn files(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

#[test]
fn main_memory_that_runs_out_is_an_error_on_one_screen() {
    let failure = train(Stage::Zero3, &flags(2, "--offload-optimizer cpu --host-memory 20kB --ignore-plan"));
    let said = failure.unwrap_err().to_string();
    assert!(said.contains("main memory") && said.contains("--host-memory"), "{said}");
    assert!(said.lines().count() <= 24, "{said}");
}
