//! One rank on a GPU: its streams, its memory, and the launches it makes.

use super::call::Named;
use super::copy_streams::CopyStreams;
use super::gpu::Gpu;
use super::kernels::{Launch, Launcher, MatrixOperand, Multiplier, Operand};
use super::matmul::Blas;
use super::memory::{Pool, Usage, no_room};
use super::pinned::Spare;
use super::staging::Staging;
use super::stream::{Fence, Stream, StreamPriority};
use super::timeline::{Lane, Timeline};
use crate::operations::{Matmul, Rounding};
use crate::shapes::Write;
use crate::{DeviceError, Result};
use cudarc::driver::result;
use events::lock;
use events::{Emitter, Work};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// How a rank computes on its GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Products of f32 matrices round their operands to TF32 first.
    pub tf32: bool,
    /// Attention by matrix products even if the tiled kernels have room for the heads: the
    /// reference with which these are compared.
    pub attention_by_products: bool,
    /// Number of threads for the rank's work in main memory; 0 counts as 1.
    pub threads: usize,
}

/// Bytes of the largest result of a reduction.
pub(crate) const RESULT: usize = 16;

/// Results that wait to be read together.
pub(crate) const RESULTS: usize = 4096;

/// One rank's share of a GPU. Work queued on one of its streams runs in order, concurrently with
/// the other streams.
pub struct Runtime {
    pub(super) gpu: Arc<Gpu>,
    pub(super) compute: Stream,
    pub(super) communication: Stream,
    pub(super) copies: CopyStreams,
    pub(super) blas: Blas,
    /// Scratch memory of operations on the compute stream, one after the other.
    scratch: Mutex<Option<(u64, usize)>>,
    /// Address of the results of reductions, which the host reads.
    pub(crate) result: u64,
    /// Set if events or times are requested.
    pub(super) timeline: OnceLock<Timeline>,
    /// Bytes read plus written in collectives.
    pub(super) moved: AtomicU64,
    pub(super) staging: Staging,
    /// Freed page-locked memory, kept for reuse.
    pub(super) spare: Arc<Spare>,
    pub(super) pool: Pool,
    /// See [`Usage::communicators`].
    communicators: AtomicU64,
}

impl Runtime {
    /// Returns a rank's share of `gpu`; `emitter` receives events of when its work ran.
    pub(crate) fn new(gpu: Arc<Gpu>, options: Options, emitter: &Emitter) -> Result<Arc<Self>> {
        gpu.context.enter()?;
        let pool = Pool::new(gpu.context.clone(), gpu.stocks.clone());
        let compute = Stream::new(StreamPriority::Usual)?;
        let timeline = OnceLock::new();
        if emitter.emits_events() {
            let _ = timeline.set(Timeline::new(emitter, &compute)?);
        }
        Ok(Arc::new(Runtime {
            timeline,
            moved: AtomicU64::new(0),
            staging: Staging::default(),
            spare: Spare::new(gpu.context.clone(), options.threads),
            compute,
            communication: Stream::new(StreamPriority::Urgent)?,
            copies: CopyStreams::default(),
            blas: Blas::new(&pool, options.tf32)?,
            scratch: Mutex::default(),
            result: pool.take(RESULT * RESULTS)?.ok_or_else(|| no_room("results", RESULT * RESULTS))?,
            communicators: AtomicU64::new(0),
            pool,
            gpu,
        }))
    }

    /// Returns the GPU.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Returns the bytes that this rank has allocated from the driver: buffers, freed blocks kept
    /// for reuse, the libraries' workspace.
    pub fn reserved(&self) -> u64 {
        self.pool.reserved()
    }

    /// Counts `bytes` more of the GPU's memory as allocated by communicators of any rank on it.
    pub fn note_communicators(&self, bytes: u64) {
        self.communicators.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the memory that this rank has allocated from the driver, and the other memory in
    /// use.
    ///
    /// # Errors
    /// The driver's error.
    pub fn usage(&self) -> Result<Usage> {
        let (free, total) = self.gpu.memory()?;
        let (taken, workspaces) = self.pool.holdings();
        let of_ranks = self.gpu.stocks.taken();
        let queued = self.streams().map(Stream::queued).sum();
        let waits = self.streams().map(Stream::waits).sum();
        let communicators = self.communicators.load(Ordering::Relaxed);
        Ok(Usage { taken, workspaces, in_use: total - free, of_ranks, communicators, queued, waits })
    }

    /// Blocks until all work that this rank has queued is done.
    ///
    /// # Errors
    /// The driver's; also that of an earlier launch.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu.context.enter()?;
        self.copies.made().try_for_each(Stream::synchronize)?;
        self.communication.synchronize()?;
        self.compute.synchronize()
    }

    fn streams(&self) -> impl Iterator<Item = &Stream> {
        [&self.compute, &self.communication].into_iter().chain(self.copies.made())
    }

    /// Returns a fence after everything that this rank has queued on its compute stream.
    ///
    /// # Errors
    /// The driver's error.
    pub fn computed(&self) -> Result<Fence> {
        self.gpu.context.enter()?;
        self.compute.fence()
    }

    /// Makes the compute stream wait for `fence`.
    ///
    /// # Errors
    /// The driver's error.
    pub fn compute_after(&self, fence: &Fence) -> Result<()> {
        self.gpu.context.enter()?;
        self.compute.wait(fence)
    }

    /// Queues `work` on the communication stream, after `fences`; returns the point at which it is
    /// done.
    ///
    /// # Errors
    /// The driver's, or that of `work`.
    pub fn communicate<'a>(
        &self,
        fences: impl IntoIterator<Item = &'a Fence>,
        work: impl FnOnce(&Communication<'_>) -> Result<()>,
    ) -> Result<Fence> {
        self.gpu.context.enter()?;
        fences.into_iter().try_for_each(|fence| self.communication.wait(fence))?;
        work(&Communication { runtime: self })?;
        self.communication.fence()
    }

    /// True if everything before `fence` is done.
    ///
    /// # Errors
    /// The driver's; also that of an earlier launch.
    pub fn has_reached(&self, fence: &Fence) -> Result<bool> {
        self.gpu.context.enter()?;
        fence.is_reached()
    }

    /// Blocks the host until everything before `fence` is done.
    ///
    /// # Errors
    /// The driver's; also that of an earlier launch.
    pub fn reach(&self, fence: &Fence) -> Result<()> {
        self.gpu.context.enter()?;
        fence.wait()
    }

    /// Makes the GPU's context current on the calling thread, for libraries that use the current
    /// one.
    ///
    /// # Errors
    /// The driver's error.
    pub fn enter(&self) -> Result<()> {
        self.gpu.context.enter()
    }

    /// Queues work like [`Runtime::communicate`]. An event reports when `what` ran, once it has
    /// run.
    ///
    /// # Errors
    /// The driver's, or that of `work`.
    pub fn communicate_as<'a>(
        &self,
        what: Work,
        fences: impl IntoIterator<Item = &'a Fence>,
        work: impl FnOnce(&Communication<'_>) -> Result<()>,
    ) -> Result<Fence> {
        let Some(timeline) = self.timeline() else { return self.communicate(fences, work) };
        self.communicate(fences, |stream| {
            let begun = timeline.begin(&self.communication)?;
            work(stream)?;
            timeline.end(Lane::Communication, &self.communication, begun, what)
        })
    }

    /// Queues a product on the compute stream.
    pub(crate) fn product(&self, product: Matmul<Operand, Operand>) -> Result<()> {
        self.gpu.context.enter()?;
        self.blas.multiply(&self.compute, product)
    }

    fn enqueue(&self, stream: &Stream, launch: &Launch<'_>) -> Result<()> {
        self.gpu.context.enter()?;
        let Launch { kernel, grid, block, shared_bytes, arguments } = *launch;
        let function = self.gpu.modules.function(kernel, shared_bytes)?;
        let mut parameters: Vec<*mut c_void> = arguments.iter().map(|argument| argument.as_ptr()).collect();
        let (grid, block) = ((grid[0], grid[1], grid[2]), (block[0], block[1], block[2]));
        // SAFETY: the function is loaded, the driver copies the parameters before it returns, and
        // the callers of the operations hold the memory that they point to until the stream is past
        // them.
        let launched = unsafe {
            result::launch_kernel(function, grid, block, shared_bytes, stream.handle(), &mut parameters)
        };
        launched.named("cuLaunchKernel").map_err(|error| match error {
            DeviceError::Cuda { call, reason } => {
                DeviceError::Cuda { call, reason: format!("{}: {reason}", kernel.name) }
            }
            other => other,
        })
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // Streams and the library's handle are destroyed next: nothing may still run in them.
        let _ = self.gpu.context.synchronize();
    }
}

impl Launcher for Runtime {
    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        self.enqueue(&self.compute, &launch)
    }

    /// Grows as needed. Outgrown memory is reused in the stream's order, as buffers are.
    fn scratch(&self, bytes: usize) -> Result<u64> {
        let mut scratch = lock(&self.scratch);
        if let Some((address, size)) = *scratch {
            if size >= bytes {
                return Ok(address);
            }
            self.pool.put(address, size);
            *scratch = None;
        }
        let size = bytes.next_power_of_two();
        let address = self.pool.take(size)?.ok_or_else(|| no_room("partial results", size))?;
        *scratch = Some((address, size));
        Ok(address)
    }

    fn architecture(&self) -> u32 {
        let (major, minor) = self.gpu.info().capability;
        (major * 10 + minor) as u32
    }
}

impl Multiplier for Runtime {
    fn multiply(&self, out: MatrixOperand, a: MatrixOperand, b: MatrixOperand, write: Write) -> Result<()> {
        self.product(Matmul { out, a, b, addend: write.into(), rounding: Rounding::None })
    }
}

/// The communication stream of a rank.
pub struct Communication<'a> {
    runtime: &'a Runtime,
}

impl Communication<'_> {
    /// Returns the driver's handle of the stream, for libraries that queue work on it. Valid as
    /// long as the rank lives.
    pub fn handle(&self) -> *mut c_void {
        self.runtime.communication.handle().cast()
    }

    /// Counts `bytes` that queued work reads or writes. Copies are already counted.
    pub fn moves(&self, bytes: usize) {
        self.runtime.moved.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Copies `bytes` bytes between addresses on GPUs of this process.
    ///
    /// # Errors
    /// The driver's error.
    ///
    /// # Safety
    /// Both ranges are allocated and stay so until the work queued here is done, and nothing that
    /// is not fenced off writes to the source or touches the target before.
    pub unsafe fn copy(&self, to: u64, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.moves(2 * bytes);
        // SAFETY: the caller's promise.
        unsafe { result::memcpy_dtod_async(to, from, bytes, self.runtime.communication.handle()) }
            .named("cuMemcpyDtoDAsync")
    }
}

impl Launcher for Communication<'_> {
    fn launch(&self, launch: Launch<'_>) -> Result<()> {
        self.runtime.enqueue(&self.runtime.communication, &launch)
    }

    fn scratch(&self, _: usize) -> Result<u64> {
        Err(DeviceError::Cuda { call: "scratch", reason: "there is none on the communication stream".into() })
    }

    fn architecture(&self) -> u32 {
        self.runtime.architecture()
    }
}
