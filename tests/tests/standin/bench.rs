//! GPU measurements on the stand-in driver: memory outside the ledger, work by kind of kernel,
//! launches; and `gpu-bench`, whose numbers are meaningless there.

use device::meter::Kind;
use prediction::Stage;
use settings::Config;
use std::process::{Command, Output};
use tests::{STAGES, config, fixture, losses, standin_or_return, train, train_as};
use trainer::Report;

/// Returns the flags of 2 ranks with one sequence each.
fn flags(device: &str, more: &str) -> String {
    format!(
        "--model {} --gpus 2 --batch-size 1 --seq-len 12 --threads 1 --device {device} {more}",
        fixture("three-heads.json")
    )
}

#[test]
fn the_driver_gave_what_was_requested_and_what_is_named_beside_it() {
    standin_or_return!();
    for stage in [Stage::Ddp, Stage::Zero3] {
        let report = train(stage, &flags("cuda", "--steps 2")).unwrap();
        assert_eq!(report.gpu.len(), 2);
        for (row, total) in report.gpu.iter().zip(&report.total_peak_bytes) {
            assert_eq!((row.requested_bytes, row.gpu), (total.peak_bytes, 0));
            // cuBLASLt's workspace, and a little for partial results and rotations.
            assert!((32 << 20..33 << 20).contains(&row.workspace_bytes), "{row:?}");
            assert!(row.kept_bytes() > 0, "{row:?}");
            assert_eq!(row.taken_bytes, row.requested_bytes + row.kept_bytes() + row.workspace_bytes);
            // The stand-in allocates nothing for itself.
            assert_eq!(row.beside_bytes(), 0, "{row:?}");
            assert!(row.in_use_bytes > row.taken_bytes, "the other rank's share is in use too: {row:?}");
        }
    }
    assert!(train(Stage::Zero3, &flags("cpu", "--steps 1")).unwrap().gpu.is_empty());
}

/// With a billion parameters the hash takes seconds, and a benchmark ignores the weights.
#[test]
fn weights_that_nobody_asks_for_are_not_gathered() {
    standin_or_return!();
    for stage in [Stage::Ddp, Stage::Zero3] {
        let run = |hashed| {
            let config = config(&flags("cuda", "--steps 1")).unwrap();
            train_as(stage, Config { hashed, ..config }).unwrap()
        };
        let (plain, bare) = (run(true), run(false));
        assert_eq!((plain.weights_blake3.len(), bare.weights_blake3.len()), (64, 0), "{stage}");
        assert_eq!(losses(&plain), losses(&bare), "{stage}");
    }
}

/// Returns a report whose kernels were timed.
fn metered(stage: Stage, flags: &str) -> Report {
    let mut config = config(flags).unwrap();
    config.metered = true;
    train_as(stage, config).unwrap()
}

/// Returns the calls, operations and bytes of each kind on rank 0, without times. For products it
/// returns only the operations, because a GPU multiplies separate tensors where the CPU multiplies
/// one matrix.
fn work(report: &Report) -> Vec<(Kind, u64, u64, u64)> {
    let rows = report.kernels.iter().filter(|row| row.rank == 0 && row.kind != Kind::Collectives);
    rows.map(|row| match row.kind {
        Kind::Matmul => (row.kind, 0, row.flops, 0),
        _ => (row.kind, row.calls, row.flops, row.bytes),
    })
    .collect()
}

/// Kinds limited by arithmetic perform exactly the operations that the model's shape requires.
#[test]
fn products_and_attention_count_what_the_model_takes() {
    let (tokens, layers, width) = (64, 4, 128);
    let flags = format!("--gpus 1 --batch-size 2 --seq-len {tokens} --steps 3 --device cpu");
    let report = metered(Stage::Ddp, &flags);
    let flops = |kind| report.kernels.iter().find(|row| row.kind == kind).map_or(0, |row| row.flops);
    // Tiny's matrices except the embedding, forward and twice backward. The first two of three
    // steps are excluded.
    let matrices = layers * (4 * width * width + 3 * width * 384) + 256 * width;
    assert_eq!(flops(Kind::Matmul), 6 * 2 * tokens * matrices);
    // Two products forward and five backward, over the pairs that the mask keeps.
    assert_eq!(flops(Kind::Attention), 7 * 2 * 2 * layers * width * tokens * (tokens + 1) / 2);
    let busy: f64 = report.kernels.iter().map(|row| row.seconds).sum();
    let step = report.steps[2].seconds;
    assert!(busy > 0.0 && busy < step, "{busy} s of kernels in a step of {step} s on one rank");
    assert_eq!(work(&train(Stage::Ddp, &flags).unwrap()), work(&report), "a CPU is always metered");
}

#[test]
fn kinds_of_kernels_do_the_same_work_on_a_gpu_as_on_the_cpu() {
    standin_or_return!();
    for stage in [Stage::Zero1, Stage::Zero3] {
        let on = |device| metered(stage, &flags(device, "--steps 3 --precision bf16"));
        let (cpu, gpu) = (on("cpu"), on("cuda"));
        assert_eq!(work(&cpu), work(&gpu), "{stage}");
        for row in gpu.kernels.iter().filter(|row| row.calls > 0) {
            assert!(row.seconds > 0.0 && row.bytes > 0, "{stage}: {row:?}");
        }
        let collectives = gpu.kernels.iter().find(|row| row.kind == Kind::Collectives).unwrap();
        assert!(collectives.calls > 0, "{stage}: {collectives:?}");
        // Timing changes no bit of the result.
        let plain = train(stage, &flags("cuda", "--steps 3 --precision bf16")).unwrap();
        assert_eq!(plain.weights_blake3, gpu.weights_blake3, "{stage}");
        assert!(plain.kernels.is_empty(), "{stage}: a GPU is metered on request");
    }
}

/// A small model's step is bound by launches, and a host that waits launches nothing.
#[test]
fn a_step_takes_few_launches_and_waits() {
    standin_or_return!();
    let counts = |stage, steps: u64| {
        let report = train(stage, &flags("cuda", &format!("--grad-accum 2 --steps {steps}"))).unwrap();
        [report.gpu[0].launches, report.gpu[0].waits, report.gpu[0].taken_bytes]
    };
    let per_step = STAGES.map(|stage| {
        let (three, one) = (counts(stage, 3), counts(stage, 1));
        assert_eq!(three[2], one[2], "{stage}: after the first step nothing is taken from the driver");
        [0, 1].map(|what| (three[what] - one[what]) / 2)
    });
    let [launches, waits] = [0, 1].map(|what| per_step.map(|counts| counts[what]));
    assert!(launches.iter().all(|count| (150..=MOST).contains(count)), "{launches:?}");
    // The largest gradient, and the gradients' norm. Reading losses does not wait for the GPU to be
    // idle.
    assert_eq!(waits, [2; 4]);
}

/// Maximum launches of a step of two micro-batches over three blocks.
const MOST: u64 = 400;

fn bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gpu-bench")).args(words).output().unwrap()
}

#[test]
fn gpu_bench_prints_its_tables() {
    standin_or_return!();
    let model = fixture("three-heads.json");
    let size =
        ["--model", &model, "--seq-len", "8", "--micro-batches", "1,2,0,4", "--steps", "2", "--rounds", "2"];
    let less = ["--stages", "zero3,zero1", "--no-peer", "--ranks", "2", "--buffer-bytes", "8192"];
    let all = [size.as_slice(), &less].concat();
    let unknown = bench(&all);
    let text = String::from_utf8_lossy(&unknown.stderr);
    assert!(text.contains("the data sheet of Stand-in GPU is not known here: give its peak"), "{text}");
    let output = bench(&[all.as_slice(), &["--peak", "100"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    for words in [
        "Stand-in GPU (compute capability 9.0",
        "Its own copies:",
        "Tokens/s of this workspace by micro-batch: 1: ",
        // A micro-batch that does not run ends the sweep, not the benchmark.
        "; 0: ",
        "--batch-size",
        "| ZeRO-3 | ",
        "| ZeRO-1 | ",
        "not measured",
        "| matmul | ",
        "| AdamW | ",
        "| none: waits for the host and for others | ",
        "| reduce-scatter | 2 | ",
    ] {
        assert!(text.contains(words), "{words:?} is missing\n{text}");
    }
    assert!(!text.contains("; 4: "), "{text}");
    let rows =
        |title: &str| text.split(title).nth(1).unwrap().lines().filter(|line| line.starts_with('|')).count();
    assert_eq!(rows("12 · layers"), 2 + 2, "a row per stage, in the last table");
}

#[test]
fn without_a_gpu_gpu_bench_says_what_it_would_measure() {
    let output = bench(&["--no-peer", "--model", "tiny", "--steps", "1", "--rounds", "1"]);
    if output.status.success() {
        events::complain!("skipped: what is missing cannot be seen on a machine with GPUs");
        return;
    }
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("libcuda") && text.contains("tokens per second") && text.contains("PyTorch"),
        "{text}"
    );
}
