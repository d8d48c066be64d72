// Fibers: stacks to switch between on one OS thread.
#pragma once
#include <stddef.h>

namespace shim {

// A suspended stack.
struct Context {
    void *stack_pointer;
};

// A context that, when first switched to, runs `entry` on the stack of `bytes` at `stack`; `entry`
// must never return.
Context start_of(void (*entry)(), void *stack, size_t bytes);

#if defined(__x86_64__)

// Saves the running stack in `from` and continues with `to`. Inlined, and by a jump: a processor
// predicts a return from the latest call, which was made on the other stack.
[[gnu::always_inline]] inline void switch_stacks(Context &from, Context &to) {
    void **save = &from.stack_pointer, **load = &to.stack_pointer;
    __asm__ volatile("lea -128(%%rsp), %%rsp\n" // Leaves the red zone below the stack pointer as it is.
                     "push %%rbp\n"
                     "lea 1f(%%rip), %%rax\n"
                     "push %%rax\n"
                     "mov %%rsp, (%[save])\n"
                     "mov (%[load]), %%rsp\n"
                     "pop %%rax\n"
                     "jmp *%%rax\n"
                     "1: pop %%rbp\n"
                     "lea 128(%%rsp), %%rsp\n"
                     : [save] "+D"(save), [load] "+S"(load)
                     :
                     : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1",
                       "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13",
                       "xmm14", "xmm15", "cc", "memory"
#if defined(__AVX512F__)
                       , "k1", "k2", "k3", "k4", "k5", "k6", "k7", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21",
                       "xmm22", "xmm23", "xmm24", "xmm25", "xmm26", "xmm27", "xmm28", "xmm29", "xmm30", "xmm31"
#endif
    );
}

#elif defined(__aarch64__)

// As on x86-64; the frame pointer is x29.
[[gnu::always_inline]] inline void switch_stacks(Context &from, Context &to) {
    register void **save __asm__("x0") = &from.stack_pointer;
    register void **load __asm__("x1") = &to.stack_pointer;
    __asm__ volatile("sub sp, sp, #128\n" // Leaves the red zone below the stack pointer as it is, where there is one.
                     "adr x2, 1f\n"
                     "stp x2, x29, [sp, #-16]!\n"
                     "mov x3, sp\n"
                     "str x3, [%[save]]\n"
                     "ldr x3, [%[load]]\n"
                     "mov sp, x3\n"
                     "ldp x2, x29, [sp], #16\n"
                     "br x2\n"
                     "1: add sp, sp, #128\n"
                     : [save] "+r"(save), [load] "+r"(load)
                     :
                     : "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12", "x13", "x14", "x15", "x16",
                       "x17", "x19", "x20", "x21", "x22", "x23", "x24", "x25", "x26", "x27", "x28", "x30", "v0", "v1",
                       "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", "v15", "v16",
                       "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29", "v30",
                       "v31", "cc", "memory"
#if !defined(__APPLE__) // macOS keeps it for itself.
                       , "x18"
#endif
#if defined(__ARM_FEATURE_SVE)
                       , "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8", "p9", "p10", "p11", "p12", "p13", "p14",
                       "p15"
#endif
    );
}

#else

// Saves the running stack in `from` and continues with `to`.
void switch_stacks(Context &from, Context &to);

#endif

} // namespace shim
