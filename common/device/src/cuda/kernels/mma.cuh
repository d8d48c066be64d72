// Tensor-core products, matrix loads and asynchronous copies (PTX ISA: mma.m16n8k16, ldmatrix,
// cp.async), with a host twin in the shim that follows the same lane tables.
//
// Of a 16×16 matrix A, lane l holds row l/4 (a0, a2) and l/4 + 8 (a1, a3), columns 2·(l%4) + {0, 1}
// (a0, a1) and 8 more (a2, a3); of B, 16×8, column l/4, rows 2·(l%4) + {0, 1} (b0) and 8 more (b1);
// of the f32 sums, 16×8, row l/4 (0, 1) and l/4 + 8 (2, 3), columns 2·(l%4) + {0, 1}. Needs compute
// capability 8.0.
#ifndef MMA_CUH
#define MMA_CUH
#include "types.cuh"

#ifdef SHIM
#define ON_TENSOR_CORES(statement, host_twin) host_twin
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define ON_TENSOR_CORES(statement, host_twin) statement
#else
#define ON_TENSOR_CORES(statement, host_twin) __trap()
#endif

// The address in shared memory that is `bytes` from `base`.
#ifdef SHIM
__device__ inline unsigned char *in_shared(const void *base, u32 bytes) {
    return static_cast<unsigned char *>(const_cast<void *>(base)) + bytes;
}
#else
__device__ inline u32 in_shared(const void *base, u32 bytes) { return u32(__cvta_generic_to_shared(base)) + bytes; }
#endif

// sums += a · b
__device__ inline void multiply(float (&sums)[4], const u32 (&a)[4], const u32 (&b)[2], bf16) {
    ON_TENSOR_CORES(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                                 "{%0,%1,%2,%3};"
                                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])),
                    shim::multiply<bf16>(sums, a, b));
}

__device__ inline void multiply(float (&sums)[4], const u32 (&a)[4], const u32 (&b)[2], f16) {
    ON_TENSOR_CORES(asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                                 "{%0,%1,%2,%3};"
                                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])),
                    shim::multiply<f16>(sums, a, b));
}

// Four 8×8 matrices of 16-bit elements; lane l gives the position of row l%8 of matrix l/8, `bytes`
// from `base`, and gets, of each, elements 2·(l%4) + {0, 1} of row l/4.
__device__ inline void load_matrices(u32 (&to)[4], const void *base, u32 bytes) {
    ON_TENSOR_CORES(asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                                 : "r"(in_shared(base, bytes))
                                 : "memory"),
                    shim::load_matrices(to, in_shared(base, bytes), false));
}

// As above, of the transposes: elements 2·(l%4) + {0, 1} of column l/4.
__device__ inline void load_transposed(u32 (&to)[4], const void *base, u32 bytes) {
    ON_TENSOR_CORES(asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                                 : "r"(in_shared(base, bytes))
                                 : "memory"),
                    shim::load_matrices(to, in_shared(base, bytes), true));
}

// Starts copying 16 bytes to shared memory, `bytes` from `base`, or filling them with zeros, for
// which nothing is read. Both addresses are multiples of 16.
__device__ inline void copy_async(void *base, u32 bytes, const void *from, bool zero) {
    ON_TENSOR_CORES(asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(in_shared(base, bytes)), "l"(from),
                                 "r"(zero ? 0 : 16)
                                 : "memory"),
                    shim::copy_async(in_shared(base, bytes), from, 16, zero));
}

// Starts copying one word, or filling it with zeros; addresses are multiples of 4.
__device__ inline void copy_word_async(void *to, const void *from, bool zero) {
    ON_TENSOR_CORES(asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(in_shared(to, 0)), "l"(from), "r"(zero ? 0 : 4)
                                 : "memory"),
                    shim::copy_async(in_shared(to, 0), from, 4, zero));
}

// Closes the group of copies started since the last one.
__device__ inline void commit_copies() {
    ON_TENSOR_CORES(asm volatile("cp.async.commit_group;" ::: "memory"), shim::commit_copies());
}

// Waits until at most `pending` of this thread's groups are in flight. Other threads see the data
// after a barrier.
template <u32 pending> __device__ inline void wait_for_copies() {
    ON_TENSOR_CORES(asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"), shim::wait_for_copies(pending));
}

#endif
