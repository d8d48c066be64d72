// The kernels between attention's matrix products: the causal softmax of a tile of scores, its
// gradient, the inner products of outputs and their gradients, and rounding of sums.
#include "block.cuh"
#include "math.cuh"

// delta[sequence, head, token] = Σ dout · out over the head. `lanes` of a warp, a power of two, per
// row and head.
template <class T>
__device__ inline void attention_delta(float *delta, const T *dout, const T *out, u32 rows, u32 tokens, u32 heads,
                                       u32 head_dim, u32 lanes) {
    u32 thread = blockIdx.x * blockDim.x + threadIdx.x, item = thread / lanes, lane = thread % lanes;
    u32 row = item / heads, head = item % heads;
    u64 offset = u64(item) * head_dim;
    float sum = 0.0f;
    // Past the last row there is nothing to add, but the warp's lanes still have to meet.
    for (u32 start = lane * CHUNK; row < rows && start < head_dim; start += lanes * CHUNK) {
        u32 count = chunk_count(start, head_dim);
        float douts[CHUNK], outs[CHUNK];
        load_chunks(count, douts, dout + offset + start, outs, out + offset + start);
#pragma unroll
        for (u32 i = 0; i < CHUNK; i++) sum += douts[i] * outs[i];
    }
    for (u32 distance = lanes / 2; distance > 0; distance /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    if (lane == 0 && row < rows) delta[(u64(row / tokens) * heads + head) * tokens + row % tokens] = sum;
}

// One query of a tile [queries, keys]: a block per query.
struct Query {
    u64 scores;
    u32 token, seen;

    __device__ Query(u32 first, u32 keys) {
        scores = u64(blockIdx.x) * keys;
        token = first + blockIdx.x;
        seen = token + 1;
    }
};

// probabilities = softmax(scores · scale) over the keys that the query sees, 0 for the others;
// log_sum = the log of the denominator.
template <class T>
__device__ inline void attention_softmax(T *probabilities, float *log_sum, const float *scores, u32 first, u32 keys,
                                         float scale) {
    Query query(first, keys);
    scores += query.scores, probabilities += query.scores;
    float largest = -infinity(), sum = 0.0f;
    for (u32 key = threadIdx.x; key < query.seen; key += blockDim.x) largest = Larger()(largest, scores[key]);
    largest = block_reduce(largest, -infinity(), Larger()) * scale;
    for (u32 key = threadIdx.x; key < query.seen; key += blockDim.x) sum += exponential(scores[key] * scale - largest);
    sum = block_sum(sum);
    if (threadIdx.x == 0) log_sum[query.token] = largest + logf(sum);
    float factor = 1.0f / sum;
    for (u32 key = threadIdx.x; key < keys; key += blockDim.x)
        probabilities[key] = narrow<T>(key < query.seen ? exponential(scores[key] * scale - largest) * factor : 0.0f);
}

// The probabilities again, and dscores = probabilities · (dprobabilities − delta) · scale; 0 for
// keys that the query does not see.
template <class T>
__device__ inline void attention_softmax_backward(T *probabilities, T *dscores, const float *scores,
                                                  const float *dprobabilities, const float *log_sum, const float *delta,
                                                  u32 first, u32 keys, float scale) {
    Query query(first, keys);
    float shift = log_sum[query.token], mean = delta[query.token];
    for (u32 key = threadIdx.x; key < keys; key += blockDim.x) {
        u64 at = query.scores + key;
        bool seen = key < query.seen;
        float probability = seen ? exponential(scores[at] * scale - shift) : 0.0f;
        float dscore = seen ? probability * (dprobabilities[at] - mean) * scale : 0.0f;
        probabilities[at] = narrow<T>(probability);
        dscores[at] = narrow<T>(dscore);
    }
}

// to[row][column] = Σ from[share][row][column], in order, rounded; rows of `to` are `stride` apart.
// A thread per element.
template <class T>
__device__ inline void attention_store(T *to, const float *from, u32 rows, u32 columns, u32 stride, u32 shares) {
    u32 item = blockIdx.x * blockDim.x + threadIdx.x, items = rows * columns;
    if (item >= items) return;
    float sum = from[item];
    for (u32 share = 1; share < shares; share++) sum += from[u64(share) * items + item];
    to[u64(item / columns) * stride + item % columns] = narrow<T>(sum);
}

#define SOFTMAX(T, t)                                                                                                 \
    KERNEL(attention_delta_##t, 256, float *delta, const T *dout, const T *out, u32 rows, u32 tokens, u32 heads,      \
           u32 head_dim, u32 lanes) {                                                                                 \
        attention_delta(delta, dout, out, rows, tokens, heads, head_dim, lanes);                                      \
    }                                                                                                                 \
    KERNEL(attention_softmax_##t, 256, T *probabilities, float *log_sum, const float *scores, u32 first, u32 keys,    \
           float scale) {                                                                                             \
        attention_softmax(probabilities, log_sum, scores, first, keys, scale);                                        \
    }                                                                                                                 \
    KERNEL(attention_softmax_backward_##t, 256, T *probabilities, T *dscores, const float *scores,                    \
           const float *dprobabilities, const float *log_sum, const float *delta, u32 first, u32 keys,                \
           float scale) {                                                                                             \
        attention_softmax_backward(probabilities, dscores, scores, dprobabilities, log_sum, delta, first, keys,       \
                                   scale);                                                                            \
    }                                                                                                                 \
    KERNEL(attention_store_##t, 256, T *to, const float *from, u32 rows, u32 columns, u32 stride, u32 shares) {       \
        attention_store(to, from, rows, columns, stride, shares);                                                     \
    }
FOR_EACH_TYPE(SOFTMAX)
