//! One rank's device: memory that is accounted for to the byte, and the kernels that compute in it.
//!
//! A [`Device`] belongs to one rank and is used only on that rank's thread. Every tensor byte is a
//! [`Buffer`], and every buffer holds a lease from the rank's [`Ledger`], under a place and a
//! class, from its allocation to its drop. Only the rank's own thread allocates and frees, at
//! points fixed by program order, so the peaks that the ledger reports are the same on every run.
//!
//! Kernels are one trait, [`Kernels`], over [`View`]s of buffers; `cpu` implements it for main
//! memory, [`cuda`] for NVIDIA's GPUs.

mod backend;
mod buffer;
mod check;
mod convert;
mod copying;
mod counting;
mod cpu;
pub mod cuda;
mod dispatch;
mod dtype;
mod error;
mod fetched;
pub mod floats;
mod gpu;
mod kernels;
mod ledger;
pub mod meter;
mod operations;
mod peak;
mod pool;
pub mod random;
mod rotation;
mod shapes;
mod values;
mod view;

pub use buffer::Buffer;
pub use copying::Copying;
pub use counting::CountingAllocator;
pub use cpu::TreeSum;
pub use dtype::{DType, Element};
pub use error::{DeviceError, OutOfMemory};
pub use events::{Class, Place};
pub use fetched::Fetched;
pub use kernels::{Kernels, max_or_nan};
pub use ledger::{Lease, Ledger};
pub use operations::{
    AdamW, AdamWUpdate, Addend, Attention, AttentionBackward, CrossEntropy, Embedding, EmbeddingBackward,
    Matmul, Operation, RmsNorm, RmsNormBackward, Rope, Rounding, Swiglu, SwigluBackward,
};
pub use peak::{matmul_peak, multiply_add_estimate, multiply_add_peak};
pub use rotation::RopeScaling;
pub use shapes::{AttentionShape, GroupedRows, Matrix, RowShape, Write};
pub use view::{View, ViewMut};

use backend::Backend;
use buffer::Storage;
use cpu::Cpu;
use cuda::{Begun, Gpu, Options, Runtime};
use events::Work;
use gpu::GpuKernels;
use meter::{Meter, Spent};
use std::sync::Arc;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// One rank's device: allocates buffers under a ledger and runs kernels on them.
#[derive(Clone)]
pub struct Device {
    ledger: Ledger,
    backend: Backend,
    meter: Option<Arc<Meter>>,
}

impl Device {
    /// Returns a CPU device whose kernels use `threads` threads (at least 1).
    pub fn cpu(ledger: Ledger, threads: usize) -> Self {
        let cpu = Cpu::new(ledger.clone(), threads);
        Device { ledger, backend: Backend::Cpu(Arc::new(cpu)), meter: None }
    }

    /// Returns a rank's share of a GPU, with streams and memory of its own.
    ///
    /// # Errors
    /// [`DeviceError::Cuda`] if the driver or a library refuses.
    pub fn cuda(ledger: Ledger, gpu: Arc<Gpu>, options: Options) -> Result<Self> {
        let runtime = Runtime::new(gpu, options, ledger.emitter())?;
        let gpu = Arc::new(GpuKernels::new(runtime, ledger.clone(), options));
        Ok(Device { ledger, backend: Backend::Cuda(gpu), meter: None })
    }

    /// Returns the device with a meter that times every kernel, which slows a GPU down.
    ///
    /// # Errors
    /// The driver's error.
    pub fn metered(self) -> Result<Self> {
        let meter = Some(Arc::new(Meter::new(self.backend.clone())?));
        Ok(Device { meter, ..self })
    }

    /// Returns the time of kernels since the last [`Device::reset_meter`], in
    /// [`meter::Kind::ALL`]'s order; nothing if they are not timed. Blocks until queued work is
    /// done.
    ///
    /// # Errors
    /// The driver's error.
    pub fn spent(&self) -> Result<Vec<Spent>> {
        self.meter.as_ref().map_or(Ok(Vec::new()), |meter| meter.spent())
    }

    /// Returns what [`Device::spent`] does, without blocking; zeros on a GPU or without a meter.
    pub fn spent_now(&self) -> [Spent; meter::Kind::ALL.len()] {
        self.meter.as_ref().map_or_else(Default::default, |meter| meter.spent_now())
    }

    /// Sets the meter's counts to zero.
    ///
    /// # Errors
    /// The driver's error.
    pub fn reset_meter(&self) -> Result<()> {
        self.meter.as_ref().map_or(Ok(()), |meter| meter.reset())
    }

    /// Runs `work`. If it succeeds, the meter does not count its kernels. If kernels are timed,
    /// blocks until queued work is done: before `work`, and after it if it succeeds. A failure
    /// returns at once, so that peers learn of it first.
    ///
    /// # Errors
    /// Those of `work`, or the driver's.
    pub fn uncounted<T, E: From<DeviceError>>(
        &self,
        work: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let Some(meter) = &self.meter else { return work() };
        let before = meter.spent()?;
        let value = work()?;
        meter.return_to(&before)?;
        Ok(value)
    }

    /// Returns the ledger under which this device allocates.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the rank's share of a GPU; `None` on the CPU.
    pub fn gpu(&self) -> Option<&Arc<Runtime>> {
        self.backend.runtime()
    }

    /// Returns the kernels of this device.
    pub fn kernels(&self) -> &dyn Kernels {
        match &self.meter {
            Some(meter) => meter.as_ref(),
            None => self.backend.kernels(),
        }
    }

    /// Marks the beginning of a stretch of computation on a GPU, which [`Device::end`] ends.
    /// Returns `None` on the CPU, where work is done when a call returns and the caller reports it.
    /// A GPU that refuses a mark also refuses the computation after it, and that error is reported.
    pub fn begin(&self) -> Option<Begun> {
        self.gpu()?.begin().ok()?
    }

    /// Ends a stretch of computation. An event reports when `work` ran, once the GPU is past it.
    pub fn end(&self, begun: Option<Begun>, work: Work) {
        if let (Some(runtime), Some(begun)) = (self.gpu(), begun) {
            // A refusal is reported as in `begin`.
            let _ = runtime.end(begun, work);
        }
    }

    /// Emits the events of queued work that has run. Does not block.
    ///
    /// # Errors
    /// An error of work queued on a GPU before.
    pub fn emit_past(&self) -> Result<()> {
        self.gpu().map_or(Ok(()), |runtime| runtime.emit_past())
    }

    /// Blocks until all work queued on the device is done. On the CPU none is queued.
    ///
    /// # Errors
    /// An error of work queued on a GPU before.
    pub fn synchronize(&self) -> Result<()> {
        self.gpu().map_or(Ok(()), |runtime| runtime.synchronize())
    }

    /// Returns a buffer of `len` elements in `place`. `memory` provides its bytes, or `None` if
    /// there is no room.
    fn buffer(
        &self,
        (place, class): (Place, Class),
        dtype: DType,
        len: usize,
        memory: impl FnOnce(usize) -> Result<Option<Storage>>,
    ) -> Result<Buffer> {
        let uncountable = || self.ledger.refusal(place, class, u64::MAX, 0);
        let bytes = len.checked_mul(dtype.size()).ok_or_else(uncountable)?;
        let lease = self.ledger.lease(place, class, bytes as u64)?;
        if let Some(memory) = memory(bytes)? {
            return Ok(Buffer::new(memory, dtype, len, lease));
        }
        drop(lease);
        Err(match self.gpu().filter(|_| place == Place::Device) {
            None => self.ledger.exhausted(place, class, bytes),
            Some(runtime) => self.ledger.refusal(place, class, bytes as u64, runtime.gpu().memory()?.0),
        }
        .into())
    }

    /// Returns an empty vector with room for `len` elements of main memory that the ledger does not
    /// count.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the system gives no more.
    pub fn vec_with_capacity<T>(&self, len: usize) -> Result<Vec<T>> {
        self.ledger.vec_with_capacity(Place::Host, len)
    }

    /// Returns a buffer of `len` elements with unspecified contents.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the bytes exceed the rest of the ledger's capacity, or of the GPU's
    /// memory, or the system gives no main memory.
    pub fn allocate(&self, class: Class, dtype: DType, len: usize) -> Result<Buffer> {
        self.buffer((Place::Device, class), dtype, len, |bytes| match &self.backend {
            Backend::Cpu(cpu) => Ok(cpu.pool.take(bytes).map(Storage::Host)),
            Backend::Cuda(gpu) => Ok(gpu.runtime.block(bytes)?.map(Storage::Gpu)),
        })
    }

    /// Returns a buffer of `len` zeros.
    ///
    /// # Errors
    /// As [`Device::allocate`].
    pub fn zeros(&self, class: Class, dtype: DType, len: usize) -> Result<Buffer> {
        let mut buffer = self.allocate(class, dtype, len)?;
        let bytes = buffer.byte_len();
        match buffer.on_gpu() {
            Some((runtime, address)) => runtime.set_bytes(address, 0, bytes)?,
            None => buffer.bytes_mut().fill(0),
        }
        Ok(buffer)
    }

    /// Returns a buffer of `len` elements in main memory, with unspecified contents. The device's
    /// capacity does not limit it. For a GPU it is page-locked memory, so that transfers run at
    /// full speed.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the bytes exceed the rest of the ledger's capacity, or the system gives
    /// no more; the driver's.
    pub fn allocate_host(&self, class: Class, dtype: DType, len: usize) -> Result<Buffer> {
        self.buffer((Place::Host, class), dtype, len, |bytes| match &self.backend {
            Backend::Cpu(cpu) => Ok(cpu.pool.take(bytes).map(Storage::Host)),
            Backend::Cuda(gpu) => Ok(gpu.runtime.pinned(bytes)?.map(Storage::Pinned)),
        })
    }

    /// Returns a buffer of `len` elements in `place`, with unspecified contents.
    ///
    /// # Errors
    /// As [`Device::allocate`] and [`Device::allocate_host`].
    ///
    /// # Panics
    /// If `place` is a disk, which holds no buffers: see [`Device::reserve`].
    pub fn allocate_in(&self, place: Place, class: Class, dtype: DType, len: usize) -> Result<Buffer> {
        assert_ne!(place, Place::Disk, "a disk holds no buffers");
        match place {
            Place::Device => self.allocate(class, dtype, len),
            _ => self.allocate_host(class, dtype, len),
        }
    }

    /// Counts `bytes` bytes of a file in the ledger.
    ///
    /// # Errors
    /// [`OutOfMemory`] if they cannot be counted.
    pub fn reserve(&self, class: Class, bytes: u64) -> Result<Lease> {
        Ok(self.ledger.lease(Place::Disk, class, bytes)?)
    }
}
