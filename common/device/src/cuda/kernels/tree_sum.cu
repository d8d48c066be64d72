// Sums over ranks, in f32 over a balanced binary tree, rounded once: ranks split at the largest
// power of two below their count, so (0+1)+2 for three and ((0+1)+(2+3))+4 for five. The order of
// the CPU's collectives, so their bits. A thread sums a chunk.
#include "types.cuh"

constexpr u32 PEERS = 64;

// Addresses in the order of ranks.
struct Peers {
    void *at[PEERS];
};

// The position of a chunk in every rank's tensor.
template <class T> struct Chunk {
    const Peers &peers;
    u64 start;
    u32 length;

    __device__ void load(Stored<CHUNK, T> &to, u32 rank) const {
        to.load(static_cast<const T *>(peers.at[rank]) + start, length);
    }
};

__device__ inline void add_to(float (&left)[CHUNK], const float (&right)[CHUNK]) {
#pragma unroll
    for (u32 i = 0; i < CHUNK; i++) left[i] += right[i];
}

// `sum` = that of `span` chunks, a power of two.
template <u32 span, class T> __device__ inline void add_up(float (&sum)[CHUNK], const Stored<CHUNK, T> *chunks) {
    if constexpr (span == 1) {
        chunks->widen_to(sum);
    } else {
        float right[CHUNK];
        add_up<span / 2>(sum, chunks);
        add_up<span / 2>(right, chunks + span / 2);
        add_to(sum, right);
    }
}

// `sum` = the chunks of `span` ranks from `first`, a power of two: all loads are in flight at once.
template <u32 span, class T> __device__ inline void sum_all(float (&sum)[CHUNK], const Chunk<T> &chunk, u32 first) {
    Stored<CHUNK, T> chunks[span];
#pragma unroll
    for (u32 i = 0; i < span; i++) chunk.load(chunks[i], first + i);
    add_up<span>(sum, chunks);
}

// `sum` = the chunks of `count` ranks from `first`; `count` is at least 1 and at most `span`.
template <u32 span, class T> __device__ inline void sum_some(float (&sum)[CHUNK], const Chunk<T> &chunk, u32 first, u32 count) {
    if (count == span) return sum_all<span>(sum, chunk, first);
    if constexpr (span > 1) {
        if (count <= span / 2) return sum_some<span / 2>(sum, chunk, first, count);
        float right[CHUNK];
        sum_all<span / 2>(sum, chunk, first);
        sum_some<span / 2>(right, chunk, first + span / 2, count - span / 2);
        add_to(sum, right);
    }
}

// Ranks that are summed without stored partial sums.
constexpr u32 GROUP = 8;

// Levels of the tree above groups.
constexpr u32 LEVELS = 3;

// `sum` = the chunks of all `count` ranks. Groups are leaves of a tree: `held[level]` is the sum of
// the 2^level groups before this one for which there is no partner yet, so the bits of a group's
// number say which levels are held.
template <class T> __device__ inline void sum_ranks(float (&sum)[CHUNK], const Chunk<T> &chunk, u32 count) {
    float held[LEVELS][CHUNK];
    for (u32 group = 0;; group++) {
        u32 first = group * GROUP, left = count - first;
        sum_some<GROUP>(sum, chunk, first, left < GROUP ? left : GROUP);
        bool last = left <= GROUP, pending = true;
#pragma unroll
        for (u32 level = 0; level < LEVELS; level++) {
            bool is_held = group >> level & 1;
            if (pending && is_held) add_to(sum, held[level]);
            if (pending && !is_held && !last) {
                pending = false;
#pragma unroll
                for (u32 i = 0; i < CHUNK; i++) held[level][i] = sum[i];
            }
        }
        if (last) return;
    }
}

// outputs[0..output_count] = Σ inputs[0..count]; an output may be an input where the types are the
// same.
template <class Output, class T>
__device__ inline void tree_sum(const Peers &outputs, const Peers &inputs, u32 output_count, u32 count, u64 len) {
    u64 start = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * CHUNK;
    if (start >= len) return;
    Chunk<T> chunk = {inputs, start, chunk_count(start, len)};
    float sum[CHUNK];
    sum_ranks(sum, chunk, count);
    for (u32 rank = 0; rank < output_count; rank++)
        store_chunk(static_cast<Output *>(outputs.at[rank]) + start, sum, chunk.length);
}

#define TREE_SUM(T, t)                                                                               \
    KERNEL(tree_sum_##t, 256, Peers outputs, Peers inputs, u32 output_count, u32 count, u64 len) {   \
        tree_sum<T, T>(outputs, inputs, output_count, count, len);                                   \
    }                                                                                                \
    KERNEL(tree_sum_exact_##t, 256, Peers outputs, Peers inputs, u32 output_count, u32 count, u64 len) { \
        tree_sum<float, T>(outputs, inputs, output_count, count, len);                               \
    }
FOR_EACH_TYPE(TREE_SUM)
