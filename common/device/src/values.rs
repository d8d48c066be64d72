//! Values that enter and leave buffers: as Rust values, and as copies between device and main
//! memory.

use crate::check::check;
use crate::cpu::{self, FloatsMut};
use crate::{Buffer, Class, Copying, DType, Device, DeviceError, Element, Fetched, Operation, Result};
use crate::{View, ViewMut, gpu};
use events::Work;
use half::{bf16, f16};
use std::borrow::Cow;

impl Device {
    /// `out = values`, rounded to nearest, ties to even.
    ///
    /// # Errors
    /// [`DeviceError::Shape`] or [`DeviceError::Type`] if they do not fit.
    pub fn write_rounded(&self, mut out: ViewMut<'_>, values: &[f32]) -> Result<()> {
        let cpu = self.backend.cpu();
        check_length(&out, values.len())?;
        match (out.on_host(), out.dtype()) {
            (_, DType::U32) => Err(refused("write", "out", DType::U32)),
            (_, DType::F32) => self.write(out, values),
            (true, _) => cpu::round_into(cpu, out.reborrow().into(), values),
            (false, DType::Bf16) => {
                let mut rounded: Vec<bf16> = self.vec_with_capacity(values.len())?;
                rounded.resize(values.len(), bf16::ZERO);
                cpu::round_into(cpu, FloatsMut::Bf16(&mut rounded), values)?;
                self.write(out, &rounded)
            }
            (false, DType::F16) => {
                let mut rounded: Vec<f16> = self.vec_with_capacity(values.len())?;
                rounded.resize(values.len(), f16::ZERO);
                cpu::round_into(cpu, FloatsMut::F16(&mut rounded), values)?;
                self.write(out, &rounded)
            }
        }
    }

    /// Returns a buffer of floats of type `dtype` with `values`, rounded to nearest, ties to even.
    ///
    /// # Errors
    /// As [`Device::allocate`]; `dtype` must be a float type.
    pub fn upload_as(&self, class: Class, dtype: DType, values: &[f32]) -> Result<Buffer> {
        let mut buffer = self.allocate(class, dtype, values.len())?;
        self.write_rounded(buffer.view_mut(), values)?;
        Ok(buffer)
    }

    /// Returns a buffer with a copy of `values`.
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
        fits::<T>("write", out.dtype())?;
        check_length(&out, values.len())?;
        match self.gpu().filter(|_| !out.on_host()) {
            Some(runtime) => {
                let bytes: &[u8] = bytemuck::cast_slice(values);
                if T::DTYPE == DType::U32 {
                    out.note_largest(bytemuck::cast_slice(bytes).iter().copied().max());
                }
                runtime.upload(out.address("write", "the buffer")?, bytes)
            }
            None => {
                out.as_mut_slice::<T>().copy_from_slice(values);
                Ok(())
            }
        }
    }

    /// Returns the elements of a view as Rust values, after all work queued before. Borrows them
    /// from main memory, and copies them from a GPU's.
    ///
    /// # Errors
    /// [`DeviceError::Type`] if `T` is not the element type; [`DeviceError::OutOfMemory`] if there
    /// is no main memory for a copy.
    pub fn read<'a, T: Element>(&self, view: View<'a>) -> Result<Cow<'a, [T]>> {
        fits::<T>("read", view.dtype())?;
        match self.gpu().filter(|_| !view.on_host()) {
            Some(runtime) => {
                let mut values: Vec<T> = self.vec_with_capacity(view.len())?;
                values.resize(view.len(), T::zeroed());
                runtime
                    .download(view.address("read", "the buffer")?, bytemuck::cast_slice_mut(&mut values))?;
                Ok(Cow::Owned(values))
            }
            None => Ok(Cow::Borrowed(view.as_slice::<T>())),
        }
    }

    /// Starts to copy `x` to `out`, of the same type: one is on the device, the other in main
    /// memory. Does not block: [`Copying::wait`] makes the elements usable. Until then no
    /// computation may use `out`, or change `x` on the device; both may be dropped. An access to
    /// either of them in main memory blocks until the copy is done.
    ///
    /// On a GPU the copy runs concurrently with later computation, and an event reports when it ran
    /// if `work` names it. On the CPU it is done when this returns.
    ///
    /// # Errors
    /// [`DeviceError::Shape`] or [`DeviceError::Type`] if they do not fit; the driver's.
    pub fn start_copy(&self, mut out: ViewMut<'_>, x: View<'_>, work: Option<Work>) -> Result<Copying> {
        let Some(runtime) = self.gpu() else {
            return self.kernels().copy(out, x).map(|()| Copying::done());
        };
        if out.dtype() != x.dtype() {
            return Err(refused("copy", "out", out.dtype()));
        }
        let len = out.len();
        check(Operation::Copy { out: out.reborrow(), x: x.clone(), len })?;
        gpu::start(runtime, out, x, work)
    }

    /// Starts to copy the elements of a view, as they are after all work queued before, for `what`
    /// to compute a number from. Does not block: [`Fetched::wait`] does, only for this copy. The
    /// view's buffer may be dropped before that.
    ///
    /// # Errors
    /// [`DeviceError::Type`] if `T` is not the element type.
    pub fn fetch<T: Element, R>(&self, view: View<'_>, what: fn(&[T]) -> R) -> Result<Fetched<T, R>> {
        fits::<T>("fetch", view.dtype())?;
        match self.gpu().filter(|_| !view.on_host()) {
            Some(runtime) => {
                let (address, bytes) =
                    (view.address("fetch", "the buffer")?, view.len() * view.dtype().size());
                Ok(Fetched::copying(runtime.start_download(address, bytes)?, what))
            }
            None => Ok(Fetched::arrived(what(view.as_slice::<T>()))),
        }
    }
}

/// Refuses a transfer whose number of values differs from `out`'s.
fn check_length(out: &ViewMut<'_>, got: usize) -> Result<()> {
    match out.len() {
        expected if expected == got => Ok(()),
        expected => Err(DeviceError::Shape { kernel: "write", operand: "the values", expected, got }),
    }
}

/// Refuses a transfer of elements of a different type.
fn fits<T: Element>(transfer: &'static str, dtype: DType) -> Result<()> {
    if dtype == T::DTYPE { Ok(()) } else { Err(refused(transfer, "the buffer", dtype)) }
}

fn refused(kernel: &'static str, operand: &'static str, got: DType) -> DeviceError {
    DeviceError::Type { kernel, operand, got }
}
