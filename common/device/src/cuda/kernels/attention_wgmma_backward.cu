// Causal attention, backward, by products of warpgroups (Shah et al., 2024), for bf16 and f16 and
// heads of 64 or 128 elements. Sums are f32; probabilities and their gradients are rounded to the
// storage type before the next product.
//
// A block is two warpgroups, each with a tile of 64 keys or queries; tiles of the other kind stream
// through shared memory for both. It has a multiprocessor for itself, since registers hold the sums
// of no more. A warpgroup issues the scores of the next tile before it waits for what it adds up
// from this one, so that tensor cores have products while it computes powers.
#include "attention.cuh"
#include "block.cuh"
#include "online_softmax.cuh"
#include "softmax_backward.cuh"
#include "tile.cuh"
#include "warpgroup_tile.cuh"

constexpr u32 OWN = 2, BLOCK = OWN * WARPGROUP;

// Streamed tiles of a kind in shared memory: this one, the next, whose scores are already being
// computed, and two on their way.
constexpr u32 STAGES = 4;

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
    const PanelTile<W, T> douts = queries.number(STAGES);
    float *statistics = reinterpret_cast<float *>(shared) + douts.number(STAGES).at / sizeof(float);
    u32 own = blockIdx.z * OWN, tiles = (shape.tokens + TILE - 1) / TILE;
    const Share share(shape, shares);
    float unit = shape.scale * LOG2_E;
    // The stream: of each head of the group, tiles from the first own one on.
    u32 count = (tiles - own) * (share.end - share.first);
    u32 head = share.first, tile = own, fetched = 0;
    // Starts to copy the next tile, if there is one.
    auto fetch = [&] {
        if (fetched < count) {
            u32 first = tile * TILE, stage = fetched % STAGES;
            Feed<W, BLOCK, T>(packed_head(qkv, shape, head), first).copy(queries.number(stage), shape.tokens);
            Feed<W, BLOCK, T>(out_head(dout, shape, head), first).copy(douts.number(stage), shape.tokens);
            // Past the last query all are zero, and so are their factors.
            u32 thread = thread_here(), query = first + thread % TILE;
            const float *from = thread < TILE ? log_sum : delta;
            if (thread < 2 * TILE)
                copy_word_async(statistics + stage * 2 * TILE + thread, from + shape.statistics(head) + query, query >= shape.tokens);
            fetched++;
            if (++tile == tiles) tile = own, head++;
        }
        commit_copies();
    };
    Head<const T> key_head = packed_head(qkv, shape, shape.heads + share.kv_head);
    for (u32 i = 0; i < OWN; i++) {
        Feed<W, BLOCK, T> feed(key_head, (own + i) * TILE);
        feed.copy(keys.number(i), shape.tokens);
        feed.copy(values.number(i), shape.tokens, shape.kv_heads * shape.head_dim);
    }
    for (u32 i = 0; i < STAGES - 2; i++) fetch();
    wait_for_copies<STAGES - 3>();
    show_copies();
    // Where sums leave no registers for own tiles, products read them from shared memory.
    constexpr int HELD = W == 64 ? W / 16 : 0;
    LeftTile<W, HELD, T> own_keys, own_values;
    own_keys.load(keys.number(warpgroup())), own_values.load(values.number(warpgroup()));
    Sums<1, W / 8> dkeys, dvalues;
    dkeys.clear(), dvalues.clear();
    Sums<1, TILE / 8> weights, dweights;
    Weights<T> left, dleft;
    u32 now = own;
    // Takes the scores of a tile, behind which one more group of products was issued.
    auto take = [&](u32 i, auto wait) {
        const float *logs = statistics + i % STAGES * 2 * TILE, *means = logs + TILE;
        wait();
        hold(weights.at[0]);
        if (now < own + OWN) hide_later_keys<true>(weights, own * TILE, now * TILE);
        take_probabilities(weights, OfColumns{logs}, unit);
        left.round(weights);
        left.add_weighted(dvalues, douts.number(i % STAGES));
        wait_for_products<W == 64 ? 1 : 0>();
        hold(dweights.at[0]);
        take_gradients(dweights, weights, OfColumns{means});
        dleft.round(dweights);
        if (++now == tiles) now = own;
    };
    own_keys.multiply_rows(weights, queries);
    own_values.multiply_rows(dweights, douts);
    fetch();
    take(0, [] { wait_for_products<1>(); });
    for (u32 i = 1; i < count; i++) {
        wait_for_copies<STAGES - 3>();
        show_copies();
        own_keys.multiply_rows(weights, queries.number(i % STAGES));
        dleft.add_weighted(dkeys, queries.number((i - 1) % STAGES));
        own_values.multiply_rows(dweights, douts.number(i % STAGES));
        fetch();
        take(i, [] { wait_for_products<2>(); });
    }
    dleft.add_weighted(dkeys, queries.number((count - 1) % STAGES));
    wait_for_products<0>();
    hold(dkeys.at[0]), hold(dvalues.at[0]);
    const PerRow<1> scaled(shape.scale), plain(1.0f);
    auto store = [&](u32 head, const Sums<1, W / 8> &sums, const PerRow<1> &factors) {
        if (shares == 1) store_rows<W>(packed_head(dqkv, shape, shape.heads + head), sums, factors, own * TILE, shape.tokens);
        else store_rows<W>(share.head(partial, shape, head), sums, factors, own * TILE, shape.tokens);
    };
    store(share.kv_head, dkeys, scaled), store(shape.kv_heads + share.kv_head, dvalues, plain);
}

// dq = dS·k. A block per two tiles of queries, share of the heads (x counts these) and sequence. It
// takes its heads in turn: the first tiles of one are copied while it computes the one before.
// Dynamic shared memory: queries, their output's gradient, and stages of keys and values.
template <u32 W, class T>
__device__ inline void attention_queries(T *dqkv, const T *dout, const T *qkv, const float *log_sum, const float *delta,
                                         const Shape &shape) {
    DYNAMIC_SHARED(T, shared);
    const PanelTile<W, T> queries = {shared, 0}, douts = queries.number(OWN), keys = douts.number(OWN);
    const PanelTile<W, T> values = keys.number(STAGES);
    const QueryTiles<OWN> own(shape.tokens);
    u32 heads = shape.heads / gridDim.x, first_head = blockIdx.x * heads, end = first_head + heads;
    float unit = shape.scale * LOG2_E;
    auto fetch_own = [&](u32 head) {
        for (u32 i = 0; i < OWN; i++) {
            u32 first = own.first_row() + i * TILE;
            Feed<W, BLOCK, T>(packed_head(qkv, shape, head), first).copy(queries.number(i), shape.tokens);
            Feed<W, BLOCK, T>(out_head(dout, shape, head), first).copy(douts.number(i), shape.tokens);
        }
    };
    u32 count = own.seen * heads;
    u32 next_head = first_head, next_tile = 0, fetched = 0;
    // Starts to copy the next tiles of keys and values, if there are any.
    auto fetch = [&] {
        if (fetched < count) {
            u32 stage = fetched % STAGES;
            Feed<W, BLOCK, T> feed(packed_head(qkv, shape, shape.heads + next_head / shape.group()), next_tile * TILE);
            feed.copy(keys.number(stage), shape.tokens);
            feed.copy(values.number(stage), shape.tokens, shape.kv_heads * shape.head_dim);
            fetched++;
            if (++next_tile == own.seen) next_tile = 0, next_head++;
        }
        commit_copies();
    };
    fetch_own(first_head);
    for (u32 i = 0; i < STAGES - 2; i++) fetch();
    u32 stage = 0;
    for (u32 head = first_head; head < end; head++) {
        wait_for_copies<0>();
        show_copies();
        LeftTile<W, W / 16, T> own_queries, own_douts;
        own_queries.load(queries.number(warpgroup())), own_douts.load(douts.number(warpgroup()));
        const float *logs_here = log_sum + shape.statistics(head), *means_here = delta + shape.statistics(head);
        const OfRows<1> logs = {row_statistics<1>(logs_here, own.first_row(), shape.tokens, infinity())};
        const OfRows<1> means = {row_statistics<1>(means_here, own.first_row(), shape.tokens, 0.0f)};
        Sums<1, W / 8> dqueries;
        dqueries.clear();
        Sums<1, TILE / 8> weights, dweights;
        Weights<T> dleft;
        auto take = [&](u32 tile, auto wait) {
            wait();
            hold(weights.at[0]);
            if (own.hides(tile)) hide_later_keys<false>(weights, own.first_row(), tile * TILE);
            take_probabilities(weights, logs, unit);
            wait_for_products<0>();
            hold(dweights.at[0]);
            take_gradients(dweights, weights, means);
            dleft.round(dweights);
        };
        own_queries.multiply_rows(weights, keys.number(stage));
        own_douts.multiply_rows(dweights, values.number(stage));
        __syncthreads();
        if (head + 1 < end) fetch_own(head + 1);
        fetch();
        take(0, [] { wait_for_products<1>(); });
        for (u32 tile = 1; tile < own.seen; tile++) {
            u32 last = stage;
            stage = (stage + 1) % STAGES;
            wait_for_copies<STAGES - 3>();
            show_copies();
            own_queries.multiply_rows(weights, keys.number(stage));
            dleft.add_weighted(dqueries, keys.number(last));
            own_douts.multiply_rows(dweights, values.number(stage));
            fetch();
            take(tile, [] { wait_for_products<2>(); });
        }
        dleft.add_weighted(dqueries, keys.number(stage));
        stage = (stage + 1) % STAGES;
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
