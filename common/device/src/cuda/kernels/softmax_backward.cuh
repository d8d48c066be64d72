// The softmax of attention, backward: probabilities again from scores and the logarithms of their
// denominators, and the gradients of scores, over sums in the tensor cores' layout. Each query has a
// logarithm, in powers of e, and a mean of its probabilities' gradients.
#ifndef SOFTMAX_BACKWARD_CUH
#define SOFTMAX_BACKWARD_CUH
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

// The logarithms or means of the queries that a lane's sums belong to. With queries as rows:
template <u32 M> struct OfRows {
    PerRow<M> own;

    __device__ float at(u32 m, u32, u32 i) const { return own.at[m][i / 2]; }
};

// With keys as rows, a query is a column.
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

// gradient = probability · (gradient − mean): the scaled scores' gradients in place of
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

#endif
