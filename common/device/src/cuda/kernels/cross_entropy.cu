// Cross-entropy of logits, and its gradient in their place, in two passes over a row, of which the
// second reads it from cache. No other memory is used. A block per row.
#include "block.cuh"
#include "math.cuh"

// e^x, fast: a row has as many of them as there are tokens in the vocabulary, twice.
__device__ inline float fast_exponential(float x) { return power_of_two(x * LOG2_E); }

// The largest of some logits, and the sum of e^(logit − largest).
struct Softmax {
    float largest, sum;

    // Counts from a new largest.
    __device__ void rebase(float to) {
        // Skipped for −∞ to −∞, where e^(−∞ − −∞) would be NaN.
        sum = largest == to ? sum : sum * fast_exponential(largest - to);
        largest = to;
    }

    // Adds a logit that is not above the largest. Where that is −∞, so is the logit, and e^−∞ is 0.
    __device__ void add(float logit) { sum += fast_exponential(largest == -infinity() ? logit : logit - largest); }
};

template <class T> __device__ inline Softmax own_part(const T *logits, u32 width) {
    Softmax part = {-infinity(), 0.0f};
    for (u32 start = threadIdx.x * CHUNK; start < width; start += blockDim.x * CHUNK) {
        u32 count = chunk_count(start, width);
        float x[CHUNK];
        load_chunks(count, x, logits + start);
        float largest = part.largest;
#pragma unroll
        for (u32 i = 0; i < CHUNK; i++) largest = i < count && x[i] > largest ? x[i] : largest;
        part.rebase(largest);
#pragma unroll
        for (u32 i = 0; i < CHUNK; i++)
            if (i < count) part.add(x[i]);
    }
    return part;
}

// losses = −log softmax(logits)[target]; logits = (softmax(logits) − onehot(target)) · scale; both 0 where
// the target is `width`: the row has none.
template <class T>
__device__ inline void cross_entropy(float *losses, T *logits, const u32 *targets, u32 width, float scale) {
    u64 row = blockIdx.x;
    u32 target = targets[row];
    bool counts = target != width;
    logits += row * width;
    float target_logit = target < width ? widen(logits[target]) : not_a_number();
    Softmax part = own_part(logits, width);
    float largest = block_reduce(part.largest, -infinity(), Larger());
    part.rebase(largest);
    float sum = block_sum(part.sum);
    if (threadIdx.x == 0) losses[row] = counts ? logf(sum) - (target_logit - largest) : 0.0f;
    float factor = scale / sum;
    for (u32 start = threadIdx.x * CHUNK; start < width; start += blockDim.x * CHUNK) {
        u32 count = chunk_count(start, width);
        float x[CHUNK];
        load_chunks(count, x, logits + start);
#pragma unroll
        for (u32 i = 0; i < CHUNK; i++) {
            x[i] = fast_exponential(x[i] - largest) * factor;
            x[i] = start + i == target ? x[i] - scale : x[i];
            x[i] = counts ? x[i] : 0.0f;
        }
        store_chunk(logits + start, x, count);
    }
}

#define CROSS_ENTROPY(T, t)                                                                                      \
    KERNEL(cross_entropy_##t, 1024, float *losses, T *logits, const u32 *targets, u32 width, float scale) {      \
        cross_entropy(losses, logits, targets, width, scale);                                                    \
    }
FOR_EACH_TYPE(CROSS_ENTROPY)
