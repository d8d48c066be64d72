// Causal attention on tensor cores, forward and backward (Dao et al., 2022; Dao, 2023), for bf16
// and f16 and heads of 64 or 128 elements. Products are summed in f32; probabilities are rounded to
// the storage type before the next product.
//
// A block owns one or two tiles of queries or keys (`tile.cuh`), as many as registers hold sums
// for. Tiles of the other kind stream through shared memory: the next one is being copied while one
// is in use.
#include "attention.cuh"
#include "attention_backward.cuh"
#include "block.cuh"
#include "math.cuh"
#include "online_softmax.cuh"
#include "tile.cuh"

// out = softmax(q · kᵀ · scale + causal mask) · v, log_sum = log of the denominators. A block per M
// tiles of queries, head and sequence. Dynamic shared memory: the queries, and a tile each of keys
// and values; keys arrive while values are in use, and vice versa.
template <u32 W, u32 M, class T>
__device__ inline void attention(T *out, float *log_sum, const T *qkv, const Shape &shape) {
    DYNAMIC_SHARED(T, shared);
    const Tile<W, T> queries = {shared}, keys = queries.number(M), values = keys.number(1);
    const QueryTiles<M> own(shape.tokens);
    u32 head = blockIdx.x, kv_head = head / shape.group();
    Head<const T> key_head = packed_head(qkv, shape, shape.heads + kv_head);
    Head<const T> value_head = packed_head(qkv, shape, shape.heads + shape.kv_heads + kv_head);
    queries.template fetch_tiles<M>(packed_head(qkv, shape, head), own.first_row(), shape.tokens);
    keys.fetch(key_head, 0, shape.tokens);
    commit_copies();
    Sums<M, W / 8> sums;
    sums.clear();
    OnlineSoftmax<M> softmax;
    for (u32 tile = 0; tile < own.seen; tile++) {
        wait_for_copies<0>();
        __syncthreads();
        values.fetch(value_head, tile * TILE, shape.tokens);
        commit_copies();
        Sums<M, TILE / 8> scores;
        row_products(scores, queries, keys, 0);
        if (own.hides(tile)) hide_later_keys<false>(scores, own.first_row(), tile * TILE);
        scale_rows(sums, softmax.update_largest(scores, shape.scale));
        softmax.take_powers(scores, shape.scale);
        wait_for_copies<0>();
        __syncthreads();
        if (tile + 1 < own.seen) keys.fetch(key_head, (tile + 1) * TILE, shape.tokens);
        commit_copies();
        add_weighted(sums, scores, values, 0);
    }
    const PerRow<M> factors = softmax.finish(log_sum + shape.statistics(head), own.first_row(), shape.tokens, shape.scale);
    store_rows<W>(out_head(out, shape, head), sums, factors, own.first_row(), shape.tokens);
}

// dv = Pᵀ·dout and dk = dSᵀ·q, with P the probabilities and dS = P ∘ (dout·vᵀ − delta) · scale. A
// block per M tiles of keys, key/value head, or share of it, and sequence; it adds up over the
// query heads of its group and their tiles in order. Keys are rows here, so that Pᵀ and dSᵀ are
// left operands straight from registers. Dynamic shared memory: keys, values, and two tiles each of
// queries and of the output's gradient; then two tiles' statistics, f32.
template <u32 W, u32 M, class T>
__device__ inline void attention_keys(T *dqkv, const T *dout, const T *qkv, const float *log_sum, const float *delta,
                                      const Shape &shape, float *partial, u32 shares) {
    DYNAMIC_SHARED(T, shared);
    const Tile<W, T> keys = {shared}, values = keys.number(M), queries = values.number(M), douts = queries.number(2);
    float *statistics = reinterpret_cast<float *>(douts.number(2).data);
    // Queries per step: as many as registers hold sums for.
    constexpr u32 AT_ONCE = 32;
    u32 own = blockIdx.z * M, tiles = (shape.tokens + TILE - 1) / TILE;
    const Share share(shape, shares);
    u32 head = share.first, kv_head = share.kv_head;
    float unit = shape.scale * LOG2_E;
    // The stream of tiles: of each head of the group, those from the first own tile on.
    auto fetch = [&](u32 head, u32 tile, u32 to) {
        u32 first = tile * TILE;
        queries.number(to).fetch(packed_head(qkv, shape, head), first, shape.tokens);
        douts.number(to).fetch(out_head(dout, shape, head), first, shape.tokens);
        // Past the last query all are zero, and so are their factors.
        float *logs = statistics + to * 2 * TILE, *means = logs + TILE;
        u32 query = thread_here();
        if (query < TILE) {
            bool outside = first + query >= shape.tokens;
            u64 at = shape.statistics(head) + first + query;
            copy_word_async(logs + query, log_sum + at, outside);
            copy_word_async(means + query, delta + at, outside);
        }
    };
    keys.template fetch_tiles<M>(packed_head(qkv, shape, shape.heads + kv_head), own * TILE, shape.tokens);
    values.template fetch_tiles<M>(packed_head(qkv, shape, shape.heads + shape.kv_heads + kv_head), own * TILE, shape.tokens);
    fetch(head, own, 0);
    commit_copies();
    Sums<M, W / 8> dkeys, dvalues;
    dkeys.clear(), dvalues.clear();
    for (u32 tile = own, now = 0; head < share.end; now = 1 - now) {
        u32 next_tile = tile + 1 < tiles ? tile + 1 : own, next_head = next_tile == own ? head + 1 : head;
        wait_for_copies<0>();
        __syncthreads();
        if (next_head < share.end) fetch(next_head, next_tile, 1 - now);
        commit_copies();
        const float *logs = statistics + now * 2 * TILE, *means = logs + TILE;
#pragma unroll 1
        for (u32 first = 0; first < TILE; first += AT_ONCE) {
            Sums<M, AT_ONCE / 8> weights, dweights;
            row_products(weights, keys, queries.number(now), first);
            if (tile < own + M) hide_later_keys<true>(weights, own * TILE, tile * TILE + first);
            row_products(dweights, values, douts.number(now), first);
            take_probabilities(weights, OfColumns{logs + first}, unit);
            take_gradients(dweights, weights, OfColumns{means + first});
            add_weighted(dvalues, weights, douts.number(now), first);
            add_weighted(dkeys, dweights, queries.number(now), first);
        }
        tile = next_tile, head = next_head;
    }
    store_key_gradients<W>(dqkv, partial, shares, shape, dkeys, dvalues, own * TILE);
}

// dq = dS·k. A block per M tiles of queries, head and sequence. Dynamic shared memory: queries,
// their output's gradient, and two tiles each of keys and values.
template <u32 W, u32 M, class T>
__device__ inline void attention_queries(T *dqkv, const T *dout, const T *qkv, const float *log_sum, const float *delta,
                                         const Shape &shape) {
    DYNAMIC_SHARED(T, shared);
    const Tile<W, T> queries = {shared}, douts = queries.number(M), keys = douts.number(M), values = keys.number(2);
    // Keys per step: as many as registers hold sums for.
    constexpr u32 AT_ONCE = TILE / M;
    const QueryTiles<M> own(shape.tokens);
    u32 head = blockIdx.x, kv_head = head / shape.group();
    Head<const T> key_head = packed_head(qkv, shape, shape.heads + kv_head);
    Head<const T> value_head = packed_head(qkv, shape, shape.heads + shape.kv_heads + kv_head);
    float unit = shape.scale * LOG2_E;
    const OfRows<M> logs = {row_statistics<M>(log_sum + shape.statistics(head), own.first_row(), shape.tokens, infinity())};
    const OfRows<M> means = {row_statistics<M>(delta + shape.statistics(head), own.first_row(), shape.tokens, 0.0f)};
    queries.template fetch_tiles<M>(packed_head(qkv, shape, head), own.first_row(), shape.tokens);
    douts.template fetch_tiles<M>(out_head(dout, shape, head), own.first_row(), shape.tokens);
    keys.fetch(key_head, 0, shape.tokens);
    values.fetch(value_head, 0, shape.tokens);
    commit_copies();
    Sums<M, W / 8> dqueries;
    dqueries.clear();
    for (u32 tile = 0; tile < own.seen; tile++) {
        u32 now = tile % 2;
        wait_for_copies<0>();
        __syncthreads();
        if (tile + 1 < own.seen) {
            keys.number(1 - now).fetch(key_head, (tile + 1) * TILE, shape.tokens);
            values.number(1 - now).fetch(value_head, (tile + 1) * TILE, shape.tokens);
        }
        commit_copies();
#pragma unroll 1
        for (u32 first = 0; first < TILE; first += AT_ONCE) {
            Sums<M, AT_ONCE / 8> weights, dweights;
            row_products(weights, queries, keys.number(now), first);
            if (own.hides(tile)) hide_later_keys<false>(weights, own.first_row(), tile * TILE + first);
            row_products(dweights, douts, values.number(now), first);
            take_probabilities(weights, logs, unit);
            take_gradients(dweights, weights, means);
            add_weighted(dqueries, dweights, keys.number(now), first);
        }
    }
    const PerRow<M> scaled(shape.scale);
    store_rows<W>(packed_head(dqkv, shape, head), dqueries, scaled, own.first_row(), shape.tokens);
}

#define ATTENTION_MMA(W, T, t)                                                                                        \
    KERNEL_AT_ONCE(2, attention_mma_d##W##_##t, 128, T *out, float *log_sum, const T *qkv, SHAPE) {                   \
        attention<W, 2>(out, log_sum, qkv, GIVEN_SHAPE);                                                              \
    }                                                                                                                 \
    KERNEL_AT_ONCE(2, attention_mma_keys_d##W##_##t, 128, T *dqkv, const T *dout, const T *qkv, const float *log_sum, \
                   const float *delta, SHAPE, float *partial, u32 shares) {                                           \
        attention_keys<W, 128 / W>(dqkv, dout, qkv, log_sum, delta, GIVEN_SHAPE, partial, shares);                    \
    }                                                                                                                 \
    KERNEL_AT_ONCE(2, attention_mma_queries_d##W##_##t, 128, T *dqkv, const T *dout, const T *qkv,                    \
                   const float *log_sum, const float *delta, SHAPE) {                                                 \
        attention_queries<W, 128 / W>(dqkv, dout, qkv, log_sum, delta, GIVEN_SHAPE);                                  \
    }
#define OF_BOTH_WIDTHS(T, t) ATTENTION_MMA(64, T, t) ATTENTION_MMA(128, T, t)
OF_BOTH_WIDTHS(bf16, bf16)
OF_BOTH_WIDTHS(f16, f16)
