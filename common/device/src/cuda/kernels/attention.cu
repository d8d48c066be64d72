// Causal attention in tiles, forward and backward (Dao et al., 2022; Dao, 2023), for any element
// type and any head of at most `W` elements, in f32 arithmetic. No matrix of tokens × tokens is
// ever stored.
//
// A tile has 32 queries or keys; a block of 8 warps owns one, and a warp four of its rows. Against
// each tile of the other kind, lane l computes the products of that tile's row l; then each lane
// adds up its own elements of the head, l + 32·j, over those rows. Tiles are in shared memory as
// f32, rows W + 4 apart: lanes that read 16 bytes of a row each, or neighbours in one row, hit
// different banks.
#include "attention.cuh"
#include "block.cuh"
#include "math.cuh"

constexpr u32 TILE = 32;
constexpr u32 WARPS = 8;
// Rows of a warp.
constexpr u32 ROWS = TILE / WARPS;

// Distance of a tile's rows, and elements of a tile.
template <u32 W> constexpr u32 PITCH = W + 4;
template <u32 W> constexpr u32 TILE_SIZE = TILE * PITCH<W>;

// tile[32][PITCH] = rows `first`.. of a head, zero past its end.
template <u32 W, class T> __device__ inline void load_tile(float *tile, Head<const T> head, u32 first, const Shape &shape) {
#pragma unroll
    for (u32 done = 0; done < TILE * W; done += WARPS * WARP) {
        u32 row = (done + threadIdx.x) / W, column = (done + threadIdx.x) % W;
        bool inside = first + row < shape.tokens && column < shape.head_dim;
        tile[row * PITCH<W> + column] = inside ? widen(head.data[u64(first + row) * head.stride + column]) : 0.0f;
    }
}

// products[r] = a[row r of the warp] · b[row of the lane], four elements at a time: past `length`
// both are zero.
template <u32 W> __device__ inline void inner_products(float (&products)[ROWS], const float *a, const float *b, u32 length) {
    const float *own = a + threadIdx.x / WARP * ROWS * PITCH<W>, *other = b + threadIdx.x % WARP * PITCH<W>;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) products[r] = 0.0f;
    for (u32 i = 0; i < length; i += 4) {
        float4 x = *reinterpret_cast<const float4 *>(other + i);
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            float4 y = *reinterpret_cast<const float4 *>(own + r * PITCH<W> + i);
            products[r] = fmaf(y.w, x.w, fmaf(y.z, x.z, fmaf(y.y, x.y, fmaf(y.x, x.x, products[r]))));
        }
    }
}

// sums[r][j] += Σ weight[r of lane l] · b[row l][lane + 32·j], l in order.
template <u32 W>
__device__ inline void add_weighted(float (&sums)[ROWS][W / WARP], const float (&weights)[ROWS], const float *b) {
    u32 lane = threadIdx.x % WARP;
    for (u32 l = 0; l < TILE; l++) {
        float weight[ROWS];
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) weight[r] = __shfl_sync(ALL_LANES, weights[r], l);
#pragma unroll
        for (u32 j = 0; j < W / WARP; j++) {
            float x = b[l * PITCH<W> + lane + j * WARP];
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) sums[r][j] = fmaf(weight[r], x, sums[r][j]);
        }
    }
}

// The warp's rows of tile `first` = sums · factor.
template <u32 W, class T>
__device__ inline void store_rows(Head<T> head, const float (&sums)[ROWS][W / WARP], const float (&factors)[ROWS], u32 first,
                                  const Shape &shape) {
    u32 lane = threadIdx.x % WARP;
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        u32 row = first + threadIdx.x / WARP * ROWS + r;
        if (row >= shape.tokens) continue;
#pragma unroll
        for (u32 j = 0; j < W / WARP; j++) {
            u32 column = lane + j * WARP;
            if (column < shape.head_dim) head.data[u64(row) * head.stride + column] = narrow<T>(sums[r][j] * factors[r]);
        }
    }
}

template <u32 W> __device__ inline void clear(float (&sums)[ROWS][W / WARP]) {
#pragma unroll
    for (u32 r = 0; r < ROWS; r++)
#pragma unroll
        for (u32 j = 0; j < W / WARP; j++) sums[r][j] = 0.0f;
}

// out = softmax(q · kᵀ · scale + causal mask) · v, log_sum = log of the denominators. A block per
// tile of queries, the longest rows first, head and sequence. Dynamic shared memory: three tiles.
template <u32 W, class T>
__device__ inline void attention(T *out, float *log_sum, const T *qkv, const Shape &shape) {
    DYNAMIC_SHARED(float, queries);
    float *keys = queries + TILE_SIZE<W>, *values = keys + TILE_SIZE<W>;
    u32 first = (gridDim.z - 1 - blockIdx.z) * TILE, head = blockIdx.x, kv_head = head / shape.group();
    u32 lane = threadIdx.x % WARP, own_row = first + threadIdx.x / WARP * ROWS;
    load_tile<W>(queries, packed_head(qkv, shape, head), first, shape);
    float sums[ROWS][W / WARP], largest[ROWS], total[ROWS], factors[ROWS];
    clear<W>(sums);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) largest[r] = -infinity(), total[r] = 0.0f;
    for (u32 key_tile = 0; key_tile <= first; key_tile += TILE) {
        __syncthreads();
        load_tile<W>(keys, packed_head(qkv, shape, shape.heads + kv_head), key_tile, shape);
        load_tile<W>(values, packed_head(qkv, shape, shape.heads + shape.kv_heads + kv_head), key_tile, shape);
        __syncthreads();
        float weights[ROWS];
        inner_products<W>(weights, queries, keys, shape.head_dim);
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            // Every row sees the first key of every tile up to its own, so a largest score exists.
            float score = key_tile + lane <= own_row + r ? weights[r] * shape.scale : -infinity();
            float larger = Larger()(largest[r], warp_reduce(score, Larger()));
            float kept = exponential(largest[r] - larger);
            weights[r] = exponential(score - larger);
            total[r] = total[r] * kept + warp_reduce(weights[r], Sum());
            largest[r] = larger;
#pragma unroll
            for (u32 j = 0; j < W / WARP; j++) sums[r][j] *= kept;
        }
        add_weighted<W>(sums, weights, values);
    }
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        factors[r] = 1.0f / total[r];
        if (lane == 0 && own_row + r < shape.tokens)
            log_sum[shape.statistics(head) + own_row + r] = largest[r] + logf(total[r]);
    }
    store_rows<W>(out_head(out, shape, head), sums, factors, first, shape);
}

// dv = Pᵀ·dout and dk = dSᵀ·q, with P the probabilities and dS = P ∘ (dout·vᵀ − delta) · scale. A
// block per tile of keys, key/value head, or share of it, and sequence; it adds up over the query
// heads of its group and their tiles in order. Dynamic shared memory: four tiles.
template <u32 W, class T>
__device__ inline void attention_keys(T *dqkv, const T *dout, const T *qkv, const float *log_sum, const float *delta,
                                      const Shape &shape, float *partial, u32 shares) {
    DYNAMIC_SHARED(float, queries);
    float *douts = queries + TILE_SIZE<W>, *keys = douts + TILE_SIZE<W>, *values = keys + TILE_SIZE<W>;
    const Share share(shape, shares);
    u32 first = blockIdx.z * TILE, kv_head = share.kv_head;
    u32 lane = threadIdx.x % WARP, own_row = first + threadIdx.x / WARP * ROWS;
    load_tile<W>(keys, packed_head(qkv, shape, shape.heads + kv_head), first, shape);
    load_tile<W>(values, packed_head(qkv, shape, shape.heads + shape.kv_heads + kv_head), first, shape);
    float dkeys[ROWS][W / WARP], dvalues[ROWS][W / WARP];
    clear<W>(dkeys), clear<W>(dvalues);
    for (u32 head = share.first; head < share.end; head++) {
        for (u32 query_tile = first; query_tile < shape.tokens; query_tile += TILE) {
            __syncthreads();
            load_tile<W>(queries, packed_head(qkv, shape, head), query_tile, shape);
            load_tile<W>(douts, out_head(dout, shape, head), query_tile, shape);
            __syncthreads();
            u32 query = query_tile + lane;
            float shift = query < shape.tokens ? log_sum[shape.statistics(head) + query] : 0.0f;
            float mean = query < shape.tokens ? delta[shape.statistics(head) + query] : 0.0f;
            float weights[ROWS], dweights[ROWS];
            inner_products<W>(weights, keys, queries, shape.head_dim);
            inner_products<W>(dweights, values, douts, shape.head_dim);
#pragma unroll
            for (u32 r = 0; r < ROWS; r++) {
                bool seen = own_row + r <= query && query < shape.tokens;
                weights[r] = seen ? exponential(weights[r] * shape.scale - shift) : 0.0f;
                dweights[r] = seen ? weights[r] * (dweights[r] - mean) * shape.scale : 0.0f;
            }
            add_weighted<W>(dvalues, weights, douts);
            add_weighted<W>(dkeys, dweights, queries);
        }
    }
    const float factors[ROWS] = {1.0f, 1.0f, 1.0f, 1.0f};
    auto store = [&](u32 head, const float(&sums)[ROWS][W / WARP]) {
        if (shares == 1) store_rows<W>(packed_head(dqkv, shape, shape.heads + head), sums, factors, first, shape);
        else store_rows<W>(share.head(partial, shape, head), sums, factors, first, shape);
    };
    store(kv_head, dkeys), store(shape.kv_heads + kv_head, dvalues);
}

// dq = dS·k. A block per tile of queries, the longest rows first, head and sequence. Dynamic shared
// memory: four tiles.
template <u32 W, class T>
__device__ inline void attention_queries(T *dqkv, const T *dout, const T *qkv, const float *log_sum, const float *delta,
                                         const Shape &shape) {
    DYNAMIC_SHARED(float, queries);
    float *douts = queries + TILE_SIZE<W>, *keys = douts + TILE_SIZE<W>, *values = keys + TILE_SIZE<W>;
    u32 first = (gridDim.z - 1 - blockIdx.z) * TILE, head = blockIdx.x, kv_head = head / shape.group();
    u32 lane = threadIdx.x % WARP, own_row = first + threadIdx.x / WARP * ROWS;
    load_tile<W>(queries, packed_head(qkv, shape, head), first, shape);
    load_tile<W>(douts, out_head(dout, shape, head), first, shape);
    float dqueries[ROWS][W / WARP], shift[ROWS], mean[ROWS];
    clear<W>(dqueries);
#pragma unroll
    for (u32 r = 0; r < ROWS; r++) {
        bool inside = own_row + r < shape.tokens;
        shift[r] = inside ? log_sum[shape.statistics(head) + own_row + r] : 0.0f;
        mean[r] = inside ? delta[shape.statistics(head) + own_row + r] : 0.0f;
    }
    for (u32 key_tile = 0; key_tile <= first; key_tile += TILE) {
        __syncthreads();
        load_tile<W>(keys, packed_head(qkv, shape, shape.heads + kv_head), key_tile, shape);
        load_tile<W>(values, packed_head(qkv, shape, shape.heads + shape.kv_heads + kv_head), key_tile, shape);
        __syncthreads();
        float weights[ROWS], dweights[ROWS];
        inner_products<W>(weights, queries, keys, shape.head_dim);
        inner_products<W>(dweights, douts, values, shape.head_dim);
#pragma unroll
        for (u32 r = 0; r < ROWS; r++) {
            bool seen = key_tile + lane <= own_row + r && own_row + r < shape.tokens;
            float probability = seen ? exponential(weights[r] * shape.scale - shift[r]) : 0.0f;
            dweights[r] = seen ? probability * (dweights[r] - mean[r]) * shape.scale : 0.0f;
        }
        add_weighted<W>(dqueries, dweights, keys);
    }
    const float factors[ROWS] = {1.0f, 1.0f, 1.0f, 1.0f};
    store_rows<W>(packed_head(dqkv, shape, head), dqueries, factors, first, shape);
}

#define ATTENTION(W, T, t)                                                                                            \
    KERNEL(attention_d##W##_##t, 256, T *out, float *log_sum, const T *qkv, SHAPE) {                                  \
        attention<W>(out, log_sum, qkv, GIVEN_SHAPE);                                                                 \
    }                                                                                                                 \
    KERNEL(attention_keys_d##W##_##t, 256, T *dqkv, const T *dout, const T *qkv, const float *log_sum,                \
           const float *delta, SHAPE, float *partial, u32 shares) {                                                   \
        attention_keys<W>(dqkv, dout, qkv, log_sum, delta, GIVEN_SHAPE, partial, shares);                             \
    }                                                                                                                 \
    KERNEL(attention_queries_d##W##_##t, 256, T *dqkv, const T *dout, const T *qkv, const float *log_sum,             \
           const float *delta, SHAPE) {                                                                               \
        attention_queries<W>(dqkv, dout, qkv, log_sum, delta, GIVEN_SHAPE);                                           \
    }
#define ATTENTION_OF_EVERY_WIDTH(T, t) ATTENTION(32, T, t) ATTENTION(64, T, t) ATTENTION(128, T, t)
FOR_EACH_TYPE(ATTENTION_OF_EVERY_WIDTH)
