// Root-mean-square normalisation (Zhang & Sennrich, 2019), forward and backward.
#include "block.cuh"

// The first element of a row: rows of a group are adjacent, groups start `stride` elements apart.
__device__ inline u64 row_start(u32 row, u32 width, u32 group, u32 stride) {
    return u64(row / group) * stride + row % group * width;
}

// One row: out = x · inverse · weight, with inverse = 1 / √(mean(x²) + eps). A block per row.
template <class T>
__device__ inline void rms_norm(T *out, float *inverse_rms, const T *x, const T *weight, u32 width, u32 group, u32 stride,
                                float eps) {
    u32 row = blockIdx.x;
    u64 offset = row_start(row, width, group, stride);
    x += offset, out += offset;
    float sum = 0.0f;
    for (u32 start = threadIdx.x * CHUNK; start < width; start += blockDim.x * CHUNK) {
        float values[CHUNK];
        load_chunks(chunk_count(start, width), values, x + start);
#pragma unroll
        for (u32 i = 0; i < CHUNK; i++) sum += values[i] * values[i];
    }
    float inverse = 1.0f / sqrtf(block_sum(sum) / float(width) + eps);
    if (threadIdx.x == 0) inverse_rms[row] = inverse;
    for (u32 start = threadIdx.x * CHUNK; start < width; start += blockDim.x * CHUNK) {
        u32 count = chunk_count(start, width);
        float values[CHUNK], weights[CHUNK];
        load_chunks(count, values, x + start, weights, weight + start);
#pragma unroll
        for (u32 i = 0; i < CHUNK; i++) values[i] = values[i] * inverse * weights[i];
        store_chunk(out + start, values, count);
    }
}

// With r = 1/rms and n = width: dx += r·(w·dy) − x·r³/n·Σ(w·dy·x), and partial[block] = Σ dy·x·r
// over the block's rows. If dx is dout, dx is replaced. A block per `rows_per_part` rows; a thread always has the same columns, so
// it adds rows up in order. Dynamic shared memory: f32 [CHUNK, chunks of a row], so that
// neighbouring threads hit neighbouring banks.
template <class T>
__device__ inline void rms_norm_backward(T *dx, float *partial, const T *dout, const T *x, const T *weight,
                                         const float *inverse_rms, u32 rows, u32 width, u32 group, u32 stride,
                                         u32 rows_per_part) {
    DYNAMIC_SHARED(float, dweight);
    u32 chunks = (width + CHUNK - 1) / CHUNK;
    for (u32 chunk = threadIdx.x; chunk < chunks; chunk += blockDim.x)
        for (u32 i = 0; i < CHUNK; i++) dweight[i * chunks + chunk] = 0.0f;
    u32 first = blockIdx.x * rows_per_part;
    u32 end = rows - first < rows_per_part ? rows : first + rows_per_part;
    for (u32 row = first; row < end; row++) {
        u64 offset = row_start(row, width, group, stride);
        float inverse = inverse_rms[row], along = 0.0f;
        for (u32 start = threadIdx.x * CHUNK; start < width; start += blockDim.x * CHUNK) {
            u32 count = chunk_count(start, width);
            float douts[CHUNK], values[CHUNK], weights[CHUNK];
            load_chunks(count, douts, dout + offset + start, values, x + offset + start, weights, weight + start);
            prefetch(dx + offset + start);
#pragma unroll
            for (u32 i = 0; i < CHUNK; i++) {
                along += douts[i] * weights[i] * values[i];
                dweight[i * chunks + start / CHUNK] += douts[i] * (values[i] * inverse);
            }
        }
        along = block_sum(along) * inverse * inverse * inverse / float(width);
        for (u32 start = threadIdx.x * CHUNK; start < width; start += blockDim.x * CHUNK) {
            u32 count = chunk_count(start, width);
            float sums[CHUNK], douts[CHUNK], values[CHUNK], weights[CHUNK];
            load_chunks(count, sums, dx + offset + start, douts, dout + offset + start, values, x + offset + start, weights,
                        weight + start);
#pragma unroll
            for (u32 i = 0; i < CHUNK; i++) {
                float projected = douts[i] * weights[i] * inverse - values[i] * along;
                sums[i] = dx == dout ? projected : sums[i] + projected;
            }
            store_chunk(dx + offset + start, sums, count);
        }
    }
    partial += u64(blockIdx.x) * width;
    for (u32 chunk = threadIdx.x; chunk < chunks; chunk += blockDim.x) {
        float sums[CHUNK];
        for (u32 i = 0; i < CHUNK; i++) sums[i] = dweight[i * chunks + chunk];
        store_chunk(partial + chunk * CHUNK, sums, chunk_count(chunk * CHUNK, width));
    }
}

constexpr u32 LANES_OF_ROWS = 16;

// out = or += the sums of the columns of `x`, f32 [rows, width]. A block per 32 columns: 16 warps
// each add every 16th row, then the first adds up the warps.
template <class T>
__device__ inline void column_sums(T *out, const float *x, u32 rows, u32 width, u32 accumulate) {
    SHARED(float, sums, LANES_OF_ROWS * WARP);
    u32 lane = threadIdx.x % WARP, first = threadIdx.x / WARP, column = blockIdx.x * WARP + lane;
    float sum = 0.0f;
    if (column < width)
        for (u32 row = first; row < rows; row += LANES_OF_ROWS) sum += x[u64(row) * width + column];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (first > 0 || column >= width) return;
    for (u32 i = 1; i < LANES_OF_ROWS; i++) sum += sums[i * WARP + lane];
    out[column] = narrow<T>(accumulate ? widen(out[column]) + sum : sum);
}

#define NORM(T, t)                                                                                                    \
    KERNEL(rms_norm_##t, 512, T *out, float *inverse_rms, const T *x, const T *weight, u32 width, u32 group,          \
           u32 stride, float eps) {                                                                                   \
        rms_norm(out, inverse_rms, x, weight, width, group, stride, eps);                                             \
    }                                                                                                                 \
    KERNEL(rms_norm_backward_##t, 512, T *dx, float *partial, const T *dout, const T *x, const T *weight,             \
           const float *inverse_rms, u32 rows, u32 width, u32 group, u32 stride, u32 rows_per_part) {                 \
        rms_norm_backward(dx, partial, dout, x, weight, inverse_rms, rows, width, group, stride, rows_per_part);      \
    }                                                                                                                 \
    KERNEL(column_sums_##t, 512, T *out, const float *x, u32 rows, u32 width, u32 accumulate) {                       \
        column_sums(out, x, rows, width, accumulate);                                                                 \
    }
FOR_EACH_TYPE(NORM)
