//! What holds on GPUs, on a GPU that is not there: see [`tests::standin`].

mod bench;
mod bench_peer;
mod cuda;
mod nccl;
mod nccl_training;
mod offload;
mod pinned;
mod setup;
mod times;
