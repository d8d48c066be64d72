// The host shim: runs the CUDA kernels of this crate, from the very sources that a GPU gets, on the
// CPU.
//
// `shim.cpp` and `tensor_cores.cpp` include every `.cu` file with CUDA's keywords defined away. In
// this folder the host's C++ compiler makes a shared library of all sources:
//
//   c++ -std=c++17 -O2 -ffp-contract=off -fPIC -shared -I ../../src/cuda/kernels *.cpp -o libshim.so
//
// Blocks of a launch run in turn, in an order drawn from the seed. The threads of a block are
// fibers of the calling thread, so `__syncthreads`, shuffles and votes work. Each time, lanes run in
// one of 2,048 orders, which is drawn, and warps as far ahead of each other as barriers allow, so that
// nothing can rely on an order that a GPU does not promise. Shared memory is poisoned with NaN
// before each block; an asynchronous copy poisons its destination and takes place only when it is
// waited for; writes past a shared array, barriers that some threads never reach and stacks that
// overflow are errors. Tensor-core products, `ldmatrix` and `cp.async` follow the lane tables of
// the PTX manual (`mma.cuh`).
//
// Several threads may launch at once: all state is per calling thread.
#pragma once
#include <stddef.h>

extern "C" {

// A token for the kernel of this name, or null: only to be compared with null.
const void *shim_find(const char *kernel);

// The types of the kernel's parameters, a letter each: p pointer, u unsigned int, l unsigned long
// long, f float, d double, P `Peers`, F `Factors`. Null if there is no such kernel.
const char *shim_signature(const char *kernel);

// The number of kernels without those of `faults.cu`.
size_t shim_kernel_count(void);

// Runs a launch to its end: `args` points to one address per parameter, as for `cuLaunchKernel`.
// Returns 0, or another number if something went wrong, which `shim_error` then describes.
int shim_launch(const char *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, size_t shared_bytes, void **args);

// The most static shared memory that a block of the calling thread's last launch has used, in
// bytes.
size_t shim_static_bytes(void);

// The error of the calling thread's last launch.
const char *shim_error(void);

// From now on the calling thread's launches draw their orders from this seed.
void shim_seed(unsigned long long seed);
}
