// Table look-up and its gradient.
#include "block.cuh"
#include "math.cuh"

// out[i] = table[ids[i]]; NaN if the table has no such row. A thread copies a chunk of a row.
template <class T>
__device__ inline void embedding(T *out, const T *table, const u32 *ids, u32 rows, u32 width, u32 vocabulary) {
    u32 chunks = (width + CHUNK - 1) / CHUNK;
    u32 item = blockIdx.x * blockDim.x + threadIdx.x;
    u32 row = item / chunks, start = item % chunks * CHUNK;
    if (row >= rows) return;
    u32 count = chunk_count(start, width), id = ids[row];
    float values[CHUNK];
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) values[i] = not_a_number();
    if (id < vocabulary) load_chunks(count, values, table + u64(id) * width + start);
    store_chunk(out + u64(row) * width + start, values, count);
}

template <class T> __device__ inline void add_chunk(float (&sum)[CHUNK], const Stored<CHUNK, T> &chunk) {
    float more[CHUNK];
    chunk.widen_to(more);
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) sum[i] += more[i];
}

// True if a position before the block's own holds `id`; the nearest are compared first.
__device__ inline bool seen_before(const u32 *ids, u32 id) {
    for (u32 end = blockIdx.x; end > 0; end -= end < blockDim.x ? end : blockDim.x) {
        bool same = threadIdx.x < end && ids[end - 1 - threadIdx.x] == id;
        if (__syncthreads_or(same)) return true;
    }
    return false;
}

// Rows whose loads are in flight at once: a frequent id has thousands.
constexpr u32 AT_ONCE = 4;

// dtable[ids[i]] += dout[i], in the order of i. A row of blocks per position: the first position of
// an id adds up all positions that hold it, in f32, and rounds once; the others do nothing. A
// thread has a chunk of columns.
template <class G, class T>
__device__ inline void embedding_backward(G *dtable, const T *dout, const u32 *ids, u32 rows, u32 width,
                                          u32 vocabulary) {
    SHARED(u32, matches, WARP);
    u32 id = ids[blockIdx.x];
    if (id >= vocabulary || seen_before(ids, id)) return;
    u32 start = (blockIdx.y * blockDim.x + threadIdx.x) * CHUNK;
    u32 count = start < width ? chunk_count(start, width) : 0;
    G *own = dtable + u64(id) * width + start;
    float sum[CHUNK];
    load_chunks(count, sum, own);
    for (u32 first = blockIdx.x; first < rows; first += blockDim.x) {
        u32 position = first + threadIdx.x;
        u32 votes = __ballot_sync(ALL_LANES, position < rows && ids[position] == id);
        if (threadIdx.x % WARP == 0) matches[threadIdx.x / WARP] = votes;
        __syncthreads();
        for (u32 warp = 0; warp < blockDim.x / WARP; warp++) {
            for (u32 left = matches[warp]; left;) {
                Stored<CHUNK, T> chunks[AT_ONCE];
                u32 taken = 0;
#pragma unroll
                for (u32 k = 0; k < AT_ONCE; k++) {
                    if (!left) break;
                    u32 match = first + warp * WARP + __ffs(left) - 1;
                    chunks[k].load(dout + u64(match) * width + start, count);
                    left &= left - 1, taken++;
                }
#pragma unroll
                for (u32 k = 0; k < AT_ONCE; k++)
                    if (k < taken) add_chunk(sum, chunks[k]);
            }
        }
        __syncthreads();
    }
    store_chunk(own, sum, count);
}

#define EMBEDDING(T, t)                                                                                           \
    KERNEL(embedding_##t, 256, T *out, const T *table, const u32 *ids, u32 rows, u32 width, u32 vocabulary) {     \
        embedding(out, table, ids, rows, width, vocabulary);                                                      \
    }
FOR_EACH_TYPE(EMBEDDING)

#define EMBEDDING_BACKWARD(G, g, T, t)                                                                              \
    KERNEL(embedding_backward_##g##_##t, 256, G *dtable, const T *dout, const u32 *ids, u32 rows, u32 width,        \
           u32 vocabulary) {                                                                                        \
        embedding_backward(dtable, dout, ids, rows, width, vocabulary);                                             \
    }
FOR_EACH_PAIR(EMBEDDING_BACKWARD)
