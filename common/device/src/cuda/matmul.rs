//! Matrix products by cuBLASLt, with sums in f32.
//!
//! The library's matrices are column-major: it reads a row-major `rows × columns` matrix as a
//! `columns × rows` one, its transpose. So `out = a · b` is requested as `outᵀ = bᵀ · aᵀ`. On one
//! model of GPU, with one version of the library, the algorithm depends only on shapes, types and
//! alignment: equal products are rounded equally on all ranks with such GPUs. A part of a product
//! is another product, with tiles and splits of its own: its bits may differ from those within the
//! whole.

use super::gate::ContextWait;
use super::kernels::{MatrixOperand, Operand};
use super::memory::{OUT_OF_MEMORY, Pool, SCARCE, free_bytes, no_room};
use super::stream::Stream;
use crate::operations::{Addend, Matmul, Rounding};
use crate::{DType, DeviceError, Result};
use cudarc::cublaslt::result::{self, CublasError};
use cudarc::cublaslt::sys;
use events::lock;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex};

/// Bytes that the library may use inside a product: NVIDIA's recommendation for its newest GPUs.
const WORKSPACE: usize = 32 << 20;

/// Alignment in bytes above which the choice of an algorithm does not change.
const ALIGNED: u32 = 16;

/// A rank's handle of the library, its workspace and its plans.
pub(super) struct Blas {
    handle: sys::cublasLtHandle_t,
    workspace: u64,
    tf32: bool,
    plans: Mutex<HashMap<Shape, Arc<Plan>>>,
}

// SAFETY: the library's handle may be used from any thread.
unsafe impl Send for Blas {}
// SAFETY: and from several at once. Products are queued on one stream, so the workspace serves one
// at a time.
unsafe impl Sync for Blas {}

/// A matrix as it is stored, and whether the product takes its transpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Layout {
    dtype: DType,
    rows: usize,
    columns: usize,
    stride: usize,
    transposed: bool,
    /// Of its first element, in bytes; at most [`ALIGNED`].
    alignment: u32,
}

impl Layout {
    fn of(matrix: &MatrixOperand) -> Self {
        let MatrixOperand { data, rows, columns, stride, transposed, grain } = *matrix;
        // A grain of 0 elements has no lowest bit, so it limits nothing.
        let promised = alignment((grain * data.dtype.size()) as u64);
        let alignment = alignment(data.pointer).min(promised);
        Layout { dtype: data.dtype, rows, columns, stride, transposed, alignment }
    }
}

/// Everything that the choice of an algorithm depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shape {
    out: Layout,
    /// Of the matrix that the product is added to.
    base_alignment: u32,
    a: Layout,
    b: Layout,
    rounding: Rounding,
}

impl Shape {
    fn is_f32(&self) -> bool {
        [self.out, self.a, self.b].iter().all(|operand| operand.dtype == DType::F32)
    }

    /// Returns the shape with alignment to whole elements only.
    fn least_aligned(self) -> Self {
        let least = |layout: Layout| Layout { alignment: layout.dtype.size() as u32, ..layout };
        let (out, a, b) = (least(self.out), least(self.a), least(self.b));
        Shape { out, base_alignment: out.alignment, a, b, ..self }
    }
}

impl Blas {
    pub(super) fn new(pool: &Pool, tf32: bool) -> Result<Self> {
        // The pool frees the workspace in any case; the handle is `self`'s to destroy.
        let workspace = pool.take(WORKSPACE)?.ok_or_else(|| no_room("cuBLASLt's workspace", WORKSPACE))?;
        let handle = named("cublasLtCreate", result::create_handle())?;
        Ok(Blas { handle, workspace, tf32, plans: Mutex::default() })
    }

    /// Queues a product on `stream`. The library is allowed to round f32 to bf16 where that is
    /// asked for; `gpu-check` finds out whether it does.
    pub(super) fn multiply(&self, stream: &Stream, product: Matmul<Operand, Operand>) -> Result<()> {
        let Matmul { out, a, b, addend, rounding } = product;
        let (one, beta) = (1.0f32, if let Addend::Zero = addend { 0.0f32 } else { 1.0 });
        let base = if let Addend::Base(base) = addend { base.pointer } else { out.data.pointer };
        let onto = Layout::of(&out);
        let base_alignment = if base == out.data.pointer { onto.alignment } else { alignment(base) };
        let shape = Shape { out: onto, base_alignment, a: Layout::of(&a), b: Layout::of(&b), rounding };
        let (plan, _first) = self.plan(shape)?;
        let [out, a, b] = [out, a, b].map(|matrix| matrix.data.pointer as *mut c_void);
        let scale = |value: &f32| std::ptr::from_ref(value).cast::<c_void>();
        // SAFETY: the plan's descriptions fit the operands, which were checked against their
        // buffers and are held by the caller until the stream is past this; the workspace is used
        // only on this stream.
        let queued = unsafe {
            result::matmul(
                self.handle,
                plan.product,
                scale(&one),
                scale(&beta),
                b,
                plan.b,
                a,
                plan.a,
                base as *const c_void,
                plan.out,
                out,
                plan.out,
                &plan.algorithm,
                self.workspace as *mut c_void,
                WORKSPACE,
                stream.handle().cast(),
            )
        };
        named("cublasLtMatmul", queued)
    }

    /// Returns the plan of a product. If it is new, the library may load machine code for it until
    /// its first product is queued, and the wait has to be held until then.
    fn plan(&self, shape: Shape) -> Result<(Arc<Plan>, Option<ContextWait>)> {
        let mut plans = lock(&self.plans);
        if let Some(plan) = plans.get(&shape) {
            return Ok((plan.clone(), None));
        }
        let wait = ContextWait::begin();
        let plan = Arc::new(Plan::new(self.handle, shape, self.tf32)?);
        plans.insert(shape, plan.clone());
        Ok((plan, Some(wait)))
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; the rank has waited for its streams.
        let _ = unsafe { result::destroy_handle(self.handle) };
    }
}

fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(ALIGNED.trailing_zeros())
}

/// The descriptions of one product, and the algorithm chosen for it.
struct Plan {
    product: sys::cublasLtMatmulDesc_t,
    out: sys::cublasLtMatrixLayout_t,
    a: sys::cublasLtMatrixLayout_t,
    b: sys::cublasLtMatrixLayout_t,
    algorithm: sys::cublasLtMatmulAlgo_t,
}

// SAFETY: descriptions are plain data on the heap, only read once made.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Plan {
    fn new(handle: sys::cublasLtHandle_t, shape: Shape, tf32: bool) -> Result<Self> {
        let mut plan = Plan {
            product: product(compute(&shape, tf32))?,
            out: layout(&shape.out)?,
            a: layout(&shape.a)?,
            b: layout(&shape.b)?,
            algorithm: sys::cublasLtMatmulAlgo_t { data: [0; 8] },
        };
        // The library's first operand is `b`.
        plan.transpose(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSA, shape.b.transposed)?;
        plan.transpose(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_TRANSB, shape.a.transposed)?;
        plan.algorithm = plan.choose(handle, &shape)?;
        Ok(plan)
    }

    fn transpose(&self, which: sys::cublasLtMatmulDescAttributes_t, transposed: bool) -> Result<()> {
        let operation = i32::from(transposed);
        // SAFETY: the attribute is a 32-bit number: 0 as it is, 1 transposed.
        let set = unsafe {
            result::set_matmul_desc_attribute(self.product, which, std::ptr::from_ref(&operation).cast(), 4)
        };
        named("cublasLtMatmulDescSetAttribute", set)
    }

    /// Returns the library's choice for these alignments; if it has none, its choice for the least
    /// alignment.
    fn choose(&self, handle: sys::cublasLtHandle_t, shape: &Shape) -> Result<sys::cublasLtMatmulAlgo_t> {
        let mut found = self.search(handle, shape)?;
        if found.is_err_and(|error| error.0 == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED) {
            found = self.search(handle, &shape.least_aligned())?;
        }
        found.map(|found| found.algo).map_err(|error| DeviceError::Cuda {
            call: "cublasLtMatmulAlgoGetHeuristic",
            reason: format!("{} for {shape:?}", words(error.0, free_bytes())),
        })
    }

    fn search(&self, handle: sys::cublasLtHandle_t, shape: &Shape) -> Result<Found> {
        let preference = Preference::new(shape)?;
        // SAFETY: all descriptions are alive.
        Ok(unsafe {
            result::get_matmul_algo_heuristic(
                handle,
                self.product,
                self.b,
                self.a,
                self.out,
                self.out,
                preference.0,
            )
        })
    }
}

/// The library's answer to a request for an algorithm.
type Found = std::result::Result<sys::cublasLtMatmulHeuristicResult_t, CublasError>;

impl Drop for Plan {
    fn drop(&mut self) {
        // SAFETY: each was made once and is destroyed once.
        unsafe {
            let _ = result::destroy_matmul_desc(self.product);
            for layout in [self.out, self.a, self.b] {
                let _ = result::destroy_matrix_layout(layout);
            }
        }
    }
}

/// Returns how the library may multiply: 16-bit operands in 16 bits, f32 operands as requested. It
/// may also leave f32 operands as they are, where it has no faster kernel for their shape.
fn compute(shape: &Shape, tf32: bool) -> sys::cublasComputeType_t {
    use sys::cublasComputeType_t as Compute;
    match shape.rounding {
        _ if !shape.is_f32() => Compute::CUBLAS_COMPUTE_32F,
        Rounding::Bf16 => Compute::CUBLAS_COMPUTE_32F_FAST_16BF,
        Rounding::None if tf32 => Compute::CUBLAS_COMPUTE_32F_FAST_TF32,
        Rounding::None => Compute::CUBLAS_COMPUTE_32F,
    }
}

fn product(compute: sys::cublasComputeType_t) -> Result<sys::cublasLtMatmulDesc_t> {
    named("cublasLtMatmulDescCreate", result::create_matmul_desc(compute, sys::cudaDataType::CUDA_R_32F))
}

fn layout(operand: &Layout) -> Result<sys::cublasLtMatrixLayout_t> {
    let dtype = match operand.dtype {
        DType::F32 => sys::cudaDataType::CUDA_R_32F,
        DType::Bf16 => sys::cudaDataType::CUDA_R_16BF,
        DType::F16 => sys::cudaDataType::CUDA_R_16F,
        got => return Err(DeviceError::Type { kernel: "matmul", operand: "a matrix", got }),
    };
    let (rows, columns) = (operand.columns as u64, operand.rows as u64);
    let stride = operand.stride.max(operand.columns) as i64;
    named("cublasLtMatrixLayoutCreate", result::create_matrix_layout(dtype, rows, columns, stride))
}

/// The workspace and the alignments that an algorithm may rely on.
struct Preference(sys::cublasLtMatmulPreference_t);

impl Preference {
    fn new(shape: &Shape) -> Result<Self> {
        use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
        let preference = Preference(named("cublasLtMatmulPreferenceCreate", result::create_matmul_pref())?);
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &WORKSPACE)?;
        // If a sum is cut into parts, these stay in f32 until they are added.
        let scheme = sys::cublasLtReductionScheme_t::CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE as u32;
        preference.set(Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme)?;
        for (attribute, alignment) in [
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.b.alignment),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.a.alignment),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.base_alignment),
            (Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.out.alignment),
        ] {
            preference.set(attribute, &alignment)?;
        }
        Ok(preference)
    }

    fn set<T: bytemuck::Pod>(
        &self,
        which: sys::cublasLtMatmulPreferenceAttributes_t,
        value: &T,
    ) -> Result<()> {
        // SAFETY: the library reads as many bytes as the value has.
        let set = unsafe {
            result::set_matmul_pref_attribute(self.0, which, std::ptr::from_ref(value).cast(), size_of::<T>())
        };
        named("cublasLtMatmulPreferenceSetAttribute", set)
    }
}

impl Drop for Preference {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once.
        let _ = unsafe { result::destroy_matmul_pref(self.0) };
    }
}

fn named<T>(call: &'static str, outcome: std::result::Result<T, CublasError>) -> Result<T> {
    outcome.map_err(|error| DeviceError::Cuda { call, reason: words(error.0, free_bytes()) })
}

/// Describes an error code of the library. A lack of memory is called [`OUT_OF_MEMORY`], as
/// everywhere. Some codes may result from a lack of memory without saying so, since the library
/// allocates memory for its kernels; for these, `free` bytes decide.
fn words(status: sys::cublasStatus_t, free: Option<usize>) -> String {
    use sys::cublasStatus_t as Status;
    let scarce = free.filter(|&free| free < SCARCE);
    match (status, scarce) {
        (Status::CUBLAS_STATUS_ALLOC_FAILED, _) => format!("{OUT_OF_MEMORY} ({status:?})"),
        (
            Status::CUBLAS_STATUS_NOT_INITIALIZED
            | Status::CUBLAS_STATUS_EXECUTION_FAILED
            | Status::CUBLAS_STATUS_INTERNAL_ERROR,
            Some(free),
        ) => format!("{OUT_OF_MEMORY}, it seems: {free} bytes are free ({status:?})"),
        _ => format!("{status:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{Layout, MatrixOperand, Operand, SCARCE, alignment, sys, words};
    use crate::DType;

    #[test]
    fn a_place_that_happens_to_be_aligned_better_is_the_same_to_a_product() {
        let at = |pointer, grain| {
            let data = Operand { pointer, dtype: DType::Bf16 };
            let (rows, columns, stride) = (4, 35, 35);
            Layout::of(&MatrixOperand { data, rows, columns, stride, transposed: false, grain }).alignment
        };
        assert_eq!([at(512, 35), at(512 + 70, 35), at(512, 36), at(512 + 72, 36)], [2, 2, 8, 8]);
        assert_eq!([at(512, 0), at(512 + 72, 0)], [16, 8]);
    }

    #[test]
    fn a_lack_of_memory_is_called_out_of_memory() {
        use sys::cublasStatus_t as Status;
        let (scarce, plenty) = (Some(SCARCE - 1), Some(SCARCE));
        for (status, free, expected) in [
            (Status::CUBLAS_STATUS_ALLOC_FAILED, plenty, true),
            (Status::CUBLAS_STATUS_ALLOC_FAILED, None, true),
            (Status::CUBLAS_STATUS_NOT_INITIALIZED, scarce, true),
            (Status::CUBLAS_STATUS_INTERNAL_ERROR, scarce, true),
            (Status::CUBLAS_STATUS_EXECUTION_FAILED, scarce, true),
            (Status::CUBLAS_STATUS_EXECUTION_FAILED, plenty, false),
            (Status::CUBLAS_STATUS_INTERNAL_ERROR, None, false),
            (Status::CUBLAS_STATUS_NOT_SUPPORTED, scarce, false),
        ] {
            let said = words(status, free);
            assert_eq!(said.contains("out of memory"), expected, "{said}");
            assert!(said.contains(&format!("{status:?}")), "{said}");
        }
    }

    #[test]
    fn alignment_counts_up_to_sixteen_bytes() {
        assert_eq!([512, 16, 8, 4, 6].map(alignment), [16, 16, 8, 4, 2]);
    }
}
