// Causal attention, forward, by products of warpgroups (Shah et al., 2024), for bf16 and f16 and
// heads of 64 or 128 elements. Sums are f32; probabilities are rounded to the storage type before
// the next product.
//
// A block is one warpgroup, which owns a tile of 64 queries. Keys and values stream through shared
// memory. While tensor cores multiply the block's probabilities by values, it computes the next
// powers; while it waits, tensor cores work for other blocks of the multiprocessor.
#include "attention.cuh"
#include "block.cuh"
#include "online_softmax.cuh"
#include "tile.cuh"
#include "warpgroup_tile.cuh"

// out = softmax(q · kᵀ · scale + causal mask) · v, log_sum = log of the denominators. A block per
// tile of queries, head and sequence. Dynamic shared memory: two tiles each of keys and values, one
// in use while the next arrives, and the queries without their first panel, which passes through the
// last of values.
template <u32 W, class T> __device__ inline void attention(T *out, float *log_sum, const T *qkv, const Shape &shape) {
    DYNAMIC_SHARED(T, shared);
    const PanelTile<W, T> keys = {shared, 0}, values = keys.number(2);
    const PanelTile<W, T> own_queries = {shared, values.number(2).at - values.PANEL_BYTES};
    u32 head = blockIdx.x, kv_head = head / shape.group();
    // The longest rows first.
    u32 own = gridDim.z - 1 - blockIdx.z, tiles = own + 1;
    Feed<W, WARPGROUP, T> feed(packed_head(qkv, shape, shape.heads + kv_head), 0);
    // Waits for tile `tile` of keys and the one before of values, and starts to copy the next ones
    // to where every warp is done.
    auto next = [&](u32 tile) {
        wait_for_copies<0>();
        show_copies();
        if (tile == tiles) return;
        feed.copy(values.number(tile % 2), shape.tokens, shape.kv_heads * shape.head_dim);
        feed.advance();
        if (tile + 1 < tiles) feed.copy(keys.number((tile + 1) % 2), shape.tokens);
        commit_copies();
    };
    Feed<W, WARPGROUP, T>(packed_head(qkv, shape, head), own * TILE).copy(own_queries, shape.tokens);
    feed.copy(keys, shape.tokens);
    commit_copies();
    next(0);
    LeftTile<W, STEPS, T> queries;
    queries.load(own_queries);
    Sums<1, W / 8> sums;
    sums.clear();
    Sums<1, TILE / 8> scores;
    OnlineSoftmax<1> softmax;
    PerRow<1> kept(1.0f);
    Weights<T> weights;
    // Waits for the scores of a tile, behind which `pending` groups of products were issued.
    auto take_scores = [&](u32 tile, auto wait) {
        wait();
        hold(scores.at[0]);
        if (tile == own) hide_later_keys<false>(scores, own * TILE, tile * TILE);
        kept = softmax.update_largest(scores, shape.scale);
        softmax.take_powers(scores, shape.scale);
    };
    queries.multiply_rows(scores, keys);
    take_scores(0, [] { wait_for_products<0>(); });
    for (u32 tile = 1; tile < tiles; tile++) {
        wait_for_products<0>();
        hold(sums.at[0]);
        weights.round(scores);
        next(tile);
        queries.multiply_rows(scores, keys.number(tile % 2));
        scale_rows(sums, kept);
        weights.add_weighted(sums, values.number((tile - 1) % 2));
        take_scores(tile, [] { wait_for_products<1>(); });
    }
    wait_for_products<0>();
    hold(sums.at[0]);
    weights.round(scores);
    next(tiles);
    scale_rows(sums, kept);
    weights.add_weighted(sums, values.number(own % 2));
    wait_for_products<0>();
    hold(sums.at[0]);
    const PerRow<1> factors = softmax.finish(log_sum + shape.statistics(head), own * TILE, shape.tokens, shape.scale);
    store_rows<W>(out_head(out, shape, head), sums, factors, own * TILE, shape.tokens);
}

#define ATTENTION_WGMMA(W, BLOCKS, T, t)                                                                               \
    KERNEL_AT_ONCE(BLOCKS, attention_wgmma_d##W##_##t, WARPGROUP, T *out, float *log_sum, const T *qkv, SHAPE) {       \
        attention<W>(out, log_sum, qkv, GIVEN_SHAPE);                                                                  \
    }
ATTENTION_WGMMA(64, 4, bf16, bf16)
ATTENTION_WGMMA(64, 4, f16, f16)
ATTENTION_WGMMA(128, 3, bf16, bf16)
ATTENTION_WGMMA(128, 3, f16, f16)
