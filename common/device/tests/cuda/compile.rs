//! Every source, compiled to machine code for several architectures by NVIDIA's run-time compiler.
//! No GPU is needed.

use device::cuda::kernels::{OPTIONS, Source, kernels};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_void};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;

/// Returns the architectures to compile `source` for: the oldest supported one, and one for each
/// other variant of its code. Most sources differ from compute capability 8.0 on alone, those of
/// warpgroups at 9.0 alone. How many registers attention on tensor cores takes differs between all
/// that run it.
fn architectures(source: Source) -> &'static [&'static str] {
    match source {
        Source::AttentionMma => &["sm_75", "sm_80", "sm_100"],
        Source::AttentionWgmma | Source::AttentionWgmmaBackward => &["sm_75", "sm_90a"],
        _ => &["sm_75", "sm_100"],
    }
}

type Status = c_int;
type Create = unsafe extern "C" fn(
    *mut *mut c_void,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> Status;
type Compile = unsafe extern "C" fn(*mut c_void, c_int, *const *const c_char) -> Status;
type Size = unsafe extern "C" fn(*mut c_void, *mut usize) -> Status;
type Fetch = unsafe extern "C" fn(*mut c_void, *mut c_char) -> Status;

/// The compiler's functions (NVRTC's manual, section "General Information Query" onwards).
struct Compiler {
    create: Create,
    compile: Compile,
    destroy: unsafe extern "C" fn(*mut *mut c_void) -> Status,
    log: (Size, Fetch),
    image: (Size, Fetch),
}

impl Compiler {
    /// Loads it from where `scripts/cuda-test-deps` puts it or where the device finds it; `None` if
    /// there is none.
    fn find() -> Option<Self> {
        let file = fetched("libnvrtc.so").or_else(installed)?;
        if let Some(companion) = fetched("libnvrtc-builtins.so") {
            load(&companion);
        }
        let library = load(&file);
        // SAFETY: the types are those of NVRTC's header.
        unsafe {
            Some(Compiler {
                create: *library.get(b"nvrtcCreateProgram").ok()?,
                compile: *library.get(b"nvrtcCompileProgram").ok()?,
                destroy: *library.get(b"nvrtcDestroyProgram").ok()?,
                log: (
                    *library.get(b"nvrtcGetProgramLogSize").ok()?,
                    *library.get(b"nvrtcGetProgramLog").ok()?,
                ),
                image: (*library.get(b"nvrtcGetCUBINSize").ok()?, *library.get(b"nvrtcGetCUBIN").ok()?),
            })
        }
    }

    /// Returns the machine code of `source`, or the compiler's messages.
    fn compile(&self, source: Source, architecture: &str) -> Result<Vec<u8>, String> {
        let text = CString::new(source.text()).unwrap();
        let name = CString::new(source.name()).unwrap();
        let own = format!("-arch={architecture}");
        let options: Vec<_> = OPTIONS
            .iter()
            .copied()
            .chain([own.as_str()])
            .map(|option| CString::new(option).unwrap())
            .collect();
        let options: Vec<_> = options.iter().map(|option| option.as_ptr()).collect();
        let mut program = std::ptr::null_mut();
        // SAFETY: all texts end in a zero byte and outlive the calls; the program is destroyed
        // once, at the end.
        unsafe {
            let none = std::ptr::null();
            assert_eq!((self.create)(&mut program, text.as_ptr(), name.as_ptr(), 0, none, none), 0);
            let status = (self.compile)(program, options.len() as c_int, options.as_ptr());
            let log = read(program, self.log);
            let image = if status == 0 { read(program, self.image) } else { Vec::new() };
            (self.destroy)(&mut program);
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
            if status == 0 && log.is_empty() { Ok(image) } else { Err(log) }
        }
    }
}

/// # Safety
/// The program lives, and the functions are its compiler's.
unsafe fn read(program: *mut c_void, (size, fetch): (Size, Fetch)) -> Vec<u8> {
    let mut bytes = 0;
    // SAFETY: the compiler writes as many bytes as it says.
    unsafe {
        assert_eq!(size(program, &mut bytes), 0);
        let mut buffer = vec![0u8; bytes];
        assert_eq!(fetch(program, buffer.as_mut_ptr().cast()), 0);
        buffer
    }
}

/// Loads a library for the life of the process.
fn load(file: &Path) -> &'static Library {
    // SAFETY: NVIDIA's library, whose initialisers are meant to run on loading.
    Box::leak(Box::new(unsafe { Library::open(Some(file), RTLD_NOW | RTLD_GLOBAL) }.unwrap()))
}

/// A library that `scripts/cuda-test-deps` has fetched.
fn fetched(name: &str) -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    let packages = fs::read_dir(target.join("cuda-test-deps/nvidia")).ok()?;
    let folders = packages.flatten().map(|package| package.path().join("lib"));
    let files = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    files
        .map(|file| file.path())
        .find(|file| file.file_name().is_some_and(|own| own.to_string_lossy().starts_with(name)))
}

fn installed() -> Option<PathBuf> {
    let library = device::cuda::Library::Nvrtc;
    library.load().then(|| library.path()).flatten()
}

/// A file whose existence says that this source has passed with this architecture.
fn passed(source: Source, architecture: &str) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    (source.text(), OPTIONS, architecture).hash(&mut hasher);
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("compiled-{:016x}", hasher.finish()))
}

fn check(compiler: &Compiler, source: Source, architecture: &str) {
    let passed = passed(source, architecture);
    if passed.exists() {
        return;
    }
    let image = compiler
        .compile(source, architecture)
        .unwrap_or_else(|log| panic!("{} for {architecture}:\n{log}", source.name()));
    assert!(image.starts_with(b"\x7fELF"), "{} is no machine code", source.name());
    let usage = Usage::of(&image);
    for kernel in kernels().into_iter().filter(|kernel| kernel.source == source) {
        let usage = usage.get(kernel.name).unwrap_or_else(|| panic!("{} is missing", kernel.name));
        if [Source::AttentionMma, Source::AttentionWgmma, Source::AttentionWgmmaBackward].contains(&source) {
            check_registers(kernel.name, *usage, architecture);
        }
    }
    fs::write(passed, "").unwrap();
}

/// Tensor cores stall on values that are not in registers, and warps on the other warps of their
/// block. So a multiprocessor's 65,536 registers have to suffice for several blocks of 128 threads
/// with all values of a thread in registers: for two, which own four tiles, or two in the backward
/// pass over heads of 128; by products of warpgroups, for four that own a tile, or three over heads
/// of 128, or two in the backward pass, which make one block. Only the forward pass over heads of
/// 128, with its 192 sums, may keep two others in memory.
fn check_registers(kernel: &str, Usage { registers, stack }: Usage, architecture: &str) {
    let by_warpgroups = kernel.strip_prefix("attention_wgmma_");
    let blocks = 65_536 / (registers.next_multiple_of(8) * 128);
    let enough = match by_warpgroups {
        Some(forward) if forward.starts_with("d64") => 4,
        Some(forward) if forward.starts_with("d128") => 3,
        _ => 2,
    };
    let most = if kernel.starts_with("attention_mma_d128") { 8 } else { 0 };
    assert!(stack <= most, "{kernel} for {architecture} keeps {stack} bytes of a thread in memory");
    assert!(blocks >= enough, "{kernel} for {architecture}: {registers} registers, {blocks} blocks");
}

/// A kernel's use of registers and memory, read from its machine code.
#[derive(Clone, Copy, Default)]
struct Usage {
    /// Registers of a thread.
    registers: u32,
    /// Bytes of a thread outside registers: spilled values, and arrays that are indexed by values.
    stack: u32,
}

/// Attributes of the section `.nv.info`, each with a symbol's number and a value.
const FRAME_SIZE: u8 = 0x11;
const REGISTER_COUNT: u8 = 0x2f;

impl Usage {
    /// By kernel, from an ELF file of 64 bits.
    fn of(image: &[u8]) -> HashMap<String, Usage> {
        let number = |at: usize, bytes: usize| {
            image[at..at + bytes].iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
        };
        let text = |at: usize| {
            let end = image[at..].iter().position(|byte| *byte == 0).unwrap();
            String::from_utf8(image[at..at + end].to_vec()).unwrap()
        };
        // Header: where sections are described, how long a description is, how many there are, and
        // which holds their names.
        let (table, size, count, names) =
            (number(0x28, 8), number(0x3a, 2), number(0x3c, 2), number(0x3e, 2));
        let place = |section: usize| {
            let at = table + section * size;
            (number(at + 0x18, 8), number(at + 0x20, 8))
        };
        let find = |name: &str| {
            (0..count)
                .find(|section| text(place(names).0 + number(table + section * size, 4)) == name)
                .unwrap()
        };
        let (symbols, strings) = (place(find(".symtab")).0, place(find(".strtab")).0);
        let (mut at, length) = place(find(".nv.info"));
        let end = at + length;
        let mut usage: HashMap<String, Usage> = HashMap::new();
        while at < end {
            let (format, attribute) = (image[at], image[at + 1]);
            // The only format whose value follows the entry of 4 bytes.
            let length = if format == 4 { number(at + 2, 2) } else { 0 };
            if format == 4 && [FRAME_SIZE, REGISTER_COUNT].contains(&attribute) {
                let name = text(strings + number(symbols + 24 * number(at + 4, 4), 4));
                let value = number(at + 8, 4) as u32;
                let own = usage.entry(name).or_default();
                *(if attribute == FRAME_SIZE { &mut own.stack } else { &mut own.registers }) = value;
            }
            at += 4 + length;
        }
        usage
    }
}

/// A source that compiled without messages is not compiled again until it changes.
#[test]
fn every_source_compiles_without_a_warning() {
    let Some(compiler) = Compiler::find() else {
        events::complain!(
            "skipped: there is no libnvrtc here; scripts/cuda-test-deps fetches it where there is a package for the system"
        );
        return;
    };
    let pairs = Source::ALL.map(|source| architectures(source).iter().map(move |one| (source, *one)));
    let left = Mutex::new(pairs.into_iter().flatten());
    let check_all = || {
        let next = || left.lock().unwrap().next();
        while let Some((source, architecture)) = next() {
            check(&compiler, source, architecture);
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(check_all);
        }
    });
}
