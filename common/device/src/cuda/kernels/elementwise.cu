// Addition, conversion and filling of flat tensors. A thread handles a chunk.
#include "types.cuh"

__device__ inline u64 own_chunk() { return (u64(blockIdx.x) * blockDim.x + threadIdx.x) * CHUNK; }

// out = value
template <class T> __device__ inline void fill(T *out, float value, u64 len) {
    u64 start = own_chunk();
    if (start >= len) return;
    float values[CHUNK];
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) values[i] = value;
    store_chunk(out + start, values, chunk_count(start, len));
}

// out += x
template <class Out, class In> __device__ inline void add(Out *out, const In *x, u64 len) {
    u64 start = own_chunk();
    if (start >= len) return;
    u32 count = chunk_count(start, len);
    float sum[CHUNK], more[CHUNK];
    load_chunks(count, sum, out + start, more, x + start);
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) sum[i] += more[i];
    store_chunk(out + start, sum, count);
}

// out = x
template <class Out, class In> __device__ inline void convert(Out *out, const In *x, u64 len) {
    u64 start = own_chunk();
    if (start >= len) return;
    u32 count = chunk_count(start, len);
    float values[CHUNK];
    load_chunks(count, values, x + start);
    store_chunk(out + start, values, count);
}

#define FILL(T, t) \
    KERNEL(fill_##t, 256, T *out, float value, u64 len) { fill(out, value, len); }
FOR_EACH_TYPE(FILL)

#define BINARY(Out, o, In, i)                                                              \
    KERNEL(add_##o##_##i, 256, Out *out, const In *x, u64 len) { add(out, x, len); }       \
    KERNEL(convert_##o##_##i, 256, Out *out, const In *x, u64 len) { convert(out, x, len); }
FOR_EACH_PAIR(BINARY)
