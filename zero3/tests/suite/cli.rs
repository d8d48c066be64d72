//! The program as a user meets it: exit codes, and errors that name the thing and the remedy on one
//! screen.

use crate::pty::Pty;
#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

pub(crate) fn zero3(flags: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_zero3")).args(flags.split_whitespace()).output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The program refuses `flags` with `code`, and says every one of `words`.
pub(crate) fn refuses(flags: &str, code: i32, words: &[&str]) {
    let output = zero3(flags);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{flags}\n{error}");
    assert!(error.starts_with("error: "), "{flags}\n{error}");
    assert!(error.lines().count() <= 24 && !error.contains("panicked"), "{flags}\n{error}");
    for word in words {
        assert!(error.contains(word), "{flags}: {word:?} is missing\n{error}");
    }
}

/// Says on the terminal, whatever is captured, what could not be tested here.
fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {what}");
}

pub(crate) const SHORT: &str = "--headless --gpus 2 --steps 2 --batch-size 1 --seq-len 16 --threads 1";

#[test]
fn what_gpus_take_is_named_where_it_is_missing() {
    let doctor = zero3("doctor --gpus 2");
    let shown = text(&doctor.stdout);
    for word in ["libcuda", "libnvrtc", "libcublasLt", "libnccl", "CPU: "] {
        assert!(shown.contains(word), "{word:?} is missing\n{shown}");
    }
    assert!(zero3("doctor").status.success());
    if doctor.status.success() {
        return skipped("what is missing cannot be seen on a machine with GPUs");
    }
    refuses("doctor --gpus 2", 1, &["2 ranks would not run on GPUs here", "libcuda"]);
    refuses("--device cuda", 2, &["--device cuda: libcuda was not found", "nvidia-driver", "--device cpu"]);
    refuses("--tf32 --device cpu", 2, &["--tf32"]);
    let first_lines = |flags: &str| text(&zero3(&format!("{SHORT} {flags}")).stdout);
    let auto = first_lines("");
    assert!(auto.contains("\nNo CUDA GPU here: the ranks are threads on this machine's "), "{auto}");
    assert!(first_lines("--device cpu").contains("\nThe ranks are threads on this machine's "));
}

#[test]
fn lines_come_as_often_as_asked_and_say_how_fast_the_run_is() {
    let shown = text(&zero3(&format!("{SHORT} --steps 11 --log-every 4")).stdout);
    let steps: Vec<u32> = shown
        .lines()
        .filter(|line| line.split_whitespace().count() == 10)
        .filter_map(|line| line.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(steps, [0, 4, 8, 10], "{shown}");
    assert!(shown.contains("memory     MFU   elapsed      left"), "{shown}");
    let last = shown.lines().find(|line| line.trim_start().starts_with("10 ")).unwrap();
    let words: Vec<&str> = last.split_whitespace().collect();
    assert!(words[7].ends_with('%') && words[8].contains(':') && words[9] == "0:00", "{last}");
    refuses("--log-every 0", 2, &["--log-every"]);
}

/// Every step has a row, as the run goes: those of a run that fails are there, too. A run that
/// resumes appends. A pipe takes them as well.
#[test]
fn metrics_are_rows_of_json_or_csv() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).display().to_string();
    let rows = |name: &str| -> Vec<String> {
        fs::read_to_string(dir.path().join(name)).unwrap().lines().map(String::from).collect()
    };
    let evaluated = "--val-fraction 0.1 --eval-every 2 --eval-batches 1";
    assert!(zero3(&format!("{SHORT} --steps 4 {evaluated} --metrics {}", file("m.jsonl"))).status.success());
    let json: Vec<Value> = rows("m.jsonl").iter().map(|row| serde_json::from_str(row).unwrap()).collect();
    let validated = |row: &&Value| row["validation_loss"].is_number();
    assert_eq!((json.len(), json.iter().filter(validated).count()), (6, 2), "{json:?}");
    let steps: Vec<&Value> = json.iter().filter(|row| !validated(row)).collect();
    assert!(steps.iter().enumerate().all(|(number, row)| row["step"] == number), "{steps:?}");
    for key in ["loss", "grad_norm", "lr", "tokens_per_second", "mfu", "elapsed_seconds", "peak_bytes"] {
        assert!(
            steps.iter().all(|row| row[key].as_f64().is_some_and(|number| number > 0.0)),
            "{key}: {steps:?}"
        );
    }
    let kept = |steps: u32| {
        let lr = "--resume-with steps";
        format!("{SHORT} --steps {steps} --checkpoint {} {lr} --metrics {}", file("kept"), file("m.csv"))
    };
    for steps in [2, 5] {
        assert!(zero3(&kept(steps)).status.success());
    }
    let csv = rows("m.csv");
    let first: Vec<&str> = csv.iter().map(|row| row.split(',').next().unwrap()).collect();
    assert_eq!(first, ["step", "0", "1", "2", "3", "4"], "{csv:?}");
    assert!(csv.iter().all(|row| row.split(',').count() == csv[0].split(',').count()), "{csv:?}");
    let piped = zero3(&format!("{SHORT} --steps 2 --metrics /dev/stdout"));
    assert!(piped.status.success(), "{}", text(&piped.stderr));
    assert_eq!(text(&piped.stdout).lines().filter(|line| line.starts_with('{')).count(), 2);
    refuses(
        &format!("{SHORT} --metrics /no/such/place.csv"),
        1,
        &["cannot write --metrics /no/such/place.csv"],
    );
}

/// What a run had reached before it failed, and why it failed.
#[test]
fn a_failed_run_has_a_report() {
    let dir = tempfile::tempdir().unwrap();
    let [report, metrics] = ["report.json", "metrics.jsonl"].map(|name| dir.path().join(name));
    let flags = format!(
        "{SHORT} --steps 9 --inject error@rank1,step3,backward --val-fraction 0.1 --eval-every 1 --eval-batches 1 \
         --report {} --metrics {}",
        report.display(),
        metrics.display()
    );
    let mut command = Command::new("bash");
    command.args(["-c", "umask 027; exec \"$0\" $1", env!("CARGO_BIN_EXE_zero3"), &flags]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap();
    let error = json["error"].as_str().unwrap();
    assert!(error.contains("rank 1") && text(&output.stderr).contains(error), "{error}");
    assert_eq!(["steps", "evaluations"].map(|name| json[name].as_array().unwrap().len()), [3, 3]);
    assert!(json["memory"].as_array().unwrap().is_empty(), "what was not measured is not there");
    assert_eq!(fs::metadata(&report).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_to_string(&metrics).unwrap().lines().count(), 6);
    let explained = text(&zero3(&format!("explain {}", report.display())).stdout);
    assert!(
        explained.starts_with("The run failed after 3 steps") && explained.contains(error),
        "{explained}"
    );
}

/// What weights have learned must not command the terminal; a file gets it as it is.
#[test]
fn generated_text_is_escaped_at_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved");
    let steps = format!("{SHORT} --steps 1 --save {}", saved.display());
    assert!(zero3(&steps).status.success());
    let mut generate = Command::new(env!("CARGO_BIN_EXE_zero3"));
    generate.args(["generate", "--tokens", "0", "--prompt", "\x1b[2Jtext", "--from"]).arg(&saved);
    assert_eq!(text(&generate.output().unwrap().stdout), "\x1b[2Jtext\n");
    let mut pty = Pty::start(&mut generate, (80, 24));
    pty.expect("\\x1b[2Jtext");
    assert!(pty.wait().success());
}

#[test]
fn shells_get_completions_and_a_manual() {
    for shell in ["bash", "zsh", "fish"] {
        let output = zero3(&format!("completions {shell}"));
        let script = text(&output.stdout);
        assert!(
            output.status.success()
                && ["zero3", "offload-optimizer", "generate"].iter().all(|word| script.contains(word)),
            "{shell}"
        );
        let mut checked = Command::new(shell);
        let Ok(mut checked) = checked.arg("-n").stdin(Stdio::piped()).spawn() else {
            skipped(&format!("no {shell} here: its completions were not read by it"));
            continue;
        };
        checked.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(checked.wait().unwrap().success(), "{shell} does not understand them");
    }
    let manual = text(&zero3("man").stdout);
    for word in [".TH zero3 1", "\\-\\-offload\\-optimizer", ".SH GENERATE", "\\-\\-temperature"] {
        assert!(manual.contains(word), "{word:?} is missing");
    }
    let version = text(&zero3("--version").stdout);
    assert!(version.starts_with(concat!("zero3 ", env!("CARGO_PKG_VERSION"))), "{version}");
}

/// As with `zero3 … | head -1`.
#[test]
fn a_reader_that_leaves_does_not_end_the_run() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zero3"));
    command.args(SHORT.split_whitespace()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn senseless_flags_are_usage_errors() {
    refuses("--gpus 0", 2, &["--gpus", "from 1 to 1024"]);
    refuses("--model enormous", 2, &["enormous", "tiny"]);
    refuses("--seq-len 99999999999999", 2, &["--seq-len", "from 1 to 4294967295"]);
    refuses("--steps none", 2, &["--steps"]);
    refuses("--headless --paused", 2, &["--paused"]);
    refuses("--headless --view shards", 2, &["--view"]);
    refuses("--device-memory lots", 2, &["--device-memory", "512MiB"]);
    refuses("--grad-sync all-reduce", 2, &["--grad-sync", "zero1"]);
    refuses("--inject panic@rank9,step0,step", 2, &["rank 9"]);
    refuses("--offload-activations cpu", 2, &["--checkpoint-activations block"]);
    refuses("--offload-dir /tmp", 2, &["nothing is stored on disk", "--offload-optimizer disk"]);
    refuses("--offload-buffers 2", 2, &["--offload-optimizer cpu"]);
    refuses("--host-link pcie4 --device cpu", 2, &["nothing is transferred", "--offload-optimizer"]);
    refuses("--wrap layer", 2, &["--wrap", "parameter", "size:N"]);
    refuses("--wrap size:0", 2, &["--wrap", "at least 1"]);
    refuses("--strategy no-shard", 2, &["--strategy no-shard", "DDP", "zero0-ddp"]);
    refuses("--strategy some-shard", 2, &["--strategy", "full-shard", "shard-grad-op"]);
    let hybrid = "--strategy hybrid-shard";
    refuses(&format!("--gpus 6 {hybrid}"), 2, &["--shard-group-size", "choose 1, 2, 3 or 6"]);
    refuses(&format!("{hybrid} --shard-group-size 3"), 2, &["--shard-group-size 3", "choose 1, 2 or 4"]);
    refuses(&format!("{hybrid} --shard-group-size 0"), 2, &["--shard-group-size", "from 1 to 1024"]);
    refuses("--shard-group-size 2", 2, &["--strategy hybrid-shard"]);
    refuses("--contributions --precision bf16", 2, &["--contributions", "--precision"]);
    refuses("--contributions --grad-accum 2", 2, &["--contributions", "--grad-accum"]);
    refuses("--secondary-shard-size 8", 2, &["--secondary-shard-size 8", "choose 1, 2 or 4"]);
    refuses("--secondary-shard-size 2 --strategy shard-grad-op", 2, &["--strategy full-shard"]);
    refuses(&format!("{hybrid} --shard-group-size 2 --secondary-shard-size 2"), 2, &["choose one"]);
    refuses("--save-dtype bf16", 2, &["--save-dtype", "--save DIR"]);
    refuses("--nonsense", 2, &["--nonsense"]);
}

#[test]
fn a_configuration_is_printed_only_if_it_trains() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let ddp = write("ddp.yaml", "fsdp_config:\n  fsdp_sharding_strategy: NO_SHARD\n");
    for printing in ["", "--print-config"] {
        let words = ["cargo run -p zero0-ddp", "fsdp_config.fsdp_sharding_strategy \"NO_SHARD\""];
        refuses(&format!("{SHORT} --config {ddp} {printing}"), 2, &words);
    }
    let empty = write("empty.json", "{}");
    let said = |flags: &str| text(&zero3(&format!("{SHORT} --config {empty} {flags}")).stderr);
    let note = format!(
        "note: {empty} leaves to this program: learning rate 0.003, betas 0.9 and 0.95, weight decay 0.1, \
         a warm-up of 0 steps, then a cosine"
    );
    assert!(said("").lines().any(|line| line == note), "{}", said(""));
    assert!(!said("--print-config").contains("note: "), "nothing runs");
}

#[test]
fn unusable_data_is_a_usage_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::write(&path, bytes).unwrap();
        path.display().to_string()
    };
    let data = |path: &str, words: &[&str]| refuses(&format!("{SHORT} --data {path}"), 2, words);
    let folder = dir.path().display().to_string();
    data(&format!("{folder}/missing.txt"), &["--data", "missing.txt", "Check the path", "built-in text"]);
    data(&folder, &[&folder, "a directory", "Name one file"]);
    data(&file("empty.txt", b""), &["empty.txt is empty", "built-in text"]);
    data("/dev/zero", &["--data /dev/zero is not a regular file", "cat /dev/zero > FILE"]);
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    data(&pipe.display().to_string(), &["pipe is not a regular file"]);
    let packed = [&[0x1F, 0x8B, 8, 0], &[7; 2000][..]].concat();
    data(&file("text.gz", &packed), &["text.gz is compressed with gzip", "gunzip"]);
    refuses(&format!("{SHORT} --mask-prompt"), 2, &["--mask-prompt", "--data-format jsonl"]);
    let latin = file("latin.jsonl", &[0xE9, b'\n']);
    refuses(&format!("{SHORT} --data-format jsonl --data {latin}"), 2, &["latin.jsonl is not UTF-8 text"]);
    if !cfg!(feature = "tokenizers") {
        refuses(&format!("{SHORT} --tokenizer t.json"), 2, &["--tokenizer t.json", "--features tokenizers"]);
    }
    let locked = file("locked.txt", b"nobody may read this");
    fs::set_permissions(&locked, PermissionsExt::from_mode(0o000)).unwrap();
    match fs::read(&locked) {
        Ok(_) => skipped("no file is locked to this user: --data of one was not refused"),
        Err(_) => data(&locked, &["locked.txt", "Give this user access"]),
    }
    refuses(&format!("{SHORT} --data {}", file("short.txt", b"too short")), 2, &["9", "--seq-len"]);
    refuses(
        &format!("{SHORT} --data-format u16 --data {}", file("odd.bin", &[0; 99])),
        2,
        &["--data-format"],
    );
    let large = [7u16, 9999].iter().cycle().take(100).flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    refuses(
        &format!("{SHORT} --data-format u16 --data {}", file("ids.bin", &large)),
        2,
        &["9999", "vocabulary"],
    );
}

#[test]
fn too_little_memory_is_explained_and_exits_1() {
    if cfg!(target_os = "linux") {
        // More than any machine has.
        let words = ["this machine's 4 ranks of ZeRO-3", "--precision bf16", "or a machine that has more"];
        refuses("--model llama3-70b --seq-len 8192 --batch-size 4096", 1, &words);
    }
    refuses(&format!("{SHORT} --device-memory 1MB"), 1, &["out of memory", "peak", "--precision bf16"]);
    refuses(
        &format!("{SHORT} --device-memory 1MB --ignore-plan"),
        1,
        &["out of memory in setup", "asked for"],
    );
}

#[test]
fn unusable_weights_and_directories_are_refused_and_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved");
    let save = format!("{SHORT} --save {}", saved.display());
    assert!(zero3(&save).status.success());
    let weights = saved.join("model.safetensors");
    let whole = fs::read(&weights).unwrap();
    let from = format!("{SHORT} --init-from {}", saved.display());
    assert!(zero3(&from).status.success());

    fs::write(&weights, &whole[..whole.len() / 2]).unwrap();
    refuses(&from, 2, &["model.safetensors"]);
    fs::write(&weights, &whole).unwrap();
    let config = saved.join("config.json");
    let wrong = fs::read_to_string(&config)
        .unwrap()
        .replace("\"intermediate_size\": 384", "\"intermediate_size\": 380");
    fs::write(&config, wrong).unwrap();
    refuses(&from, 2, &["gate_proj", "384", "380"]);

    let blocked = dir.path().join("file");
    fs::write(&blocked, "in the way").unwrap();
    refuses(&format!("{SHORT} --save {}/weights", blocked.display()), 1, &["file"]);
    assert_eq!(fs::read_to_string(&blocked).unwrap(), "in the way");
    refuses(&format!("{SHORT} --init-from {}/none", dir.path().display()), 2, &["--init-from", "none"]);
    // Before the first of many steps, not after the last.
    let long = format!("{SHORT} --steps 1000000 --report");
    refuses(&format!("{long} {}/no/such/report.json", dir.path().display()), 1, &["--report"]);
    refuses(&format!("{long} {}", dir.path().display()), 1, &["--report", "names no file"]);
    let missing = format!("{}/no/such/run.zero", dir.path().display());
    refuses(&format!("{SHORT} --record {missing}"), 1, &["cannot write --record", &missing]);
}

#[test]
fn training_from_weights_keeps_their_tokenizer() {
    let dir = tempfile::tempdir().unwrap();
    let [first, second] = ["first", "second"].map(|name| dir.path().join(name));
    assert!(zero3(&format!("{SHORT} --save {}", first.display())).status.success());
    fs::write(first.join("tokenizer.json"), "theirs").unwrap();
    fs::write(first.join("special_tokens_map.json"), "{}").unwrap();
    let go_on = format!("{SHORT} --init-from {} --save {}", first.display(), second.display());
    assert!(zero3(&go_on).status.success());
    for name in ["tokenizer.json", "special_tokens_map.json", "tokenizer_config.json"] {
        assert_eq!(fs::read(second.join(name)).unwrap(), fs::read(first.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn a_failed_save_keeps_the_old_files() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved");
    let save = format!("{SHORT} --save {}", saved.display());
    assert!(zero3(&save).status.success());
    let before = contents(&saved);
    // A file-size limit stands for a full disk: writes beyond it fail.
    let script = format!("ulimit -f 64; exec {} {save} --seed 1", env!("CARGO_BIN_EXE_zero3"));
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("error: "), "{}", text(&output.stderr));
    assert_eq!(contents(&saved), before, "the old files stay, and no others appear");
}

/// A disk of its own that has room for the elements of a second model, and not for its header.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named_with_the_remedy_and_keeps_the_old_files() {
    let dir = tempfile::tempdir().unwrap();
    let script = r#"
        mount -t tmpfs -o size=10m full "$0" || exit 99
        list() { (cd "$0/saved" && ls -A && cksum ./*) || exit 98; }
        "$@" --save "$0/saved" > "$0/log" || exit 98
        list
        # Room for the elements of the weights, whose 3,674,624 bytes are checked before, and not for the header.
        free=$(stat --file-system --format %a "$0")
        head -c $(((free - 898) * 4096)) /dev/zero > "$0/other"
        echo and then
        "$@" --seed 1 --save "$0/saved" > "$0/log"
        code=$?
        list
        exit $((code + 40))"#;
    let words = ["--map-root-user", "--mount", "bash", "-c", script, dir.path().to_str().unwrap()];
    let program = [env!("CARGO_BIN_EXE_zero3")].into_iter().chain(SHORT.split_whitespace());
    let output = Command::new("unshare").args(words).args(program).output();
    let Some(output) = output.ok().filter(|output| ![Some(1), Some(99)].contains(&output.status.code()))
    else {
        return skipped("this user may not mount a disk of its own (unshare, tmpfs): none was filled");
    };
    let (shown, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(41), "{shown}{error}");
    let (before, after) = shown.split_once("and then\n").unwrap();
    assert_eq!(before, after, "the old files stay, and no others appear");
    assert!(before.contains("model.safetensors"), "{before}");
    for word in ["error: rank 0: cannot write", "model.safetensors", "No space left", "free some space"] {
        assert!(error.contains(word), "{word:?} is missing\n{error}");
    }
}

/// The first run starts from bf16 weights, and its checkpoint keeps that type. The disk has room
/// for the resumed run's weights in bf16, and not in f32, the type of a run without such a
/// checkpoint.
#[cfg(target_os = "linux")]
#[test]
fn a_resumed_run_needs_room_for_weights_in_the_type_of_its_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let [base, kept, small] = ["base", "kept", "small"].map(path);
    assert!(zero3(&format!("{SHORT} --save {base} --save-dtype bf16")).status.success());
    assert!(zero3(&format!("{SHORT} --init-from {base} --checkpoint {kept}")).status.success());
    fs::create_dir(&small).unwrap();
    let script =
        r#"mount -t tmpfs -o size=3m small "$0" || exit 99; "$@" --save "$0/saved"; exit $(($? + 40))"#;
    let resumed =
        format!("{} --resume-with steps --checkpoint {kept}", SHORT.replace("--steps 2", "--steps 3"));
    let output = Command::new("unshare")
        .args(["--map-root-user", "--mount", "bash", "-c", script, &small, env!("CARGO_BIN_EXE_zero3")])
        .args(resumed.split_whitespace())
        .output();
    let Some(output) = output.ok().filter(|output| ![Some(1), Some(99)].contains(&output.status.code()))
    else {
        return skipped("this user may not mount a disk of its own (unshare, tmpfs): none was too small");
    };
    let (shown, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(40), "{shown}{error}");
    assert!(shown.contains("saved as bf16"), "{shown}");
}

/// A file-size limit stands for a full disk: the run goes on, and its exit code says that the
/// recording is incomplete.
#[test]
fn a_recording_that_finds_no_room_ends_and_the_run_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let script = format!(
        "ulimit -f 48; exec {} {SHORT} --steps 40 --report {} --record {}",
        env!("CARGO_BIN_EXE_zero3"),
        path("report.json"),
        path("run.zero")
    );
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let (shown, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("warning: cannot write the recording"), "{error}");
    for word in ["error: the run is done, but the recording is incomplete", "run.zero.partial"] {
        assert!(error.contains(word), "{word:?} is missing\n{error}");
    }
    assert!(shown.contains("\n    39 ") && shown.contains("peak bytes"), "{shown}");
    assert!(dir.path().join("report.json").exists() && !dir.path().join("run.zero").exists());
    assert!(dir.path().join("run.zero.partial").exists());
}

/// KiB per file that a limited run may write.
const FILE_LIMIT: u32 = 2;

/// Runs the program with `flags`, a report and a recording, which are larger than the limit.
fn limited(flags: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().display();
    let program = env!("CARGO_BIN_EXE_zero3");
    let files = format!("--report {dir}/report.json --record {dir}/run.zero");
    let script = format!("ulimit -f {FILE_LIMIT}; exec {program} {SHORT} {files} {flags}");
    Command::new("bash").args(["-c", &script]).output().unwrap()
}

#[test]
fn a_report_that_finds_no_room_is_named_after_the_results() {
    let output = limited("");
    let (shown, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(shown.contains("peak bytes"), "{shown}");
    for word in ["error: cannot write --report", "\nthe run is done, but the recording is incomplete"] {
        assert!(error.contains(word), "{word:?} is missing\n{error}");
    }
}

#[test]
fn a_failed_run_names_the_files_that_it_could_not_write() {
    let output = limited("--inject error@rank1,step1,backward");
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    for word in ["error: rank 1: injected error", "\ncannot write --report", "\nthe recording is incomplete"]
    {
        assert!(error.contains(word), "{word:?} is missing\n{error}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_log_that_finds_no_room_is_named_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", dir.path().join("rank-1.log")).unwrap();
    let output = zero3(&format!("{SHORT} --log-dir {}", dir.path().display()));
    let (shown, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{error}");
    for word in ["error: the run is done, but its log", "rank-1.log is incomplete: No space left"] {
        assert!(error.contains(word), "{word:?} is missing\n{error}");
    }
    assert!(shown.contains("peak bytes"), "{shown}");
    assert!(fs::read_to_string(dir.path().join("rank-0.log")).unwrap().ends_with("finished\n"));
}

fn contents(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), fs::read(&path).unwrap()))
        .collect();
    files.sort();
    files
}

#[test]
fn the_report_says_what_the_readme_documents() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.json");
    let output = zero3(&format!("{SHORT} --report {}", path.display()));
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(report["stage"], "ZeRO-3");
    assert_eq!(report["world_size"], 2);
    assert_eq!(report["model"]["parameters"], 918_656);
    assert_eq!(report["steps"].as_array().unwrap().len(), 2);
    let keys: Vec<&String> = report.as_object().unwrap().keys().collect();
    for key in [
        "schema",
        "device",
        "precision",
        "memory",
        "total_peak_bytes",
        "traffic",
        "time",
        "throughput",
        "weights_blake3",
    ] {
        assert!(keys.iter().any(|k| *k == key), "{key}");
    }
    let screen = text(&output.stdout);
    let peak = settings::size::human(report["total_peak_bytes"][0]["peak_bytes"].as_u64().unwrap());
    let is_step = |line: &&str| ["0", "1"].map(Some).contains(&line.split_whitespace().next());
    let steps: Vec<&str> = screen.lines().filter(is_step).collect();
    assert!(steps.len() == 2 && steps.iter().all(|line| line.contains(&peak)), "{peak} at most\n{screen}");
    for word in ["ZeRO-3", "CPU", "gathered parameters", "predicted", "measured", "equal", "all-gather"] {
        assert!(screen.contains(word), "{word} is missing\n{screen}");
    }
}

#[test]
fn generated_text_continues_the_prompt_and_repeats_for_a_seed() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved");
    assert!(zero3(&format!("{SHORT} --save {}", saved.display())).status.success());
    let generate =
        || text(&zero3(&format!("generate --from {} --prompt rank --tokens 20", saved.display())).stdout);
    let first = generate();
    assert!(first.starts_with("rank") && first.len() > 10, "{first:?}");
    assert_eq!(first, generate());
    refuses("generate --from /no/such/directory", 2, &["/no/such/directory"]);
}

/// The program, and what it prints after its first step.
#[cfg(unix)]
fn started(mut command: Command, flags: &str) -> (Child, BufReader<ChildStdout>) {
    let mut child = command
        .args("--headless --gpus 2 --batch-size 1 --seq-len 16 --threads 1".split(' '))
        .args(flags.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let is_step = |line: &str| line.split_whitespace().next().is_some_and(|word| word.parse::<u32>().is_ok());
    while !is_step(&line) {
        line.clear();
        assert!(lines.read_line(&mut line).unwrap() > 0, "the first step is printed");
    }
    (child, lines)
}

/// Every kill leaves either all files of one save or all of another, and the next save clears up.
#[cfg(target_os = "linux")]
#[test]
fn a_save_that_is_killed_leaves_one_whole_save_and_takes_other_files_along() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved");
    let save = format!("{SHORT} --save {}", saved.display());
    assert!(zero3(&save).status.success());
    fs::create_dir(saved.join("mine")).unwrap();
    fs::write(saved.join("mine/notes.txt"), "keep").unwrap();
    let before = contents(&saved.join("mine"));
    // Killed while it writes its weights: for those of this model a look is quick enough.
    let large = format!("{save} --model small --seed 1");
    let mut child = Command::new(env!("CARGO_BIN_EXE_zero3"))
        .args(large.split_whitespace())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let written = dir.path().join(format!(".saved.{}.partial/model.safetensors", child.id()));
    while fs::metadata(&written).map_or(0, |file| file.len()) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it saves before it ends");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None);
    assert!(written.exists(), "it was killed while it saved");
    assert!(zero3(&format!("{SHORT} --init-from {}", saved.display())).status.success());
    assert!(zero3(&format!("{save} --seed 2")).status.success());
    assert_eq!(contents(&saved.join("mine")), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing half-written is left");
}

#[test]
fn a_directory_that_cannot_be_replaced_is_refused_before_training() {
    let dir = tempfile::tempdir().unwrap();
    let current = dir.path().join("saved/current");
    fs::create_dir_all(&current).unwrap();
    for (target, words) in [(".", "this program runs in it"), ("..", "runs in a directory below it")] {
        let output = Command::new(env!("CARGO_BIN_EXE_zero3"))
            .args(SHORT.split_whitespace())
            .args(["--steps", "1000000", "--save", target])
            .current_dir(&current)
            .output()
            .unwrap();
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(error.contains(words) && error.contains("directory inside it"), "{error}");
    }
}

/// Flips a bit in the middle of every file of a checkpoint but its manifest.
fn damage(checkpoint: &Path) {
    for (name, mut bytes) in contents(checkpoint).into_iter().filter(|(name, _)| name != "manifest.json") {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(checkpoint.join(name), bytes).unwrap();
    }
}

#[test]
fn a_checkpoint_is_exported_and_damage_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let [kept, saved, out] = ["kept", "saved", "out"].map(|name| dir.path().join(name));
    let [kept_at, out_at] = [&kept, &out].map(|path| path.display().to_string());
    let train = format!("{SHORT} --checkpoint {kept_at} --checkpoint-every 1 --save {}", saved.display());
    assert!(zero3(&train).status.success());
    let export = format!("export --from {kept_at} --to {out_at}");
    let output = zero3(&export);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for word in ["step-00000002: all blocks are intact", "2 steps", "saved by ZeRO-3 on 2 ranks", "(f32)"] {
        assert!(said.contains(word), "{word:?} is missing\n{said}");
    }
    assert_eq!(contents(&out), contents(&saved), "export writes what --save wrote");

    let first = kept.join("step-00000001");
    assert!(zero3(&format!("export --from {} --to {out_at}", first.display())).status.success());
    assert_ne!(contents(&out), contents(&saved), "it is of the step before");
    let of_first = contents(&out);
    damage(&kept.join("step-00000002"));
    let output = zero3(&export);
    let warning = text(&output.stderr);
    assert!(output.status.success(), "{warning}");
    assert!(warning.contains("step-00000002") && warning.contains("does not match its hash"), "{warning}");
    assert_eq!(contents(&out), of_first, "the checkpoint before is used");

    let second = kept.join("step-00000002").display().to_string();
    refuses(
        &format!("export --from {second} --to {out_at}"),
        2,
        &["no checkpoint is intact", "does not match its hash"],
    );
    damage(&first);
    refuses(&export, 2, &["no checkpoint is intact", "step-00000001", "Restore one"]);
    assert_eq!(contents(&out), of_first, "what was there stays");
    refuses(&format!("export --from {out_at} --to {out_at}"), 2, &["there is no checkpoint", "--checkpoint"]);
    refuses("export --from /no/such --to there", 2, &["/no/such", "there is no checkpoint"]);
    assert!(!Path::new("there").exists());
    refuses("export --from kept", 2, &["--to"]);
}

/// The program once it has printed its first step and is interrupted, and what it prints from then
/// on.
#[cfg(unix)]
fn interrupted(flags: &str) -> (Child, BufReader<ChildStdout>) {
    let (child, lines) = started(Command::new(env!("CARGO_BIN_EXE_zero3")), flags);
    interrupt(&child);
    (child, lines)
}

#[cfg(unix)]
fn interrupt(child: &Child) {
    signal(child, "-INT");
}

#[cfg(unix)]
fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &child.id().to_string()]).status().unwrap().success());
}

/// As when the terminal of a headless run is closed, or its connection breaks.
#[cfg(unix)]
#[test]
fn a_hangup_ends_a_run_as_a_termination_does_unless_it_is_ignored() {
    for (name, code) in [("-HUP", 129), ("-TERM", 143)] {
        let mut command = Command::new("env");
        if cfg!(target_os = "linux") {
            // Tests may run where hang-ups are ignored.
            command.arg("--default-signal=HUP");
        }
        command.arg(env!("CARGO_BIN_EXE_zero3"));
        let (mut child, mut lines) = started(command, "--steps 1000000 --timeout 60");
        signal(&child, name);
        let mut rest = String::new();
        lines.read_to_string(&mut rest).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{name}: {rest}");
        assert!(rest.contains("ended early, as asked"), "{name}: {rest}");
    }
    let mut command = Command::new("bash");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_zero3")]);
    let (mut child, mut lines) = started(command, "--steps 60");
    signal(&child, "-HUP");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success() && !rest.contains("ended early"), "{rest}");
}

/// All steps are done then, but the run is not.
#[cfg(unix)]
#[test]
fn a_termination_during_the_last_validation_is_no_success() {
    let flags = "--steps 1 --val-fraction 0.5 --eval-every 1 --eval-batches 100000 --timeout 60";
    let (mut child, mut lines) = started(Command::new(env!("CARGO_BIN_EXE_zero3")), flags);
    signal(&child, "-TERM");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143), "{rest}");
    assert!(rest.contains("the last validation was interrupted"), "{rest}");
}

/// A rank stalls in its layer for longer than a user waits without an explanation.
#[cfg(unix)]
#[test]
fn an_interrupt_that_is_not_answered_soon_is_explained_and_another_one_ends_the_process() {
    let (mut child, _lines) = interrupted("--inject stall@rank1,step1,forward --timeout 60");
    let mut said = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("stopping after the current layer; Ctrl-C"), "{said}");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// Also one that a launcher and the terminal both pass on.
#[cfg(unix)]
#[test]
fn an_interrupt_finishes_the_step_saves_and_prints_the_tables() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved");
    let kept = dir.path().join("kept");
    let flags = format!("--steps 1000000 --save {} --checkpoint {}", saved.display(), kept.display());
    let (mut child, mut lines) = started(Command::new(env!("CARGO_BIN_EXE_zero3")), &flags);
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::INT).unwrap();
    // The system delivers two as one if the first is still on its way.
    std::thread::sleep(Duration::from_millis(10));
    kill_process(pid, Signal::INT).unwrap();
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(rest.contains("host, each rank") && rest.contains("saved to"), "{rest}");
    assert!(saved.join("model.safetensors").exists());
    assert!(rest.contains("run the same command to resume"), "{rest}");
    let newest = || {
        let names = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().starts_with("step-")).max().unwrap()
    };
    let first = newest();
    let (mut child, mut lines) = interrupted(&flags);
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(newest() > first, "it has gone on");
}
