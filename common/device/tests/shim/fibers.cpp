// See `fibers.h`. By hand where the calling convention is known: `swapcontext` makes a system call
// per switch.
#include "fibers.h"

#if defined(__x86_64__)

#include <stdint.h>

// Saves the registers that a callee has to preserve, swaps stacks, and restores the other stack's.
__asm__(".text\n"
        ".type shim_switch_stacks, @function\n"
        "shim_switch_stacks:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov (%rsi), %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n");

extern "C" void shim_switch_stacks(void **from, void **to) __attribute__((visibility("hidden")));

namespace shim {

Context start_of(void (*entry)(), void *stack, size_t bytes) {
    // Below the top: a return address for `entry`, which finds the stack as after a call, and six
    // registers.
    uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t(15);
    void **frame = reinterpret_cast<void **>(top) - 8;
    for (int i = 0; i < 6; i++) frame[i] = nullptr;
    frame[6] = reinterpret_cast<void *>(entry);
    frame[7] = nullptr;
    return {frame};
}

void switch_stacks(Context &from, Context &to) { shim_switch_stacks(&from.stack_pointer, &to.stack_pointer); }

} // namespace shim

#else

#include <ucontext.h>

namespace shim {

Context start_of(void (*entry)(), void *stack, size_t bytes) {
    // The context itself is at the bottom of its stack.
    ucontext_t *context = static_cast<ucontext_t *>(stack);
    getcontext(context);
    context->uc_stack.ss_sp = context + 1;
    context->uc_stack.ss_size = bytes - sizeof *context;
    context->uc_link = nullptr;
    makecontext(context, entry, 0);
    return {context};
}

void switch_stacks(Context &from, Context &to) {
    ucontext_t here;
    from.stack_pointer = &here;
    swapcontext(&here, static_cast<ucontext_t *>(to.stack_pointer));
}

} // namespace shim

#endif
