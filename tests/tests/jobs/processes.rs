//! Ranks that are processes learn the bits of threads, and every rank ends after any failure.

use events::{Attachment, Recording, What};
use prediction::Stage;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};
use tests::job::{Ended, Member, desync, free_port, launch, met, start, took};
use tests::{STAGES, at_once, fixture, train};

pub(crate) const STAGE: &str = env!("CARGO_BIN_EXE_stage");

/// Longer than any process should take to end. A passing test does not wait this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

fn run(stage: Stage) -> String {
    let model = fixture("odd.json");
    format!(
        "--model {model} --batch-size 2 --seq-len 16 --steps 4 --threads 1 --val-fraction 0.2 --eval-every 2 --shuffle-seed {}",
        stage as u8
    )
}

/// Returns the flags of a run that continues until something ends it.
pub(crate) fn endless(more: &str) -> String {
    format!("zero3 --headless --batch-size 1 --seq-len 16 --threads 1 --steps 1000000 {more}")
}

/// How long ranks wait for one another in tests about waiting.
pub(crate) const DEADLINE: Duration = Duration::from_secs(2);

pub(crate) fn ends(members: Vec<Member>) -> Vec<Ended> {
    members.into_iter().map(|member| member.end(PATIENCE)).collect()
}

/// Checks that the error is one screen that starts with `error: ` and contains all `words`.
pub(crate) fn explains(ended: &Ended, code: i32, words: &[&str]) {
    let error = &ended.error;
    assert_eq!(ended.code, Some(code), "{error}");
    assert!(error.starts_with("error: ") && error.lines().count() <= 24, "{error}");
    assert!(!error.contains("thread '"), "{error}");
    for word in words {
        assert!(error.contains(word), "{word:?} is missing: {error}");
    }
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

#[test]
fn four_processes_learn_the_bits_of_four_threads_in_every_stage() {
    let dir = tempfile::tempdir().unwrap();
    for stage in STAGES {
        let flags = run(stage);
        let threads = train(stage, &format!("{flags} --gpus 4")).unwrap();
        let report = dir.path().join(format!("{}.json", stage.package()));
        let flags = format!("{} --headless {flags} --report {}", stage.package(), report.display());
        for (rank, ended) in ends(launch(STAGE, 4, |_| flags.clone())).iter().enumerate() {
            assert_eq!(ended.code, Some(0), "{}", ended.error);
            assert_eq!(ended.out.is_empty(), rank > 0, "rank 0 prints for all: {}", ended.out);
        }
        let (processes, threads) = (json(&report), serde_json::to_value(&threads).unwrap());
        for key in ["weights_blake3", "evaluations", "memory", "total_peak_bytes", "traffic"] {
            assert_eq!(processes[key], threads[key], "{stage}: {key}");
        }
        let losses = |report: &Value| -> Vec<Value> {
            report["steps"].as_array().unwrap().iter().map(|row| row["loss"].clone()).collect()
        };
        assert_eq!(losses(&processes), losses(&threads), "{stage}");
        let times = processes["time"].as_array().unwrap();
        assert_eq!(times.len(), 4, "every rank's measurements are there");
        for time in times {
            let phases = &time["phases"];
            let inside = ["data", "forward", "backward", "step"].map(|phase| phases[phase].as_f64().unwrap());
            let (inside, all) = (inside.iter().sum::<f64>(), time["seconds"].as_f64().unwrap());
            assert!(0.0 < inside && inside <= all, "{stage}: phases of {inside} s in steps of {all} s");
        }
    }
}

/// On machines of different sizes, or where no variable says how many processes share one.
#[test]
fn processes_learn_the_same_bits_however_many_threads_each_has() {
    let dir = tempfile::tempdir().unwrap();
    let report = dir.path().join("report.json");
    let flags = "--batch-size 4 --seq-len 64 --steps 2";
    let one = train(Stage::Zero2, &format!("{flags} --gpus 2 --threads 1")).unwrap();
    let members = launch(STAGE, 2, |rank| {
        format!("zero2 --headless {flags} --threads {} --report {}", 2 * rank + 1, report.display())
    });
    ends(members).iter().for_each(|ended| assert_eq!(ended.code, Some(0), "{}", ended.error));
    assert_eq!(json(&report)["weights_blake3"], serde_json::to_value(&one).unwrap()["weights_blake3"]);
}

/// Groups within the world also work between processes.
#[test]
fn four_processes_in_groups_learn_the_bits_of_four_threads() {
    let dir = tempfile::tempdir().unwrap();
    let hybrid = "--strategy hybrid-shard --shard-group-size 2";
    let in_16_bits = format!("{hybrid} --precision bf16");
    let groups = [hybrid, &in_16_bits, "--secondary-shard-size 2"];
    for (number, groups) in groups.into_iter().enumerate() {
        let flags = format!("{} {groups}", run(Stage::Zero3));
        let threads = train(Stage::Zero3, &format!("{flags} --gpus 4")).unwrap();
        let report = dir.path().join(format!("{number}.json"));
        let flags = format!("zero3 --headless {flags} --report {}", report.display());
        for ended in ends(launch(STAGE, 4, |_| flags.clone())) {
            assert_eq!(ended.code, Some(0), "{groups}: {}", ended.error);
        }
        let (processes, threads) = (json(&report), serde_json::to_value(&threads).unwrap());
        for key in ["weights_blake3", "memory", "total_peak_bytes", "traffic", "traffic_to_neighbours"] {
            assert_eq!(processes[key], threads[key], "{groups}: {key}");
        }
        assert_eq!(processes["traffic_to_neighbours"].as_array().unwrap().len(), 4);
    }
}

#[test]
fn processes_resume_from_the_checkpoint_of_a_broken_job() {
    let dir = tempfile::tempdir().unwrap();
    let [kept, report, logs] = ["kept", "report.json", "logs"].map(|name| dir.path().join(name));
    let flags = run(Stage::Zero3);
    let threads = train(Stage::Zero3, &format!("{flags} --gpus 3")).unwrap();
    let keeping = format!(
        "zero3 --headless {flags} --checkpoint {} --checkpoint-every 2 --checkpoint-wait --log-dir {}",
        kept.display(),
        logs.display()
    );
    let log_says = |words: &str| {
        for rank in 0..3 {
            let log = std::fs::read_to_string(logs.join(format!("rank-{rank}.log"))).unwrap();
            assert_eq!(log.matches(words).count(), 1, "{words:?} in the log of rank {rank}: {log}");
        }
    };
    for ended in ends(launch(STAGE, 3, |_| format!("{keeping} --inject panic@rank1,step3,backward"))) {
        explains(&ended, 1, &["rank 1"]);
    }
    // A machine that does not see the directory would start from scratch.
    let elsewhere =
        keeping.replace(&*kept.to_string_lossy(), &dir.path().join("elsewhere").to_string_lossy());
    for ended in ends(launch(STAGE, 3, |rank| if rank == 2 { elsewhere.clone() } else { keeping.clone() })) {
        explains(&ended, 2, &["is not the same directory on all machines", "rank 2 does not see"]);
    }
    log_says("is not the same directory on all machines");
    let again = format!("{keeping} --report {}", report.display());
    for ended in ends(launch(STAGE, 3, |_| again.clone())) {
        assert_eq!(ended.code, Some(0), "{}", ended.error);
    }
    log_says("Resuming after 2 steps");
    // A job that resumes appends to its logs, which say why the previous job ended.
    log_says("is not the same directory on all machines");
    let resumed = json(&report);
    assert_eq!(resumed["steps"][0]["step"], 2);
    assert_eq!(resumed["weights_blake3"], threads.weights_blake3.as_str());
}

#[test]
fn the_recording_of_a_job_has_the_events_of_all_ranks_on_one_clock() {
    let dir = tempfile::tempdir().unwrap();
    let (file, logs) = (dir.path().join("run.zero"), dir.path().join("logs"));
    let flags = format!(
        "zero2 --headless {} --record {} --log-dir {}",
        run(Stage::Zero2),
        file.display(),
        logs.display()
    );
    ends(launch(STAGE, 3, |_| flags.clone())).iter().for_each(|e| assert_eq!(e.code, Some(0), "{}", e.error));
    let recording = Recording::open(&file).unwrap();
    assert!(recording.is_complete());
    let events: Vec<_> = recording.events().map(Result::unwrap).collect();
    assert!(events.is_sorted_by_key(|event| event.at), "events are in the order of time");
    let mut finished: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for event in events.iter().filter(|event| matches!(event.what, What::StepFinished { .. })) {
        finished.entry(event.rank).or_default().push(event.at);
    }
    assert_eq!(finished.len(), 3);
    for step in 0..4 {
        let at: Vec<u64> = finished.values().map(|steps| steps[step]).collect();
        let apart = at.iter().max().unwrap() - at.iter().min().unwrap();
        assert!(apart < 2_000_000_000, "step {step} ends on all ranks within {apart} ns");
    }
    for rank in 0..3 {
        let log = std::fs::read_to_string(logs.join(format!("rank-{rank}.log"))).unwrap();
        assert!(log.contains("step 3  loss") && log.ends_with("finished\n"), "{log}");
    }
}

/// Starts a job and waits until it has finished a step.
fn running(logs: &Path, job: impl Fn() -> Vec<Member>) -> Vec<Member> {
    let log = || std::fs::read_to_string(logs.join("rank-0.log")).unwrap_or_default();
    met(|| {
        let (members, begin) = (job(), Instant::now());
        while !log().contains("step 0") {
            assert!(begin.elapsed() < PATIENCE, "{}", log());
            if members.iter().any(Member::has_ended) {
                return Err(ends(members));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(members)
    })
}

#[test]
fn a_killed_process_ends_the_job_and_is_named_by_all() {
    let dir = tempfile::tempdir().unwrap();
    let flags = endless(&format!("--log-dir {}", dir.path().display()));
    let mut members = running(dir.path(), || launch(STAGE, 4, |_| flags.clone()));
    let victim = members.remove(2);
    victim.signal("KILL");
    victim.end(PATIENCE);
    for ended in ends(members) {
        explains(&ended, 1, &["rank 2 failed", "its process has ended"]);
        assert!(ended.after < Duration::from_secs(10), "{:?}", ended.after);
    }
}

#[test]
fn a_process_that_hangs_is_named_after_the_timeout() {
    let dir = tempfile::tempdir().unwrap();
    let flags = endless(&format!("--timeout 2 --log-dir {}", dir.path().display()));
    let mut members = running(dir.path(), || launch(STAGE, 3, |_| flags.clone()));
    members[1].signal("STOP");
    let hanging = members.remove(1);
    for ended in ends(members) {
        explains(&ended, 1, &["rank 1", "waited 2s"]);
    }
    hanging.signal("KILL");
    hanging.end(PATIENCE);
}

/// These runs spend nearly all of their time in saves, because every step waits for one.
#[test]
fn a_process_that_dies_or_hangs_while_it_saves_is_named() {
    at_once([("KILL", "its process has ended"), ("STOP", "waited 2s")], |(signal, words)| {
        let dir = tempfile::tempdir().unwrap();
        let (logs, kept) = (dir.path().join("logs"), dir.path().join("kept"));
        let flags = endless(&format!(
            "--timeout 2 --log-dir {} --checkpoint {} --checkpoint-every 1 --checkpoint-wait",
            logs.display(),
            kept.display()
        ));
        let mut members = running(&logs, || launch(STAGE, 3, |_| flags.clone()));
        let victim = members.remove(1);
        victim.signal(signal);
        let others = ends(members);
        others.iter().for_each(|ended| explains(ended, 1, &["rank 1", words]));
        assert!(took(&others) < DEADLINE + Duration::from_secs(5), "{signal}: {others:?}");
        victim.signal("KILL");
        victim.end(PATIENCE);
    });
}

#[test]
fn a_viewer_holds_all_processes_for_longer_than_their_timeout_and_an_interrupt_ends_them_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let flags = endless(&format!("--timeout 1 --log-dir {}", dir.path().display()));
    let members = running(dir.path(), || launch_listed(dir.path(), &flags));
    let mut viewer = attached(dir.path());
    assert_eq!(viewer.header.world_size, 3);
    let steps = |rank: usize| {
        let log = std::fs::read_to_string(dir.path().join(format!("rank-{rank}.log"))).unwrap();
        log.lines().filter(|line| line.starts_with("step ")).count()
    };
    viewer.control(events::Control::Pause).unwrap();
    let settled = || {
        let begin = Instant::now();
        loop {
            let before = [0, 1, 2].map(steps);
            // Twice the ranks' timeout. A rank that waits for a held rank must not time out.
            std::thread::sleep(Duration::from_secs(2));
            if before == [0, 1, 2].map(steps) {
                return before;
            }
            assert!(begin.elapsed() < PATIENCE, "no rank continues while the run is held");
        }
    };
    let held = settled();
    viewer.control(events::Control::Resume).unwrap();
    while (0..3).any(|rank| steps(rank) < held[rank] + 3) {
        std::thread::sleep(Duration::from_millis(5));
        viewer.poll().unwrap();
    }
    // Held ranks receive the interrupt, too.
    viewer.control(events::Control::Pause).unwrap();
    settled();
    members.iter().for_each(|member| member.signal("INT"));
    for (rank, ended) in ends(members).iter().enumerate() {
        assert_eq!(ended.code, Some(130), "{}", ended.error);
        assert_eq!(ended.out.contains("peak bytes, each rank"), rank == 0, "{}", ended.out);
    }
}

/// Starts three ranks, which viewers find in `runs`.
fn launch_listed(runs: &Path, flags: &str) -> Vec<Member> {
    let (port, runs) = (free_port(), runs.display());
    let set = |rank| {
        format!("RANK={rank} WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT={port} XDG_RUNTIME_DIR={runs}")
    };
    (0..3).map(|rank| start(STAGE, flags, &set(rank))).collect()
}

/// Returns a viewer of the run that is listed in `runs`.
fn attached(runs: &Path) -> Attachment {
    let begin = Instant::now();
    loop {
        match events::runs::attach(&runs.join("zero-runs"), "zero3") {
            Ok(viewer) => return viewer,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// One step of these runs takes minutes. Only one rank receives the signal; all end with it.
#[test]
fn a_termination_ends_a_long_step_between_two_micro_batches() {
    let dir = tempfile::tempdir().unwrap();
    let members = launch_listed(dir.path(), &endless("--grad-accum 60000"));
    let (mut viewer, begin) = (attached(dir.path()), Instant::now());
    let under_way = |message: events::Message| match message {
        events::Message::Batch(batch) => {
            batch.events.iter().any(|event| matches!(event.what, What::PassStarted { micro: 1.., .. }))
        }
        _ => false,
    };
    while !viewer.poll().unwrap().into_iter().any(under_way) {
        assert!(begin.elapsed() < PATIENCE, "the second micro-batch never begins");
        std::thread::sleep(Duration::from_millis(5));
    }
    members[1].signal("TERM");
    for (rank, ended) in ends(members).iter().enumerate() {
        assert_eq!(ended.code, Some(143), "{}", ended.error);
        assert!(ended.after < Duration::from_secs(10), "{:?}", ended.after);
        assert_eq!(ended.out.contains("before its first step was done"), rank == 0, "{}", ended.out);
    }
}

#[test]
fn an_error_or_panic_of_one_rank_ends_all_and_names_it() {
    for (fault, own, others) in [
        (
            "error@rank1,step2,backward",
            "rank 1: injected error in backward of step 2",
            "injected error in backward",
        ),
        ("panic@rank1,step2,backward", "injected panic in backward of step 2", "it panicked"),
    ] {
        let flags = endless(&format!("--inject {fault}"));
        for (rank, ended) in ends(launch(STAGE, 3, |_| flags.clone())).iter().enumerate() {
            explains(
                ended,
                1,
                if rank == 1 { [own, "rank 1"] } else { ["rank 1 failed during", others] }.as_slice(),
            );
        }
    }
}

#[test]
fn a_rank_that_leaves_out_a_collective_is_named_by_all_before_any_deadline() {
    let patience = Duration::from_secs(30);
    for (stage, culprit, operation) in
        [("zero0-ddp", 0, "all-reduce"), ("zero1", 1, "reduce-scatter"), ("zero3", 2, "all-gather")]
    {
        let fault = format!("--timeout {} --inject skip@rank{culprit},step1", patience.as_secs());
        let flags = endless(&fault).replace("zero3", stage);
        let ended = ends(launch(STAGE, 3, |_| flags.clone()));
        assert!(took(&ended) < patience, "{stage}: {ended:?}");
        let numbers = ended.iter().map(|ended| {
            explains(ended, 1, &[]);
            desync(&ended.error, culprit, operation)
        });
        let numbers: BTreeSet<u64> = numbers.collect();
        assert_eq!(numbers.len(), 1, "{stage}: all name the same collective");
    }
}

#[test]
fn ranks_offload_to_directories_of_their_own_machines() {
    let dir = tempfile::tempdir().unwrap();
    let flags = format!("zero3 --headless {} --offload-optimizer disk", run(Stage::Zero3));
    let at = |rank: usize| format!("{flags} --offload-dir {}", dir.path().join(rank.to_string()).display());
    for ended in ends(launch(STAGE, 2, at)) {
        assert_eq!(ended.code, Some(0), "{}", ended.error);
    }
}
