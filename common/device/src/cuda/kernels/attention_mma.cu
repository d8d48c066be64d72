// Causal attention on tensor cores, forward and backward (Dao et al., 2022; Dao, 2023), for bf16 and f16 and heads of 64 or 128
// elements. Products are summed in f32; probabilities are rounded to the storage type before they are multiplied on.
//
// A block owns a tile of queries or keys (`tile.cuh`), and a warp 16 of its rows. Tiles of the other kind stream through shared
// memory, the next one on its way while one is computed with.
#include "attention.cuh"
#include "block.cuh"
#include "math.cuh"
#include "tile.cuh"

constexpr float LOG2_E = 1.44269504088896340736f;

// The statistics of a lane's two rows.
struct RowStatistics {
    float at[2];

    // `outside` where there is no such row.
    __device__ RowStatistics(const float *statistics, u32 first, u32 tokens, float outside) {
        for (u32 half = 0; half < 2; half++) {
            u32 row = first + warp_row() + lane_row() + 8 * half;
            at[half] = row < tokens ? statistics[row] : outside;
        }
    }
};

// Softmax of scores that come tile by tile (Milakov & Gimelshein, 2018), for a lane's two rows; in powers of two.
struct OnlineSoftmax {
    float largest[2], total[2];

    __device__ OnlineSoftmax() {
        for (u32 half = 0; half < 2; half++) largest[half] = -infinity(), total[half] = 0.0f;
    }

    // `scores` become their powers; `sums`, computed so far, are scaled to the new largest score. `total` is of the lane's own
    // columns.
    template <u32 N, u32 M> __device__ void step(Sums<N> &scores, Sums<M> &sums, float scale) {
        float unit = scale * LOG2_E;
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            float larger = largest[half];
#pragma unroll
            for (u32 n = 0; n < N; n++)
                larger = Larger()(Larger()(larger, scores.at[n][2 * half]), scores.at[n][2 * half + 1]);
            larger = warp_reduce<4>(larger, Larger());
            float kept = power_of_two((largest[half] - larger) * unit), shift = larger * unit;
            largest[half] = larger;
            total[half] *= kept;
#pragma unroll
            for (u32 m = 0; m < M; m++) sums.at[m][2 * half] *= kept, sums.at[m][2 * half + 1] *= kept;
#pragma unroll
            for (u32 n = 0; n < N; n++)
#pragma unroll
                for (u32 i = 2 * half; i < 2 * half + 2; i++) {
                    scores.at[n][i] = power_of_two(fmaf(scores.at[n][i], unit, -shift));
                    total[half] += scores.at[n][i];
                }
        }
    }
};

// Hides the keys behind each query: `rows` are queries first_row.., columns keys first_column...
template <u32 N> __device__ inline void hide_later_keys(Sums<N> &scores, u32 first_row, u32 first_column) {
#pragma unroll
    for (u32 n = 0; n < N; n++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 row = first_row + lane_row() + i / 2 * 8, column = first_column + 8 * n + lane_column() + i % 2;
            if (column > row) scores.at[n][i] = -infinity();
        }
}

// The same with keys as rows and queries as columns.
template <u32 N> __device__ inline void hide_earlier_queries(Sums<N> &scores, u32 first_row, u32 first_column) {
#pragma unroll
    for (u32 n = 0; n < N; n++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 row = first_row + lane_row() + i / 2 * 8, column = first_column + 8 * n + lane_column() + i % 2;
            if (row > column) scores.at[n][i] = -infinity();
        }
}

// out = softmax(q · kᵀ · scale + causal mask) · v, log_sum = log of the denominators. A block per tile of queries, the longest rows
// first, head and sequence. Dynamic shared memory: the queries, and two tiles each of keys and values.
template <u32 W, class T>
__device__ inline void attention(T *out, float *log_sum, const T *qkv, const Shape &shape) {
    DYNAMIC_SHARED(T, shared);
    const Tile<W, T> queries = {shared}, keys = queries.number(1), values = queries.number(3);
    u32 own = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, kv_head = head / shape.group();
    Head<const T> key_head = packed_head(qkv, shape, shape.heads + kv_head);
    Head<const T> value_head = packed_head(qkv, shape, shape.heads + shape.kv_heads + kv_head);
    queries.fetch(packed_head(qkv, shape, head), own * TILE, shape.tokens);
    keys.fetch(key_head, 0, shape.tokens);
    commit_copies();
    values.fetch(value_head, 0, shape.tokens);
    commit_copies();
    Sums<W / 8> sums;
    sums.clear();
    OnlineSoftmax softmax;
    for (u32 tile = 0; tile <= own; tile++) {
        u32 now = tile % 2, next = 1 - now;
        // The keys are here; the values may be on their way.
        wait_for_copies<1>();
        __syncthreads();
        if (tile < own) keys.number(next).fetch(key_head, (tile + 1) * TILE, shape.tokens);
        commit_copies();
        Sums<TILE / 8> scores;
        row_products(scores, queries, warp_row(), keys.number(now), 0);
        if (tile == own) hide_later_keys(scores, warp_row(), 0);
        softmax.step(scores, sums, shape.scale);
        wait_for_copies<1>();
        __syncthreads();
        if (tile < own) values.number(next).fetch(value_head, (tile + 1) * TILE, shape.tokens);
        commit_copies();
        add_weighted(sums, scores, values.number(now), 0);
    }
    float factors[2];
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        float total = warp_reduce<4>(softmax.total[half], Sum());
        u32 row = own * TILE + warp_row() + lane_row() + 8 * half;
        factors[half] = 1.0f / total;
        if (lane_column() == 0 && row < shape.tokens)
            log_sum[shape.statistics(head) + row] = softmax.largest[half] * shape.scale + logf(total);
    }
    store_rows<W>(out_head(out, shape, head), sums, factors, own * TILE, shape.tokens);
}

// Queries that are computed with at a time: as many as registers hold sums for.
template <u32 W> constexpr u32 QUERIES_AT_ONCE = W == 64 ? 64 : 32;

// Probabilities and the gradient of scaled scores, keys as rows: scores = 2^(scores · unit − shift), dscores = scores ∘ (dscores − mean),
// where each query, a column, has its shift and mean.
template <u32 N>
__device__ inline void softmax_backward_by_column(Sums<N> &scores, Sums<N> &dscores, const float *shifts, const float *means,
                                                  float unit) {
#pragma unroll
    for (u32 n = 0; n < N; n++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) {
            u32 column = 8 * n + lane_column() + i % 2;
            scores.at[n][i] = power_of_two(fmaf(scores.at[n][i], unit, -shifts[column]));
            dscores.at[n][i] = scores.at[n][i] * (dscores.at[n][i] - means[column]);
        }
}

// dv = Pᵀ·dout and dk = dSᵀ·q, with P the probabilities and dS = P ∘ (dout·vᵀ − delta) · scale. A block per tile of keys, key/value
// head and sequence; it adds up over the query heads of its group and their tiles in order. Keys are rows here, so that Pᵀ and dSᵀ
// are left operands straight from registers. Dynamic shared memory: keys, values, and two tiles each of queries and of the
// output's gradient; then two tiles' shifts and means, f32.
template <u32 W, class T>
__device__ inline void attention_keys(T *dqkv, const T *dout, const T *qkv, const float *log_sum, const float *delta,
                                      const Shape &shape) {
    DYNAMIC_SHARED(T, shared);
    const Tile<W, T> keys = {shared}, values = keys.number(1), queries = keys.number(2), douts = keys.number(4);
    float *statistics = reinterpret_cast<float *>(shared + 6 * TILE * W);
    u32 own = blockIdx.x, first_head = blockIdx.y * shape.group();
    u32 tiles = (shape.tokens + TILE - 1) / TILE - own, steps = tiles * shape.group();
    float unit = shape.scale * LOG2_E;
    // Step s takes tile own + s % tiles of the group's head s / tiles.
    auto fetch = [&](u32 step, u32 to) {
        u32 head = first_head + step / tiles, first = (own + step % tiles) * TILE;
        queries.number(to).fetch(packed_head(qkv, shape, head), first, shape.tokens);
        douts.number(to).fetch(out_head(dout, shape, head), first, shape.tokens);
        float *shifts = statistics + to * 2 * TILE, *means = shifts + TILE;
        if (threadIdx.x < TILE) {
            bool inside = first + threadIdx.x < shape.tokens;
            u64 at = shape.statistics(head) + first + threadIdx.x;
            // 2^(x − ∞) = 0: queries behind the last count for nothing.
            shifts[threadIdx.x] = inside ? log_sum[at] * LOG2_E : infinity();
            means[threadIdx.x] = inside ? delta[at] : 0.0f;
        }
    };
    keys.fetch(packed_head(qkv, shape, shape.heads + blockIdx.y), own * TILE, shape.tokens);
    values.fetch(packed_head(qkv, shape, shape.heads + shape.kv_heads + blockIdx.y), own * TILE, shape.tokens);
    fetch(0, 0);
    commit_copies();
    Sums<W / 8> dkeys, dvalues;
    dkeys.clear(), dvalues.clear();
    for (u32 step = 0; step < steps; step++) {
        u32 now = step % 2;
        wait_for_copies<0>();
        __syncthreads();
        if (step + 1 < steps) fetch(step + 1, 1 - now);
        commit_copies();
        const float *shifts = statistics + now * 2 * TILE, *means = shifts + TILE;
        constexpr u32 count = QUERIES_AT_ONCE<W>;
#pragma unroll 1
        for (u32 first = 0; first < TILE; first += count) {
            Sums<count / 8> weights, dweights;
            row_products(weights, keys, warp_row(), queries.number(now), first);
            if (step % tiles == 0) hide_earlier_queries(weights, warp_row(), first);
            row_products(dweights, values, warp_row(), douts.number(now), first);
            softmax_backward_by_column(weights, dweights, shifts + first, means + first, unit);
            add_weighted(dvalues, weights, douts.number(now), first);
            add_weighted(dkeys, dweights, queries.number(now), first);
        }
    }
    const float scaled[2] = {shape.scale, shape.scale}, plain[2] = {1.0f, 1.0f};
    store_rows<W>(packed_head(dqkv, shape, shape.heads + blockIdx.y), dkeys, scaled, own * TILE, shape.tokens);
    store_rows<W>(packed_head(dqkv, shape, shape.heads + shape.kv_heads + blockIdx.y), dvalues, plain, own * TILE, shape.tokens);
}

// dq = dS·k. A block per tile of queries, the longest rows first, head and sequence. Dynamic shared memory: queries, their output's
// gradient, and two tiles each of keys and values.
template <u32 W, class T>
__device__ inline void attention_queries(T *dqkv, const T *dout, const T *qkv, const float *log_sum, const float *delta,
                                         const Shape &shape) {
    DYNAMIC_SHARED(T, shared);
    const Tile<W, T> queries = {shared}, douts = queries.number(1), keys = queries.number(2), values = queries.number(4);
    u32 own = gridDim.x - 1 - blockIdx.x, head = blockIdx.y, kv_head = head / shape.group();
    Head<const T> key_head = packed_head(qkv, shape, shape.heads + kv_head);
    Head<const T> value_head = packed_head(qkv, shape, shape.heads + shape.kv_heads + kv_head);
    float unit = shape.scale * LOG2_E;
    RowStatistics shift(log_sum + shape.statistics(head), own * TILE, shape.tokens, infinity());
    RowStatistics mean(delta + shape.statistics(head), own * TILE, shape.tokens, 0.0f);
    queries.fetch(packed_head(qkv, shape, head), own * TILE, shape.tokens);
    douts.fetch(out_head(dout, shape, head), own * TILE, shape.tokens);
    keys.fetch(key_head, 0, shape.tokens);
    values.fetch(value_head, 0, shape.tokens);
    commit_copies();
    Sums<W / 8> dqueries;
    dqueries.clear();
    for (u32 tile = 0; tile <= own; tile++) {
        u32 now = tile % 2;
        wait_for_copies<0>();
        __syncthreads();
        if (tile < own) {
            keys.number(1 - now).fetch(key_head, (tile + 1) * TILE, shape.tokens);
            values.number(1 - now).fetch(value_head, (tile + 1) * TILE, shape.tokens);
        }
        commit_copies();
        Sums<TILE / 8> weights, dweights;
        row_products(weights, queries, warp_row(), keys.number(now), 0);
        if (tile == own) hide_later_keys(weights, warp_row(), 0);
        row_products(dweights, douts, warp_row(), values.number(now), 0);
#pragma unroll
        for (u32 n = 0; n < TILE / 8; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                float weight = power_of_two(fmaf(weights.at[n][i], unit, -shift.at[i / 2] * LOG2_E));
                dweights.at[n][i] = weight * (dweights.at[n][i] - mean.at[i / 2]);
            }
        add_weighted(dqueries, dweights, keys.number(now), 0);
    }
    const float scaled[2] = {shape.scale, shape.scale};
    store_rows<W>(packed_head(dqkv, shape, head), dqueries, scaled, own * TILE, shape.tokens);
}

#define ATTENTION_MMA(W, T, t)                                                                                        \
    KERNEL(attention_mma_d##W##_##t, 128, T *out, float *log_sum, const T *qkv, SHAPE) {                              \
        attention<W>(out, log_sum, qkv, GIVEN_SHAPE);                                                                 \
    }                                                                                                                 \
    KERNEL_AT_ONCE(W == 64 ? 3 : 2, attention_mma_keys_d##W##_##t, 128, T *dqkv, const T *dout, const T *qkv,         \
                   const float *log_sum, const float *delta, SHAPE) {                                                 \
        attention_keys<W>(dqkv, dout, qkv, log_sum, delta, GIVEN_SHAPE);                                              \
    }                                                                                                                 \
    KERNEL(attention_mma_queries_d##W##_##t, 128, T *dqkv, const T *dout, const T *qkv, const float *log_sum,         \
           const float *delta, SHAPE) {                                                                               \
        attention_queries<W>(dqkv, dout, qkv, log_sum, delta, GIVEN_SHAPE);                                           \
    }
#define OF_BOTH_WIDTHS(T, t) ATTENTION_MMA(64, T, t) ATTENTION_MMA(128, T, t)
OF_BOTH_WIDTHS(bf16, bf16)
OF_BOTH_WIDTHS(f16, f16)
