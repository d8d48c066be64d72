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

// Saves the running stack in `from` and continues with `to`.
void switch_stacks(Context &from, Context &to);

} // namespace shim
