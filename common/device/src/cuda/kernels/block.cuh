// Reductions over a warp and over a block, the same bits in every lane and on every run.
//
// Blocks are whole warps in x. Every thread of the block must take part.
#ifndef BLOCK_CUH
#define BLOCK_CUH
#include "types.cuh"

constexpr u32 WARP = 32;
constexpr u32 ALL_LANES = 0xffffffff;

struct Sum {
    template <class V> __device__ V operator()(V a, V b) const { return a + b; }
};

// The larger; ignores NaN.
struct Larger {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
    __device__ u32 operator()(u32 a, u32 b) const { return b > a ? b : a; }
};

// `count` neighbouring lanes, a power of two, each get the value of all of them.
template <u32 count = WARP, class V, class Op> __device__ inline V warp_reduce(V value, Op op) {
#pragma unroll
    for (u32 distance = count / 2; distance > 0; distance /= 2)
        value = op(value, __shfl_xor_sync(ALL_LANES, value, distance));
    return value;
}

// `identity` changes nothing that `op` combines it with.
template <class V, class Op> __device__ inline V block_reduce(V value, V identity, Op op) {
    SHARED(V, parts, WARP);
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = blockDim.x / WARP;
    value = warp_reduce(value, op);
    if (lane == 0) parts[warp] = value;
    __syncthreads();
    value = warp_reduce(lane < warps ? parts[lane] : identity, op);
    // The next reduction writes to the same places.
    __syncthreads();
    return value;
}

__device__ inline float block_sum(float value) { return block_reduce(value, 0.0f, Sum()); }

#endif
