// The state of a thread's part in the products of its warpgroup: see `warpgroup.cpp`.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace shim {

// What a product reads: a warp's 16 rows of the left operand, and 16 rows of the right one.
struct ProductOperands {
    std::vector<unsigned short> left, right;

    bool operator==(const ProductOperands &other) const { return left == other.left && right == other.right; }
};

// One product as a thread issues it. Its left operand is in registers, or described.
struct Product {
    unsigned columns;
    float *sums;
    const unsigned *left;
    uint64_t left_panels, right_panels;
    bool right_over_rows, add;
    float (*widen)(unsigned short);
    std::shared_ptr<ProductOperands> operands;

    bool reads_as(const Product &other) const {
        return columns == other.columns && !left == !other.left && left_panels == other.left_panels &&
               right_panels == other.right_panels && right_over_rows == other.right_over_rows && add == other.add;
    }
};

// Sums that products add to, until the last of these is done.
struct RunningSums {
    std::vector<float> values;
    unsigned products;
};

struct WarpgroupState {
    // Products issued: groups that were committed, the oldest first, and the one that is open.
    std::vector<std::vector<Product>> groups;
    std::vector<Product> open;
    std::map<float *, RunningSums> running;
    // True from `begin_products` until the next wait.
    bool begun = false;
    // Of everything that the warps of a warpgroup have to do alike, in order.
    uint64_t history = 0;
    // 16-byte pieces of shared memory that copies of this thread have written since it last showed
    // them to products.
    std::vector<const void *> unshown;
};

// Of the running thread, and of the thread of this number in the block.
WarpgroupState &own_state();
WarpgroupState &state_of(unsigned thread);
unsigned own_thread();

// The number of the running block's threads.
unsigned block_threads();

// Checks at a block's end: all products have been waited for, and the warps of each warpgroup have
// issued the same.
void check_warpgroups();

} // namespace shim
