// What the kernels of attention's backward pass on tensor cores share: the softmax, over sums in the
// tensor cores' layout, and where gradients of keys and values go.
//
// Probabilities are computed again from the scores and the logarithms of their denominators. Each
// query has such a logarithm, in powers of e, and a mean of its probabilities' gradients.
#ifndef ATTENTION_BACKWARD_CUH
#define ATTENTION_BACKWARD_CUH
#include "math.cuh"
#include "tile.cuh"

// A statistic of a lane's rows in M tiles; `outside` where there is no such row.
template <u32 M> __device__ inline PerRow<M> row_statistics(const float *statistics, u32 first, u32 tokens, float outside) {
    PerRow<M> own(outside);
#pragma unroll
    for (u32 m = 0; m < M; m++)
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
            u32 row = first + own_row(m, half);
            if (row < tokens) own.at[m][half] = statistics[row];
        }
    return own;
}

// A statistic of each query, for sums whose rows are queries.
template <u32 M> struct OfRows {
    PerRow<M> own;

    __device__ float at(u32 m, u32, u32 i) const { return own.at[m][i / 2]; }
};

// A statistic of each query, for sums whose columns are queries; `all` begins with the first one's.
struct OfColumns {
    const float *all;

    __device__ float at(u32, u32 n, u32 i) const { return all[8 * n + lane_column() + i % 2]; }
};

// score = 2^(score · unit − log · log₂ e): probabilities in place of scores.
template <u32 M, u32 N, class Logs> __device__ inline void take_probabilities(Sums<M, N> &scores, const Logs &logs, float unit) {
#pragma unroll
    for (u32 n = 0; n < N; n++)
#pragma unroll
        for (u32 i = 0; i < 4; i++)
#pragma unroll
            for (u32 m = 0; m < M; m++)
                scores.at[m][n][i] = power_of_two(fmaf(scores.at[m][n][i], unit, -(logs.at(m, n, i) * LOG2_E)));
}

// gradient = probability · (gradient − mean): the scaled scores' gradients in place of the
// probabilities'.
template <u32 M, u32 N, class Means>
__device__ inline void take_gradients(Sums<M, N> &gradients, const Sums<M, N> &probabilities, const Means &means) {
#pragma unroll
    for (u32 n = 0; n < N; n++)
#pragma unroll
        for (u32 i = 0; i < 4; i++)
#pragma unroll
            for (u32 m = 0; m < M; m++)
                gradients.at[m][n][i] = probabilities.at[m][n][i] * (gradients.at[m][n][i] - means.at(m, n, i));
}

// Stores the gradients of keys `first`.. and their values: in `dqkv`, or in `partial` if others add
// up shares of them.
template <u32 W, u32 M, class T>
__device__ inline void store_key_gradients(T *dqkv, float *partial, u32 shares, const Shape &shape, const Sums<M, W / 8> &dkeys,
                                           const Sums<M, W / 8> &dvalues, u32 first) {
    const Share share(shape, shares);
    const PerRow<M> scaled(shape.scale), plain(1.0f);
    auto store = [&](u32 head, const Sums<M, W / 8> &sums, const PerRow<M> &factors) {
        if (shares == 1) store_rows<W>(packed_head(dqkv, shape, shape.heads + head), sums, factors, first, shape.tokens);
        else store_rows<W>(share.head(partial, shape, head), sums, factors, first, shape.tokens);
    };
    store(share.kv_head, dkeys, scaled), store(shape.kv_heads + share.kv_head, dvalues, plain);
}

#endif
