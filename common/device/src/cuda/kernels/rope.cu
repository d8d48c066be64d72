// Rotary position embedding (Su et al., 2021), in the rotate-half layout of Llama. A thread turns a
// chunk of pairs of one head.
#include "types.cuh"

// Pairs (i, i + half) of the first `heads` heads of each row of `packed_width` elements, in place;
// `table` holds, per position, `half` cosines, then `half` sines.
template <class T>
__device__ inline void rope(T *qkv, const float *table, u32 rows, u32 tokens, u32 first_position, u32 half, u32 heads,
                            u32 packed_width, u32 inverse) {
    u32 chunks = (half + CHUNK - 1) / CHUNK;
    u32 item = blockIdx.x * blockDim.x + threadIdx.x;
    u32 start = item % chunks * CHUNK, head = item / chunks % heads, row = item / chunks / heads;
    if (row >= rows) return;
    T *first = qkv + u64(row) * packed_width + head * 2 * half + start;
    const float *turn = table + u64(first_position + row % tokens) * 2 * half + start;
    u32 count = chunk_count(start, half);
    float x[CHUNK], y[CHUNK], cosine[CHUNK], sine[CHUNK], turned[CHUNK];
    load_chunks(count, x, first, y, first + half, cosine, turn, sine, turn + half);
    float sign = inverse ? -1.0f : 1.0f;
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) {
        float s = sign * sine[i];
        turned[i] = x[i] * cosine[i] - y[i] * s;
        y[i] = y[i] * cosine[i] + x[i] * s;
    }
    store_chunk(first, turned, count);
    store_chunk(first + half, y, count);
}

#define ROPE(T, t)                                                                                                   \
    KERNEL(rope_##t, 256, T *qkv, const float *table, u32 rows, u32 tokens, u32 first_position, u32 half, u32 heads, \
           u32 packed_width, u32 inverse) {                                                                          \
        rope(qkv, table, rows, tokens, first_position, half, heads, packed_width, inverse);                          \
    }
FOR_EACH_TYPE(ROPE)
