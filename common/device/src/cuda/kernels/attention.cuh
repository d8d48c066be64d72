// Positions of heads in packed projections, for tiled attention. In a grid, x counts heads, y
// sequences, z tiles: GPUs start blocks in this order, so the longest of all heads and sequences
// come first, and heads that share keys together.
#ifndef ATTENTION_CUH
#define ATTENTION_CUH
#include "types.cuh"

// Shape of the packed projections: a row holds all query heads, then all key heads, then all value
// heads.
struct Shape {
    u32 tokens, heads, kv_heads, head_dim;
    float scale;

    __device__ u32 packed_width() const { return (heads + 2 * kv_heads) * head_dim; }
    __device__ u32 width() const { return heads * head_dim; }
    __device__ u32 group() const { return heads / kv_heads; }
    __device__ u64 first_row() const { return u64(blockIdx.y) * tokens; }
    // The position of a head's statistics in [batch, heads, tokens].
    __device__ u64 statistics(u32 head) const { return (u64(blockIdx.y) * heads + head) * tokens; }
};

// A head of the block's sequence in a matrix whose rows are `stride` apart.
template <class T> struct Head {
    T *data;
    u32 stride;
};

template <class T> __device__ inline Head<T> packed_head(T *qkv, const Shape &shape, u32 head) {
    u32 stride = shape.packed_width();
    return {qkv + shape.first_row() * stride + head * shape.head_dim, stride};
}

template <class T> __device__ inline Head<T> out_head(T *out, const Shape &shape, u32 head) {
    u32 stride = shape.width();
    return {out + shape.first_row() * stride + head * shape.head_dim, stride};
}

// The part of a key/value head's gradients that a block adds up: from all query heads of its group,
// or from those of one of `shares` of it. x counts the shares of all heads.
struct Share {
    u32 kv_head, number, first, end;

    __device__ Share(const Shape &shape, u32 shares) {
        u32 heads = shape.group() / shares;
        kv_head = blockIdx.x / shares, number = blockIdx.x % shares;
        first = (kv_head * shares + number) * heads, end = first + heads;
    }

    // The position of a share that is not the whole: in f32 [shares, sequences · tokens, 2 ·
    // kv_heads · head_dim], all keys' heads before values'.
    __device__ Head<float> head(float *partial, const Shape &shape, u32 head) const {
        u32 stride = 2 * shape.kv_heads * shape.head_dim;
        u64 row = u64(number) * gridDim.y * shape.tokens + shape.first_row();
        return {partial + row * stride + head * shape.head_dim, stride};
    }
};

// A shape as a kernel's parameters, and made from them.
#define SHAPE u32 tokens, u32 heads, u32 kv_heads, u32 head_dim, float scale
#define GIVEN_SHAPE Shape{tokens, heads, kv_heads, head_dim, scale}

#endif
