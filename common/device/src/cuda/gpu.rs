//! A GPU, and the resources that the ranks on it share: its context and its compiled kernels.

use super::call::Named;
use super::compile::{self, Architecture};
use super::context::Context;
use super::library::{Library, driver_version, words};
use super::memory::Stocks;
use super::modules::Modules;
use crate::{DeviceError, Result};
use cudarc::driver::result::{self, device};
use cudarc::driver::sys::CUdevice_attribute as Attribute;
use std::sync::Arc;

/// A GPU's description, read before anything runs on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuInfo {
    /// Its number.
    pub ordinal: usize,
    /// Its name.
    pub name: String,
    /// Compute capability, such as (9, 0).
    pub capability: (i32, i32),
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory.
    pub memory: u64,
    /// Identifier that no other GPU on any machine has.
    pub uuid: [u8; 16],
}

/// The oldest compute capability that the kernels are written for.
const OLDEST: (i32, i32) = (7, 5);

/// The oldest supported driver, that of CUDA 12.0, in the driver's notation: the libraries for CUDA
/// 12 need it.
const OLDEST_DRIVER: i32 = 12_000;

/// The first compute capability with bfloat16.
const BF16: (i32, i32) = (8, 0);

impl GpuInfo {
    /// True if it computes in bfloat16.
    pub fn has_bf16(&self) -> bool {
        self.capability >= BF16
    }

    /// Refuses a GPU that the kernels do not support.
    ///
    /// # Errors
    /// [`DeviceError::Cuda`] if it is too old.
    pub fn check(&self) -> Result<()> {
        if self.capability >= OLDEST {
            return Ok(());
        }
        let (major, minor) = self.capability;
        let reason =
            format!("{} has compute capability {major}.{minor}; 7.5 is the oldest supported", self.name);
        Err(DeviceError::Cuda { call: "opening the GPU", reason })
    }

    fn read(ordinal: usize) -> Result<Self> {
        let gpu = device::get(ordinal as i32).named("cuDeviceGet")?;
        // SAFETY: the device comes from the driver.
        let attribute = |which| unsafe { device::get_attribute(gpu, which) }.named("cuDeviceGetAttribute");
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let multiprocessors = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32;
        // SAFETY: as above.
        let memory = unsafe { device::total_mem(gpu) }.named("cuDeviceTotalMem")? as u64;
        let name = device::get_name(gpu).named("cuDeviceGetName")?;
        let uuid = device::get_uuid(gpu).named("cuDeviceGetUuid")?.bytes.map(|byte| byte as u8);
        Ok(GpuInfo { ordinal, name, capability: (major, minor), multiprocessors, memory, uuid })
    }
}

/// Returns the GPUs of this machine.
///
/// # Errors
/// [`DeviceError::Missing`] without a driver; the driver's error if it does not work;
/// [`DeviceError::Cuda`] if it is too old.
pub fn list() -> Result<Vec<GpuInfo>> {
    start_driver()?;
    let count = device::get_count().named("cuDeviceGetCount")?;
    (0..count as usize).map(GpuInfo::read).collect()
}

/// Loads and initialises the driver.
fn start_driver() -> Result<()> {
    Library::Driver.require()?;
    let version = driver_version()?;
    if version < OLDEST_DRIVER {
        let reason = format!(
            "the driver is for CUDA {}; 12.0 is the oldest supported: install NVIDIA's driver 525 or newer",
            words(version)
        );
        return Err(DeviceError::Cuda { call: "NVIDIA's driver", reason });
    }
    result::init().named("cuInit")
}

/// Adds the versions of compiler and driver to an error: code is most often refused because the
/// compiler is newer.
fn explain(error: DeviceError) -> DeviceError {
    let DeviceError::Cuda { call, reason } = error else { return error };
    let version = |library: Library| library.version().unwrap_or_else(|| "of unknown version".into());
    let (compiler, driver) = (version(Library::Nvrtc), version(Library::Driver));
    let reason =
        format!("{reason} (compiled by NVRTC {compiler}; the driver supports {driver} and may be too old)");
    DeviceError::Cuda { call, reason }
}

/// An opened GPU, shared by the ranks on it.
pub struct Gpu {
    info: GpuInfo,
    pub(super) context: Arc<Context>,
    pub(super) modules: Modules,
    pub(super) stocks: Arc<Stocks>,
}

impl Gpu {
    /// Opens GPU `ordinal`: its context, and the kernels compiled for it.
    ///
    /// # Errors
    /// [`DeviceError::Missing`] for a library that is not found; [`DeviceError::Cuda`] if the
    /// driver or the compiler refuses, or the GPU is too old for the kernels.
    pub fn open(ordinal: usize) -> Result<Arc<Self>> {
        Library::ALL.iter().try_for_each(|library| library.require())?;
        start_driver()?;
        let info = GpuInfo::read(ordinal)?;
        info.check()?;
        let context = Context::retain(device::get(ordinal as i32).named("cuDeviceGet")?)?;
        context.enter()?;
        let (major, minor) = info.capability;
        let images = compile::all(Architecture { major, minor })?;
        let modules = Modules::load(context.clone(), &images).map_err(explain)?;
        Ok(Arc::new(Gpu { info, context, modules, stocks: Arc::default() }))
    }

    /// Lets every one of `gpus` access the memory of the others.
    ///
    /// # Errors
    /// [`DeviceError::Cuda`] if two of them cannot.
    pub fn connect(gpus: &[Arc<Gpu>]) -> Result<()> {
        for gpu in gpus {
            for other in gpus.iter().filter(|other| !Arc::ptr_eq(gpu, other)) {
                gpu.context.reach(&other.context).map_err(|error| DeviceError::Cuda {
                    call: "cuCtxEnablePeerAccess",
                    reason: format!(
                        "GPU {} cannot reach the memory of GPU {} ({error}); choose one with CUDA_VISIBLE_DEVICES, or let NCCL \
                         connect them: --collectives nccl",
                        gpu.info.ordinal, other.info.ordinal
                    ),
                })?;
            }
        }
        Ok(())
    }

    /// Returns its description.
    pub fn info(&self) -> &GpuInfo {
        &self.info
    }

    /// Returns free and total bytes, as the driver counts them.
    ///
    /// # Errors
    /// The driver's error.
    pub fn memory(&self) -> Result<(u64, u64)> {
        self.context.enter()?;
        let (free, total) = result::mem_get_info().named("cuMemGetInfo")?;
        Ok((free as u64, total as u64))
    }
}
