//! Ranks that are processes learn the bits of threads, and every rank ends after any failure.

use events::{Recording, What};
use planner::Stage;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};
use tests::job::{Ended, Member, SECRET, desync, free_port, launch, start};
use tests::{STAGES, at_once, fixture, train};

const STAGE: &str = env!("CARGO_BIN_EXE_stage");

/// Longer than any process should take to end. A passing test does not wait this long.
const PATIENCE: Duration = Duration::from_secs(60);

fn run(stage: Stage) -> String {
    let model = fixture("odd.json");
    format!(
        "--model {model} --batch-size 2 --seq-len 16 --steps 4 --threads 1 --val-fraction 0.2 --eval-every 2 --shuffle-seed {}",
        stage as u8
    )
}

/// Returns the flags of a run that continues until something ends it.
fn endless(more: &str) -> String {
    format!("zero3 --headless --batch-size 1 --seq-len 16 --threads 1 --steps 1000000 {more}")
}

/// How long ranks wait for one another in tests about waiting.
const DEADLINE: Duration = Duration::from_secs(2);

/// How late ranks that wait for one another at the start may end: the meeting's two seconds, plus
/// time to start on a busy machine.
const LATE: Duration = Duration::from_secs(8);

fn ends(members: Vec<Member>) -> Vec<Ended> {
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

/// Waits until the job has finished a step.
fn wait_for_a_step(logs: &Path) {
    let (log, begin) =
        (|| std::fs::read_to_string(logs.join("rank-0.log")).unwrap_or_default(), Instant::now());
    while !log().contains("step 0") {
        assert!(begin.elapsed() < PATIENCE, "{}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_killed_process_ends_the_job_and_is_named_by_all() {
    let dir = tempfile::tempdir().unwrap();
    let mut members = launch(STAGE, 4, |_| endless(&format!("--log-dir {}", dir.path().display())));
    wait_for_a_step(dir.path());
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
    let mut members = launch(STAGE, 3, |_| flags.clone());
    wait_for_a_step(dir.path());
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
        let mut members = launch(STAGE, 3, |_| flags.clone());
        wait_for_a_step(&logs);
        let victim = members.remove(1);
        let since = Instant::now();
        victim.signal(signal);
        for ended in ends(members) {
            explains(&ended, 1, &["rank 1", words]);
        }
        assert!(since.elapsed() < DEADLINE + Duration::from_secs(5), "{signal}: {:?}", since.elapsed());
        victim.signal("KILL");
        victim.end(PATIENCE);
    });
}

#[test]
fn a_viewer_holds_all_processes_for_longer_than_their_timeout_and_an_interrupt_ends_them_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let (port, flags) = (free_port(), endless(&format!("--timeout 1 --log-dir {}", dir.path().display())));
    let set = |rank| {
        let runs = dir.path().display();
        format!("RANK={rank} WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT={port} XDG_RUNTIME_DIR={runs}")
    };
    let members: Vec<Member> = (0..3).map(|rank| start(STAGE, &flags, &set(rank))).collect();
    wait_for_a_step(dir.path());
    let sockets = dir.path().join("zero-runs");
    let mut viewer = events::runs::list(&sockets).unwrap().remove(0).attachment;
    assert_eq!(viewer.header.world_size, 3);
    let steps = |rank: usize| {
        let log = std::fs::read_to_string(dir.path().join(format!("rank-{rank}.log"))).unwrap();
        log.lines().filter(|line| line.starts_with("step ")).count()
    };
    viewer.control(events::Control::Pause).unwrap();
    let settled = || {
        let before = [0, 1, 2].map(steps);
        std::thread::sleep(Duration::from_millis(300));
        before == [0, 1, 2].map(steps)
    };
    while !settled() {}
    let held = [0, 1, 2].map(steps);
    // Twice the ranks' timeout. A rank that waits for a held rank must not time out.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(held, [0, 1, 2].map(steps), "no rank continues while the run is held");
    viewer.control(events::Control::Resume).unwrap();
    while (0..3).any(|rank| steps(rank) < held[rank] + 3) {
        std::thread::sleep(Duration::from_millis(5));
        viewer.poll().unwrap();
    }
    // Held ranks receive the interrupt, too.
    viewer.control(events::Control::Pause).unwrap();
    while !settled() {}
    members.iter().for_each(|member| member.signal("INT"));
    for (rank, ended) in ends(members).iter().enumerate() {
        assert_eq!(ended.code, Some(130), "{}", ended.error);
        assert_eq!(ended.out.contains("peak bytes, each rank"), rank == 0, "{}", ended.out);
    }
}

/// One step of these runs takes minutes. Only one rank receives the interrupt.
#[test]
fn an_interrupt_ends_a_long_step_between_two_micro_batches() {
    let dir = tempfile::tempdir().unwrap();
    let (port, flags) = (free_port(), endless("--grad-accum 60000"));
    let set = |rank| {
        let runs = dir.path().display();
        format!("RANK={rank} WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT={port} XDG_RUNTIME_DIR={runs}")
    };
    let members: Vec<Member> = (0..3).map(|rank| start(STAGE, &flags, &set(rank))).collect();
    let sockets = dir.path().join("zero-runs");
    let begin = Instant::now();
    let mut viewer = loop {
        match events::runs::attach(&sockets, "zero3") {
            Ok(viewer) => break viewer,
            Err(error) => assert!(begin.elapsed() < PATIENCE, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
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
    members[1].signal("INT");
    for (rank, ended) in ends(members).iter().enumerate() {
        assert_eq!(ended.code, Some(130), "{}", ended.error);
        assert!(ended.after < Duration::from_secs(10), "{:?}", ended.after);
        assert_eq!(ended.out.contains("before its first step was done"), rank == 0, "{}", ended.out);
    }
}

#[test]
fn an_error_or_panic_of_one_rank_ends_all_and_names_it() {
    for (fault, own, others) in [
        (
            "error@rank1,step2,backward",
            "rank 1: injected error in Backward of step 2",
            "injected error in Backward",
        ),
        ("panic@rank1,step2,backward", "injected panic in Backward of step 2", "it panicked"),
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
        let begin = Instant::now();
        let ended = ends(launch(STAGE, 3, |_| flags.clone()));
        assert!(begin.elapsed() < patience, "{stage}: {:?}", begin.elapsed());
        let numbers = ended.iter().map(|ended| {
            explains(ended, 1, &[]);
            desync(&ended.error, culprit, operation)
        });
        let numbers: BTreeSet<u64> = numbers.collect();
        assert_eq!(numbers.len(), 1, "{stage}: all name the same collective");
    }
}

#[test]
fn contradictory_variables_and_flags_are_refused_before_anything_starts() {
    let refused = |flags: &str, set: &str, words: &[&str]| {
        let flags = endless(flags);
        explains(&start(STAGE, &flags, set).end(PATIENCE), 2, words);
    };
    refused("", "RANK=4 WORLD_SIZE=4", &["RANK=4", "WORLD_SIZE=4"]);
    refused("", "RANK=0", &["RANK", "WORLD_SIZE"]);
    let rivals = "RANK=0 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2";
    refused("", rivals, &["RANK=0", "OMPI_COMM_WORLD_RANK=1"]);
    refused("", "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1", &["MASTER_ADDR", "MASTER_PORT"]);
    refused("", "RANK=0 WORLD_SIZE=2", &["MASTER_ADDR", "MASTER_PORT", "--master"]);
    refused("--gpus 8", "RANK=0 WORLD_SIZE=2", &["--gpus 8", "torchrun started 2"]);
    refused("--collectives local", "RANK=0 WORLD_SIZE=2", &["--collectives local"]);
    refused("--algorithm ring", "RANK=0 WORLD_SIZE=2", &["--algorithm ring"]);
    refused("--link pcie4", "RANK=0 WORLD_SIZE=2", &["--link"]);
    refused("--collectives tcp", "", &["alone", "torchrun"]);
    refused("--rank 1 --gpus 2", "", &["--master"]);
}

#[test]
fn a_rank_that_is_missing_at_the_start_is_named() {
    let port = free_port();
    let set = |rank| format!("RANK={rank} WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT={port}");
    let begin = Instant::now();
    let members = [0, 2].map(|rank| start(STAGE, &endless("--timeout 2"), &set(rank)));
    for ended in ends(members.into()) {
        explains(&ended, 1, &["rank 1 never came", "waited 2s", "WORLD_SIZE"]);
    }
    assert!(begin.elapsed() < DEADLINE + LATE, "{:?}", begin.elapsed());
}

#[test]
fn a_wrong_address_is_explained_on_every_rank() {
    let port = free_port();
    let join = |address: &str, rank: usize| {
        let set = format!("RANK={rank} WORLD_SIZE=2 MASTER_ADDR={address} MASTER_PORT={port} {SECRET}");
        start(STAGE, &endless("--timeout 2"), &set)
    };
    // An address of the block for documentation, which no machine has.
    let [zero, one] = [0, 1].map(|rank| join("192.0.2.1", rank).end(PATIENCE));
    explains(&zero, 1, &["192.0.2.1", "no such address", "MASTER_ADDR"]);
    explains(&one, 1, &["rank 1 has not reached rank 0 at 192.0.2.1", "MASTER_ADDR"]);
    assert!(zero.after.max(one.after) < DEADLINE + LATE, "{:?}, {:?}", zero.after, one.after);
    for ended in [0, 1].map(|rank| join("no-such-host.invalid", rank).end(PATIENCE)) {
        explains(&ended, 1, &["no machine called", "no-such-host.invalid", "MASTER_ADDR"]);
        assert!(ended.after < DEADLINE + LATE, "{:?}", ended.after);
    }
}

#[test]
fn a_job_without_a_secret_or_with_two_trains_with_no_other_process() {
    let start = |address: &str, rank: usize, secret: &str| {
        let set =
            format!("RANK={rank} WORLD_SIZE=2 MASTER_ADDR={address} MASTER_PORT={} {secret}", free_port());
        start(STAGE, &endless("--timeout 2"), &set)
    };
    for rank in 0..2 {
        let ended = start("192.0.2.1", rank, "").end(PATIENCE);
        explains(&ended, 1, &["192.0.2.1", "the job has no secret", "ZERO_JOB_SECRET", "torchrun", "mpirun"]);
    }
    explains(
        &start("127.0.0.1", 0, "ZERO_JOB_SECRET=short").end(PATIENCE),
        2,
        &["ZERO_JOB_SECRET", "openssl"],
    );
    let members = launch_with(2, |rank| format!("ZERO_JOB_SECRET=not-the-same-secret-{rank}"));
    let [zero, one] = ends(members).try_into().unwrap();
    explains(&zero, 1, &["rank 1 never came", "another secret"]);
    explains(&one, 1, &["ZERO_JOB_SECRET", "must be the same for every rank"]);
}

/// Starts processes that meet on this machine, with the variables `set(rank)` in addition to the
/// launcher's.
fn launch_with(size: usize, set: impl Fn(usize) -> String) -> Vec<Member> {
    let port = free_port();
    let all = |rank| {
        format!("RANK={rank} WORLD_SIZE={size} MASTER_ADDR=127.0.0.1 MASTER_PORT={port} {}", set(rank))
    };
    (0..size).map(|rank| start(STAGE, &endless("--timeout 2"), &all(rank))).collect()
}

#[test]
fn a_port_in_use_is_explained_on_every_rank() {
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let set = |rank| format!("RANK={rank} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={port}");
    let begin = Instant::now();
    let [zero, one] = [0, 1].map(|rank| start(STAGE, &endless("--timeout 2"), &set(rank)));
    explains(&zero.end(PATIENCE), 1, &["port is in use", "MASTER_PORT"]);
    explains(&one.end(PATIENCE), 1, &["no answer", "rank 0"]);
    assert!(begin.elapsed() < DEADLINE + LATE, "{:?}", begin.elapsed());
}

#[test]
fn other_flags_on_one_rank_are_shown_to_all() {
    let members = launch(STAGE, 2, |rank| endless(if rank == 1 { "--lr 0.25" } else { "--lr 0.5" }));
    for ended in ends(members) {
        explains(&ended, 1, &["rank 1 was started with other settings than rank 0", "0.5", "0.25"]);
    }
}

/// A file that differs on one machine by a single letter.
#[test]
fn other_data_on_one_rank_are_shown_to_all() {
    let dir = tempfile::tempdir().unwrap();
    let members = launch(STAGE, 2, |rank| {
        let file = dir.path().join(format!("{rank}.txt"));
        std::fs::write(&file, if rank == 1 { "one or two " } else { "one or too " }.repeat(100)).unwrap();
        endless(&format!("--data {}", file.display()))
    });
    for ended in ends(members) {
        explains(&ended, 1, &["rank 1 was started with other settings than rank 0", "data: "]);
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
