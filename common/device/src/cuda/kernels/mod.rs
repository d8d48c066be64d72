//! The kernels in CUDA C++, and the launches that each operation of [`crate::Kernels`] takes.
//!
//! A `.cu` file holds one concern; the Rust file of the same name holds its launch geometry.
//! Operations are written over [`Launcher`], which a GPU's stream implements and, in the tests, a
//! host shim that runs the same sources. Element types are checked here; lengths are checked
//! before, where the buffers are known.
//!
//! Results have the same bits on every run, and on all GPUs of one architecture: nothing here
//! depends on the number of multiprocessors, and no float is added atomically. Sources are compiled
//! without contraction (`-fmad=false`), so that element-wise kernels, AdamW, look-ups and sums over
//! ranks give the CPU's bits; reductions over a row agree with the CPU's to rounding.

mod adamw;
mod attention;
mod cross_entropy;
mod elementwise;
mod embedding;
mod norm;
mod products;
mod reduction;
mod rope;
mod softmax;
mod source;
mod swiglu;
mod table;
mod tree_sum;

pub use adamw::adamw;
pub use attention::{attention, attention_backward};
pub use cross_entropy::cross_entropy;
pub use elementwise::{add, convert, fill};
pub use embedding::{embedding, embedding_backward};
pub use norm::{rms_norm, rms_norm_backward};
pub use products::{attention_backward_by_products, attention_by_products};
pub use reduction::{max_magnitude, sum_of_squares};
pub use rope::{rope, rope_table};
pub use softmax::{ScoreTile, attention_delta, attention_softmax, attention_softmax_backward};
pub use source::{OPTIONS, Source};
pub use swiglu::{swiglu, swiglu_backward};
pub use table::{Kernel, kernels};
pub use tree_sum::{PEERS, tree_sum};

use crate::shapes::{Matrix, RowShape, Write};
use crate::{DType, Result};
use std::ffi::c_void;

/// A tensor on the device: the address of its first element, and their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    /// Device address.
    pub pointer: u64,
    /// Element type.
    pub dtype: DType,
}

/// A matrix on the device.
pub type MatrixOperand = Matrix<Operand>;

/// One argument of a kernel, as CUDA takes it: by address, with the size that the kernel's
/// parameter has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument<'a> {
    /// A device address, or 0.
    Pointer(u64),
    /// `unsigned int`
    U32(u32),
    /// `unsigned long long`
    U64(u64),
    /// `float`
    F32(f32),
    /// `double`
    F64(f64),
    /// `Peers`: up to [`PEERS`] device addresses by value.
    Peers(&'a [u64; PEERS]),
    /// `Factors` of AdamW by value.
    Factors(&'a [f32; 9]),
}

impl From<Operand> for Argument<'_> {
    fn from(operand: Operand) -> Self {
        Argument::Pointer(operand.pointer)
    }
}

impl Argument<'_> {
    /// Returns the address of the value.
    pub fn as_ptr(&self) -> *mut c_void {
        match self {
            Argument::Pointer(value) | Argument::U64(value) => std::ptr::from_ref(value) as *mut c_void,
            Argument::U32(value) => std::ptr::from_ref(value) as *mut c_void,
            Argument::F32(value) => std::ptr::from_ref(value) as *mut c_void,
            Argument::F64(value) => std::ptr::from_ref(value) as *mut c_void,
            Argument::Peers(value) => std::ptr::from_ref(*value) as *mut c_void,
            Argument::Factors(value) => std::ptr::from_ref(*value) as *mut c_void,
        }
    }
}

/// One launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// The kernel to run.
    pub kernel: Kernel,
    /// Blocks in x, y and z; none is 0.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory. If these and the kernel's own arrays, at most
    /// [`STATIC_SHARED`], are more than 48 KiB, the limit must be raised first
    /// (`CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`).
    pub shared_bytes: u32,
    /// In the order of the kernel's parameters.
    pub arguments: &'a [Argument<'a>],
}

/// Maximum number of bytes of a block's shared memory that a kernel's own arrays take; the host
/// shim refuses more.
pub const STATIC_SHARED: u32 = 8 << 10;

/// Returns the bytes of shared memory that a block may ask for (CUDA C++ programming guide, table
/// "Technical Specifications per Compute Capability").
fn most_shared(architecture: u32) -> usize {
    match architecture {
        ..80 => 64 << 10,
        80 | 87 => 163 << 10,
        90..120 => 227 << 10,
        _ => 99 << 10,
    }
}

/// A queue of launches, in order.
pub trait Launcher {
    /// Enqueues a launch. The arguments are copied before it returns.
    ///
    /// # Errors
    /// The driver's error.
    fn launch(&self, launch: Launch<'_>) -> Result<()>;

    /// Returns the address of at least `bytes` bytes for one operation, aligned to 256 and with
    /// unspecified contents. An operation calls it at most once; the next operation may get the
    /// same bytes.
    ///
    /// # Errors
    /// If there is not enough memory.
    fn scratch(&self, bytes: usize) -> Result<u64>;

    /// Returns the compute capability of the GPU, such as 90 for 9.0.
    fn architecture(&self) -> u32;
}

/// A launcher that also multiplies matrices, in order with the launches.
pub trait Multiplier: Launcher {
    /// `out = a · b` or `out += a · b`, with sums in f32. `a` and `b` have one type, and `out` has
    /// that type or is f32.
    ///
    /// # Errors
    /// The library's error.
    fn multiply(&self, out: MatrixOperand, a: MatrixOperand, b: MatrixOperand, write: Write) -> Result<()>;
}

/// Elements that a thread of an element-wise kernel handles: 16 bytes of a 16-bit type.
const CHUNK: usize = 8;

/// Threads of a block of an element-wise kernel.
const THREADS: usize = 256;

/// Launches one thread per item in blocks of [`THREADS`]; nothing if there are no items.
fn launch_each(l: &impl Launcher, kernel: Kernel, items: usize, arguments: &[Argument<'_>]) -> Result<()> {
    launch_blocks(l, kernel, [items.div_ceil(THREADS), 1], THREADS, arguments)
}

/// Launches without dynamic shared memory; nothing if there are no blocks.
fn launch_blocks(
    l: &impl Launcher,
    kernel: Kernel,
    [x, y]: [usize; 2],
    threads: usize,
    arguments: &[Argument<'_>],
) -> Result<()> {
    if x * y == 0 {
        return Ok(());
    }
    let (grid, block) = ([x as u32, y as u32, 1], [threads as u32, 1, 1]);
    l.launch(Launch { kernel, grid, block, shared_bytes: 0, arguments })
}

/// Threads for a row of `width` elements: one per chunk, in whole warps, at most `most`.
fn row_threads(width: usize, most: usize) -> usize {
    width.div_ceil(CHUNK).next_multiple_of(32).clamp(32, most)
}

/// Chunks of all rows: a row's last chunk may be a part.
fn row_chunks(shape: RowShape) -> usize {
    shape.rows * shape.width.div_ceil(CHUNK)
}

/// Counts as kernels take them.
fn counts<const N: usize>(counts: [usize; N]) -> [Argument<'static>; N] {
    counts.map(|count| Argument::U32(count as u32))
}

/// `rows` and `width` as kernels take them.
fn row_arguments(shape: RowShape) -> [Argument<'static>; 2] {
    counts([shape.rows, shape.width])
}
