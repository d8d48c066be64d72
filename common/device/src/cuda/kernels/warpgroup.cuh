// Products of a warpgroup, four warps, on Hopper's tensor cores (PTX ISA: wgmma.mma_async), with a
// host twin in the shim that follows the manual's layouts.
//
// A product has 64 rows, 16 per warp. Sums, and left operands in registers, have the layout of
// `mma.cuh`; the right operand, and others on the left, lie in panels in shared memory. Products
// run while their threads continue: until a wait ends them, nothing may touch their sums, their
// left operands and their panels. Needs compute capability 9.0, no other.
#ifndef WARPGROUP_CUH
#define WARPGROUP_CUH
#include "mma.cuh"
#include "types.cuh"

#ifdef SHIM
#define ON_WARPGROUPS(statement, host_twin) host_twin
#elif defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ON_WARPGROUPS(statement, host_twin) statement
#else
#define ON_WARPGROUPS(statement, host_twin) __trap()
#endif

constexpr u32 WARPGROUP = 128;

// A panel holds rows of 64 elements, 128 bytes each, from a multiple of 1024 bytes on. The eight
// 16-byte pieces of a row are permuted by its number (PTX ISA: 128-byte swizzle).
constexpr u32 PANEL = 64, PANEL_ROW = 128;

// The position of 16 bytes of a panel, in bytes from its first.
__device__ inline u32 panel_place(u32 row, u32 piece) { return row * PANEL_ROW + (piece ^ row % 8) * 16; }

// Describes an operand in panels, of which the first begins `bytes` from `base` and the next one
// `next` bytes later (PTX ISA: matrix descriptor).
__device__ inline u64 describe_panels(const void *base, u32 bytes, u32 next) {
#ifdef SHIM
    u32 start = shim::shared_address(base) + bytes;
#else
    u32 start = in_shared(base, bytes);
#endif
    return u64(start >> 4 & 0x3fff) | u64(next >> 4) << 16 | u64(8 * PANEL_ROW >> 4) << 32 | u64(1) << 62;
}

// Of an operand whose sum runs over columns: columns 16·step.. + 16 of its panel.
__device__ inline u64 panel_columns(u64 panel, u32 step) { return panel + (step * 32 >> 4); }
// Of an operand whose sum runs over rows: rows 16·step.. + 16 of all its panels.
__device__ inline u64 panel_rows(u64 panels, u32 step) { return panels + (step * 16 * PANEL_ROW >> 4); }

// Orders this thread's accesses to sums and left operands before the products that follow.
__device__ inline void begin_products() {
    ON_WARPGROUPS(asm volatile("wgmma.fence.sync.aligned;" ::: "memory"), shim::begin_products());
}

// Closes the group of products issued since the last one.
__device__ inline void commit_products() {
    ON_WARPGROUPS(asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"), shim::commit_products());
}

// Waits until at most `pending` of the warp's groups run.
template <u32 pending> __device__ inline void wait_for_products() {
    ON_WARPGROUPS(asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory"), shim::wait_for_products(pending));
}

// Makes what copies that this thread has waited for have written visible to products: to other
// threads' after a barrier.
__device__ inline void show_to_products() {
    ON_WARPGROUPS(asm volatile("fence.proxy.async.shared::cta;" ::: "memory"), shim::show_to_products());
}

// Keeps the compiler, which does not know that products run, from moving accesses across this point.
template <u32 N> __device__ inline void hold(float (&sums)[N][4]) {
#ifndef SHIM
#pragma unroll
    for (u32 n = 0; n < N; n++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) asm volatile("" : "+f"(sums[n][i])::"memory");
#endif
}

template <u32 N> __device__ inline void hold(u32 (&left)[N][4]) {
#ifndef SHIM
#pragma unroll
    for (u32 n = 0; n < N; n++)
#pragma unroll
        for (u32 i = 0; i < 4; i++) asm volatile("" : "+r"(left[n][i])::"memory");
#endif
}

#define TEN(t) "%" #t "0,%" #t "1,%" #t "2,%" #t "3,%" #t "4,%" #t "5,%" #t "6,%" #t "7,%" #t "8,%" #t "9,"
#define NAMES_64 TEN() TEN(1) TEN(2) "%30,%31"
#define NAMES_128 TEN() TEN(1) TEN(2) TEN(3) TEN(4) TEN(5) "%60,%61,%62,%63"
#define SUMS(n) "+f"(sums[n][0]), "+f"(sums[n][1]), "+f"(sums[n][2]), "+f"(sums[n][3])
#define EIGHT_SUMS(n) SUMS(n), SUMS(n + 1), SUMS(n + 2), SUMS(n + 3), SUMS(n + 4), SUMS(n + 5), SUMS(n + 6), SUMS(n + 7)
#define SUMS_64 EIGHT_SUMS(0)
#define SUMS_128 EIGHT_SUMS(0), EIGHT_SUMS(8)
#define PRODUCT(type, N, add, operands)                                                                               \
    "{.reg .pred add; setp.ne.b32 add, " add ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." type "." type " {" \
        NAMES_##N "}, " operands ";}"

// sums = left · right or, to `add`, sums += left · right, with N columns and a sum over 16 elements.
// First with left in a panel and both sums over columns; then with left in registers, and right's
// sum over columns or over rows. a.. name the parameters after the sums.
#define PRODUCTS(T, type, N, a, b, c, d, e, f, g)                                                                      \
    __device__ inline void multiply(float (&sums)[N / 8][4], u64 left, u64 right, bool add, T) {                       \
        ON_WARPGROUPS(asm volatile(PRODUCT(type, N, c, a ", " b ", add, 1, 1, 0, 0")                                   \
                                   : SUMS_##N : "l"(left), "l"(right), "r"(u32(add))),                                 \
                      shim::multiply<T>(sums, left, right, add));                                                      \
    }                                                                                                                  \
    template <bool over_rows>                                                                                          \
    __device__ inline void multiply(float (&sums)[N / 8][4], const u32 (&left)[4], u64 right, bool add, T) {           \
        ON_WARPGROUPS(asm volatile(PRODUCT(type, N, f, "{" a "," b "," c "," d "}, " e ", add, 1, 1, " g)              \
                                   : SUMS_##N : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right),    \
                                   "r"(u32(add)), "n"(int(over_rows))),                                                \
                      (shim::multiply<T, over_rows>(sums, left, right, add)));                                         \
    }
PRODUCTS(bf16, "bf16", 64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
PRODUCTS(f16, "f16", 64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
PRODUCTS(bf16, "bf16", 128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
PRODUCTS(f16, "f16", 128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
#undef TEN
#undef SUMS
#undef PRODUCT
#undef PRODUCTS

#endif
