//! Ranks that cannot meet: every rank ends with an error that says why.

use crate::processes::{DEADLINE, PATIENCE, STAGE, endless, ends, explains};
use prediction::Stage;
use std::net::TcpListener;
use std::time::Duration;
use tests::job::{Ended, Member, SECRET, free_port, is_free, launch, met, start, took};
use tests::{fixture, train};

/// How late ranks that wait for one another at the start may end: the meeting's two seconds, plus
/// time to start on a busy machine.
const LATE: Duration = Duration::from_secs(8);

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
    let ended = met(|| {
        let port = free_port();
        let set = |rank| format!("RANK={rank} WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT={port}");
        let join = |rank| start(STAGE, &endless("--timeout 2"), &set(rank));
        let zero = join(0);
        while is_free(port) && !zero.has_ended() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let ended = ends(vec![zero, join(2)]);
        let is_late = |ended: &Ended| {
            ["ranks 1 and 2 never came", "has not reached"].iter().any(|words| ended.error.contains(words))
        };
        if ended.iter().any(is_late) { Err(ended) } else { Ok(ended) }
    });
    ended.iter().for_each(|ended| explains(ended, 1, &["rank 1 never came", "waited 2s", "WORLD_SIZE"]));
    assert!(took(&ended) < DEADLINE + LATE, "{ended:?}");
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
        explains(&ended, 1, &["cannot resolve", "no-such-host.invalid", "MASTER_ADDR"]);
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
    let ended = met(|| {
        let ended = ends(launch_with(2, |rank| format!("ZERO_JOB_SECRET=not-the-same-secret-{rank}")));
        if ended[1].error.contains("has not reached") { Err(ended) } else { Ok(ended) }
    });
    let [zero, one] = ended.try_into().unwrap();
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
    let ended = ends([0, 1].map(|rank| start(STAGE, &endless("--timeout 2"), &set(rank))).into());
    explains(&ended[0], 1, &["port is in use", "MASTER_PORT"]);
    explains(&ended[1], 1, &["no answer", "rank 0"]);
    assert!(took(&ended) < DEADLINE + LATE, "{ended:?}");
}

#[test]
fn other_flags_on_one_rank_are_shown_to_all() {
    let members = launch(STAGE, 2, |rank| endless(if rank == 1 { "--lr 0.25" } else { "--lr 0.5" }));
    for ended in ends(members) {
        explains(&ended, 1, &["rank 1 was started with other settings than rank 0", "0.5", "0.25"]);
    }
}

#[test]
fn a_setting_that_differs_is_named_with_the_fields_around_it() {
    let dir = tempfile::tempdir().unwrap();
    let kept = format!("--checkpoint {}", dir.path().join("kept").display());
    for (flags, lines) in [
        (
            ["--val-fraction 0.1 --eval-every 2", "--val-fraction 0.1 --eval-every 3"],
            ["corpus.eval_every: Some(2)", "corpus.eval_every: Some(3)"],
        ),
        ([&kept, ""], ["output.checkpoint: Some(\"DIR\")", "output.checkpoint: None"]),
    ] {
        for ended in ends(launch(STAGE, 2, |rank| endless(flags[rank]))) {
            explains(&ended, 1, &lines);
        }
    }
}

#[test]
fn copies_of_a_model_may_have_another_name_on_each_machine() {
    let dir = tempfile::tempdir().unwrap();
    let [saved, copy] = ["saved", "copy"].map(|name| dir.path().join(name));
    let flags = "--gpus 1 --steps 1 --batch-size 1 --seq-len 8 --threads 1 --device cpu";
    let model = fixture("odd.json");
    train(Stage::Ddp, &format!("{flags} --model {model} --save {}", saved.display())).unwrap();
    std::fs::create_dir(&copy).unwrap();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(saved.join(file), copy.join(file)).unwrap();
    }
    for flag in ["init-from", "model"] {
        let named = |rank: usize| format!("--{flag} {}", [&saved, &copy][rank].display());
        for ended in ends(launch(STAGE, 2, |rank| endless(&format!("{} --steps 1", named(rank))))) {
            assert_eq!(ended.code, Some(0), "{flag}: {}", ended.error);
        }
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
