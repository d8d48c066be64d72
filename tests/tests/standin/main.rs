//! Tests of GPU code, without a GPU: see [`tests::standin`].

mod bench;
mod bench_peer;
mod cuda;
mod nccl;
mod nccl_sharing;
mod nccl_training;
mod offload;
mod pinned;
mod setup;
mod times;
