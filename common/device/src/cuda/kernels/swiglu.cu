// The gated activation SwiGLU (Shazeer, 2020), forward and backward. A row of `gate_up` holds
// `width` gates, then `width` ups. A thread handles a chunk of a row.
#include "math.cuh"

// The position of a thread's chunk.
struct Place {
    u32 row, start, count;

    __device__ Place(u32 width) {
        u32 chunks = (width + CHUNK - 1) / CHUNK;
        u32 item = blockIdx.x * blockDim.x + threadIdx.x;
        row = item / chunks, start = item % chunks * CHUNK;
        count = chunk_count(start, width);
    }

    // In a matrix whose rows are `stride` apart.
    __device__ u64 offset(u32 stride) const { return u64(row) * stride + start; }
};

// out = silu(gate) · up
template <class T> __device__ inline void swiglu(T *out, const T *gate_up, u32 rows, u32 width) {
    Place place(width);
    if (place.row >= rows) return;
    const T *own = gate_up + place.offset(2 * width);
    float gate[CHUNK], up[CHUNK];
    load_chunks(place.count, gate, own, up, own + width);
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) up[i] = gate[i] * sigmoid(gate[i]) * up[i];
    store_chunk(out + place.offset(width), up, place.count);
}

// dgate_up = …; with s = sigmoid(gate): d silu/d gate = s·(1 + gate·(1 − s)).
template <class T>
__device__ inline void swiglu_backward(T *dgate_up, const T *dout, const T *gate_up, u32 rows, u32 width) {
    Place place(width);
    if (place.row >= rows) return;
    const T *own = gate_up + place.offset(2 * width);
    float gate[CHUNK], up[CHUNK], douts[CHUNK];
    load_chunks(place.count, gate, own, up, own + width, douts, dout + place.offset(width));
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) {
        float s = sigmoid(gate[i]);
        up[i] = douts[i] * up[i] * (s * (1.0f + gate[i] * (1.0f - s)));
        gate[i] = douts[i] * (gate[i] * s);
    }
    T *out = dgate_up + place.offset(2 * width);
    store_chunk(out, up, place.count);
    store_chunk(out + width, gate, place.count);
}

#define SWIGLU(T, t)                                                                                   \
    KERNEL(swiglu_##t, 256, T *out, const T *gate_up, u32 rows, u32 width) {                           \
        swiglu(out, gate_up, rows, width);                                                             \
    }                                                                                                  \
    KERNEL(swiglu_backward_##t, 256, T *dgate_up, const T *dout, const T *gate_up, u32 rows, u32 width) { \
        swiglu_backward(dgate_up, dout, gate_up, rows, width);                                         \
    }
FOR_EACH_TYPE(SWIGLU)
