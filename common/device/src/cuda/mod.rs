//! NVIDIA GPUs, through libraries that are loaded at run time.
//!
//! | file | what |
//! |---|---|
//! | `library`, `call` | where the libraries are, and what to install; errors that name the call |
//! | `gpu`, `context` | the GPUs of the machine; what ranks on one GPU share |
//! | `compile`, `modules` | CUDA C++ to machine code, cached on disk; kernels in a context |
//! | `kernels` | CUDA C++ sources, and the launches that each operation takes |
//! | `gate` | what ranks on one GPU must not do side by side |
//! | `runtime`, `stream` | one rank on a GPU: streams, launches, the fences between streams |
//! | `timeline`, `timing` | when queued work ran, and how long it took |
//! | `memory`, `block` | its memory |
//! | `pinned`, `locked` | page-locked main memory, kept for reuse; how its pages are locked |
//! | `staging`, `transfer` | copies from and to main memory in the order of computation |
//! | `copies`, `copy_streams`, `in_flight` | the same beside computation, and what waits for them |
//! | `matmul`, `rotations` | products by cuBLASLt; tables of cosines and sines |
//!
//! Nothing here depends on buffers or views: [`crate::Kernels`] is implemented over this in the
//! module `gpu`.
//!
//! A rank queues work on its compute stream in the order of its program and waits for it only where
//! the host needs a number. Communication runs on a stream of its own, and so do copies of
//! offloaded states in each direction; fences order them.

mod block;
mod call;
mod compile;
mod context;
mod copies;
mod copy_streams;
mod gate;
mod gpu;
mod in_flight;
pub mod kernels;
mod library;
mod locked;
mod matmul;
mod memory;
mod modules;
mod peak;
mod pinned;
mod rotations;
mod runtime;
mod staging;
mod stream;
mod timeline;
mod timing;
mod transfer;

pub(crate) use block::Block;
pub(crate) use copies::QueuedCopy;
pub use gate::{ContextWait, Launching};
pub use gpu::{Gpu, GpuInfo, list};
pub use library::Library;
pub use memory::Usage;
pub use peak::Operands;
pub(crate) use pinned::Pinned;
pub(crate) use rotations::Rotations;
pub use runtime::{Communication, Options, Runtime};
pub(crate) use runtime::{RESULT, RESULTS};
pub use stream::Fence;
pub use timeline::Begun;
pub(crate) use timing::Lap;
pub(crate) use transfer::Download;
