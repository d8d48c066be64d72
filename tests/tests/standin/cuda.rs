//! The whole CUDA path on the stand-in driver; see [`tests::standin`] for what that covers.
//! `gpu-check` is the test for a real GPU.

use collectives::local;
use device::cuda::{Gpu, Options};
use device::{Class, DType, Device, DeviceError, Ledger, RmsNormBackward, RowShape, Write};
use events::{Emitter, Event, What};
use prediction::Stage;
use tests::{
    STAGES, assert_same, fixture, largest_difference, losses, padding, standin, standin_or_return, train,
};
use trainer::Report;

/// A model in which the size of some units is divisible by neither 2 nor 4, with few heads, because
/// emulation time grows with the number of heads.
const MODEL: &str = "three-heads.json";

/// Returns flags for 4 sequences of 12 tokens per step. Emulating a GPU's threads one by one is
/// slow.
fn flags(world: usize, micro_batches: usize, steps: u32) -> String {
    format!(
        "--model {} --gpus {world} --batch-size {} --grad-accum {micro_batches} --seq-len 12 --steps {steps} --threads 1",
        fixture(MODEL),
        4 / world / micro_batches,
    )
}

fn run(stage: Stage, flags: &str) -> Report {
    let report = train(stage, flags).unwrap_or_else(|failure| panic!("{stage} {flags}: {failure}"));
    assert_eq!(report.mispredictions(), [""; 0], "{stage} {flags}");
    report
}

fn on_gpu(stage: Stage, flags: &str) -> Report {
    let report = run(stage, &format!("{flags} --device cuda"));
    assert_eq!(report.device, "Stand-in GPU");
    report
}

/// Returns flags like [`flags`], for another model.
fn flags_of(model: &str, world: usize, steps: u32) -> String {
    flags(world, 1, steps).replace(&fixture(MODEL), &fixture(model))
}

/// Checks that all stages agree bit for bit and follow the CPU to within `apart`. Returns ZeRO-3's
/// report.
fn stages_agree(flags: &str, apart: f64) -> Report {
    let reports = STAGES.map(|stage| on_gpu(stage, flags));
    reports[1..].iter().for_each(|report| assert_same(&reports[0], report, flags));
    let cpu = run(Stage::Ddp, &format!("{flags} --device cpu"));
    let difference = largest_difference(&losses(&cpu), &losses(&reports[0]));
    assert!(difference < apart, "{flags}: the CPU's losses are {difference} away");
    let same = difference == 0.0 && cpu.weights_blake3 == reports[0].weights_blake3;
    assert!(!same, "{flags}: other kernels round otherwise; did both run on the CPU?");
    let [_, _, _, zero3] = reports;
    zero3
}

#[test]
fn stages_agree_bit_for_bit_on_1_2_and_4_ranks() {
    standin_or_return!();
    for world in [1, 2, 4] {
        let zero3 = stages_agree(&flags(world, 1, 2), 1e-4);
        assert_eq!(padding(&zero3) > 0, world > 1, "{world} ranks: shards end in padding");
    }
}

/// Biases, and head norms inside packed projections.
#[test]
fn stages_agree_on_qwen2_and_qwen3() {
    standin_or_return!();
    for model in ["qwen2.json", "qwen3.json"] {
        stages_agree(&flags_of(model, 2, 2), 1e-4);
    }
}

/// Heads too large for tiled attention.
#[test]
fn stages_agree_with_wide_heads() {
    standin_or_return!();
    stages_agree(&flags_of("wide-heads.json", 2, 2), 1e-4);
    stages_agree(&format!("{} --precision bf16 --grad-dtype fp32", flags_of("wide-heads.json", 2, 2)), 0.02);
}

#[test]
fn with_accumulation_ddp_agrees_with_zero1_and_zero2_with_zero3() {
    standin_or_return!();
    let [ddp, zero1, zero2, zero3] = STAGES.map(|stage| on_gpu(stage, &flags(2, 2, 2)));
    assert_same(&ddp, &zero1, "2 micro-batches");
    assert_same(&zero2, &zero3, "2 micro-batches");
    let apart = largest_difference(&losses(&ddp), &losses(&zero2));
    assert!(apart < 1e-4, "the two pairs differ by {apart}");
}

#[test]
fn stages_agree_in_16_bits() {
    standin_or_return!();
    stages_agree(&format!("{} --precision bf16 --grad-dtype fp32", flags(2, 1, 2)), 0.02);
    stages_agree(&format!("{} --precision autocast", flags(2, 1, 2)), 0.002);
    stages_agree(&format!("{} --precision fp16 --initial-scale-power 10", flags(2, 1, 2)), 0.02);
}

#[test]
fn hybrid_sharding_agrees_bit_for_bit_in_16_bits() {
    standin_or_return!();
    for precision in ["bf16", "fp16 --initial-scale-power 10"] {
        let flags = format!("{} --precision {precision}", flags(4, 1, 1));
        let hybrid = on_gpu(Stage::Zero3, &format!("{flags} --strategy hybrid-shard --shard-group-size 2"));
        assert_same(&on_gpu(Stage::Zero3, &flags), &hybrid, precision);
    }
}

#[test]
fn ranks_spread_over_two_gpus_and_share_them() {
    standin_or_return!(&[("STANDIN_GPUS", "2")]);
    stages_agree(&flags(4, 1, 2), 1e-4);
}

/// The variable through which one process passes the hash of its weights to the other.
const HASH: &str = "STANDIN_TEST_HASH";

#[test]
fn timing_changes_no_bit() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hash");
    for (seed, doze) in [("1", "0"), ("2", "400"), ("3", "1500")] {
        let settings = [("STANDIN_SEED", seed), ("STANDIN_DOZE", doze), (HASH, file.to_str().unwrap())];
        if !standin(timing_changes_no_bit, &settings) {
            continue;
        }
        let hash = on_gpu(Stage::Zero3, &flags(4, 1, 2)).weights_blake3;
        let shared = std::path::PathBuf::from(std::env::var_os(HASH).unwrap());
        if shared.exists() {
            assert_eq!(std::fs::read_to_string(&shared).unwrap(), hash);
        }
        return std::fs::write(&shared, hash).unwrap();
    }
}

/// The other tests would detect a missing fence: without fences, a run fails or learns different
/// weights.
#[test]
fn without_fences_runs_go_wrong() {
    standin_or_return!(&[("STANDIN_FENCES", "0")]);
    let flags = flags(4, 1, 3);
    let cpu = run(Stage::Ddp, &format!("{flags} --device cpu"));
    match train(Stage::Zero3, &format!("{flags} --device cuda")) {
        Ok(report) => {
            let apart = largest_difference(&losses(&cpu), &losses(&report));
            assert!(apart > 1e-4, "no stream waited, and yet the losses are only {apart} apart");
        }
        Err(failure) => assert_eq!(failure.code(), 1, "the run was refused: {failure}"),
    }
}

#[test]
fn recomputed_activations_change_no_bit() {
    standin_or_return!();
    let flags = flags(2, 1, 2);
    let plain = on_gpu(Stage::Zero3, &flags);
    let recomputed = on_gpu(Stage::Zero3, &format!("{flags} --checkpoint-activations block"));
    assert_same(&plain, &recomputed, "--checkpoint-activations block");
}

/// Another stage resumes from the file, including on GPUs and in 16 bits.
#[test]
fn runs_resume_from_checkpoints_of_others() {
    standin_or_return!();
    let dir = tempfile::tempdir().unwrap();
    for precision in ["", "--precision bf16"] {
        let flags = format!("{} {precision}", flags(2, 1, 3));
        let whole = on_gpu(Stage::Zero2, &flags);
        let kept = tempfile::tempdir_in(&dir).unwrap();
        let flags =
            format!("{flags} --checkpoint {} --checkpoint-wait --checkpoint-every 2", kept.path().display());
        train(Stage::Zero3, &format!("{flags} --device cuda --inject panic@rank1,step2,step")).unwrap_err();
        let resumed = on_gpu(Stage::Zero1, &flags);
        assert_eq!(losses(&resumed), losses(&whole)[2..], "{flags}");
        assert_eq!(resumed.weights_blake3, whole.weights_blake3, "{flags}");
    }
}

/// Like the library, the stand-in's cuBLASLt splits the sums of a product depending on its shape
/// and its operands' alignment.
#[test]
fn wrapping_changes_no_bit() {
    standin_or_return!();
    for precision in ["fp32", "bf16"] {
        let flags = format!("{} --precision {precision}", flags(2, 1, 2));
        let plain = on_gpu(Stage::Zero3, &flags);
        for wrapping in
            ["--wrap model", "--wrap module", "--wrap parameter", "--param-persistence-threshold 1300"]
        {
            assert_same(&plain, &on_gpu(Stage::Zero3, &format!("{flags} {wrapping}")), wrapping);
        }
        assert_same(&plain, &on_gpu(Stage::Zero1, &format!("{flags} --wrap parameter")), "--wrap parameter");
    }
}

#[test]
fn a_failing_rank_ends_all_ranks_by_name() {
    standin_or_return!();
    for stage in STAGES {
        let failure =
            train(stage, &format!("{} --device cuda --inject error@rank1,step1,backward", flags(4, 1, 3)));
        let text = failure.expect_err("a rank fails").to_string();
        assert!(text.contains("rank 1") && text.contains("injected error"), "{stage}: {text}");
    }
}

#[test]
fn a_gpu_that_is_too_small_is_an_error_that_says_what_is_live() {
    standin_or_return!(&[("STANDIN_MEMORY", "68000000")]);
    let failure =
        train(Stage::Ddp, &format!("{} --model tiny --device cuda", "--gpus 2 --steps 1 --batch-size 8"));
    let text = failure.expect_err("the GPU is too small").to_string();
    assert!(text.contains("out of memory") && text.contains("parameters"), "{text}");
}

/// Screens keep the state of their moment.
#[test]
fn a_rank_without_room_on_its_gpu_says_that_it_fails_before_it_frees_anything() {
    standin_or_return!(&[("STANDIN_MEMORY", "68000000")]);
    let (emitter, events) = events::channel(0, 64, std::time::Instant::now(), None);
    let ledger = Ledger::new(emitter, None);
    let device = Device::cuda(ledger, Gpu::open(0).unwrap(), Options::default()).unwrap();
    let held = device.allocate(Class::Parameters, DType::F32, 250_000).unwrap();
    let refused = device.allocate(Class::Gradients, DType::F32, 25_000_000).err().unwrap();
    assert!(matches!(refused, DeviceError::OutOfMemory(_)), "{refused}");
    drop(held);
    let mut all = Vec::new();
    events.drain(&mut all);
    let failing = all.iter().position(|event| matches!(event.what, What::Failing));
    let frees =
        |event: &Event| matches!(event.what, What::Memory { class: Class::Parameters, delta: ..0, .. });
    assert_eq!((failing, all.iter().position(frees)), (Some(all.len() - 2), Some(all.len() - 1)), "{all:?}");
}

/// NVIDIA's libraries allocate memory of their own. Memory that a rank keeps for reuse is given
/// back when other ranks need it.
#[test]
fn what_is_kept_for_reuse_goes_back_before_memory_is_scarce() {
    standin_or_return!(&[("STANDIN_MEMORY", "600000000")]);
    let gpu = Gpu::open(0).unwrap();
    let device = |rank| {
        let ledger = Ledger::new(Emitter::silent(rank), None);
        Device::cuda(ledger, gpu.clone(), Options::default()).unwrap()
    };
    let [first, second] = [0, 1].map(device);
    let reserved = |device: &Device| device.gpu().unwrap().reserved();
    let megabytes = |device: &Device, number: usize| {
        device.allocate(Class::Workspace, DType::F32, number * 250_000).unwrap()
    };
    let libraries = reserved(&first);
    drop([190, 10].map(|number| megabytes(&first, number)));
    assert!(reserved(&first) >= libraries + 200_000_000, "a rank keeps what it has used");
    let small = megabytes(&second, 8);
    assert!(reserved(&first) >= libraries + 200_000_000, "there is room for both");
    drop((small, megabytes(&second, 200)));
    let left = reserved(&first) - libraries;
    assert!((10_000_000..11_000_000).contains(&left), "no more goes back than the others need: {left} stay");
}

#[test]
fn more_ranks_than_a_launch_sums_over_are_refused_before_they_start() {
    standin_or_return!();
    let failure = train(Stage::Ddp, &flags(1, 1, 1).replace("--gpus 1", "--gpus 65")).unwrap_err();
    assert_eq!(failure.code(), 2);
    assert!(failure.to_string().contains("65 ranks: at most 64 on GPUs"), "{failure}");
}

/// On this GPU a block has 64 KiB of shared memory.
#[test]
fn rows_too_wide_for_a_gpu_are_an_error_that_names_their_width() {
    standin_or_return!(&[("STANDIN_CAPABILITY", "75")]);
    let gpu = Gpu::open(0).unwrap();
    let device = Device::cuda(Ledger::new(Emitter::silent(0), None), gpu, Options::default()).unwrap();
    let backward = |width| {
        let [mut dx, mut dweight, x, weight, inverse_rms] = [width, width, width, width, 1]
            .map(|len| device.zeros(Class::Workspace, DType::F32, len).unwrap());
        device.kernels().rms_norm_backward(RmsNormBackward {
            dx: dx.view_mut(),
            dweight: dweight.view_mut(),
            write: Write::Replace,
            dout: None,
            x: x.view(),
            weight: weight.view(),
            inverse_rms: inverse_rms.view(),
            shape: RowShape { rows: 1, width }.into(),
        })
    };
    backward(14_336).unwrap();
    let error = backward(14_344).unwrap_err().to_string();
    assert!(
        error.contains("rows of 14344 elements are too wide") && error.contains("at most 14336"),
        "{error}"
    );
}

#[test]
fn bf16_is_refused_where_the_gpu_has_none() {
    standin_or_return!(&[("STANDIN_CAPABILITY", "75")]);
    for precision in ["bf16", "autocast"] {
        let failure = train(Stage::Ddp, &format!("{} --device cuda --precision {precision}", flags(1, 1, 1)));
        let failure = failure.expect_err("an old GPU has no bf16");
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().contains("no bf16") && failure.to_string().contains("fp16"), "{failure}");
    }
    stages_agree(&format!("{} --precision fp16 --initial-scale-power 10", flags(2, 1, 2)), 0.02);
}

/// Copies require GPUs that can access one another's memory; NCCL does not.
#[test]
fn gpus_that_do_not_reach_each_other_are_for_nccl() {
    standin_or_return!(&[("STANDIN_GPUS", "2"), ("STANDIN_PEERS", "0")]);
    let flags = flags(2, 1, 1);
    let failure = train(Stage::Ddp, &format!("{flags} --device cuda")).expect_err("it is refused");
    let said = failure.to_string();
    for words in ["GPU 0 cannot reach", "CUDA_VISIBLE_DEVICES", "--collectives nccl"] {
        assert!(said.contains(words), "{words:?} is missing: {said}");
    }
    on_gpu(Stage::Ddp, &format!("{flags} --collectives nccl"));
}

/// If cuBLASLt has no algorithm for well-aligned operands, one that needs no alignment is
/// requested.
#[test]
fn products_ask_again_for_less_alignment() {
    standin_or_return!(&[("STANDIN_BLAS_ALIGNED", "4")]);
    stages_agree(&flags(1, 1, 1), 1e-4);
}

#[test]
fn a_product_without_an_algorithm_is_named() {
    standin_or_return!(&[("STANDIN_BLAS_ALIGNED", "1")]);
    let failure = train(Stage::Ddp, &format!("{} --device cuda", flags(1, 1, 1))).expect_err("it is refused");
    let said = failure.to_string();
    assert!(said.contains("GetHeuristic: CUBLAS_STATUS_NOT_SUPPORTED for Shape"), "{said}");
}

/// Runs the smallest check, with one sequence for each of two ranks, and `more` flags. Returns its
/// exit code and output. It must leave no temporary files.
fn gpu_check(more: &str) -> (Option<i32>, String) {
    let temporary = tempfile::tempdir().unwrap();
    let mut check = std::process::Command::new(env!("CARGO_BIN_EXE_gpu-check"));
    let size = "--ranks 2 --steps 1 --sequences 2 --seq-len 8 --longest 70";
    let size = format!("--model {} {size} {more}", fixture(MODEL));
    let output = check.args(size.split_whitespace()).env("TMPDIR", temporary.path()).output().unwrap();
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().flatten().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    let [out, error] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    (output.status.code(), format!("{out}{error}"))
}

#[test]
fn gpu_check_finds_everything_in_order() {
    standin_or_return!();
    let (code, text) = gpu_check("");
    let not_in_order: Vec<&str> = text.lines().filter(|line| !line.ends_with(" ok")).collect();
    assert_eq!(code, Some(0), "{}", not_in_order.join("\n"));
    assert!(text.contains("Everything holds") && text.contains("attention, heads of 64, bf16"), "{text}");
    for stage in ["DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3"] {
        let line = format!("fp32, 2 ranks: {stage}, losses from copies'");
        assert!(text.contains(&line), "{line} is missing: {text}");
    }
}

/// A check that NCCL does not permit is neither a failure nor among the checks that hold.
#[test]
fn gpu_check_says_what_an_old_nccl_keeps_it_from() {
    standin_or_return!(&[("STANDIN_NCCL_VERSION", "22907")]);
    let (code, text) = gpu_check("--only swiglu --only NCCL");
    assert_eq!(code, Some(0), "{text}");
    let row = text.lines().find(|line| line.starts_with("bf16, 2 ranks over NCCL  "));
    let row = row.unwrap_or_else(|| panic!("no row: {text}"));
    assert!(row.contains("not checked: ") && row.contains("2.29.7") && !row.ends_with("ok"), "{row}");
    let end =
        "Everything that was checked holds. Not checked: fp32, 2 ranks over NCCL; bf16, 2 ranks over NCCL.";
    assert!(text.trim_end().ends_with(end) && !text.contains("Everything holds"), "{text}");
}

/// A part that exceeds its time limit is killed and named, and does not affect the others.
#[test]
fn gpu_check_kills_a_part_that_does_not_end() {
    standin_or_return!();
    // The output ends once the last part has closed it.
    let (code, text) = gpu_check("--limit 0");
    assert_eq!(code, Some(1), "{text}");
    for what in ["rope", "memory", "fp32, 2 ranks", "bf16, 2 ranks over NCCL"] {
        let row = text.lines().find(|line| line.starts_with(&format!("{what}  ")));
        let row = row.unwrap_or_else(|| panic!("{what} is missing: {text}"));
        assert!(row.contains("did not end within 0 s, killed") && row.ends_with(" s FAILED"), "{row}");
    }
}

/// After an error that breaks the context, every later call fails, but only in that process.
#[test]
fn a_kernel_that_breaks_the_gpu_costs_gpu_check_its_own_part_alone() {
    standin_or_return!(&[("STANDIN_BREAKS", "rope")]);
    let (code, text) =
        gpu_check("--only rope --only rms_norm --only swiglu --only adamw --only memory --only ranks");
    assert_eq!(code, Some(1), "{text}");
    let row = |what: &str| {
        text.lines().find(|line| line.starts_with(what) && !line.starts_with(&format!("{what}:")))
    };
    let row = |what| row(what).unwrap_or_else(|| panic!("{what} is missing: {text}"));
    for what in ["rope, f32", "rope, inverse, f32", "fp32, 1 ranks"] {
        assert!(row(what).ends_with("FAILED"), "{what}: {text}");
    }
    for what in ["rms_norm, f32", "swiglu and its backward, bf16", "adamw, f32", "requested, and taken"] {
        assert!(row(what).ends_with("ok"), "{what}: {text}");
    }
    let failed = "parts failed: rope; rope, inverse; fp32, 1 ranks; fp32, 2 ranks; bf16, 2 ranks; ";
    assert!(text.contains(failed), "{text}");
    // After a stage over NCCL has failed or timed out, the next one is not tried.
    for world in ["fp32, 2 ranks over NCCL: ", "bf16, 2 ranks over NCCL: "] {
        let rows = text.lines().filter(|line| line.starts_with(world) && line.ends_with("FAILED"));
        assert_eq!(rows.count(), 1, "{world}: {text}");
    }
}

/// Two ranks on GPUs of their own. The second abandons a collective while the first one's share,
/// which writes to the second's memory, has not run yet.
#[test]
fn what_is_given_up_is_not_freed_while_another_gpu_writes_there() {
    standin_or_return!(&[("STANDIN_GPUS", "2"), ("STANDIN_DOZE", "20000")]);
    let gpus = [0, 1].map(|gpu| Gpu::open(gpu).unwrap());
    Gpu::connect(&gpus).unwrap();
    let device = |rank: usize| {
        Device::cuda(Ledger::new(Emitter::silent(rank as u32), None), gpus[rank].clone(), Options::default())
            .unwrap()
    };
    let mut groups = local::groups(2, local::Options::default()).into_iter();
    let (first, second) = (groups.next().unwrap(), groups.next().unwrap());
    let (told, hears) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let device = device(0);
            // Work that the share has to wait for.
            let mut busy = device.zeros(Class::Workspace, DType::F32, 1).unwrap();
            (0..80).for_each(|_| device.kernels().fill(busy.view_mut(), 1.0).unwrap());
            let buffer = device.zeros(Class::Gradients, DType::F32, 1000).unwrap();
            let runtime = device.gpu().unwrap().clone();
            told.send((runtime.clone(), runtime.usage().unwrap().queued)).unwrap();
            let error = first.all_gather(vec![buffer].into()).unwrap().wait().map(drop).unwrap_err();
            assert!(error.to_string().contains("without waiting"), "{error}");
            device.synchronize().unwrap();
        });
        scope.spawn(move || {
            let device = device(1);
            let buffer = device.zeros(Class::Gradients, DType::F32, 1000).unwrap();
            let pending = second.all_gather(vec![buffer].into()).unwrap();
            let (other, before) = hears.recv().unwrap();
            while other.usage().unwrap().queued == before {
                std::thread::yield_now();
            }
            drop(pending);
        });
    });
}
