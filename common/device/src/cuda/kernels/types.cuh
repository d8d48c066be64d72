// Element types, chunks of eight elements, and how a kernel is declared.
//
// Arithmetic is f32 whatever the storage. Widening is exact; narrowing rounds to nearest, ties to
// even. A chunk is read and written in pieces of at most 16 bytes if it is whole and aligned to
// them, and element by element otherwise.
#ifndef TYPES_CUH
#define TYPES_CUH

typedef unsigned int u32;
typedef unsigned long long u64;

// Defined by the host shim in its own way.
#ifndef SHIM
// A kernel for blocks of at most `threads` threads.
#define KERNEL(name, threads, ...) extern "C" __global__ void __launch_bounds__(threads) name(__VA_ARGS__)
// A kernel with few enough registers for `blocks` of its blocks at once on a multiprocessor.
#define KERNEL_AT_ONCE(blocks, name, threads, ...) \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(__VA_ARGS__)
// An array of the block's shared memory.
#define SHARED(type, name, count) __shared__ type name[count]
// The shared memory whose size the launch gives; it begins at a multiple of 1024 bytes.
#define DYNAMIC_SHARED(type, name)                                    \
    extern __shared__ __align__(1024) unsigned char dynamic_shared[]; \
    type *name = reinterpret_cast<type *>(dynamic_shared)
#endif

#define FOR_EACH_TYPE(X) X(float, f32) X(bf16, bf16) X(f16, f16)
#define FOR_EACH_PAIR(X)                                                              \
    X(float, f32, float, f32) X(float, f32, bf16, bf16) X(float, f32, f16, f16)       \
    X(bf16, bf16, float, f32) X(bf16, bf16, bf16, bf16) X(bf16, bf16, f16, f16)       \
    X(f16, f16, float, f32) X(f16, f16, bf16, bf16) X(f16, f16, f16, f16)

struct bf16 {
    unsigned short bits;
};

struct f16 {
    unsigned short bits;
};

__device__ inline float widen(float x) { return x; }

__device__ inline float widen(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }

__device__ inline float widen(f16 x) {
#ifdef SHIM
    return shim::widen_f16(x.bits);
#else
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
#endif
}

template <class T> __device__ inline T narrow(float x);

template <> __device__ inline float narrow<float>(float x) { return x; }

template <> __device__ inline bf16 narrow<bf16>(float x) {
    bf16 narrow;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
#else
    u32 bits = __float_as_uint(x);
    u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    u32 quiet = bits >> 16 | 0x40;
    narrow.bits = static_cast<unsigned short>(x != x ? quiet : rounded);
#endif
    return narrow;
}

template <> __device__ inline f16 narrow<f16>(float x) {
    f16 narrow;
#ifdef SHIM
    narrow.bits = shim::narrow_f16(x);
#else
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(x));
#endif
    return narrow;
}

__device__ inline u32 stored_bits(float x) { return __float_as_uint(x); }

template <class T> __device__ inline u32 stored_bits(T x) { return x.bits; }

// Elements that a thread handles at a time, unless its kernel says otherwise.
constexpr u32 CHUNK = 8;

// A word of two rounded elements, the first in its low half.
template <class T> __device__ inline u32 pack(float first, float second) {
    return u32(narrow<T>(first).bits) | u32(narrow<T>(second).bits) << 16;
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
template <> __device__ inline u32 pack<bf16>(float first, float second) {
    u32 word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

template <> __device__ inline u32 pack<f16>(float first, float second) {
    u32 word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}
#endif

__device__ inline void store_whole(float *to, const float (&from)[CHUNK]) {
    reinterpret_cast<float4 *>(to)[0] = make_float4(from[0], from[1], from[2], from[3]);
    reinterpret_cast<float4 *>(to)[1] = make_float4(from[4], from[5], from[6], from[7]);
}

template <class T> __device__ inline void store_whole(T *to, const float (&from)[CHUNK]) {
    u32 a = pack<T>(from[0], from[1]), b = pack<T>(from[2], from[3]);
    u32 c = pack<T>(from[4], from[5]), d = pack<T>(from[6], from[7]);
    *reinterpret_cast<uint4 *>(to) = make_uint4(a, b, c, d);
}

__device__ inline void store_whole(float *to, const float (&from)[4]) {
    *reinterpret_cast<float4 *>(to) = make_float4(from[0], from[1], from[2], from[3]);
}

template <class T> __device__ inline void store_whole(T *to, const float (&from)[4]) {
    *reinterpret_cast<uint2 *>(to) = make_uint2(pack<T>(from[0], from[1]), pack<T>(from[2], from[3]));
}

// True if a chunk of N elements can be moved in whole pieces.
template <u32 N, class T> __device__ inline bool is_aligned(const T *chunk) {
    constexpr size_t piece = N * sizeof(T) < 16 ? N * sizeof(T) : 16;
    return reinterpret_cast<size_t>(chunk) % piece == 0;
}

// Elements of a chunk that starts at `start` and belongs to `len` elements.
template <u32 N = CHUNK, class Size> __device__ inline u32 chunk_count(Size start, Size len) {
    return len - start < N ? static_cast<u32>(len - start) : N;
}

// A chunk of N elements as it is stored: `count` elements, then zeros. Arithmetic on a load waits
// for it, so a thread that needs several chunks loads all of them in this form before it widens
// any.
template <u32 N, class T> struct Stored {
    static constexpr u32 PER_WORD = 4 / sizeof(T);
    u32 words[N / PER_WORD];

    __device__ void load(const T *from, u32 count) {
        if (count == N && is_aligned<N>(from)) return load_whole(words, from);
#pragma unroll
        for (u32 word = 0; word < N / PER_WORD; word++) words[word] = 0;
#pragma unroll
        for (u32 i = 0; i < N; i++)
            if (i < count) words[i / PER_WORD] |= stored_bits(from[i]) << i % PER_WORD * 16;
    }

    __device__ void widen_to(float (&to)[N]) const {
#pragma unroll
        for (u32 i = 0; i < N; i++) to[i] = element(words[i / PER_WORD] >> i % PER_WORD * 16, T());
    }

  private:
    __device__ static float element(u32 bits, float) { return __uint_as_float(bits); }
    template <class U> __device__ static float element(u32 bits, U) { return widen(U{static_cast<unsigned short>(bits)}); }

    __device__ static void load_whole(u32 (&to)[2], const T *from) {
        uint2 words = *reinterpret_cast<const uint2 *>(from);
        to[0] = words.x, to[1] = words.y;
    }

    template <u32 M> __device__ static void load_whole(u32 (&to)[M], const T *from) {
#pragma unroll
        for (u32 i = 0; i < M / 4; i++) {
            uint4 words = reinterpret_cast<const uint4 *>(from)[i];
            to[4 * i] = words.x, to[4 * i + 1] = words.y, to[4 * i + 2] = words.z, to[4 * i + 3] = words.w;
        }
    }
};

__device__ inline void load_chunks(u32) {}

// `to` = `count` elements, then zeros; and so on for further pairs. All loads are in flight at
// once.
template <u32 N, class T, class... More>
__device__ inline void load_chunks(u32 count, float (&to)[N], const T *from, More &&...more) {
    Stored<N, T> stored;
    stored.load(from, count);
    load_chunks(count, more...);
    stored.widen_to(to);
}

// Prefetches into cache, for a load that will be issued after others have arrived.
__device__ inline void prefetch(const void *from) {
#ifndef SHIM
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
#endif
}

// The first `count` elements, rounded.
template <u32 N, class T> __device__ inline void store_chunk(T *to, const float (&from)[N], u32 count) {
    if (count == N && is_aligned<N>(to)) return store_whole(to, from);
#pragma unroll
    for (u32 i = 0; i < N; i++)
        if (i < count) to[i] = narrow<T>(from[i]);
}

#endif
