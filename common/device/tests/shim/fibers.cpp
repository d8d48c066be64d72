// See `fibers.h`. By hand where the calling convention is known: `swapcontext` makes a system call
// per switch.
#include "fibers.h"

#if defined(__x86_64__) || defined(__aarch64__)

#include <stdint.h>

namespace shim {

Context start_of(void (*entry)(), void *stack, size_t bytes) {
    // A switch pops the address at which it continues. The slot above it is the frame pointer on
    // aarch64; on x86-64 it is the return address of `entry`, which finds its stack aligned as
    // after a call.
    uintptr_t top = (reinterpret_cast<uintptr_t>(stack) + bytes) & ~uintptr_t(15);
    void **frame = reinterpret_cast<void **>(top) - 2;
    frame[0] = reinterpret_cast<void *>(entry);
    frame[1] = nullptr;
    return {frame};
}

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
