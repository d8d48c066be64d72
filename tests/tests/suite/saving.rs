//! Results that a run leaves behind: its final weights, and their hash.

use checkpoint::{Checkpoints, Reader};
use events::{Place, Recording, What};
use model::{Layout, TrainingState};
use prediction::{Partition, Stage};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};
use storage::{DiskFault, Effect};
use tests::{STAGES, at_once, config, fixture, losses, peer, run};

/// Flags of a run of one step on one rank.
const ONE_STEP: &str = "--gpus 1 --steps 1 --batch-size 1 --seq-len 8 --threads 1 --device cpu";

/// Returns the hash that a report would have of the weights saved in `dir`: f32, little-endian,
/// unpadded, in Hugging Face's order.
fn hash(dir: &Path) -> String {
    let reader = Reader::open(dir).unwrap();
    let mut hasher = blake3::Hasher::new();
    for tensor in &Layout::new(&reader.config().unwrap()).tensors {
        let mut values = vec![0.0; tensor.elements()];
        reader.read(tensor, 0..values.len(), &mut values).unwrap();
        for value in values {
            hasher.update(&value.to_le_bytes());
        }
    }
    hasher.finalize().to_hex().to_string()
}

/// Weights would replace some of the checkpoint's files.
#[test]
fn a_checkpoint_is_no_place_for_weights() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("kept");
    let flags = format!(
        "--model {} --gpus 2 --batch-size 1 --seq-len 8 --steps 1 --threads 1 --device cpu --checkpoint {}",
        fixture("odd.json"),
        kept.display()
    );
    run(Stage::Zero3, &flags);
    let step = kept.join("step-00000001");
    let refused = tests::train(Stage::Zero3, &format!("{flags} --steps 2 --save {}", step.display()));
    let said = refused.expect_err("it is a checkpoint").to_string();
    assert!(said.contains("is a checkpoint") && said.contains("another directory"), "{said}");
    for path in [&kept, &step] {
        let said = Reader::open(path).err().unwrap().to_string();
        assert!(said.contains("export --from"), "{said}");
    }
    run(Stage::Zero2, &format!("{flags} --steps 2 --resume-with steps"));
}

#[test]
fn no_file_is_given_for_two_purposes() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data.txt");
    let text = "every rank waits".repeat(100);
    std::fs::write(&data, &text).unwrap();
    let other = dir.path().join("new.json");
    for (one, path, two) in
        [("data", &data, "report"), ("data", &data, "metrics"), ("metrics", &other, "record")]
    {
        let path = path.display();
        let refused = tests::train(Stage::Ddp, &format!("{ONE_STEP} --{one} {path} --{two} {path}"));
        let said = refused.expect_err("one file").to_string();
        assert!(said.contains(&format!("--{two}")) && said.contains("are one file"), "{said}");
    }
    assert_eq!(std::fs::read_to_string(&data).unwrap(), text);
}

/// Checks that `flags` name one file for two purposes, which is a usage error.
fn assert_one_file(flags: &str) {
    let refused = tests::train(Stage::Ddp, &format!("{ONE_STEP} {flags}")).expect_err(flags);
    assert!(refused.to_string().contains("are one file"), "{flags}: {refused}");
    assert_eq!(refused.code(), 2, "{flags}");
}

#[test]
fn no_output_replaces_a_file_that_the_run_reads() {
    let dir = tempfile::tempdir().unwrap();
    let [settings, model, saved] = ["settings.json", "model.json", "saved"].map(|name| dir.path().join(name));
    fs::write(&settings, "{}").unwrap();
    fs::copy(fixture("odd.json"), &model).unwrap();
    run(Stage::Ddp, &format!("{ONE_STEP} --model {} --save {}", model.display(), saved.display()));
    let weights = ["config.json", "model.safetensors"].map(|name| (&saved, saved.join(name)));
    let files = [("config", &settings, settings.clone()), ("model", &model, model.clone())];
    let weights = weights.map(|(directory, file)| ("init-from", directory, file));
    for (input, named, file) in files.into_iter().chain(weights) {
        let before = fs::read(&file).unwrap();
        for output in ["report", "metrics", "record"] {
            assert_one_file(&format!("--{input} {} --{output} {}", named.display(), file.display()));
        }
        assert_eq!(fs::read(&file).unwrap(), before, "{input}");
    }
    // Inputs may be one file.
    let config = saved.join("config.json");
    run(Stage::Ddp, &format!("{ONE_STEP} --data {0} --model {0}", config.display()));
}

#[test]
fn outputs_are_one_file_whatever_their_names() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| format!("{}/{name}", dir.path().display());
    std::os::unix::fs::symlink("a", at("link")).unwrap();
    std::os::unix::fs::symlink("loop", at("loop")).unwrap();
    for (one, first, two, second) in [
        ("record", "rr", "report", "rr.partial"),
        ("report", "./same", "metrics", "same"),
        ("metrics", "a", "report", "link"),
        ("log-dir", "logs", "metrics", "logs/rank-0.log"),
        ("log-dir", "logs", "report", "./logs/rank-0.log"),
        ("metrics", "loop", "report", "loop"),
    ] {
        assert_one_file(&format!("--{one} {} --{two} {}", at(first), at(second)));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "a refused run writes nothing");
}

#[test]
fn a_reports_hash_is_that_of_the_saved_weights_which_training_goes_on_from() {
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("text");
    // Every sample is the same, so that a validation predicts the loss at the start of the next
    // step.
    std::fs::write(&text, "every rank waits".repeat(400)).unwrap();
    let shape = format!("--data {} --batch-size 1 --seq-len 16 --threads 1 --device cpu", text.display());
    for (stage, model) in STAGES.into_iter().zip(["odd.json", "odd-tied.json", "odd.json", "odd-tied.json"]) {
        let saved = dir.path().join(stage.package());
        let flags = format!(
            "--model {} --gpus 3 --steps 4 {shape} --val-fraction 0.5 --eval-every 4 --save {}",
            fixture(model),
            saved.display()
        );
        let report = run(stage, &flags);
        assert_eq!(report.weights_blake3, hash(&saved), "{stage}");
        let on = run(stage, &format!("--init-from {} --gpus 2 --steps 1 {shape}", saved.display()));
        let apart = (on.steps[0].loss - report.evaluations[0].loss).abs();
        assert!(apart < 1e-9, "{stage}: training goes on {apart} beside where it ended");
        assert_ne!(on.weights_blake3, report.weights_blake3, "{stage}: a step changes weights");
    }
}

/// Returns the maximum bytes that each rank held in main memory at once. Weights are gathered there
/// to be saved.
fn host_peaks(recording: &Path, ranks: usize) -> Vec<u64> {
    let recording = Recording::open(recording).unwrap();
    assert!(recording.is_complete());
    let (mut live, mut peaks) = (vec![0i64; ranks], vec![0i64; ranks]);
    for event in recording.events().map(Result::unwrap) {
        let What::Memory { place: Place::Host, delta, .. } = event.what else { continue };
        let rank = event.rank as usize;
        live[rank] += delta;
        peaks[rank] = peaks[rank].max(live[rank]);
    }
    assert_eq!(live, vec![0; ranks], "what is taken is given back");
    peaks.into_iter().map(|peak| peak as u64).collect()
}

#[test]
fn weights_are_gathered_one_unit_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    for (stage, model) in STAGES.into_iter().zip(["uneven.json", "uneven-tied.json"].into_iter().cycle()) {
        let [saved, recorded] = ["saved", "run"].map(|name| dir.path().join(name));
        let flags = format!(
            "--model {} --gpus 3 --steps 1 --batch-size 1 --seq-len 4 --threads 1 --device cpu --save {} --record {}",
            fixture(model),
            saved.display(),
            recorded.display(),
        );
        run(stage, &flags);
        let (job, _) = settings::planned::predict(stage, &stages::config(&flags).unwrap()).unwrap();
        let largest = 4 * Partition::of(&job).largest();
        assert_eq!(host_peaks(&recorded, 3), [largest; 3], "{stage} {model}");
    }
}

/// Returns a fault for the call with this number to rank 0's disk while it writes the weights.
const fn nth(number: u64, effect: Effect) -> DiskFault {
    DiskFault { kind: None, number, effect }
}

/// Returns the flags of a run of one step on three ranks that saves its weights in `dir`.
fn one_step(dir: &Path) -> String {
    format!(
        "--model {} --gpus 3 --steps 1 --batch-size 1 --seq-len 4 --threads 1 --device cpu --save {}",
        fixture("uneven-tied.json"),
        dir.display()
    )
}

/// A disk that is slower than the ranks' timeout does not keep any rank from its peers.
#[test]
fn a_disk_slower_than_the_timeout_ends_no_run_that_saves_its_weights() {
    at_once(STAGES.into_iter().zip([1, 4, 9, 14]), |(stage, number)| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(&format!("{} --timeout 1", one_step(dir.path()))).unwrap();
        let delay = Duration::from_millis(1500);
        config.save_faults = vec![nth(number, Effect::Delay(delay))];
        let began = Instant::now();
        let report = stages::train(stage, config).unwrap_or_else(|failure| panic!("{stage}: {failure}"));
        assert!(began.elapsed() >= delay, "{stage}: call {number} was not made");
        assert_eq!(report.mispredictions(), Vec::<String>::new(), "{stage}");
        assert_eq!(report.weights_blake3, hash(dir.path()), "{stage}");
    });
}

/// A disk that does not answer has a deadline of its own, whose error names rank 0.
#[test]
fn a_disk_that_hangs_while_weights_are_saved_ends_the_run_and_leaves_the_earlier_save() {
    at_once(STAGES.into_iter().zip([2, 5, 9, 15]), |(stage, number)| {
        let dir = tempfile::tempdir().unwrap();
        let flags = one_step(dir.path());
        let before = run(stage, &flags);
        let mut config = config(&format!("{flags} --seed 9 --checkpoint-timeout 1")).unwrap();
        config.save_faults = vec![nth(number, Effect::Hang)];
        let began = Instant::now();
        let failure = stages::train(stage, config).unwrap_err().to_string();
        assert!(began.elapsed() < Duration::from_secs(6), "{stage}: {:?}", began.elapsed());
        assert!(failure.starts_with("rank 0: the disk did not "), "{stage}: {failure}");
        assert!(failure.contains(" within 1s (--checkpoint-timeout)"), "{stage}: {failure}");
        assert_eq!(before.weights_blake3, hash(dir.path()), "{stage}");
    });
}

/// Returns the models that the stages have trained and saved under `dir`: for each stage, one of
/// 256 tokens and one that does not divide evenly among ranks. Each comes with its loss here on the
/// first `SEQUENCES` of the text at `data`.
fn trained(dir: &Path, data: &str) -> Vec<(String, f64)> {
    let mut saved = Vec::new();
    for (stage, model) in STAGES.iter().flat_map(|&s| [(s, "tiny".into()), (s, fixture("uneven-tied.json"))])
    {
        let to = dir.join(format!("{}-{}", stage.package(), saved.len()));
        let shape = format!("--data {data} --seq-len 32 --threads 1 --device cpu");
        let train = format!("--model {model} --gpus 3 --steps 12 --batch-size 2 --save {}", to.display());
        let before = losses(&run(stage, &format!("{train} {shape}")))[0];
        let again = format!("--init-from {} --gpus 1 --steps 1 --batch-size {SEQUENCES}", to.display());
        let after = losses(&run(Stage::Ddp, &format!("{again} {shape}")))[0];
        assert!(after < before - 0.5, "{stage}: weights that are trained, {before} to {after}");
        saved.push((to.display().to_string(), after));
    }
    saved
}

const SEQUENCES: usize = 4;

#[test]
fn transformers_has_the_same_loss_with_the_weights_that_each_stage_saved() {
    let test = "transformers_has_the_same_loss_with_the_weights_that_each_stage_saved";
    let Some(python) = peer::python(test, "torch, transformers") else { return };
    let dir = tempfile::tempdir().unwrap();
    let data = fixture("curve/text.txt");
    let saved = trained(dir.path(), &data);
    let output = Command::new(python)
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/check_saved.py"))
        .args(saved.iter().map(|(directory, _)| directory))
        .args([
            &data,
            "--world-size",
            "1",
            "--micro-batch",
            &SEQUENCES.to_string(),
            "--sequence-length",
            "32",
        ])
        .output()
        .unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}{}", String::from_utf8_lossy(&output.stderr));
    let theirs: Vec<serde_json::Value> =
        shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(theirs.len(), saved.len(), "{shown}");
    for ((directory, loss), theirs) in saved.iter().zip(&theirs) {
        assert_eq!(theirs["directory"], directory.as_str());
        let apart = (theirs["loss"].as_f64().unwrap() - loss).abs();
        assert!(apart < 1e-4, "{directory}: {loss} here, {apart} away in Transformers");
    }
    let tokenizers = theirs.iter().filter(|report| report["tokenizer"] != "not checked").count();
    assert_eq!(tokenizers, STAGES.len(), "{shown}");
}

/// Exports the checkpoint in `from` with `flags`. Any stage's program can do it.
fn export(from: &Path, to: &Path, flags: &str) {
    let command = format!("zero export --from {} --to {} {flags}", from.display(), to.display());
    let code = stages::main_from(Stage::Zero3, command.split_whitespace().map(OsString::from));
    assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::SUCCESS), "{command}");
}

/// Returns the names in `dir`, each with the file's bytes.
fn files(dir: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn export_writes_what_save_writes_whatever_stage_and_format() {
    for (stage, format) in STAGES.into_iter().zip([
        "",
        "--save-dtype bf16",
        "--max-shard-size 9kB",
        "--save-dtype f16 --max-shard-size 3kB",
    ]) {
        let dir = tempfile::tempdir().unwrap();
        let [saved, kept, out] = ["saved", "kept", "out"].map(|name| dir.path().join(name));
        let flags = format!(
            "--model {} --gpus 3 --steps 2 --batch-size 1 --seq-len 8 --threads 1 --device cpu --save {} {format} \
             --checkpoint {}",
            fixture("uneven-tied.json"),
            saved.display(),
            kept.display(),
        );
        let report = run(stage, &flags);
        export(&kept, &out, format);
        assert_eq!(files(&out), files(&saved), "{stage} {format}");
        export(&kept, &out, "");
        assert_eq!(hash(&out), report.weights_blake3, "{stage}: f32 are the bits of training");
    }
}

#[test]
fn exported_moments_are_those_of_the_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let [kept, out] = ["kept", "out"].map(|name| dir.path().join(name));
    let flags = format!(
        "--model {} --gpus 2 --steps 2 --batch-size 1 --seq-len 8 --threads 1 --device cpu --checkpoint {}",
        fixture("odd.json"),
        kept.display(),
    );
    run(Stage::Zero2, &flags);
    export(&kept, &out, "--moments --save-dtype bf16 --max-shard-size 2kB");
    let layout = Layout::new(&Reader::open(&out).unwrap().config().unwrap());
    let checkpoints = Checkpoints::new(&kept, Arc::new(storage::Disk::new(1)));
    let manifest = checkpoints.manifest("step-00000002").unwrap();
    let checkpoint = checkpoints.open("step-00000002", manifest, &layout).unwrap();
    for (state, stem) in [(TrainingState::Momentum, "exp_avg"), (TrainingState::Variance, "exp_avg_sq")] {
        let reader = Reader::open(out.join(format!("{stem}.safetensors.index.json"))).unwrap();
        for (id, tensor) in layout.tensors.iter().enumerate() {
            let [mut kept, mut found] = [(); 2].map(|()| vec![f32::NAN; tensor.elements()]);
            checkpoint.read(state, (id, tensor), 0..tensor.elements(), &mut kept).unwrap();
            reader.read(tensor, 0..tensor.elements(), &mut found).unwrap();
            assert_eq!(found, kept, "{stem} of {}", tensor.name);
            assert!(kept.iter().any(|value| *value != 0.0), "{stem} of {}", tensor.name);
        }
    }
}
