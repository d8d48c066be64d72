//! Compiles CUDA C++ to machine code for a GPU, cached on disk.
//!
//! Machine code rather than PTX: a driver accepts the code of any compiler of its major version,
//! but not the PTX of a newer one. The cache is in `$XDG_CACHE_HOME/zero-stages` (or
//! `~/.cache/zero-stages`); a file's name is the hash of the source, the options, the architecture
//! and the compiler's version, and it begins with the hash of its own contents, so that a damaged
//! file is compiled again. Nothing is cached if the folder cannot be written.

use super::call::Named;
use super::kernels::{OPTIONS, Source};
use super::library::{Library, nvrtc_version};
use crate::{DeviceError, Result};
use cudarc::nvrtc::result::NvrtcError;
use cudarc::nvrtc::{result, sys};
use std::ffi::{CStr, CString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// The target of code: compute capability `major.minor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Architecture {
    /// 9 for 9.0.
    pub(super) major: i32,
    /// 0 for 9.0.
    pub(super) minor: i32,
}

impl Architecture {
    /// `sm_86` for 8.6. For 9.0 it is `sm_90a`, with the products of warpgroups that later ones
    /// lack.
    fn label(self) -> String {
        let Architecture { major, minor } = self;
        format!("sm_{major}{minor}{}", if (major, minor) == (9, 0) { "a" } else { "" })
    }
}

/// Returns the machine code of every source, in [`Source::ALL`]'s order, compiled on as many
/// threads as there are cores.
///
/// # Errors
/// [`DeviceError::Missing`] without a compiler; [`DeviceError::Cuda`] with its messages if it
/// refuses a source.
pub(super) fn all(architecture: Architecture) -> Result<Vec<Vec<u8>>> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(Source::ALL.len());
    let next = AtomicUsize::new(0);
    let mine = || {
        let take = || Source::ALL.get(next.fetch_add(1, Ordering::Relaxed)).copied();
        std::iter::from_fn(take)
            .map(|source| (source as usize, image(source, architecture)))
            .collect::<Vec<_>>()
    };
    let mut images = thread::scope(|scope| {
        // If the system starts fewer threads, those compile everything.
        let start = |_| thread::Builder::new().spawn_scoped(scope, mine).ok();
        let workers: Vec<_> = (1..threads).filter_map(start).collect();
        let own = mine();
        let panicked = |_| vec![(0, Err(refused("NVRTC", "the thread that compiles panicked".into())))];
        let theirs = workers.into_iter().flat_map(|worker| worker.join().unwrap_or_else(panicked));
        own.into_iter().chain(theirs).collect::<Vec<_>>()
    });
    images.sort_by_key(|(index, _)| *index);
    images.into_iter().map(|(_, image)| image).collect()
}

/// Returns the machine code of one source, from the cache if it is there.
fn image(source: Source, architecture: Architecture) -> Result<Vec<u8>> {
    Library::Nvrtc.require()?;
    let text = source.text();
    let file = cache_file(source, &text, architecture)?;
    if let Some(image) = file.as_ref().and_then(read_cached) {
        return Ok(image);
    }
    let image = compile(source.name(), &text, architecture)?;
    if let Some(file) = file {
        // If it cannot be written, the next run compiles again.
        let _ = write_cached(&file, &image);
    }
    Ok(image)
}

fn cache_file(source: Source, text: &str, architecture: Architecture) -> Result<Option<PathBuf>> {
    let (major, minor) = nvrtc_version()?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("{major}.{minor} {} {OPTIONS:?}\n", architecture.label()).as_bytes());
    hasher.update(text.as_bytes());
    let name = format!("{}-{}-{}", source.name(), architecture.label(), hasher.finalize().to_hex());
    Ok(cache_folder().map(|folder| folder.join(name)))
}

fn cache_folder() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")))?;
    Some(caches.join("zero-stages"))
}

/// Reads a cached file; `None` if it is missing or damaged.
fn read_cached(file: &PathBuf) -> Option<Vec<u8>> {
    let contents = std::fs::read(file).ok()?;
    let (hash, image) = contents.split_at_checked(blake3::OUT_LEN)?;
    (hash == blake3::hash(image).as_bytes()).then(|| image.to_vec())
}

/// Writes a file atomically: under another name first, since ranks of several processes may write
/// at once.
fn write_cached(file: &Path, image: &[u8]) -> std::io::Result<()> {
    std::fs::create_dir_all(file.parent().unwrap_or(file))?;
    let mut draft = file.as_os_str().to_owned();
    draft.push(format!(".{}-{:?}", std::process::id(), thread::current().id()));
    std::fs::write(&draft, [blake3::hash(image).as_bytes(), image].concat())?;
    std::fs::rename(&draft, file)
}

/// Compiles `text` to machine code.
fn compile(name: &str, text: &str, architecture: Architecture) -> Result<Vec<u8>> {
    let plain = |text: &str| CString::new(text).map_err(|_| refused(name, "it contains a zero byte".into()));
    let program = Program::new(&plain(text)?, &plain(name)?)?;
    let options = OPTIONS.map(String::from).into_iter().chain([format!("-arch={}", architecture.label())]);
    program.compile(&options.collect::<Vec<_>>()).map_err(|error| match error.0 {
        // The architecture is the only option that can be wrong.
        sys::nvrtcResult::NVRTC_ERROR_INVALID_OPTION => too_old(architecture),
        _ => refused(name, format!("{:?}\n{}", error.0, program.log())),
    })?;
    program.image()
}

/// A program of the compiler's.
struct Program(sys::nvrtcProgram);

impl Program {
    fn new(text: &CStr, name: &CStr) -> Result<Self> {
        result::create_program(text, Some(name)).named("nvrtcCreateProgram").map(Program)
    }

    fn compile(&self, options: &[String]) -> std::result::Result<(), NvrtcError> {
        // SAFETY: the program lives as long as `self`.
        unsafe { result::compile_program(self.0, options) }
    }

    /// Returns the compiler's messages.
    fn log(&self) -> String {
        // SAFETY: as above.
        let log = unsafe { result::get_program_log(self.0) }.unwrap_or_default();
        let log: Vec<u8> = log.into_iter().map(|byte| byte as u8).take_while(|byte| *byte != 0).collect();
        String::from_utf8_lossy(&log).into_owned()
    }

    fn image(&self) -> Result<Vec<u8>> {
        let mut size = 0;
        // SAFETY: the program lives as long as `self`.
        unsafe { sys::nvrtcGetCUBINSize(self.0, &mut size) }.result().named("nvrtcGetCUBINSize")?;
        let mut image = vec![0u8; size];
        // SAFETY: as above, and the compiler writes exactly the bytes that it asked for.
        unsafe { sys::nvrtcGetCUBIN(self.0, image.as_mut_ptr().cast()) }.result().named("nvrtcGetCUBIN")?;
        Ok(image)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

/// Returns the error for a compiler that is too old: one on the loader's path is found before newer
/// ones elsewhere.
fn too_old(architecture: Architecture) -> DeviceError {
    let (library, label) = (Library::Nvrtc, architecture.label());
    let version = library.version().unwrap_or_else(|| "of unknown version".into());
    let path = library.path().map(|path| path.display().to_string()).unwrap_or_default();
    let remedy = "remove it, and where nothing else is found: ";
    refused("NVRTC", format!("{version} ({path}) is too old for {label}: {remedy}{}", library.remedy()))
}

fn refused(name: &str, reason: String) -> DeviceError {
    DeviceError::Cuda { call: "compiling kernels", reason: format!("{name}: {reason}") }
}
