// The softmax of attention over scores that come tile by tile (Milakov & Gimelshein, 2018), in
// powers of two, and its causal mask, over sums in the tensor cores' layout.
#ifndef ONLINE_SOFTMAX_CUH
#define ONLINE_SOFTMAX_CUH
#include "math.cuh"
#include "tile.cuh"

// Softmax for a lane's rows in M tiles.
template <u32 M> struct OnlineSoftmax {
    PerRow<M> largest, total;

    __device__ OnlineSoftmax() : largest(-infinity()), total(0.0f) {}

    // Takes note of the largest scores. Returns the factors that scale what was summed before to them.
    template <u32 N> __device__ PerRow<M> update_largest(const Sums<M, N> &scores, float scale) {
        PerRow<M> kept(1.0f);
#pragma unroll
        for (u32 m = 0; m < M; m++)
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                float larger = largest.at[m][half];
#pragma unroll
                for (u32 n = 0; n < N; n++)
                    larger = Larger()(Larger()(larger, scores.at[m][n][2 * half]), scores.at[m][n][2 * half + 1]);
                larger = warp_reduce<4>(larger, Larger());
                kept.at[m][half] = power_of_two((largest.at[m][half] - larger) * (scale * LOG2_E));
                largest.at[m][half] = larger;
                total.at[m][half] *= kept.at[m][half];
            }
        return kept;
    }

    // Replaces scores, none above the largest, by their powers. `total` covers the lane's own columns.
    template <u32 N> __device__ void take_powers(Sums<M, N> &scores, float scale) {
        float unit = scale * LOG2_E;
#pragma unroll
        for (u32 m = 0; m < M; m++)
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                float shift = largest.at[m][half] * unit;
#pragma unroll
                for (u32 n = 0; n < N; n++)
#pragma unroll
                    for (u32 i = 2 * half; i < 2 * half + 2; i++) {
                        scores.at[m][n][i] = power_of_two(fmaf(scores.at[m][n][i], unit, -shift));
                        total.at[m][half] += scores.at[m][n][i];
                    }
            }
    }

    // Stores the logarithms of the denominators of rows `first`.. and returns the denominators'
    // inverses.
    __device__ PerRow<M> finish(float *log_sum, u32 first, u32 tokens, float scale) const {
        PerRow<M> factors(0.0f);
#pragma unroll
        for (u32 m = 0; m < M; m++)
#pragma unroll
            for (u32 half = 0; half < 2; half++) {
                float all = warp_reduce<4>(total.at[m][half], Sum());
                u32 row = first + own_row(m, half);
                factors.at[m][half] = 1.0f / all;
                if (lane_column() == 0 && row < tokens) log_sum[row] = largest.at[m][half] * scale + logf(all);
            }
        return factors;
    }
};

// sums *= factors
template <u32 M, u32 K> __device__ inline void scale_rows(Sums<M, K> &sums, const PerRow<M> &factors) {
#pragma unroll
    for (u32 m = 0; m < M; m++)
#pragma unroll
        for (u32 k = 0; k < K; k++)
#pragma unroll
            for (u32 i = 0; i < 4; i++) sums.at[m][k][i] *= factors.at[m][i / 2];
}

// Columns from a lane's first sum to its sum (m, n, i), less the rows between them.
__device__ inline int sideways(u32 m, u32 n, u32 i) { return int(8 * n + i % 2) - int(TILE * m + i / 2 * 8); }

// Hides scores of keys after their query: rows are queries from first_row on and columns keys from
// first_column, or vice versa.
template <bool KEYS_AS_ROWS, u32 M, u32 N> __device__ inline void hide_later_keys(Sums<M, N> &scores, u32 first_row, u32 first_column) {
    int diagonal = int(first_row + own_row(0, 0)) - int(first_column + lane_column());
#pragma unroll
    for (u32 m = 0; m < M; m++)
#pragma unroll
        for (u32 n = 0; n < N; n++)
#pragma unroll
            for (u32 i = 0; i < 4; i++)
                if (KEYS_AS_ROWS ? sideways(m, n, i) < diagonal : sideways(m, n, i) > diagonal) scores.at[m][n][i] = -infinity();
}

#endif
