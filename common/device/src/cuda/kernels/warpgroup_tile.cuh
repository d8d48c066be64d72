// Tiles of heads as operands of products of warpgroups. Of a block of several warpgroups, each owns
// one tile of 64 rows, and all share those that stream through shared memory.
#ifndef WARPGROUP_TILE_CUH
#define WARPGROUP_TILE_CUH
#include "tile.cuh"
#include "warpgroup.cuh"

constexpr u32 STEPS = TILE / 16;

// The warpgroup's number in its block, known to be the same for all lanes of a warp.
__device__ inline u32 warpgroup() { return __shfl_sync(ALL_LANES, threadIdx.x / WARPGROUP, 0); }

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

// One of a block's N threads and its share of the copies of a head, tile after tile from row `first`
// on.
template <u32 W, u32 N, class T> struct Feed {
    static constexpr u32 PIECES = W / 8, ROWS = N / PIECES;
    const T *from;
    u32 stride, row, to;

    __device__ Feed(Head<const T> head, u32 first) : stride(head.stride) {
        u32 thread = thread_here(), place = thread / PIECES, piece = thread % PIECES;
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

// A warpgroup's tile as left operands: the first HELD steps of 16 columns in registers, others where
// they were copied to.
template <u32 W, int HELD, class T> struct LeftTile {
    static constexpr int ALL = W / 16;
    u32 held[HELD > 0 ? HELD : 1][4];
    u64 panels;

    __device__ void load(PanelTile<W, T> tile) {
        u32 lane = own_lane(), place = panel_place(lane % 16, lane / 16) + warp_row() % TILE * PANEL_ROW;
#pragma unroll
        for (int step = 0; step < HELD; step++) {
            u32 panel = tile.at + step / STEPS * tile.PANEL_BYTES;
            load_matrices(held[step], tile.base, panel + (place ^ 32 * (step % STEPS)));
        }
        panels = tile.described();
    }

    // Issues sums = this tile · rightᵀ.
    __device__ void multiply_rows(Sums<1, TILE / 8> &sums, PanelTile<W, T> right) const {
        u64 rows = right.described();
        begin_products();
#pragma unroll
        for (int step = 0; step < HELD; step++) multiply<false>(sums.at[0], held[step], right.columns(rows, step), step > 0, T());
#pragma unroll
        for (int step = HELD; step < ALL; step++)
            multiply(sums.at[0], PanelTile<W, T>::columns(panels, step), right.columns(rows, step), step > 0, T());
        commit_products();
    }
};

// Rounded probabilities, or their gradients, as left operands.
template <class T> struct Weights {
    u32 left[STEPS][4];

    __device__ void round(const Sums<1, TILE / 8> &exact) {
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) exact.template as_left<T>(left[step], 0, step);
    }

    // Issues sums += weights · right.
    template <u32 W> __device__ void add_weighted(Sums<1, W / 8> &sums, PanelTile<W, T> right) {
        hold(sums.at[0]), hold(left);
        u64 panels = right.described();
        begin_products();
#pragma unroll
        for (u32 step = 0; step < STEPS; step++) multiply<true>(sums.at[0], left[step], panel_rows(panels, step), true, T());
        commit_products();
    }
};

// Shows what copies that this thread has waited for have written to all threads of the block, and
// to their products.
__device__ inline void show_copies() {
    show_to_products();
    __syncthreads();
}

#endif
