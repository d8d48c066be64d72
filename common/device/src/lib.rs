//! One rank's device: memory that is accounted for to the byte, and the kernels that compute in it.
//!
//! A [`Device`] belongs to one rank and is used on that rank's thread alone. Every tensor byte is a [`Buffer`], and
//! every buffer holds a lease from the rank's [`Ledger`], under a place and a class, from its allocation to its drop.
//! Only the rank's own thread allocates and frees, at points fixed by program order, so the peaks that the ledger
//! reports are the same on every run.
//!
//! Kernels are one trait, [`Kernels`], over [`View`]s of buffers; `cpu` implements it for main memory.

mod adamw;
mod buffer;
mod cpu;
pub mod cuda;
mod dtype;
mod error;
mod kernels;
mod ledger;
mod peak;
mod rotation;

pub use buffer::{Buffer, View, ViewMut};
pub use dtype::{DType, Element};
pub use error::{DeviceError, OutOfMemory};
pub use events::{Class, Place};
pub use kernels::{AdamW, Attention, Kernels, Matrix, MatrixMut, Rope, RowShape, Write};
pub use ledger::Ledger;
pub use peak::{matmul_peak, multiply_add_peak};

use cpu::Cpu;
use std::borrow::Cow;
use std::sync::Arc;

/// What this crate's functions return.
pub type Result<T> = std::result::Result<T, DeviceError>;

/// One rank's device: allocates buffers under a ledger and runs kernels on them.
#[derive(Clone)]
pub struct Device {
    ledger: Ledger,
    cpu: Arc<Cpu>,
}

impl Device {
    /// A CPU device whose kernels use `threads` threads (at least 1).
    pub fn cpu(ledger: Ledger, threads: usize) -> Self {
        Device { ledger, cpu: Arc::new(Cpu::new(threads)) }
    }

    /// The ledger under which this device allocates.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Name in words, for reports.
    pub fn name(&self) -> &str {
        "CPU"
    }

    /// The kernels of this device.
    pub fn kernels(&self) -> &dyn Kernels {
        self.cpu.as_ref()
    }

    /// A buffer of `len` elements with unspecified contents.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the bytes exceed what is left of the ledger's capacity.
    pub fn allocate(&self, class: Class, dtype: DType, len: usize) -> Result<Buffer> {
        let lease = self.ledger.lease(Place::Device, class, len as u64 * dtype.size() as u64)?;
        Ok(Buffer::new(self.cpu.pool(), dtype, len, lease))
    }

    /// A buffer of `len` zeros.
    ///
    /// # Errors
    /// As [`Device::allocate`].
    pub fn zeros(&self, class: Class, dtype: DType, len: usize) -> Result<Buffer> {
        let mut buffer = self.allocate(class, dtype, len)?;
        buffer.bytes_mut().fill(0);
        Ok(buffer)
    }

    /// A buffer of `len` elements in main memory beside the device, with unspecified contents. The device's capacity
    /// does not limit it.
    ///
    /// # Errors
    /// None on the CPU.
    pub fn allocate_host(&self, class: Class, dtype: DType, len: usize) -> Result<Buffer> {
        let lease = self.ledger.lease(Place::Host, class, len as u64 * dtype.size() as u64)?;
        Ok(Buffer::new(self.cpu.pool(), dtype, len, lease))
    }

    /// A buffer of floats of type `dtype` with `values`, rounded to nearest, ties to even.
    ///
    /// # Errors
    /// As [`Device::allocate`]; `dtype` must be a float type.
    pub fn upload_as(&self, class: Class, dtype: DType, values: &[f32]) -> Result<Buffer> {
        let mut buffer = self.allocate(class, dtype, values.len())?;
        cpu::round_into(buffer.view_mut(), values)?;
        Ok(buffer)
    }

    /// A buffer with a copy of `values`.
    ///
    /// # Errors
    /// As [`Device::allocate`].
    pub fn upload<T: Element>(&self, class: Class, values: &[T]) -> Result<Buffer> {
        let mut buffer = self.allocate(class, T::DTYPE, values.len())?;
        self.write(buffer.view_mut(), values)?;
        Ok(buffer)
    }

    /// `out = values`, element by element.
    ///
    /// # Errors
    /// [`DeviceError::Shape`] or [`DeviceError::Type`] if they do not fit.
    pub fn write<T: Element>(&self, mut out: ViewMut<'_>, values: &[T]) -> Result<()> {
        fits::<T>("write", out.dtype(), out.len(), Some(values.len()))?;
        out.as_mut_slice::<T>().copy_from_slice(values);
        Ok(())
    }

    /// The elements of a view as Rust values, once everything that writes to them has finished. Borrows them where the
    /// view lies in main memory, and copies them from anywhere else.
    ///
    /// # Errors
    /// [`DeviceError::Type`] if `T` is not the element type.
    pub fn read<'a, T: Element>(&self, view: View<'a>) -> Result<Cow<'a, [T]>> {
        fits::<T>("read", view.dtype(), view.len(), None)?;
        Ok(Cow::Borrowed(view.as_slice::<T>()))
    }
}

/// Refuses a transfer of elements of another type, or of another number of them.
fn fits<T: Element>(transfer: &'static str, dtype: DType, len: usize, given: Option<usize>) -> Result<()> {
    if dtype != T::DTYPE {
        return Err(DeviceError::Type { kernel: transfer, operand: "the buffer", got: dtype });
    }
    match given.filter(|&given| given != len) {
        Some(got) => Err(DeviceError::Shape { kernel: transfer, operand: "the values", expected: len, got }),
        None => Ok(()),
    }
}
