// Causal attention, backward, by products of warpgroups (Shah et al., 2024), for bf16 and f16 and
// heads of 64 or 128 elements. Sums are f32; probabilities and their gradients are rounded to the
// storage type before the next product.
//
// A block is two warpgroups, each with a tile of 64 keys or queries; tiles of the other kind stream
// through shared memory for both. A multiprocessor's registers suffice for one such block. So that
// tensor cores have products while probabilities are computed, a warpgroup issues all that it can
// before it waits for scores, and the two are half a tile apart: at a barrier the first is about to
// begin a tile, and the second has computed the probabilities of the one before.
#include "attention.cuh"
#include "attention_backward.cuh"
#include "block.cuh"
#include "online_softmax.cuh"
#include "tile.cuh"
#include "warpgroup_tile.cuh"

constexpr u32 OWN = 2, BLOCK = OWN * WARPGROUP;

// Streamed tiles of a kind in shared memory, for heads of W elements: one that a warpgroup begins,
// the two before it, which products of the other one may still read, and AHEAD in flight.
template <u32 W> constexpr u32 AHEAD = W == 64 ? 2 : 1;
template <u32 W> constexpr u32 STAGES = AHEAD<W> + 3;

template <u32 W> __device__ inline u32 stage_after(u32 stage) { return stage + 1 < STAGES<W> ? stage + 1 : 0; }

// Waits until the next streamed tile has arrived, and all warps are done with the third before it,
// whose place the next copies take.
template <u32 W> __device__ inline void meet() {
    wait_for_copies<AHEAD<W> - 1>();
    show_copies();
}

// Starts to copy a tile of a head's keys and of its values, or the gradient of the output for the
// queries.
template <u32 W, class T>
__device__ inline void copy_key_tile(PanelTile<W, T> keys, PanelTile<W, T> values, const T *qkv, const Shape &shape, u32 kv_head, u32 tile) {
    Feed<W, BLOCK, T> feed(packed_head(qkv, shape, shape.heads + kv_head), tile * TILE);
    feed.copy(keys, shape.tokens);
    feed.copy(values, shape.tokens, shape.kv_heads * shape.head_dim);
}

template <u32 W, class T>
__device__ inline void copy_query_tile(PanelTile<W, T> queries, PanelTile<W, T> douts, const T *qkv, const T *dout, const Shape &shape,
                                       u32 head, u32 tile) {
    Feed<W, BLOCK, T>(packed_head(qkv, shape, head), tile * TILE).copy(queries, shape.tokens);
    Feed<W, BLOCK, T>(out_head(dout, shape, head), tile * TILE).copy(douts, shape.tokens);
}

// Starts to copy the logarithms of a tile of queries, then their means; zeros past the last query.
__device__ inline void copy_statistics(float *to, const float *log_sum, const float *delta, const Shape &shape, u32 head, u32 tile) {
    u32 thread = thread_here(), query = tile * TILE + thread % TILE;
    const float *from = thread < TILE ? log_sum : delta;
    if (thread < 2 * TILE) copy_word_async(to + thread, from + shape.statistics(head) + query, query >= shape.tokens);
}

// A statistic of a lane's rows, of those of its warpgroup's tile.
__device__ inline OfRows<1> of_own_rows(const float *of_tile) {
    OfRows<1> rows = {PerRow<1>(0.0f)};
#pragma unroll
    for (u32 half = 0; half < 2; half++) rows.own.at[0][half] = of_tile[own_row(0, half) % TILE];
    return rows;
}

// dv = Pᵀ·dout and dk = dSᵀ·q, with P the probabilities and dS = P ∘ (dout·vᵀ − delta) · scale. A
// block per two tiles of keys, key/value head, or share of it, and sequence; it adds up over the
// query heads of its group and their tiles in order. Keys are rows here, so that Pᵀ and dSᵀ are left
// operands straight from registers. Dynamic shared memory: keys, values, and stages of queries and of
// the output's gradient; then their statistics, f32.
template <u32 W, class T>
__device__ inline void attention_keys(T *dqkv, const T *dout, const T *qkv, const float *log_sum, const float *delta,
                                      const Shape &shape, float *partial, u32 shares) {
    DYNAMIC_SHARED(T, shared);
    const PanelTile<W, T> keys = {shared, 0}, values = keys.number(OWN), queries = values.number(OWN);
    const PanelTile<W, T> douts = queries.number(STAGES<W>);
    float *statistics = reinterpret_cast<float *>(shared) + douts.number(STAGES<W>).at / sizeof(float);
    const u32 own = blockIdx.z * OWN, tiles = (shape.tokens + TILE - 1) / TILE;
    const Share share(shape, shares);
    const bool leads = warpgroup() == 0;
    float unit = shape.scale * LOG2_E;
    // The stream of tiles: of each head of the group, those from the first own one on.
    u32 coming = (tiles - own) * (share.end - share.first);
    u32 head = share.first, tile = own, arriving = 0;
    // Starts to copy the next tile; does nothing after the last.
    auto fetch = [&] {
        if (head < share.end) {
            copy_query_tile(queries.number(arriving), douts.number(arriving), qkv, dout, shape, head, tile);
            copy_statistics(statistics + arriving * 2 * TILE, log_sum, delta, shape, head, tile);
            arriving = stage_after<W>(arriving);
            if (++tile == tiles) tile = own, head++;
        }
        commit_copies();
    };
    for (u32 i = 0; i < OWN; i++) copy_key_tile(keys.number(i), values.number(i), qkv, shape, share.kv_head, own + i);
    for (u32 i = 0; i < AHEAD<W>; i++) fetch();
    meet<W>();
    // Over heads of 128, sums leave no registers for the own tiles.
    LeftTile<W, W == 64 ? W / 16 : 0, T> own_keys, own_values;
    own_keys.load(keys.number(warpgroup())), own_values.load(values.number(warpgroup()));
    Sums<1, W / 8> dkeys, dvalues;
    dkeys.clear(), dvalues.clear();
    Sums<1, TILE / 8> weights, dweights;
    Weights<T> left, dleft;
    u32 now = own, stage = 0;
    // Takes a tile from scores to the left operand of the keys' gradients, and issues what it adds to
    // the values'. `wait` blocks until the scores are done and leaves later groups of products
    // running. The second warpgroup meets the first here, half a tile after it.
    auto take = [&](auto wait) {
        const bool more = --coming > 0;
        const float *logs = statistics + stage * 2 * TILE, *means = logs + TILE;
        wait();
        hold(weights.at[0]);
        if (now < own + OWN) hide_later_keys<true>(weights, own * TILE, now * TILE);
        take_probabilities(weights, OfColumns{logs}, unit);
        left.round(weights);
        left.add_weighted(dvalues, douts.number(stage));
        if (more && !leads) meet<W>();
        // Over heads of 128, the gradients' left operands need registers of products that are done.
        wait_for_products<W == 64 ? 1 : 0>();
        hold(dweights.at[0]);
        if (more && !leads) fetch();
        take_gradients(dweights, weights, OfColumns{means});
        dleft.round(dweights);
        if (++now == tiles) now = own;
    };
    own_keys.multiply_rows(weights, queries);
    own_values.multiply_rows(dweights, douts);
    fetch();
    take([] { wait_for_products<1>(); });
    while (coming > 0) {
        u32 before = stage;
        stage = stage_after<W>(stage);
        if (leads) meet<W>();
        own_keys.multiply_rows(weights, queries.number(stage));
        dleft.add_weighted(dkeys, queries.number(before));
        own_values.multiply_rows(dweights, douts.number(stage));
        if (leads) fetch();
        take([] { wait_for_products<2>(); });
    }
    dleft.add_weighted(dkeys, queries.number(stage));
    wait_for_products<0>();
    hold(dkeys.at[0]), hold(dvalues.at[0]);
    store_key_gradients<W>(dqkv, partial, shares, shape, dkeys, dvalues, own * TILE);
}

// dq = dS·k. A block per two tiles of queries, share of the heads (x counts these) and sequence. It
// takes its heads in turn: the own tiles of the next head are copied while one is computed. Dynamic
// shared memory: queries, their output's gradient, and stages of keys and values; then the queries'
// statistics, f32.
template <u32 W, class T>
__device__ inline void attention_queries(T *dqkv, const T *dout, const T *qkv, const float *log_sum, const float *delta,
                                         const Shape &shape) {
    DYNAMIC_SHARED(T, shared);
    const PanelTile<W, T> queries = {shared, 0}, douts = queries.number(OWN), keys = douts.number(OWN);
    const PanelTile<W, T> values = keys.number(STAGES<W>);
    float *statistics = reinterpret_cast<float *>(shared) + values.number(STAGES<W>).at / sizeof(float);
    const QueryTiles<OWN> own(shape.tokens);
    const u32 heads = shape.heads / gridDim.x, end = (blockIdx.x + 1) * heads;
    const bool leads = warpgroup() == 0;
    float unit = shape.scale * LOG2_E;
    u32 head = end - heads, stage = 0;
    // The stream of tiles: of each head, those that the own queries see.
    u32 next_head = head, kv_head = head / shape.group(), next_tile = 0, arriving = 0;
    auto fetch_own = [&](u32 head) {
        for (u32 i = 0; i < OWN; i++) {
            copy_query_tile(queries.number(i), douts.number(i), qkv, dout, shape, head, own.first + i);
            copy_statistics(statistics + i * 2 * TILE, log_sum, delta, shape, head, own.first + i);
        }
    };
    // Starts to copy the next tiles; does nothing after the last.
    auto fetch = [&] {
        if (next_head < end) {
            copy_key_tile(keys.number(arriving), values.number(arriving), qkv, shape, kv_head, next_tile);
            arriving = stage_after<W>(arriving);
            if (++next_tile == own.seen) next_tile = 0, kv_head = ++next_head / shape.group();
        }
        commit_copies();
    };
    fetch_own(head);
    for (u32 i = 0; i < AHEAD<W>; i++) fetch();
    for (; head < end; head++) {
        wait_for_copies<0>();
        show_copies();
        LeftTile<W, W / 16, T> own_queries, own_douts;
        own_queries.load(queries.number(warpgroup())), own_douts.load(douts.number(warpgroup()));
        const float *own_statistics = statistics + warpgroup() * 2 * TILE;
        const OfRows<1> logs = of_own_rows(own_statistics), means = of_own_rows(own_statistics + TILE);
        Sums<1, W / 8> dqueries;
        dqueries.clear();
        Sums<1, TILE / 8> weights, dweights;
        Weights<T> dleft;
        // Takes a tile from scores to the left operand of the queries' gradients. `wait` blocks until
        // the scores are done; all later products are awaited here. The second warpgroup meets the
        // first here, half a tile after it.
        auto take = [&](u32 tile, auto wait) {
            const bool more = tile + 1 < own.seen;
            wait();
            hold(weights.at[0]);
            if (own.hides(tile)) hide_later_keys<false>(weights, own.first_row(), tile * TILE);
            take_probabilities(weights, logs, unit);
            if (more && !leads) meet<W>();
            wait_for_products<0>();
            hold(dweights.at[0]);
            if (more && !leads) fetch();
            take_gradients(dweights, weights, means);
            dleft.round(dweights);
        };
        own_queries.multiply_rows(weights, keys.number(stage));
        own_douts.multiply_rows(dweights, values.number(stage));
        // Every warp has its own tiles in registers.
        __syncthreads();
        if (head + 1 < end) fetch_own(head + 1);
        fetch();
        take(0, [] { wait_for_products<1>(); });
        for (u32 tile = 1; tile < own.seen; tile++) {
            u32 before = stage;
            stage = stage_after<W>(stage);
            if (leads) meet<W>();
            own_queries.multiply_rows(weights, keys.number(stage));
            dleft.add_weighted(dqueries, keys.number(before));
            own_douts.multiply_rows(dweights, values.number(stage));
            if (leads) fetch();
            take(tile, [] { wait_for_products<2>(); });
        }
        dleft.add_weighted(dqueries, keys.number(stage));
        stage = stage_after<W>(stage);
        wait_for_products<0>();
        hold(dqueries.at[0]);
        const PerRow<1> scaled(shape.scale);
        store_rows<W>(packed_head(dqkv, shape, head), dqueries, scaled, own.first_row(), shape.tokens);
    }
}

#define ATTENTION_WGMMA(W, T, t)                                                                                      \
    KERNEL_AT_ONCE(1, attention_wgmma_keys_d##W##_##t, BLOCK, T *dqkv, const T *dout, const T *qkv,                   \
                   const float *log_sum, const float *delta, SHAPE, float *partial, u32 shares) {                     \
        attention_keys<W>(dqkv, dout, qkv, log_sum, delta, GIVEN_SHAPE, partial, shares);                             \
    }                                                                                                                 \
    KERNEL_AT_ONCE(1, attention_wgmma_queries_d##W##_##t, BLOCK, T *dqkv, const T *dout, const T *qkv,                \
                   const float *log_sum, const float *delta, SHAPE) {                                                 \
        attention_queries<W>(dqkv, dout, qkv, log_sum, delta, GIVEN_SHAPE);                                           \
    }
#define OF_BOTH_WIDTHS(T, t) ATTENTION_WGMMA(64, T, t) ATTENTION_WGMMA(128, T, t)
OF_BOTH_WIDTHS(bf16, bf16)
OF_BOTH_WIDTHS(f16, f16)
