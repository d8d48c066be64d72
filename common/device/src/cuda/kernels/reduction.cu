// Reductions whose result does not depend on how a tensor is cut: maxima, and a sum in fixed point.
// Many blocks reduce a part each; one block then reduces the parts.
#include "block.cuh"

// Starts of the chunks that a thread reduces: every `gridDim.x · blockDim.x`-th.
__device__ inline u64 first_chunk() { return (u64(blockIdx.x) * blockDim.x + threadIdx.x) * CHUNK; }

__device__ inline u64 chunk_stride() { return u64(gridDim.x) * blockDim.x * CHUNK; }

// parts[block] = the largest magnitude's bits: magnitudes order as their bits do, with NaN above
// all.
template <class T> __device__ inline void max_magnitude(u32 *parts, const T *x, u64 len) {
    u32 largest = 0;
    for (u64 start = first_chunk(); start < len; start += chunk_stride()) {
        float values[CHUNK];
        load_chunks(chunk_count(start, len), values, x + start);
#pragma unroll
        for (u32 i = 0; i < CHUNK; i++) largest = Larger()(largest, __float_as_uint(values[i]) & 0x7fffffffu);
    }
    largest = block_reduce(largest, 0u, Larger());
    if (threadIdx.x == 0) parts[blockIdx.x] = largest;
}

// An integer of 128 bits.
struct Wide {
    u64 low, high;

    __device__ void add(u64 more_low, u64 more_high) {
        low += more_low;
        high += more_high + (low < more_low ? 1 : 0);
    }
};

// Thread 0 gets the sum over the block.
__device__ inline Wide block_sum(Wide sum) {
    SHARED(Wide, parts, WARP);
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    for (u32 distance = WARP / 2; distance > 0; distance /= 2) {
        u64 low = __shfl_xor_sync(ALL_LANES, sum.low, distance);
        u64 high = __shfl_xor_sync(ALL_LANES, sum.high, distance);
        sum.add(low, high);
    }
    if (lane == 0) parts[warp] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        for (u32 i = 1; i < blockDim.x / WARP; i++) sum.add(parts[i].low, parts[i].high);
    return sum;
}

// parts[block] = Σ round((x·scale)²·2⁴⁸).
//
// The square of a 24-bit number is exact in f64. Adding 1.5·2⁵² rounds it to an integer below 2⁵⁰,
// which the low bits of the sum hold.
template <class T> __device__ inline void sum_of_squares(Wide *parts, const T *x, u64 len, double scale) {
    const double round = 6755399441055744.0, fixed = 281474976710656.0;
    const u64 round_bits = u64(__double_as_longlong(round));
    Wide sum = {0, 0};
    for (u64 start = first_chunk(); start < len; start += chunk_stride()) {
        float values[CHUNK];
        load_chunks(chunk_count(start, len), values, x + start);
        u64 chunk = 0;
#pragma unroll
        for (u32 i = 0; i < CHUNK; i++) {
            double value = double(values[i]) * scale;
            chunk += u64(__double_as_longlong(value * value * fixed + round)) - round_bits;
        }
        sum.add(chunk, 0);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

#define REDUCTION(T, t)                                                                                           \
    KERNEL(max_magnitude_##t, 256, u32 *parts, const T *x, u64 len) { max_magnitude(parts, x, len); }             \
    KERNEL(sum_of_squares_##t, 256, Wide *parts, const T *x, u64 len, double scale) {                             \
        sum_of_squares(parts, x, len, scale);                                                                     \
    }
FOR_EACH_TYPE(REDUCTION)

KERNEL(max_of_parts, 256, u32 *result, const u32 *parts, u32 count) {
    u32 largest = 0;
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) largest = Larger()(largest, parts[i]);
    largest = block_reduce(largest, 0u, Larger());
    if (threadIdx.x == 0) *result = largest;
}

KERNEL(sum_of_parts, 256, Wide *result, const Wide *parts, u32 count) {
    Wide sum = {0, 0};
    for (u32 i = threadIdx.x; i < count; i += blockDim.x) sum.add(parts[i].low, parts[i].high);
    sum = block_sum(sum);
    if (threadIdx.x == 0) *result = sum;
}
