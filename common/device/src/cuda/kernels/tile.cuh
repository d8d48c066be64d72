// Tiles of heads in shared memory, and their products on tensor cores.
//
// A tile has 64 rows. A block of 4 warps owns one or two, and a warp 16 rows of each, so that a load
// from another tile serves both: with one, shared memory is busy for longer than tensor cores. Of a
// block of two warpgroups, each owns one.
// Sums stay in registers in the tensor cores' layout: of each 8 columns a lane holds two neighbours
// in two rows, 8 apart. In shared memory, 16-byte pieces of a row are permuted by the row's number,
// so that the eight rows of a matrix load hit different banks.
#ifndef TILE_CUH
#define TILE_CUH
#include "attention.cuh"
#include "block.cuh"
#include "mma.cuh"

constexpr u32 TILE = 64;
constexpr u32 THREADS = 128;

// This thread's number, read again at each use, so that values computed from it occupy no registers
// across a loop.
__device__ inline u32 thread_here() {
#ifdef SHIM
    return threadIdx.x;
#else
    u32 thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
#endif
}

__device__ inline u32 own_lane() { return threadIdx.x % WARP; }
// First of the warp's rows, counted from the block's first tile. The first 4 warps have these rows in
// each of their tiles; those of a second warpgroup lie in the next one.
__device__ inline u32 warp_row() { return threadIdx.x / WARP * 16; }
// The rows of which a lane holds sums, two in each tile, counted from the first tile's first.
__device__ inline u32 own_row(u32 tile, u32 half) { return tile * TILE + warp_row() + own_lane() / 4 + 8 * half; }
// The first of the two columns, among eight.
__device__ inline u32 lane_column() { return own_lane() % 4 * 2; }

// A block's own tiles of queries, and the tiles of keys that they see.
template <u32 M> struct QueryTiles {
    u32 first, seen;

    // The longest rows first.
    __device__ QueryTiles(u32 tokens) {
        u32 tiles = (tokens + TILE - 1) / TILE;
        first = (gridDim.z - 1 - blockIdx.z) * M;
        seen = first + M < tiles ? first + M : tiles;
    }

    __device__ u32 first_row() const { return first * TILE; }
    // True if some own query does not see all keys of a tile.
    __device__ bool hides(u32 tile) const { return tile >= first; }
};

// 64 rows of W elements in shared memory.
template <u32 W, class T> struct Tile {
    T *data;

    // One of the tiles that follow each other from here.
    __device__ Tile number(u32 i) const { return {data + i * TILE * W}; }

    // The position of the 16 bytes from column 8·piece of a row, in bytes from the first. A lane
    // computes one and finds others by place(row + 8·k, piece) = place(row, piece) + place(8·k, 0)
    // and, for pieces 0 and 1, place(row, piece + 2·k) = place(row, piece) ^ 32·k.
    __device__ static u32 place(u32 row, u32 piece) { return row * 2 * W + (piece ^ row % 8) * 16; }

    // Starts to copy rows `first`.. of a head; zeros past its end.
    __device__ void fetch(Head<const T> head, u32 first, u32 tokens) const {
        constexpr u32 ROWS = THREADS * 8 / W;
        u32 thread = thread_here(), row = thread / (W / 8), piece = thread % (W / 8);
        const T *from = head.data + u64(first + row) * head.stride + piece * 8;
#pragma unroll (256 / W)
        for (u32 done = 0; done < TILE; done += ROWS) {
            copy_async(data, place(row, piece) + place(done, 0), from, first + done + row >= tokens);
            from += ROWS * head.stride;
        }
    }

    // Starts to copy M tiles, from this one on.
    template <u32 M> __device__ void fetch_tiles(Head<const T> head, u32 first, u32 tokens) const {
        for (u32 m = 0; m < M; m++) number(m).fetch(head, first + m * TILE, tokens);
    }

    // Rows row.. + 16, columns 16·step.. + 16, as the left operand. Here and below `row` is a
    // multiple of 16.
    __device__ void left(u32 (&to)[4], u32 row, u32 step) const {
        u32 lane = own_lane();
        load_matrices(to, data, (place(lane % 16, lane / 16) ^ 32 * step) + place(row, 0));
    }

    // The transpose of rows row.. + 16, columns 16·step.. + 16, as two right operands: the sum runs
    // over columns.
    __device__ void right_of_rows(u32 (&to)[4], u32 row, u32 step) const {
        u32 lane = own_lane();
        load_matrices(to, data, (place(lane % 8 + lane / 16 * 8, lane / 8 % 2) ^ 32 * step) + place(row, 0));
    }

    // Rows row.. + 16, columns 16·step.. + 16, as two right operands: the sum runs over rows.
    __device__ void right_of_columns(u32 (&to)[4], u32 row, u32 step) const {
        u32 lane = own_lane();
        load_transposed(to, data, (place(lane % 16, lane / 16) ^ 32 * step) + place(row, 0));
    }
};

// A number for each of a lane's rows in M tiles.
template <u32 M> struct PerRow {
    float at[M][2];

    __device__ explicit PerRow(float all) {
#pragma unroll
        for (u32 m = 0; m < M; m++) at[m][0] = at[m][1] = all;
    }
};

// Sums of a warp's 16 rows in each of M tiles, and 8·N columns.
template <u32 M, u32 N> struct Sums {
    float at[M][N][4];

    __device__ void clear() {
#pragma unroll
        for (u32 m = 0; m < M; m++)
#pragma unroll
            for (u32 n = 0; n < N; n++)
#pragma unroll
                for (u32 i = 0; i < 4; i++) at[m][n][i] = 0.0f;
    }

    // += left · (the two right operands for columns 16·pair.. + 16), in tile m
    template <class T> __device__ void add(u32 m, u32 pair, const u32 (&left)[4], const u32 (&right)[4]) {
        const u32 first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
        multiply(at[m][2 * pair], left, first, T());
        multiply(at[m][2 * pair + 1], left, second, T());
    }

    // Columns 16·pair.. + 16 in tile m, rounded, as a left operand.
    template <class T> __device__ void as_left(u32 (&to)[4], u32 m, u32 pair) const {
        const float(&a)[4] = at[m][2 * pair], (&b)[4] = at[m][2 * pair + 1];
        to[0] = pack<T>(a[0], a[1]), to[1] = pack<T>(a[2], a[3]);
        to[2] = pack<T>(b[0], b[1]), to[3] = pack<T>(b[2], b[3]);
    }
};

// sums = (the warp's rows of M tiles from a) · (rows first.. + 8·N of b)ᵀ
template <u32 M, u32 N, u32 W, class T>
__device__ inline void row_products(Sums<M, N> &sums, Tile<W, T> a, Tile<W, T> b, u32 first) {
    sums.clear();
#pragma unroll
    for (u32 step = 0; step < W / 16; step++) {
        u32 left[M][4], right[4];
#pragma unroll
        for (u32 m = 0; m < M; m++) a.number(m).left(left[m], warp_row(), step);
#pragma unroll
        for (u32 pair = 0; pair < N / 2; pair++) {
            b.right_of_rows(right, first + 16 * pair, step);
#pragma unroll
            for (u32 m = 0; m < M; m++) sums.template add<T>(m, pair, left[m], right);
        }
    }
}

// sums += weights · (rows first.. + 8·N of b)
template <u32 M, u32 N, u32 W, class T>
__device__ inline void add_weighted(Sums<M, W / 8> &sums, const Sums<M, N> &weights, Tile<W, T> b, u32 first) {
#pragma unroll
    for (u32 block = 0; block < N / 2; block++) {
        u32 left[M][4], right[4];
#pragma unroll
        for (u32 m = 0; m < M; m++) weights.template as_left<T>(left[m], m, block);
#pragma unroll
        for (u32 pair = 0; pair < W / 16; pair++) {
            b.right_of_columns(right, first + 16 * block, pair);
#pragma unroll
            for (u32 m = 0; m < M; m++) sums.template add<T>(m, pair, left[m], right);
        }
    }
}

template <class T> __device__ inline void store_pair(T *to, float a, float b) { *reinterpret_cast<u32 *>(to) = pack<T>(a, b); }

__device__ inline void store_pair(float *to, float a, float b) { to[0] = a, to[1] = b; }

// Rows of a head from `first`, a tile after another = sums · factors.
template <u32 W, u32 M, class T>
__device__ inline void store_rows(Head<T> head, const Sums<M, W / 8> &sums, const PerRow<M> &factors, u32 first, u32 tokens) {
#pragma unroll
    for (u32 m = 0; m < M; m++)
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            u32 row = first + own_row(m, half);
            if (row >= tokens) continue;
            T *to = head.data + u64(row) * head.stride + lane_column();
#pragma unroll
            for (u32 n = 0; n < W / 8; n++) {
                float a = sums.at[m][n][2 * half] * factors.at[m][half], b = sums.at[m][n][2 * half + 1] * factors.at[m][half];
                store_pair(to + 8 * n, a, b);
            }
        }
}

#endif
