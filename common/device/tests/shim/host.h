// CUDA's keywords and functions for the host's compiler, over the fibers of `run.cpp`.
#pragma once
#define SHIM 1
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <utility>

#include "warpgroup.h"

#define __device__
#define __global__

struct uint3 {
    unsigned x, y, z;
};

struct alignas(8) uint2 {
    unsigned x, y;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

namespace shim {

template <class T> T take(const unsigned char *from) {
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}

// What the lanes of a warp give to a step that they take together, and what it sends to them: values of
// one type each, one after the other.
struct Slots {
    unsigned char in[32 * 64], out[32 * 64];

    template <class In> In given(unsigned lane) const { return take<In>(in + lane * sizeof(In)); }
    template <class In> void give(unsigned lane, const In &value) { memcpy(in + lane * sizeof value, &value, sizeof value); }
    template <class Out> Out received(unsigned lane) const { return take<Out>(out + lane * sizeof(Out)); }
    template <class Out> void send(unsigned lane, const Out &value) { memcpy(out + lane * sizeof value, &value, sizeof value); }
};

// Such a step: it reads what every lane has given, and sends to every lane.
using Together = void (*)(Slots &);

// A fiber's place in its launch, and where it meets the lanes of its warp.
struct Thread {
    uint3 thread, block;
    // Its number in the block.
    unsigned index;
    Slots *slots;

    unsigned lane() const { return index % 32; }
};

struct Geometry {
    uint3 block, grid;
};

// The fiber that the calling thread runs. At a fixed place and without a check whether it is
// initialised: another thread-local variable of a library would cost calls.
[[gnu::tls_model("initial-exec")]] extern __thread const Thread *running_thread;

inline const Thread &thread() { return *running_thread; }
const Geometry &geometry();

// Waits for the block's other threads; true if any of them passed true.
bool meet_block(bool vote);

// Waits for the warp's other lanes; the last one runs `together`, which also identifies the step.
void meet_warp(Together together);

// The block's array of this key, poisoned when the first thread asks.
void *shared_array(const void *key, size_t bytes);
void *dynamic_shared_memory();

[[noreturn]] void fail(const char *what);
// Notes an error at the end of a block.
void fail_block(const char *what);

void copy_async(void *to, const void *from, unsigned bytes, bool zero);
void commit_copies();
void wait_for_copies(unsigned pending);

float widen_f16(unsigned short bits);
unsigned short narrow_f16(float x);

// Gives `in` to the warp's step `together`, and returns what the step sends to this lane.
template <class Out, class In> Out meet_warp(const In &in, Together together) {
    static_assert(32 * sizeof in <= sizeof(Slots::in) && 32 * sizeof(Out) <= sizeof(Slots::out));
    const Thread &self = thread();
    self.slots->give(self.lane(), in);
    meet_warp(together);
    return self.slots->received<Out>(self.lane());
}

template <class T> struct FromLane {
    T value;
    unsigned lane;
};

template <class T> T shuffle(unsigned mask, T value, unsigned lane) {
    if (mask != 0xffffffff) fail("a shuffle that is not of the whole warp");
    FromLane<T> in = {value, lane % 32};
    return meet_warp<T>(in, [](Slots &slots) {
        for (unsigned lane = 0; lane < 32; lane++) {
            auto asked = slots.given<FromLane<T>>(lane);
            slots.send(lane, slots.given<FromLane<T>>(asked.lane).value);
        }
    });
}

unsigned ballot(unsigned mask, bool vote);
void load_matrices(unsigned (&to)[4], const void *row, bool transposed);

// A lane's fragments of A, B and the sums.
struct Fragments {
    unsigned a[4], b[2];
    float sums[4];
};

// sums += a · b of 16-bit elements of type T, by the lane tables of mma.m16n8k16.
template <class T> void multiply(float (&sums)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
    Fragments in;
    memcpy(in.a, a, sizeof a), memcpy(in.b, b, sizeof b), memcpy(in.sums, sums, sizeof sums);
    auto out = meet_warp<float4>(in, [](Slots &slots) {
        float left[16][16], right[16][8], sums[16][8];
        // Sum i of lane l: row l/4 + 8·(i/2), column 2·(l%4) + i%2.
        auto sum = [&sums](unsigned lane, unsigned i) -> float & {
            return sums[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
        };
        for (unsigned lane = 0; lane < 32; lane++) {
            auto own = slots.given<Fragments>(lane);
            unsigned group = lane / 4, pair = lane % 4 * 2;
            for (unsigned half = 0; half < 2; half++) {
                auto element = [half](unsigned word) {
                    return widen(T{static_cast<unsigned short>(word >> 16 * half)});
                };
                for (unsigned i = 0; i < 4; i++)
                    left[group + i % 2 * 8][pair + half + i / 2 * 8] = element(own.a[i]);
                for (unsigned i = 0; i < 2; i++) right[pair + half + i * 8][group] = element(own.b[i]);
            }
            for (unsigned i = 0; i < 4; i++) sum(lane, i) = own.sums[i];
        }
        for (unsigned row = 0; row < 16; row++)
            for (unsigned k = 0; k < 16; k++)
                for (unsigned column = 0; column < 8; column++) sums[row][column] += left[row][k] * right[k][column];
        for (unsigned lane = 0; lane < 32; lane++)
            slots.send(lane, make_float4(sum(lane, 0), sum(lane, 1), sum(lane, 2), sum(lane, 3)));
    });
    memcpy(sums, &out, sizeof sums);
}

void issue_product(const Product &product);
void begin_products();
void commit_products();
void wait_for_products(unsigned pending);
void show_to_products();

// The block's dynamic shared memory, and the distance in bytes of a place in it from its begin.
struct SharedMemory {
    const unsigned char *begin;
    size_t bytes;
};

SharedMemory dynamic_shared();
unsigned shared_address(const void *place);

template <class T> float widen_bits(unsigned short bits) { return widen(T{bits}); }

// sums (+)= left · right by the tables of wgmma.mma_async.m64nNk16, N = 8·n.
template <class T, size_t n> void multiply(float (&sums)[n][4], uint64_t left, uint64_t right, bool add) {
    issue_product({8 * n, sums[0], nullptr, left, right, false, add, widen_bits<T>, {}});
}

template <class T, bool over_rows, size_t n>
void multiply(float (&sums)[n][4], const unsigned (&left)[4], uint64_t right, bool add) {
    issue_product({8 * n, sums[0], left, 0, right, over_rows, add, widen_bits<T>, {}});
}

// A kernel by name, and how to call it with an array of the addresses of its arguments.
struct Kernel {
    const char *name;
    unsigned most_threads;
    const char *signature;
    void (*function)();
    void (*call)(void (*function)(), void **arguments);
};

void add_kernel(const Kernel &kernel);

template <class T> constexpr char letter() {
    if constexpr (std::is_pointer_v<T>) return 'p';
    else if constexpr (std::is_same_v<T, unsigned>) return 'u';
    else if constexpr (std::is_same_v<T, unsigned long long>) return 'l';
    else if constexpr (std::is_same_v<T, float>) return 'f';
    else if constexpr (std::is_same_v<T, double>) return 'd';
    else return sizeof(T) == 9 * sizeof(float) ? 'F' : 'P';
}

template <class... A, size_t... I> void spread(void (*function)(A...), void **arguments, std::index_sequence<I...>) {
    function(*static_cast<A *>(arguments[I])...);
}

template <class... A> struct Registration {
    static inline const char signature[] = {letter<A>()..., 0};

    static void call(void (*function)(), void **arguments) {
        auto typed = reinterpret_cast<void (*)(A...)>(function);
        spread(typed, arguments, std::index_sequence_for<A...>());
    }
};

template <class... A> bool register_kernel(const char *name, unsigned most_threads, void (*function)(A...)) {
    using Typed = Registration<A...>;
    add_kernel({name, most_threads, Typed::signature, reinterpret_cast<void (*)()>(function), Typed::call});
    return true;
}

} // namespace shim

#define KERNEL(name, threads, ...)                                                    \
    static void name(__VA_ARGS__);                                                    \
    static const bool name##_is_registered = shim::register_kernel(#name, threads, name); \
    static void name(__VA_ARGS__)
#define KERNEL_AT_ONCE(blocks, ...) KERNEL(__VA_ARGS__)

#define SHARED(type, name, count)  \
    static const char name##_key = 0; \
    type *name = static_cast<type *>(shim::shared_array(&name##_key, (count) * sizeof(type)))
#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(shim::dynamic_shared_memory())

#define threadIdx (shim::thread().thread)
#define blockIdx (shim::thread().block)
#define blockDim (shim::geometry().block)
#define gridDim (shim::geometry().grid)

inline void __syncthreads() { shim::meet_block(false); }
inline int __syncthreads_or(int vote) { return shim::meet_block(vote != 0); }
inline unsigned __ballot_sync(unsigned mask, int vote) { return shim::ballot(mask, vote != 0); }
template <class T> T __shfl_sync(unsigned mask, T value, unsigned lane) { return shim::shuffle(mask, value, lane); }
template <class T> T __shfl_xor_sync(unsigned mask, T value, unsigned distance) {
    return shim::shuffle(mask, value, threadIdx.x % 32 ^ distance);
}

inline int __ffs(unsigned x) { return __builtin_ffs(static_cast<int>(x)); }

template <class To, class From> To bits_as(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

inline float __uint_as_float(unsigned x) { return bits_as<float>(x); }
inline unsigned __float_as_uint(float x) { return bits_as<unsigned>(x); }
inline long long __double_as_longlong(double x) { return bits_as<long long>(x); }
