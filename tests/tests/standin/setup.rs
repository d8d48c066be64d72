//! Setup before anything runs on a GPU: the GPUs and their capabilities, `doctor`'s verdict, and
//! the kernels' machine code on disk. Runs on the stand-in driver, in processes of their own.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use tests::job::{Ended, Member, launch, start};
use tests::{fixture, losses, standin_or_return, test_name, train};

const STAGE: &str = env!("CARGO_BIN_EXE_stage");
const PATIENCE: Duration = Duration::from_secs(60);

fn doctor(ranks: usize, set: &str) -> Member {
    start(STAGE, &format!("zero3 doctor --gpus {ranks}"), set)
}

fn verdict(ranks: usize, set: &str) -> Ended {
    doctor(ranks, set).end(PATIENCE)
}

#[test]
fn doctor_succeeds_exactly_if_so_many_ranks_would_run() {
    standin_or_return!();
    for (ranks, set, words) in [
        (1, "", "One rank on GPU 0"),
        (4, "", "All 4 ranks share GPU 0"),
        (4, "STANDIN_GPUS=2", "4 ranks share 2 GPUs"),
        (2, "STANDIN_GPUS=4", "One rank per GPU on 2 GPUs"),
        (1, "STANDIN_CAPABILITY=75", "compute capability 7.5, no bf16"),
        (1, "STANDIN_DRIVER=12040", "CUDA 12.4"),
    ] {
        let ended = verdict(ranks, set);
        assert_eq!(ended.code, Some(0), "{set}: {}{}", ended.out, ended.error);
        assert!(ended.out.contains(words), "{set}: {words:?} is missing\n{}", ended.out);
    }
    for (set, words) in [
        ("STANDIN_GPUS=0", ["would not run on GPUs here", "reports no GPU"]),
        ("STANDIN_CAPABILITY=70", ["compute capability 7.0", "7.5 is the oldest supported"]),
        (
            "STANDIN_NVRTC=old XDG_CACHE_HOME=/dev/null",
            ["is too old for sm_90", "pip install nvidia-cuda-nvrtc"],
        ),
        ("STANDIN_DRIVER=11080", ["CUDA 11.8", "12.0 is the oldest supported"]),
    ] {
        let ended = verdict(1, set);
        assert_eq!(ended.code, Some(1), "{set}: {}", ended.out);
        words.iter().for_each(|word| assert!(ended.error.contains(word), "{set}: {word:?}: {}", ended.error));
    }
}

/// All libraries except one, in a folder of their own.
#[test]
fn each_missing_library_is_named() {
    standin_or_return!();
    let libraries = std::env::var("LD_LIBRARY_PATH").unwrap();
    for (missing, remedy) in
        [("libcuda", "nvidia-driver"), ("libnvrtc", "nvidia-cuda-nvrtc"), ("libcublasLt", "nvidia-cublas")]
    {
        let dir = tempfile::tempdir().unwrap();
        for name in ["libcuda", "libnvrtc", "libcublasLt"].iter().filter(|name| **name != missing) {
            let file = format!("{name}.so");
            std::os::unix::fs::symlink(Path::new(&libraries).join(&file), dir.path().join(&file)).unwrap();
        }
        let set =
            format!("LD_LIBRARY_PATH={0} PATH={0} HOME={0} VIRTUAL_ENV= CONDA_PREFIX=", dir.path().display());
        let ended = verdict(1, &set);
        assert_eq!(ended.code, Some(1), "{}", ended.out);
        let what = format!("{missing} was not found");
        assert!(ended.error.contains(&what) && ended.error.contains(remedy), "{}", ended.error);
        let ended = start(STAGE, "zero3 --headless --device cuda --steps 1", &set).end(PATIENCE);
        assert_eq!(ended.code, Some(2), "{}", ended.error);
        assert!(ended.error.contains(&what) && !ended.error.contains("panicked"), "{}", ended.error);
    }
}

/// PyTorch's packages are next to a Python to which the path's Python is a link, through another
/// link.
#[test]
fn libraries_are_found_behind_links_to_python() {
    standin_or_return!();
    let libraries = std::env::var("LD_LIBRARY_PATH").unwrap();
    for hop in ["shims", "between", "home"] {
        let dir = tempfile::tempdir().unwrap();
        let folder = |path: &str| {
            let folder = dir.path().join(path);
            std::fs::create_dir_all(&folder).unwrap();
            folder
        };
        let [shims, between, home] =
            ["shims", "between", "home"].map(|place| folder(&format!("{place}/bin")));
        let link = |to: &Path, from: &Path| std::os::unix::fs::symlink(to, from).unwrap();
        std::fs::write(home.join("python3.11"), "").unwrap();
        link(Path::new("../../home/bin/python3.11"), &between.join("python3"));
        link(&between.join("python3"), &shims.join("python3"));
        let packages = folder(&format!("{hop}/lib/python3.11/site-packages/nvidia/cu13/lib"));
        let plain = folder("plain");
        for name in ["libcuda.so", "libnvrtc.so", "libcublasLt.so"] {
            let place = if name == "libcublasLt.so" { &packages } else { &plain };
            link(&Path::new(&libraries).join(name), &place.join(name));
        }
        let (path, library_path) = (shims.display(), plain.display());
        let set =
            format!("LD_LIBRARY_PATH={library_path} PATH={path} HOME={path} VIRTUAL_ENV= CONDA_PREFIX=");
        let ended = verdict(1, &set);
        assert_eq!(ended.code, Some(0), "{hop}: {}{}", ended.out, ended.error);
    }
}

/// Returns a folder with the driver and the compiler. For each of `packages` it contains a folder
/// with a cuBLASLt of that file name.
fn libraries(packages: &[&str]) -> tempfile::TempDir {
    let libraries = std::env::var("LD_LIBRARY_PATH").unwrap();
    let dir = tempfile::tempdir().unwrap();
    // Copies, because for a link the loader reports the target.
    let put = |name: &str, to: &Path| {
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(Path::new(&libraries).join(name), to).unwrap();
    };
    ["libcuda.so", "libnvrtc.so"].iter().for_each(|name| put(name, &dir.path().join("plain").join(name)));
    packages.iter().for_each(|package| put("libcublasLt.so", &dir.path().join(package)));
    dir
}

/// Runs `doctor` with libraries only in `dir`, and with `bin` as the path.
fn doctor_in(dir: &tempfile::TempDir, bin: &str, more: &str) -> Ended {
    let home = dir.path().display();
    let set =
        format!("LD_LIBRARY_PATH={home}/plain PATH={home}/{bin} HOME={home} VIRTUAL_ENV= CONDA_PREFIX=");
    verdict(1, &format!("{set} {more}"))
}

/// Libraries of a newer major version than the driver's are incompatible with it.
#[test]
fn of_two_toolkits_the_drivers_own_is_taken() {
    standin_or_return!();
    let packages = ".local/lib/python3.11/site-packages/nvidia";
    let files =
        ["a/lib/libcublasLt.so.13", "b/lib/libcublasLt.so.12"].map(|file| format!("{packages}/{file}"));
    let dir = libraries(&files.each_ref().map(String::as_str));
    for (driver, taken) in [("13000", &files[0]), ("12080", &files[1])] {
        let ended = doctor_in(&dir, "nothing", &format!("STANDIN_DRIVER={driver}"));
        succeeds(&ended);
        // The table wraps lines.
        let whole: String = ended.out.split_whitespace().collect();
        assert!(whole.contains(taken), "{driver}: {taken} is not taken: {}", ended.out);
    }
}

/// A `python3` that is a script reports the location of its installation.
#[test]
fn a_python_that_is_a_script_is_asked() {
    standin_or_return!();
    let dir = libraries(&["far/lib/python3.11/site-packages/nvidia/cu13/lib/libcublasLt.so.13"]);
    let python = dir.path().join("bin/python3");
    std::fs::create_dir_all(python.parent().unwrap()).unwrap();
    let far = dir.path().join("far");
    for (said, code) in [(far.to_str().unwrap(), Some(0)), ("/nowhere", Some(1))] {
        std::fs::write(&python, format!("#!/bin/sh\necho {said}\n")).unwrap();
        std::fs::set_permissions(&python, std::fs::Permissions::from_mode(0o755)).unwrap();
        let ended = doctor_in(&dir, "bin", "");
        assert_eq!(ended.code, code, "{said}: {}{}", ended.out, ended.error);
    }
}

/// `cargo test` hides the output of passing tests, and a skipped test passes.
#[test]
fn a_skipped_test_says_so_past_the_capture_of_its_output() {
    let program = std::env::current_exe().unwrap();
    let test = test_name(&doctor_succeeds_exactly_if_so_many_ranks_would_run);
    let mut command = std::process::Command::new(program);
    let output =
        command.args([test, "--exact"]).env("PATH", "/nowhere").env_remove("ZERO_STANDIN").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.contains(&format!("skipped: {test} needs")), "{error}");
}

/// On a GPU that is too old, `auto` selects the CPU and says why.
#[test]
fn a_gpu_that_is_too_old_is_left_alone() {
    standin_or_return!(&[("STANDIN_CAPABILITY", "70")]);
    let flags =
        format!("--model {} --gpus 1 --batch-size 1 --seq-len 8 --steps 1", fixture("three-heads.json"));
    let ended = start(STAGE, &format!("zero3 --headless {flags}"), "").end(PATIENCE);
    assert_eq!(ended.code, Some(0), "{}", ended.error);
    for words in ["No CUDA GPU is used: ", "compute capability 7.0", "CPU cores"] {
        assert!(ended.out.contains(words), "{words:?} is missing: {}", ended.out);
    }
    let failure =
        train(prediction::Stage::Ddp, &format!("{flags} --device cuda")).expect_err("it is refused");
    assert!(failure.code() == 2 && failure.to_string().contains("7.5 is the oldest"), "{failure}");
}

/// Returns the smallest run in bf16, on `ranks` ranks.
fn in_bf16(ranks: usize) -> String {
    let model = fixture("three-heads.json");
    format!("--model {model} --gpus {ranks} --batch-size 1 --seq-len 8 --steps 1 --precision bf16")
}

#[test]
fn where_no_gpu_has_bf16_auto_is_the_cpu_and_says_why() {
    standin_or_return!(&[("STANDIN_CAPABILITY", "75")]);
    let ended = start(STAGE, &format!("zero3 --headless {}", in_bf16(1)), "").end(PATIENCE);
    succeeds(&ended);
    for words in ["No CUDA GPU is used: ", "has no bf16 (compute capability 7.5", "CPU cores"] {
        assert!(ended.out.contains(words), "{words:?} is missing: {}", ended.out);
    }
    // Processes choose the device before they meet.
    for (rank, ended) in launch(STAGE, 2, |_| format!("zero3 --headless {}", in_bf16(2)))
        .into_iter()
        .map(|process| process.end(PATIENCE))
        .enumerate()
    {
        succeeds(&ended);
        assert_eq!(ended.out.contains("CPU cores"), rank == 0, "{}", ended.out);
    }
}

/// The first GPU supports bf16, the second does not.
#[test]
fn a_gpu_without_bf16_keeps_no_run_from_one_that_has_it() {
    let settings = [("STANDIN_GPUS", "2"), ("STANDIN_CAPABILITY", "80,75")];
    standin_or_return!(&settings);
    for (flags, words) in [
        (in_bf16(1), "One rank on GPU 0"),
        (format!("{} --device cuda", in_bf16(1)), "One rank on GPU 0"),
        (in_bf16(2), "All 2 ranks share GPU 0"),
        (in_bf16(2).replace("bf16", "fp32"), "One rank per GPU on 2 GPUs"),
    ] {
        let ended = start(STAGE, &format!("zero3 --headless {flags}"), "").end(PATIENCE);
        succeeds(&ended);
        assert!(ended.out.contains(words), "{flags}: {words:?} is missing: {}", ended.out);
    }
}

#[test]
fn an_nccl_that_is_too_old_is_named_by_every_process() {
    standin_or_return!(&[("STANDIN_NCCL_VERSION", "21700")]);
    let flags = "zero3 --headless --device cuda --steps 1";
    let mut ended = vec![start(STAGE, &format!("{flags} --gpus 2 --collectives nccl"), "").end(PATIENCE)];
    ended.extend(launch(STAGE, 2, |_| flags.into()).into_iter().map(|process| process.end(PATIENCE)));
    for Ended { code, error, .. } in ended {
        assert_eq!(code, Some(2), "{error}");
        assert!(error.starts_with("error: ") && error.lines().count() <= 24, "{error}");
        for words in ["NCCL: version 2.17.0 is too old", "2.18.0", "pip install -U nvidia-nccl-cu13"] {
            assert!(error.contains(words), "{words:?} is missing: {error}");
        }
    }
}

/// Returns the files of a folder with their contents.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().flatten();
    entries.map(|e| (e.file_name().into_string().unwrap(), std::fs::read(e.path()).unwrap())).collect()
}

fn succeeds(ended: &Ended) {
    assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.error);
}

#[test]
fn machine_code_on_disk_outlives_damage_and_many_writers() {
    standin_or_return!();
    let dir = tempfile::tempdir().unwrap();
    let (set, folder) = (format!("XDG_CACHE_HOME={}", dir.path().display()), dir.path().join("zero-stages"));
    // All start with an empty cache.
    let many: Vec<Member> = (0..4).map(|_| doctor(1, &set)).collect();
    many.into_iter().for_each(|process| succeeds(&process.end(PATIENCE)));
    let whole = contents(&folder);
    assert_eq!(
        whole.len(),
        device::cuda::kernels::Source::ALL.len(),
        "a file per source, no drafts: {:?}",
        whole.keys()
    );
    // Truncated, emptied, and with a wrong byte at the end.
    let files: Vec<&String> = whole.keys().take(3).collect();
    let damaged = |name: &str, change: fn(&mut Vec<u8>)| {
        let mut bytes = whole[name].clone();
        change(&mut bytes);
        std::fs::write(folder.join(name), bytes).unwrap();
    };
    damaged(files[0], |bytes| bytes.truncate(40));
    damaged(files[1], Vec::clear);
    damaged(files[2], |bytes| *bytes.last_mut().unwrap() ^= 1);
    succeeds(&verdict(1, &set));
    assert!(contents(&folder) == whole, "damaged machine code is compiled and written again");
    // Another architecture needs other files.
    succeeds(&verdict(1, &format!("{set} STANDIN_CAPABILITY=80")));
    let both = contents(&folder);
    assert_eq!(both.len(), 2 * whole.len());
    assert!(
        both.keys().all(|name| name.contains("-sm_90a-") || name.contains("-sm_80-")),
        "{:?}",
        both.keys()
    );
    // If the folder cannot be created, nothing is kept.
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    succeeds(&verdict(1, &format!("XDG_CACHE_HOME={}", file.display())));
}

#[test]
fn tf32_rounds_products_of_f32_by_flag_alone() {
    standin_or_return!();
    let run = |more: &str| {
        let flags = format!(
            "--model {} --gpus 1 --batch-size 1 --seq-len 8 --steps 2 --device cuda",
            fixture("three-heads.json")
        );
        losses(&train(prediction::Stage::Ddp, &format!("{flags} {more}")).unwrap())
    };
    let (exact, rounded) = (run(""), run("--tf32"));
    let apart = tests::largest_difference(&exact, &rounded);
    assert!((1e-7..1e-2).contains(&apart), "{exact:?} and {rounded:?}");
    for precision in ["bf16", "autocast"] {
        let flags = format!("--precision {precision}");
        assert_eq!(run(&flags), run(&format!("{flags} --tf32")), "{precision}");
    }
}
