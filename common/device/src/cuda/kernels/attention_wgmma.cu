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
#include "warpgroup.cuh"

constexpr u32 STEPS = TILE / 16;

// A tile of 64 rows of W elements in shared memory, a panel per 64 columns.
template <u32 W, class T> struct PanelTile {
    static constexpr u32 BYTES = TILE * W * 2, PANEL_BYTES = TILE * PANEL_ROW;
    T *base;
    // Bytes from `base`.
    u32 at;

    // One of the tiles that follow each other from here.
    __device__ PanelTile number(u32 i) const { return {base, at + i * BYTES}; }

    __device__ u64 described() const { return describe_panels(base, at, PANEL_BYTES); }

    // Columns 16·step.. + 16 in a description.
    __device__ static u64 columns(u64 panels, u32 step) {
        return panel_columns(panels + (step / STEPS * PANEL_BYTES >> 4), step % STEPS);
    }
};

// A thread's share of the copies of a head, tile after tile from row `first` on.
template <u32 W, class T> struct Feed {
    static constexpr u32 PIECES = W / 8, ROWS = WARPGROUP / PIECES;
    const T *from;
    u32 stride, row, to;

    __device__ Feed(Head<const T> head, u32 first) : stride(head.stride) {
        u32 place = threadIdx.x / PIECES, piece = threadIdx.x % PIECES;
        row = first + place, to = piece / 8 * PanelTile<W, T>::PANEL_BYTES + panel_place(place, piece % 8);
        from = head.data + u64(row) * stride + piece * 8;
    }

    // Starts to copy the thread's pieces of the next tile, of the head that begins `past` elements
    // after the feed's; zeros past the last row.
    __device__ void copy(PanelTile<W, T> tile, u32 tokens, u32 past = 0) const {
#pragma unroll
        for (u32 done = 0; done < TILE; done += ROWS)
            copy_async(tile.base, tile.at + to + done * PANEL_ROW, from + past + u64(done) * stride, row + done >= tokens);
    }

    __device__ void advance() { from += u64(TILE) * stride, row += TILE; }
};

// The block's queries as left operands: columns of the first panel in registers, others where they
// were copied to.
template <u32 W, class T> struct Queries {
    u32 left[STEPS][4];
    u64 panels;

    __device__ void load(PanelTile<W, T> tile) {
        u32 lane = own_lane(), place = panel_place(lane % 16, lane / 16) + warp_row() * PANEL_ROW;
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) load_matrices(left[step], tile.base, tile.at + (place ^ 32 * step));
        panels = tile.described();
    }

    // Issues the products with a tile of keys.
    __device__ void multiply_keys(Sums<1, TILE / 8> &scores, PanelTile<W, T> tile) const {
        u64 keys = tile.described();
        begin_products();
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) multiply<false>(scores.at[0], left[step], tile.columns(keys, step), step > 0, T());
#pragma unroll
        for (u32 step = STEPS; step < W / 16; step++)
            multiply(scores.at[0], tile.columns(panels, step), tile.columns(keys, step), true, T());
        commit_products();
    }
};

// Rounded probabilities as left operands.
template <class T> struct Weights {
    u32 left[STEPS][4];

    __device__ void round(const Sums<1, TILE / 8> &powers) {
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) powers.template as_left<T>(left[step], 0, step);
    }

    // Issues the products with a tile of values.
    template <u32 W> __device__ void multiply_values(Sums<1, W / 8> &sums, PanelTile<W, T> values) {
        hold(sums.at[0]), hold(left);
        u64 panels = values.described();
        begin_products();
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) multiply<true>(sums.at[0], left[step], panel_rows(panels, step), true, T());
        commit_products();
    }
};

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
    Feed<W, T> feed(packed_head(qkv, shape, shape.heads + kv_head), 0);
    // Waits for tile `tile` of keys and the one before of values, and starts to copy the next ones
    // to where every warp is done.
    auto next = [&](u32 tile) {
        wait_for_copies<0>();
        show_to_products();
        __syncthreads();
        if (tile == tiles) return;
        feed.copy(values.number(tile % 2), shape.tokens, shape.kv_heads * shape.head_dim);
        feed.advance();
        if (tile + 1 < tiles) feed.copy(keys.number((tile + 1) % 2), shape.tokens);
        commit_copies();
    };
    Feed<W, T>(packed_head(qkv, shape, head), own * TILE).copy(own_queries, shape.tokens);
    feed.copy(keys, shape.tokens);
    commit_copies();
    next(0);
    Queries<W, T> queries;
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
    queries.multiply_keys(scores, keys);
    take_scores(0, [] { wait_for_products<0>(); });
    for (u32 tile = 1; tile < tiles; tile++) {
        wait_for_products<0>();
        hold(sums.at[0]);
        weights.round(scores);
        next(tile);
        queries.multiply_keys(scores, keys.number(tile % 2));
        scale_rows(sums, kept);
        weights.multiply_values(sums, values.number((tile - 1) % 2));
        take_scores(tile, [] { wait_for_products<1>(); });
    }
    wait_for_products<0>();
    hold(sums.at[0]);
    weights.round(scores);
    next(tiles);
    scale_rows(sums, kept);
    weights.multiply_values(sums, values.number(own % 2));
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
