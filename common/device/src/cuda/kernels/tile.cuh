// Tiles of heads in shared memory, and their products on tensor cores.
//
// A tile has 64 rows; a block of 4 warps works on one, and a warp on 16 of its rows. Sums stay in registers in the tensor cores'
// layout: of each 8 columns a lane holds two neighbours in two rows, 8 apart. In shared memory, 16-byte pieces of a row are
// permuted by the row's number, so that the eight rows of a matrix load hit different banks.
#ifndef TILE_CUH
#define TILE_CUH
#include "attention.cuh"
#include "block.cuh"
#include "mma.cuh"

constexpr u32 TILE = 64;
constexpr u32 THREADS = 128;

__device__ inline u32 own_lane() { return threadIdx.x % WARP; }
// First of the warp's rows in its tile.
__device__ inline u32 warp_row() { return threadIdx.x / WARP * 16; }
// The first of the two rows of which a lane holds sums, among the warp's.
__device__ inline u32 lane_row() { return own_lane() / 4; }
// The first of the two columns, among eight.
__device__ inline u32 lane_column() { return own_lane() % 4 * 2; }

// 64 rows of W elements in shared memory.
template <u32 W, class T> struct Tile {
    T *data;

    // One of the tiles that follow each other from here.
    __device__ Tile number(u32 i) const { return {data + i * TILE * W}; }

    // The 16 bytes from column 8·piece of a row.
    __device__ T *at(u32 row, u32 piece) const { return data + row * W + (piece ^ (row % 8)) * 8; }

    // Starts to fetch rows `first`.. of a head; zeros where there are none.
    __device__ void fetch(Head<const T> head, u32 first, u32 tokens) const {
        for (u32 i = threadIdx.x; i < TILE * W / 8; i += THREADS) {
            u32 row = i / (W / 8), piece = i % (W / 8);
            bool outside = first + row >= tokens;
            const T *from = head.data + u64(outside ? 0 : first + row) * head.stride + piece * 8;
            copy_async(at(row, piece), from, outside);
        }
    }

    // Rows row.. + 16, columns 16·step.. + 16, as the left operand.
    __device__ void left(u32 (&to)[4], u32 row, u32 step) const {
        load_matrices(to, at(row + own_lane() % 16, 2 * step + own_lane() / 16));
    }

    // The transpose of rows row.. + 16, columns 16·step.. + 16, as two right operands: the sum runs over columns.
    __device__ void right_of_rows(u32 (&to)[4], u32 row, u32 step) const {
        u32 lane = own_lane();
        load_matrices(to, at(row + lane % 8 + lane / 16 * 8, 2 * step + lane / 8 % 2));
    }

    // Rows row.. + 16, columns 16·step.. + 16, as two right operands: the sum runs over rows.
    __device__ void right_of_columns(u32 (&to)[4], u32 row, u32 step) const {
        load_transposed(to, at(row + own_lane() % 16, 2 * step + own_lane() / 16));
    }
};

// Sums of a warp's 16 rows and 8·N columns.
template <u32 N> struct Sums {
    float at[N][4];

    __device__ void clear() {
#pragma unroll
        for (u32 n = 0; n < N; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) at[n][i] = 0.0f;
    }

    // += left · (the two right operands for columns 16·pair.. + 16)
    template <class T> __device__ void add(u32 pair, const u32 (&left)[4], const u32 (&right)[4]) {
        const u32 first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
        multiply(at[2 * pair], left, first, T());
        multiply(at[2 * pair + 1], left, second, T());
    }

    // Columns 16·pair.. + 16, rounded, as a left operand.
    template <class T> __device__ void as_left(u32 (&to)[4], u32 pair) const {
        const float(&a)[4] = at[2 * pair], (&b)[4] = at[2 * pair + 1];
        to[0] = pack<T>(a[0], a[1]), to[1] = pack<T>(a[2], a[3]);
        to[2] = pack<T>(b[0], b[1]), to[3] = pack<T>(b[2], b[3]);
    }
};

// sums = (rows row.. + 16 of a) · (rows first.. + 8·N of b)ᵀ
template <u32 N, u32 W, class T>
__device__ inline void row_products(Sums<N> &sums, Tile<W, T> a, u32 row, Tile<W, T> b, u32 first) {
    sums.clear();
#pragma unroll
    for (u32 step = 0; step < W / 16; step++) {
        u32 left[4], right[4];
        a.left(left, row, step);
#pragma unroll
        for (u32 pair = 0; pair < N / 2; pair++) {
            b.right_of_rows(right, first + 16 * pair, step);
            sums.template add<T>(pair, left, right);
        }
    }
}

// sums += weights · (rows first.. + 8·N of b)
template <u32 N, u32 W, class T>
__device__ inline void add_weighted(Sums<W / 8> &sums, const Sums<N> &weights, Tile<W, T> b, u32 first) {
#pragma unroll
    for (u32 block = 0; block < N / 2; block++) {
        u32 left[4], right[4];
        weights.template as_left<T>(left, block);
#pragma unroll
        for (u32 pair = 0; pair < W / 16; pair++) {
            b.right_of_columns(right, first + 16 * block, pair);
            sums.template add<T>(pair, left, right);
        }
    }
}

// Row `first` + warp_row() + lane_row() of a head = sums · factors[0], and the row 8 further, with factors[1].
template <u32 W, class T>
__device__ inline void store_rows(Head<T> head, const Sums<W / 8> &sums, const float (&factors)[2], u32 first, u32 tokens) {
#pragma unroll
    for (u32 half = 0; half < 2; half++) {
        u32 row = first + warp_row() + lane_row() + 8 * half;
        if (row >= tokens) continue;
        T *to = head.data + u64(row) * head.stride + lane_column();
#pragma unroll
        for (u32 n = 0; n < W / 8; n++) {
            float a = sums.at[n][2 * half] * factors[half], b = sums.at[n][2 * half + 1] * factors[half];
            *reinterpret_cast<u32 *>(to + 8 * n) = pack<T>(a, b);
        }
    }
}

#endif
