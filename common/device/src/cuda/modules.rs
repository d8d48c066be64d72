//! Compiled kernels in a GPU's context.

use super::call::Named;
use super::context::Context;
use super::gate::ContextWait;
use super::kernels::{Kernel, STATIC_SHARED, kernels};
use crate::{DeviceError, Result};
use cudarc::driver::{result, sys};
use events::lock;
use std::collections::HashMap;
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex};

/// Dynamic shared memory that a kernel may use without raising the limit: 48 KiB less
/// [`STATIC_SHARED`].
const DEFAULT_SHARED: u32 = (48 << 10) - STATIC_SHARED;

/// All kernels, loaded.
pub(super) struct Modules {
    context: Arc<Context>,
    modules: Vec<sys::CUmodule>,
    functions: HashMap<Kernel, Function>,
}

/// A kernel in a module.
struct Function {
    handle: sys::CUfunction,
    /// Dynamic shared memory that it may use. Locked while the limit is raised, so that the larger
    /// of two ranks' sizes remains.
    allowed: Mutex<u32>,
}

// SAFETY: the driver's handles may be used from any thread; the maps are only read after loading.
unsafe impl Send for Modules {}
// SAFETY: as above.
unsafe impl Sync for Modules {}

impl Modules {
    /// Loads the machine code of every source, in [`Source::ALL`](super::kernels::Source::ALL)'s
    /// order.
    pub(super) fn load(context: Arc<Context>, images: &[Vec<u8>]) -> Result<Self> {
        let _wait = ContextWait::begin();
        let mut loaded = Modules { context, modules: Vec::new(), functions: HashMap::new() };
        for image in images {
            // SAFETY: the image is complete machine code from the compiler.
            let module = unsafe { result::module::load_data(image.as_ptr().cast::<c_void>()) };
            loaded.modules.push(module.named("cuModuleLoadData")?);
        }
        for kernel in kernels() {
            let (handle, allowed) = (loaded.find(kernel)?, Mutex::new(DEFAULT_SHARED));
            loaded.functions.insert(kernel, Function { handle, allowed });
        }
        Ok(loaded)
    }

    fn find(&self, kernel: Kernel) -> Result<sys::CUfunction> {
        let module = self.modules.get(kernel.source as usize).ok_or_else(|| missing(kernel))?;
        let name = CString::new(kernel.name).map_err(|_| missing(kernel))?;
        // SAFETY: the module is loaded.
        unsafe { result::module::get_function(*module, name) }.named("cuModuleGetFunction")
    }

    /// Returns the function of `kernel`, allowed to use `shared_bytes` of dynamic shared memory.
    pub(super) fn function(&self, kernel: Kernel, shared_bytes: u32) -> Result<sys::CUfunction> {
        let Function { handle, allowed } = self.functions.get(&kernel).ok_or_else(|| missing(kernel))?;
        if shared_bytes <= DEFAULT_SHARED {
            return Ok(*handle);
        }
        let mut allowed = lock(allowed);
        if shared_bytes > *allowed {
            let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function's module is loaded.
            unsafe { result::function::set_function_attribute(*handle, attribute, shared_bytes as i32) }
                .named("cuFuncSetAttribute")?;
            *allowed = shared_bytes;
        }
        Ok(*handle)
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        if self.context.enter().is_err() {
            return;
        }
        let _wait = ContextWait::begin();
        for module in self.modules.drain(..) {
            // SAFETY: loaded once, unloaded once; no launch is left.
            let _ = unsafe { result::module::unload(module) };
        }
    }
}

fn missing(kernel: Kernel) -> DeviceError {
    DeviceError::Cuda { call: "finding a kernel", reason: format!("there is no {}", kernel.name) }
}
