//! Finding NVIDIA's libraries at run time.
//!
//! The search goes through the path of the system's loader (`LD_LIBRARY_PATH` first), the packages
//! of Python installations, where PyTorch puts its own, `/usr/local/cuda`, and the folder where
//! containers have the driver. Off the loader's path, libraries of the driver's own major version
//! come first: newer ones do not work with it. A library is loaded with global symbols, under the
//! name by which `cudarc` then finds it.

use super::call::Named;
use crate::{DeviceError, Result};
use libloading::os::unix::{Library as Handle, RTLD_GLOBAL, RTLD_NOW, Symbol};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// A library of NVIDIA's that the CUDA device needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The driver's interface.
    Driver,
    /// The compiler of CUDA C++ at run time.
    Nvrtc,
    /// Matrix products.
    CublasLt,
    /// Collectives between GPUs, of one process or of several. Only `--collectives nccl` needs it.
    Nccl,
}

/// Major versions of the toolkit whose libraries are supported, newest first.
const MAJORS: [i32; 2] = [13, 12];

/// Returns [`MAJORS`], with the versions that the driver supports first.
fn majors() -> [i32; 2] {
    let newest = if Library::Driver.load() { driver_version().unwrap_or(0) / 1000 } else { 0 };
    let mut majors = MAJORS;
    majors.sort_by_key(|&major| major > newest);
    majors
}

impl Library {
    /// The libraries that computing needs, in the order of use.
    pub const ALL: [Library; 3] = [Library::Driver, Library::Nvrtc, Library::CublasLt];

    /// Returns its name as files carry it, without an ending.
    pub const fn label(self) -> &'static str {
        match self {
            Library::Driver => "libcuda",
            Library::Nvrtc => "libnvrtc",
            Library::CublasLt => "libcublasLt",
            Library::Nccl => "libnccl",
        }
    }

    /// Returns advice on what to install if the library is missing.
    pub const fn remedy(self) -> &'static str {
        match self {
            Library::Driver => "comes with NVIDIA's driver (package nvidia-driver of your system)",
            Library::Nvrtc => "pip install nvidia-cuda-nvrtc, or any PyTorch for CUDA 13",
            Library::CublasLt => "pip install nvidia-cublas, or any PyTorch for CUDA 13",
            Library::Nccl => "pip install nvidia-nccl-cu13, or any PyTorch for CUDA 13",
        }
    }

    /// Returns its possible file names, the likeliest first.
    fn file_names(self) -> Vec<String> {
        let label = self.label();
        let plain = format!("{label}.so");
        match self {
            Library::Driver => vec![format!("{label}.so.1"), plain],
            Library::Nccl => vec![format!("{label}.so.2"), plain],
            _ => majors().iter().map(|major| format!("{label}.so.{major}")).chain([plain]).collect(),
        }
    }

    /// True if `cudarc` finds it under one of the names that it tries.
    fn is_known(self) -> bool {
        // SAFETY: loads a library of NVIDIA's, whose initialisers are meant to run on loading.
        unsafe {
            match self {
                Library::Driver => cudarc::driver::sys::is_culib_present(),
                Library::Nvrtc => cudarc::nvrtc::sys::is_culib_present(),
                Library::CublasLt => cudarc::cublaslt::sys::is_culib_present(),
                Library::Nccl => self.file_names().iter().any(|name| open_for_good(Path::new(name))),
            }
        }
    }

    /// Loads it for the life of the process; false if it is not found.
    pub fn load(self) -> bool {
        static LOADED: [OnceLock<bool>; 4] = [const { OnceLock::new() }; 4];
        *LOADED[self as usize]
            .get_or_init(|| self.is_known() || (self.load_from_elsewhere() && self.is_known()))
    }

    fn load_from_elsewhere(self) -> bool {
        // Python packages have no driver.
        self.load_from(&places())
            || (self != Library::Driver && self.load_from(&packages(reported_prefixes())))
    }

    /// Loads the likeliest of its files in `places`; false if there is none.
    fn load_from(self, places: &[PathBuf]) -> bool {
        let names = self.file_names();
        let files = names.iter().flat_map(|name| places.iter().map(move |place| place.join(name)));
        files.filter(|file| file.is_file()).any(|file| {
            if self == Library::Nvrtc {
                // The compiler opens these by name alone, so they have to be loaded before it.
                for companion in entries(file.parent().unwrap_or(&file)) {
                    let _ = named(&companion, "libnvrtc-builtins.so") && open_for_good(&companion);
                }
            }
            open_for_good(&file)
        })
    }

    /// Loads it, or fails.
    ///
    /// # Errors
    /// [`DeviceError::Missing`] if it is not found.
    pub fn require(self) -> Result<()> {
        if self.load() {
            return Ok(());
        }
        Err(DeviceError::Missing { library: self.label(), remedy: self.remedy() })
    }

    /// Returns the function called `name`.
    ///
    /// # Errors
    /// [`DeviceError::Missing`] if the library is not found, [`DeviceError::Cuda`] if it has no
    /// such function.
    ///
    /// # Safety
    /// `F` is the function's type, a pointer to an `extern "C"` function.
    pub unsafe fn function<F: Copy>(self, name: &'static str) -> Result<F> {
        self.require()?;
        let none =
            || DeviceError::Cuda { call: name, reason: format!("{} has no such function", self.label()) };
        let path = self.path().ok_or_else(none)?;
        // SAFETY: the library is loaded for good, so this only finds it again and what it gives
        // stays; the type is the caller's promise.
        unsafe {
            let library = Handle::open(Some(path), RTLD_NOW).map_err(|_| none())?;
            let symbol: Symbol<F> = library.get(name.as_bytes()).map_err(|_| none())?;
            Ok(*symbol)
        }
    }

    /// Returns its version; `None` if it is not found or reports none.
    pub fn version(self) -> Option<String> {
        if !self.load() {
            return None;
        }
        let mut number = 0;
        // SAFETY: the library is loaded, and the place for its number outlives the call.
        unsafe {
            match self {
                Library::Driver => Some(format!("CUDA {}", words(driver_version().ok()?))),
                Library::Nvrtc => nvrtc_version().ok().map(|(major, minor)| format!("{major}.{minor}")),
                Library::CublasLt => Some(dotted(cudarc::cublaslt::sys::cublasLtGetVersion() as i32)),
                Library::Nccl => {
                    let version: unsafe extern "C" fn(*mut i32) -> i32 =
                        self.function("ncclGetVersion").ok()?;
                    (version(&mut number) == 0).then(|| dotted(number))
                }
            }
        }
    }

    /// Returns the file that was loaded.
    pub fn path(self) -> Option<PathBuf> {
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let start = format!("{}.so", self.label());
        let mut files = maps.lines().filter_map(|line| Some(Path::new(&line[line.find('/')?..])));
        files.find(|file| named(file, &start)).map(Path::to_path_buf)
    }
}

/// Returns the newest CUDA version that the driver supports, in its own notation: 12080 is 12.8.
pub(super) fn driver_version() -> Result<i32> {
    let mut version = 0;
    // SAFETY: the place for the number outlives the call.
    unsafe { cudarc::driver::sys::cuDriverGetVersion(&mut version) }.result().named("cuDriverGetVersion")?;
    Ok(version)
}

/// Returns a version in words.
pub(super) fn words(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Returns the compiler's version.
///
/// # Errors
/// [`DeviceError::Missing`] without a compiler.
pub(super) fn nvrtc_version() -> Result<(i32, i32)> {
    Library::Nvrtc.require()?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: the library is loaded, and both places outlive the call.
    unsafe { cudarc::nvrtc::sys::nvrtcVersion(&mut major, &mut minor) }.result().named("nvrtcVersion")?;
    Ok((major, minor))
}

/// Returns a version such as 130100 or 22809 as 13.1.0 or 2.28.9.
fn dotted(number: i32) -> String {
    format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
}

/// Loads a file and never unloads it, so that a later search by its name finds it.
fn open_for_good(file: &Path) -> bool {
    // SAFETY: as in `is_known`; the handle is leaked, so the library cannot be unloaded while in
    // use.
    unsafe { Handle::open(Some(file), RTLD_NOW | RTLD_GLOBAL) }.map(std::mem::forget).is_ok()
}

/// Returns the folders to search in addition to the system's.
fn places() -> Vec<PathBuf> {
    let mut places = packages(prefixes());
    for toolkit in entries(Path::new("/usr/local")).into_iter().filter(|path| named(path, "cuda")) {
        places.push(toolkit.join("lib64"));
    }
    places.push("/usr/local/nvidia/lib64".into());
    places
}

/// Returns the folders of NVIDIA's packages in the Python installations with these prefixes.
fn packages(prefixes: Vec<PathBuf>) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for prefix in prefixes {
        for python in entries(&prefix.join("lib")).into_iter().filter(|path| named(path, "python3")) {
            for packages in ["site-packages", "dist-packages"] {
                let vendor = python.join(packages).join("nvidia");
                places.extend(entries(&vendor).into_iter().map(|package| package.join("lib")));
            }
        }
    }
    places
}

/// Returns the programs called `python3` on the path.
fn pythons() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|bin| bin.join("python3")).filter(|python| python.exists()).collect()
}

/// Asks the first `python3` on the path for its prefixes if it is a script: the path of a script
/// does not reveal them.
fn reported_prefixes() -> Vec<PathBuf> {
    let Some(python) = pythons().into_iter().next().filter(|python| is_script(python)) else {
        return Vec::new();
    };
    let question = "import sys; print(sys.prefix); print(sys.base_prefix)";
    let said =
        Command::new(python).args(["-c", question]).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let said = said.map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).lines().map(PathBuf::from).collect()
}

/// True if a program is a script.
fn is_script(program: &Path) -> bool {
    let mut start = [0; 2];
    let read = File::open(program).and_then(|mut file| file.read_exact(&mut start));
    read.is_ok() && start == *b"#!"
}

/// Returns the prefixes of Python installations: the active environment's, the user's, and those of
/// the `python3` on the path.
fn prefixes() -> Vec<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from);
    let mut prefixes: Vec<PathBuf> = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(folder).collect();
    prefixes.extend(pythons().iter().flat_map(|python| homes(python)));
    prefixes.extend(folder("HOME").map(|home| home.join(".local")));
    prefixes.extend(["/usr/local", "/usr"].map(PathBuf::from));
    prefixes
}

/// Returns the prefixes of a Python program and of every link that it resolves through: packages
/// may be in any of them.
fn homes(program: &Path) -> Vec<PathBuf> {
    let target = |link: &PathBuf| Some(link.parent()?.join(std::fs::read_link(link).ok()?));
    let hops = std::iter::successors(Some(program.to_path_buf()), target).take(LINKS);
    hops.filter_map(|program| Some(program.parent()?.parent()?.to_path_buf())).collect()
}

/// Maximum number of links that are followed: they may form a cycle.
const LINKS: usize = 16;

fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    entries.sort();
    entries
}

fn named(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(start))
}
