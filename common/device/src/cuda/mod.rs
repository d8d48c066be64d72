//! NVIDIA GPUs, through libraries that are loaded at run time.
//!
//! | file | what |
//! |---|---|
//! | `library` | where the libraries are, and what to install |
//! | `gpu` | the GPUs of the machine; what ranks on one GPU share |
//! | `compile`, `modules` | CUDA C++ to machine code, kept on disk; kernels in a context |
//! | `runtime` | one rank on a GPU: streams, launches, the fences between streams |
//! | `timeline`, `timing` | when what was queued really ran, and how long it took |
//! | `memory`, `transfer`, `staging` | its memory, and copies from and to main memory |
//! | `matmul`, `operand`, `operations`, `reductions` | products by cuBLASLt; the kernel trait over [`kernels`] |
//!
//! A rank queues work on its compute stream in the order of its program and waits for it only where the host needs a
//! number. Communication runs on a stream of its own; fences order the two.

mod compile;
mod driver;
mod gpu;
pub mod kernels;
mod library;
mod matmul;
mod memory;
mod modules;
mod operand;
mod operations;
mod pinned;
mod reductions;
mod rotations;
mod runtime;
mod staging;
mod timeline;
mod timing;
mod transfer;

pub use driver::Fence;
pub use gpu::{Gpu, GpuInfo, list};
pub use library::Library;
pub(crate) use memory::Block;
pub use memory::Usage;
pub(crate) use pinned::Pinned;
pub use runtime::{Communication, Options, Runtime};
pub(crate) use staging::Coming;
pub use timeline::Begun;
pub(crate) use timing::Lap;
