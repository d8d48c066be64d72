//! Training over NCCL, with threads and with processes, on the stand-in driver and the stand-in
//! NCCL; see [`tests::standin`]. NCCL adds in its own order, so losses agree with other engines'
//! only up to rounding.

use prediction::Stage;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tests::job::{Ended, desync, free_port, launch, start};
use tests::{STAGES, fixture, largest_difference, losses, standin_or_return, train};
use trainer::Report;

const STAGE: &str = env!("CARGO_BIN_EXE_stage");
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns flags for 4 sequences of 12 tokens per step, of a model in which the size of some units
/// is divisible by no number of ranks above 1.
fn flags(world: usize, steps: u32) -> String {
    format!(
        "--model {} --batch-size {} --seq-len 12 --steps {steps} --threads 1 --device cuda",
        fixture("three-heads.json"),
        4 / world
    )
}

fn run(stage: Stage, flags: &str) -> Report {
    let report = train(stage, flags).unwrap_or_else(|failure| panic!("{stage} {flags}: {failure}"));
    assert_eq!(report.mispredictions(), [""; 0], "{stage} {flags}");
    report
}

fn follows(a: &Report, b: &Report, apart: f64) {
    let difference = largest_difference(&losses(a), &losses(b));
    assert!(difference < apart, "{}: losses are {difference} apart", a.stage);
}

/// Asserts that `stage` learns the same over NCCL as over copies. Returns the report over NCCL.
fn agrees(stage: Stage, flags: &str, apart: f64) -> Report {
    let nccl = run(stage, &format!("{flags} --collectives nccl"));
    follows(&nccl, &run(stage, flags), apart);
    nccl
}

/// Asserts that each GPU has `ends` communicator ends, each of which takes 4 MiB of the stand-in's
/// memory, and that the stand-in takes nothing else.
fn takes(report: &Report, ends: u64) {
    assert_eq!(report.gpu.len(), report.world_size);
    for row in &report.gpu {
        assert_eq!((row.nccl_bytes, row.beside_bytes()), (ends << 22, 0), "{}: {row:?}", report.stage);
    }
}

#[test]
fn every_stage_learns_over_nccl_what_it_learns_over_copies() {
    standin_or_return!();
    for world in [2, 4] {
        let flags = format!("--gpus {world} {}", flags(world, 2));
        // Over copies, all stages learn the same bits.
        let copies = run(Stage::Ddp, &flags);
        for stage in STAGES {
            let report = run(stage, &format!("{flags} --collectives nccl"));
            follows(&report, &copies, 1e-4);
            takes(&report, world as u64);
        }
    }
}

#[test]
fn groups_of_neighbours_are_split_communicators() {
    standin_or_return!(&[("STANDIN_GPUS", "2")]);
    let flags = format!("--gpus 4 {}", flags(4, 2));
    // Each of the two ranks on a GPU has an end of the world's communicator, of its neighbours'
    // and, if it has peers across groups, of theirs.
    for (groups, ends) in
        [("--strategy hybrid-shard --shard-group-size 2", 3), ("--secondary-shard-size 2", 2)]
    {
        takes(&agrees(Stage::Zero3, &format!("{flags} {groups}"), 1e-4), 2 * ends);
    }
}

#[test]
fn sixteen_bits_and_accumulation_agree_to_rounding() {
    standin_or_return!();
    for precision in ["bf16", "fp16 --initial-scale-power 10"] {
        agrees(Stage::Zero3, &format!("--gpus 2 {} --precision {precision}", flags(2, 2)), 0.02);
    }
    agrees(Stage::Zero2, &format!("--gpus 2 {} --grad-accum 2", flags(4, 2)), 1e-4);
    let hybrid = "--strategy hybrid-shard --shard-group-size 2 --precision bf16";
    agrees(Stage::Zero3, &format!("--gpus 4 {} {hybrid}", flags(4, 2)), 0.02);
}

#[test]
fn an_error_of_nccl_ends_the_run_with_its_words() {
    standin_or_return!(&[("STANDIN_NCCL_ERROR", "1:4")]);
    for stage in STAGES {
        let failure =
            train(stage, &format!("--gpus 2 {} --collectives nccl", flags(2, 3))).expect_err("it fails");
        let text = failure.to_string();
        assert!(text.contains("rank 1") && text.contains("NCCL reports"), "{stage}: {text}");
        assert!(text.lines().count() <= 24, "{text}");
    }
}

/// NCCL may have created a part of a communicator before it returns an error.
#[test]
fn a_communicator_that_is_refused_is_aborted() {
    let settings = [("STANDIN_NCCL_REFUSED", "1:0"), ("STANDIN_FREED", "1")];
    standin_or_return!(&settings);
    let refused = train(Stage::Ddp, &format!("--gpus 2 {} --collectives nccl", flags(2, 1)));
    let said = refused.expect_err("it fails").to_string();
    assert!(said.contains("ncclCommInitRankConfig: unhandled system error"), "{said}");
}

/// Each rank has its own GPU.
#[test]
fn gpu_check_compares_groups_of_neighbours_over_nccl() {
    standin_or_return!(&[("STANDIN_GPUS", "4")]);
    let size = "--ranks 4 --steps 1 --sequences 4 --seq-len 8 --only groups";
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_gpu-check"));
    check.args(["--model", &fixture("three-heads.json")]).args(size.split_whitespace());
    let output = check.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for case in ["hybrid-shard", "secondary-shard-size"] {
        assert!(text.contains(&format!("fp32, 4 ranks: ZeRO-3, {case}, losses from copies'")), "{text}");
    }
}

fn ends(flags: &str, size: usize) -> Vec<Ended> {
    launch(STAGE, size, |_| flags.to_string()).into_iter().map(|member| member.end(PATIENCE)).collect()
}

/// Returns the report of a job of `size` processes.
fn job(dir: &Path, stage: Stage, size: usize, flags: &str) -> Report {
    let file = dir.join(format!("{}-{size}.json", stage.package()));
    let flags = format!("{} --headless {flags} --report {}", stage.package(), file.display());
    for (rank, ended) in ends(&flags, size).iter().enumerate() {
        assert_eq!(ended.code, Some(0), "{stage}, rank {rank}: {}", ended.error);
        let words = "connected by NCCL 2.30.4 (control messages over TCP)";
        assert_eq!(ended.out.contains(words), rank == 0, "{}", ended.out);
        assert_eq!(ended.out.contains("NCCL, of all ranks there"), rank == 0, "{}", ended.out);
    }
    let report = Report::read(&file).unwrap();
    // Every process has a stand-in of its own.
    takes(&report, if flags.contains("hybrid-shard") { 3 } else { 1 });
    assert_eq!(report.mispredictions(), [""; 0], "{stage} {flags}");
    report
}

#[test]
fn processes_learn_over_nccl_what_threads_do() {
    standin_or_return!(&[("STANDIN_GPUS", "2")]);
    let dir = tempfile::tempdir().unwrap();
    for (stage, size) in STAGES.into_iter().zip([2, 4, 2, 4]) {
        let flags = flags(size, 2);
        let threads = run(stage, &format!("--gpus {size} {flags}"));
        follows(&job(dir.path(), stage, size, &flags), &threads, 1e-4);
    }
    let flags = format!("{} --strategy hybrid-shard --shard-group-size 2", flags(4, 2));
    follows(
        &job(dir.path(), Stage::Zero3, 4, &flags),
        &run(Stage::Zero3, &format!("--gpus 4 {flags}")),
        1e-4,
    );
}

fn explains(ended: &Ended, words: &[&str]) {
    assert!(ended.error.starts_with("error: ") && ended.error.lines().count() <= 24, "{}", ended.error);
    words.iter().for_each(|word| assert!(ended.error.contains(word), "{word:?} is missing: {}", ended.error));
}

#[test]
fn every_process_says_which_rank_failed_in_nccl() {
    standin_or_return!(&[("STANDIN_NCCL_ERROR", "1:9")]);
    for ended in ends(&format!("zero3 --headless {}", flags(2, 1000)), 2) {
        assert_eq!(ended.code, Some(1));
        explains(&ended, &["rank 1 failed during", "NCCL reports", "internal error"]);
    }
}

#[test]
fn a_rank_that_leaves_out_a_collective_is_named_by_all() {
    standin_or_return!();
    let flags = format!("{} --timeout 60 --inject skip@rank1,step1", flags(3, 1000));
    for (stage, operation) in [(Stage::Ddp, "all-reduce"), (Stage::Zero3, "all-gather")] {
        let begin = Instant::now();
        let threads = train(stage, &format!("--gpus 3 {flags} --collectives nccl")).expect_err("it fails");
        let number = desync(&threads.to_string(), 1, operation);
        for ended in ends(&format!("{} --headless {flags}", stage.package()), 3) {
            assert_eq!(ended.code, Some(1));
            assert_eq!(desync(&ended.error, 1, operation), number, "{stage}: {}", ended.error);
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{stage}: {:?}", begin.elapsed());
    }
}

#[test]
fn a_process_that_hangs_in_nccl_is_named_by_all() {
    standin_or_return!(&[("STANDIN_NCCL_ABSENT", "1:9:60000")]);
    for ended in ends(&format!("zero3 --headless --timeout 2 {}", flags(2, 1000)), 2) {
        assert_eq!(ended.code, Some(1));
        // Detected on the GPU, or in the next call on the host.
        explains(&ended, &["rank 1", "waited 2s", "never"]);
        assert!(ended.after < Duration::from_secs(30), "{:?}", ended.after);
    }
}

#[test]
fn a_killed_process_ends_the_job_and_is_named() {
    standin_or_return!(&[("STANDIN_GPUS", "2")]);
    let dir = tempfile::tempdir().unwrap();
    let flags = format!("zero3 --headless {} --log-dir {}", flags(2, 1_000_000), dir.path().display());
    let mut members = launch(STAGE, 2, |_| flags.clone());
    let log = || std::fs::read_to_string(dir.path().join("rank-0.log")).unwrap_or_default();
    let begin = Instant::now();
    while !log().contains("step 1 ") {
        assert!(begin.elapsed() < PATIENCE, "{}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    let victim = members.remove(1);
    victim.signal("KILL");
    victim.end(PATIENCE);
    let ended = members.remove(0).end(PATIENCE);
    assert_eq!(ended.code, Some(1));
    explains(&ended, &["rank 1 failed", "its process has ended"]);
    assert!(ended.after < Duration::from_secs(20), "{:?}", ended.after);
}

#[test]
fn a_rank_that_is_missing_at_the_start_is_named() {
    standin_or_return!();
    let set = format!("RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}", free_port());
    let ended = start(STAGE, &format!("zero3 --headless --timeout 1 {}", flags(2, 1)), &set).end(PATIENCE);
    assert_eq!(ended.code, Some(1));
    explains(&ended, &["rank 1 never came", "waited 1s"]);
}

#[test]
fn what_stands_in_the_way_is_said_before_anything_starts() {
    let old = ("STANDIN_NCCL_VERSION", "22809");
    standin_or_return!(&[old]);
    let refused = |flags: &str, words: &[&str]| {
        let failure = train(Stage::Zero3, flags).expect_err("it is refused");
        assert_eq!(failure.code(), 2, "{failure}");
        let text = failure.to_string();
        words.iter().for_each(|word| assert!(text.contains(word), "{word:?} is missing: {text}"));
    };
    let flags = flags(2, 1);
    let sharing = ["2 ranks would share 1 GPU", "2.28.9", "2.30"];
    refused(&format!("--gpus 2 {flags} --collectives nccl"), &sharing);
    refused("--collectives nccl --device cpu", &["connects GPUs", "doctor"]);
    refused(&format!("--gpus 1 {flags} --collectives nccl --link pcie4"), &["--link"]);
    // Each process believes that it is alone on its machine. Only together do they see that they
    // share it.
    for ended in ends(&format!("zero3 --headless {flags}"), 2) {
        explains(&ended, &["ranks 0 and 1 share a GPU", "2.28.9", "2.30"]);
    }
    let set = "RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=1";
    let ended = start(STAGE, &format!("zero3 --headless {flags} --collectives tcp"), set).end(PATIENCE);
    explains(&ended, &["--device cuda", "NCCL"]);
}

#[test]
fn what_is_slow_or_may_hang_between_ranks_is_a_warning() {
    standin_or_return!();
    let folder = tempfile::tempdir().unwrap();
    let pipes = folder.path().display();
    let words = "warning: 2 processes share 1 GPU";
    for (mps, port) in [(false, free_port()), (true, free_port())] {
        if mps {
            std::fs::write(folder.path().join("control"), "").unwrap();
        }
        let set = |rank| {
            format!(
                "RANK={rank} LOCAL_RANK={rank} WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 \
                 MASTER_PORT={port} CUDA_MPS_PIPE_DIRECTORY={pipes}"
            )
        };
        let members =
            [0, 1].map(|rank| start(STAGE, &format!("zero3 --headless {}", flags(2, 1)), &set(rank)));
        for (rank, ended) in members.into_iter().map(|member| member.end(PATIENCE)).enumerate() {
            assert_eq!(ended.code, Some(0), "{}", ended.error);
            assert_eq!(ended.error.contains(words), rank == 0 && !mps, "{}", ended.error);
        }
    }
    let flags = format!("zero3 --headless --gpus 2 {} --collectives nccl", flags(2, 1));
    let ended = start(STAGE, &flags, "CUDA_MODULE_LOADING=LAZY").end(PATIENCE);
    assert!(ended.error.contains("warning: CUDA_MODULE_LOADING=LAZY"), "{}", ended.error);
}

/// Fills `folder` with the stand-ins for all libraries except NCCL. Returns NCCL's place.
fn without_nccl(folder: &Path) -> PathBuf {
    let libraries = PathBuf::from(std::env::var("LD_LIBRARY_PATH").unwrap());
    for name in ["libcuda.so", "libnvrtc.so", "libcublasLt.so"] {
        std::os::unix::fs::symlink(libraries.join(name), folder.join(name)).unwrap();
    }
    libraries.join("libnccl.so")
}

/// NCCL is found under its name in pip's packages, in the package folder of any available Python,
/// and on the loader's path.
#[test]
fn nccl_is_found_wherever_pip_puts_it() {
    standin_or_return!();
    let packages = "lib/python3.12/site-packages/nvidia/nccl/lib";
    for (variable, place, name) in [
        ("VIRTUAL_ENV", packages, "libnccl.so.2"),
        ("CONDA_PREFIX", packages, "libnccl.so.2"),
        ("HOME", ".local/lib/python3.9/site-packages/nvidia/nccl/lib", "libnccl.so.2"),
        ("PATH", "../lib/python3.13/dist-packages/nvidia/nccl/lib", "libnccl.so.2"),
        ("LD_LIBRARY_PATH", "", "libnccl.so.2"),
        ("LD_LIBRARY_PATH", "", "libnccl.so"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let [system, there] = ["system", "there/bin"].map(|name| dir.path().join(name));
        [&system, &there].iter().for_each(|folder| std::fs::create_dir_all(folder).unwrap());
        let nccl = without_nccl(&system);
        std::fs::write(there.join("python3"), "").unwrap();
        std::fs::create_dir_all(there.join(place)).unwrap();
        std::fs::copy(nccl, there.join(place).join(name)).unwrap();
        let set = ["VIRTUAL_ENV", "CONDA_PREFIX", "HOME", "PATH", "LD_LIBRARY_PATH"].map(|other| {
            let here = (other == variable).then(|| there.display().to_string());
            match (other, here) {
                ("LD_LIBRARY_PATH", Some(here)) => format!("{other}={}:{here}", system.display()),
                ("LD_LIBRARY_PATH", None) => format!("{other}={}", system.display()),
                (_, here) => format!("{other}={}", here.unwrap_or_default()),
            }
        });
        let ended = start(STAGE, "zero3 doctor", &set.join(" ")).end(PATIENCE);
        assert!(
            ended.out.contains("NCCL 2.30.4 connects GPUs"),
            "{variable}, {place}, {name}: {}",
            ended.out
        );
    }
}

#[test]
fn without_nccl_the_error_says_where_it_comes_from() {
    standin_or_return!();
    let dir = tempfile::tempdir().unwrap();
    without_nccl(dir.path());
    // Other places have no NCCL either.
    let set =
        format!("LD_LIBRARY_PATH={0} PATH={0} HOME={0} VIRTUAL_ENV= CONDA_PREFIX=", dir.path().display());
    let flags = format!("zero3 --headless --gpus 2 {} --collectives nccl", flags(2, 1));
    let ended = start(STAGE, &flags, &set).end(PATIENCE);
    assert_eq!(ended.code, Some(2), "{}", ended.error);
    explains(&ended, &["libnccl was not found", "pip install nvidia-nccl-cu13", "doctor"]);
    let ended = start(STAGE, "zero3 doctor", &set).end(PATIENCE);
    assert!(ended.out.contains("No NCCL") && ended.out.contains("nvidia-nccl-cu13"), "{}", ended.out);
    let ended = start(STAGE, "zero3 doctor", "").end(PATIENCE);
    assert!(ended.out.contains("NCCL 2.30.4 connects GPUs, also across processes; ranks may share a GPU"));
}
