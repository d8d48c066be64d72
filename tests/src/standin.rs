//! Tests without a GPU: the same test runs again, with the stand-in driver on the loader's path.
//!
//! The stand-in (`common/device/tests/standin`) replaces NVIDIA's driver, compiler and cuBLASLt. A
//! test that passes there checks all of this workspace's CUDA code: which calls are made and in
//! which order, which streams wait for which, where memory comes from and when it is reused, and
//! the kernels' launches and (through the host shim) results. It does not check NVIDIA's libraries,
//! speed, or code that only a GPU's compiler sees.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that tells a test that the stand-in is in place.
const MARK: &str = "ZERO_STANDIN";

/// Returns from the enclosing test unless the stand-in is in place in this process. In that case
/// [`standin()`] has already run the test again in one where it is, with the settings.
#[macro_export]
macro_rules! standin_or_return {
    () => {
        $crate::standin_or_return!(&[])
    };
    ($settings:expr) => {{
        fn here() {}
        if !$crate::standin(here, $settings) {
            return;
        }
    }};
}

/// True if the stand-in is in place in this process. Otherwise runs `test` again, in a process of
/// its own with the stand-in and `settings` in its environment, where it must pass. Without a C++
/// compiler it runs nothing and says so, even if test output is captured.
///
/// # Panics
/// If the test fails there.
pub fn standin<T: Fn()>(test: T, settings: &[(&str, &str)]) -> bool {
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let name = test_name(&test);
    let Some(compiler) = compiler() else {
        assert!(std::env::var_os("STRICT").is_none(), "{name} needs a C++ compiler (c++, g++ or clang++)");
        events::complain!(
            "skipped: {name} needs a C++ compiler (c++, g++ or clang++) to build the stand-in driver"
        );
        return false;
    };
    let folder = build(compiler);
    let program = std::env::current_exe().expect("a running program has a path");
    let output = Command::new(program)
        .args([name, "--exact", "--nocapture", "--test-threads=1"])
        .env(MARK, "1")
        .env("LD_LIBRARY_PATH", &folder)
        .env("XDG_CACHE_HOME", folder.join("cache"))
        .envs(settings.iter().copied())
        .output()
        .expect("the test can be run again");
    let text =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{name} on the stand-in, {settings:?}:\n{text}"
    );
    false
}

/// Returns the test harness's name for `test`: its path within the test program. A function named
/// `here` stands for the test around it.
pub fn test_name<T: Fn()>(test: &T) -> &'static str {
    let path = std::any::type_name_of_val(test);
    let path = path.strip_suffix("::here").unwrap_or(path);
    path.split_once("::").map_or(path, |(_, name)| name)
}

fn compiler() -> Option<&'static str> {
    let works = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|o| o.status.success());
    ["c++", "g++", "clang++"].into_iter().find(works)
}

/// Returns the folder with the four libraries, built from the current sources with these flags.
fn build(compiler: &str) -> PathBuf {
    let device = Path::new(env!("CARGO_MANIFEST_DIR")).join("../common/device");
    let [shim, standin] = ["tests/shim", "tests/standin"].map(|folder| device.join(folder));
    let kernels = device.join("src/cuda/kernels");
    let mut hasher = DefaultHasher::new();
    FLAGS.hash(&mut hasher);
    for file in [&shim, &standin, &kernels].into_iter().flat_map(|folder| files(folder)) {
        fs::read(file).expect("sources can be read").hash(&mut hasher);
    }
    let target = std::env::current_exe().expect("a running program has a path");
    let target = target.ancestors().nth(2).expect("tests lie two folders down").join("standin");
    fs::create_dir_all(&target).expect("the target folder can be written");
    let folder = target.join(format!("{:016x}", hasher.finish()));
    let guard = File::create(target.join("lock")).expect("the target folder can be written");
    guard.lock().expect("files can be locked");
    if !folder.exists() {
        let draft = target.join("draft");
        let _ = fs::remove_dir_all(&draft);
        fs::create_dir_all(&draft).expect("the target folder can be written");
        let mut driver: Vec<PathBuf> =
            files(&shim).into_iter().filter(|f| f.extension() == Some("cpp".as_ref())).collect();
        driver.push(standin.join("driver.cpp"));
        let own = |name: &str| vec![standin.join(name)];
        let libraries = [
            Library { name: "cuda", sources: driver, optimised: "-O2", links: &[] },
            Library { name: "cublasLt", sources: own("blas.cpp"), optimised: "-O3", links: &["-lcuda"] },
            Library { name: "nccl", sources: own("nccl.cpp"), optimised: "-O2", links: &["-lcuda", "-lrt"] },
            Library { name: "nvrtc", sources: own("compiler.cpp"), optimised: "-O1", links: &[] },
        ];
        std::thread::scope(|scope| {
            for (library, source) in libraries.iter().flat_map(|l| l.sources.iter().map(move |s| (l, s))) {
                let (draft, include) = (&draft, [&kernels, &shim]);
                scope.spawn(move || library.compile(compiler, draft, source, include));
            }
        });
        libraries.iter().for_each(|library| library.link(compiler, &draft));
        fs::rename(&draft, &folder).expect("the target folder can be written");
    }
    folder
}

/// Has the compiler use all of this processor's instructions.
const NATIVE: &str = if cfg!(target_arch = "aarch64") { "-mcpu=native" } else { "-march=native" };

/// Flags for every source.
const FLAGS: [&str; 7] = [
    "-std=c++17",
    "-fPIC",
    "-pthread",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    NATIVE,
];

/// One of the stand-in's libraries. Its sources are compiled in parallel and then linked.
struct Library {
    name: &'static str,
    sources: Vec<PathBuf>,
    optimised: &'static str,
    links: &'static [&'static str],
}

impl Library {
    fn compile(&self, compiler: &str, folder: &Path, source: &Path, include: [&PathBuf; 2]) {
        let mut command = Command::new(compiler);
        command.args(FLAGS).args([self.optimised, "-c", "-o"]);
        command.arg(object(source)).arg(source);
        succeed(command.args(include.map(|folder| format!("-I{}", folder.display()))), folder);
    }

    fn link(&self, compiler: &str, folder: &Path) {
        let file = format!("lib{}.so", self.name);
        let mut command = Command::new(compiler);
        command.args(["-shared", "-pthread", &format!("-Wl,-soname,{file}"), "-o", &file]);
        command.args(self.sources.iter().map(|source| object(source)));
        succeed(command.arg("-L.").args(self.links), folder);
    }
}

/// Returns the object file of `source` in the draft's folder.
fn object(source: &Path) -> PathBuf {
    Path::new(source.file_name().expect("a source is a file")).with_extension("o")
}

fn succeed(command: &mut Command, folder: &Path) {
    let output = command.current_dir(folder).output().expect("the compiler was there a moment ago");
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&output.stderr));
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the sources are part of the workspace");
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}
