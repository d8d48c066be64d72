// AdamW (Loshchilov & Hutter, 2019, algorithm 2) on a flat shard: f32 states, and rounded
// parameters in the same pass. The operations and their order are the CPU kernel's, so the bits are
// too.
#include "types.cuh"

// Elements of a thread: 16 bytes of each state, so that a warp reads and writes without gaps.
constexpr u32 OWN = 4;

struct Factors {
    float gradient_scale, keep_momentum, new_momentum, keep_variance, new_variance, keep_weight, step_size;
    // √(1 − β₂ᵗ)
    float root_correction;
    float eps;
};

__device__ inline void update(float &w, float &m, float &v, float g, const Factors &f) {
    g = g * f.gradient_scale;
    m = f.keep_momentum * m + f.new_momentum * g;
    v = f.keep_variance * v + f.new_variance * (g * g);
    float denominator = sqrtf(v) / f.root_correction + f.eps;
    w = w * f.keep_weight - f.step_size * (m / denominator);
}

// `parameters` = the new `master`, rounded, unless it is null.
template <class P, class G>
__device__ inline void adamw(P *parameters, float *master, float *momentum, float *variance, const G *gradients,
                             const Factors &f, u64 len) {
    u64 start = (u64(blockIdx.x) * blockDim.x + threadIdx.x) * OWN;
    if (start >= len) return;
    u32 count = chunk_count<OWN>(start, len);
    float w[OWN], m[OWN], v[OWN], g[OWN];
    load_chunks(count, w, master + start, m, momentum + start, v, variance + start, g, gradients + start);
#pragma unroll
    for (u32 i = 0; i < OWN; i++) update(w[i], m[i], v[i], g[i], f);
    store_chunk(master + start, w, count);
    store_chunk(momentum + start, m, count);
    store_chunk(variance + start, v, count);
    if (parameters) store_chunk(parameters + start, w, count);
}

#define ADAMW(G, g)                                                                                                  \
    KERNEL(adamw_##g, 256, float *master, float *momentum, float *variance, const G *gradients, Factors f, u64 len) { \
        adamw(static_cast<float *>(nullptr), master, momentum, variance, gradients, f, len);                         \
    }
FOR_EACH_TYPE(ADAMW)

#define ADAMW_ROUNDING(P, p, G, g)                                                                             \
    KERNEL(adamw_rounding_##p##_##g, 256, P *parameters, float *master, float *momentum, float *variance,      \
           const G *gradients, Factors f, u64 len) {                                                           \
        adamw(parameters, master, momentum, variance, gradients, f, len);                                      \
    }
FOR_EACH_PAIR(ADAMW_ROUNDING)
