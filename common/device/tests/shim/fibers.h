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

#else

// Saves the running stack in `from` and continues with `to`.
void switch_stacks(Context &from, Context &to);

#endif

} // namespace shim
