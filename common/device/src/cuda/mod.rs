//! CUDA: the kernels' sources, and how they are launched.

pub mod kernels;
