// Twins of wgmma.mma_async (PTX ISA, "Asynchronous warpgroup level matrix multiply-accumulate").
//
// A product runs between its issue and the wait that ends it. So its sums are NaN in between, and
// its operands are read at both ends and have to be the same. Operands in shared memory are found by
// the manual's descriptors: address bits 4 to 6 of the 128-byte swizzle are exclusive-ored with bits
// 7 to 9; eight rows of 128 bytes are a core of the layout, `stride` bytes from the next eight rows;
// where the sum runs over rows, the next 64 columns are `leading` bytes away.
#include "warpgroup.h"

#include "host.h"

#include <algorithm>
#include <iterator>

namespace shim {
namespace {

// PIECE elements of 16 bits lie together wherever a row or column of an operand goes on.
constexpr unsigned DEPTH = 16, ROWS_OF_WARP = 16, PIECE = 8;

// The fields of a matrix descriptor.
struct Panels {
    unsigned start, leading, stride;

    explicit Panels(uint64_t bits) {
        start = bits << 4 & 0x3fff0, leading = bits >> 16 << 4 & 0x3fff0, stride = bits >> 32 << 4 & 0x3fff0;
        if (bits >> 62 != 1) fail("an operand of a product without the 128-byte swizzle");
        if (bits >> 49 & 7 || start >> 7 & 7) fail("an operand of a product that begins within a swizzled pattern");
    }

    // Row `row` of an operand whose sum runs over its columns.
    unsigned of_row(unsigned row, unsigned k) const { return start + row / 8 * stride + row % 8 * 128 + 2 * k; }
    // Column `column` of an operand whose sum runs over its rows.
    unsigned of_column(unsigned column, unsigned k) const {
        return start + column / 64 * leading + column % 64 * 2 + k / 8 * stride + k % 8 * 128;
    }
};

// Elements that products read from shared memory.
class SharedElements {
    // Where pieces lie that no thread has shown to products, in order.
    std::vector<const void *> unshown;
    SharedMemory memory = dynamic_shared();

  public:
    SharedElements() {
        for (unsigned thread = 0; thread < block_threads(); thread++) {
            const auto &own = state_of(thread).unshown;
            unshown.insert(unshown.end(), own.begin(), own.end());
        }
        std::sort(unshown.begin(), unshown.end());
    }

    // Writes the elements of the piece at `address` to `to`, `apart` from each other.
    void read(unsigned address, unsigned short *to, unsigned apart) const {
        unsigned place = address ^ (address >> 7 & 7) << 4;
        if (place + 16 > memory.bytes) fail("a product reads behind the shared memory of its block");
        const unsigned char *piece = memory.begin + place;
        if (std::binary_search(unshown.begin(), unshown.end(), static_cast<const void *>(piece)))
            fail("a product reads a copy that was not shown to it");
        for (unsigned i = 0; i < PIECE; i++) to[i * apart] = take<unsigned short>(piece + 2 * i);
    }
};

// Reads the operands of the warp's product `which`, issued by all of its lanes.
ProductOperands read_operands(const Product *(&lanes)[32], unsigned warp) {
    const Product &product = *lanes[0];
    const SharedElements shared;
    ProductOperands read;
    read.left.resize(ROWS_OF_WARP * DEPTH), read.right.resize(DEPTH * product.columns);
    if (!product.left) {
        Panels left(product.left_panels);
        for (unsigned row = 0; row < ROWS_OF_WARP; row++)
            for (unsigned k = 0; k < DEPTH; k += PIECE)
                shared.read(left.of_row(warp % 4 * ROWS_OF_WARP + row, k), &read.left[row * DEPTH + k], 1);
    }
    // Register i of lane l holds row l/4 + 8·(i%2), columns 2·(l%4) + 8·(i/2) + {0, 1}.
    for (unsigned lane = 0; lane < 32 && product.left; lane++)
        for (unsigned i = 0; i < 4; i++)
            for (unsigned half = 0; half < 2; half++) {
                unsigned row = lane / 4 + i % 2 * 8, k = lane % 4 * 2 + i / 2 * 8 + half;
                read.left[row * DEPTH + k] = static_cast<unsigned short>(lanes[lane]->left[i] >> 16 * half);
            }
    Panels right(product.right_panels);
    unsigned columns = product.columns;
    for (unsigned k = 0; k < DEPTH && product.right_over_rows; k++)
        for (unsigned column = 0; column < columns; column += PIECE)
            shared.read(right.of_column(column, k), &read.right[k * columns + column], 1);
    for (unsigned column = 0; column < columns && !product.right_over_rows; column++)
        for (unsigned k = 0; k < DEPTH; k += PIECE)
            shared.read(right.of_row(column, k), &read.right[k * columns + column], columns);
    return read;
}

// Calls `with` for each of a lane's sums: its number 4·j + i, and its place in the warp's sums by rows:
// row l/4 + 8·(i/2), column 8·j + 2·(l%4) + i%2.
template <class With> void each_sum(unsigned lane, unsigned columns, With with) {
    for (unsigned at = 0; at < columns / 2; at++) {
        unsigned row = lane / 4 + at % 4 / 2 * 8, column = at / 4 * 8 + lane % 4 * 2 + at % 2;
        with(at, row * columns + column);
    }
}

std::vector<float> widened(const Product &product, const std::vector<unsigned short> &elements) {
    std::vector<float> wide(elements.size());
    std::transform(elements.begin(), elements.end(), wide.begin(), product.widen);
    return wide;
}

// Adds the warp's product to `sums`, which lie by rows.
void add_product(std::vector<float> &sums, const Product &product) {
    const auto left = widened(product, product.operands->left), right = widened(product, product.operands->right);
    const unsigned columns = product.columns;
    for (unsigned row = 0; row < ROWS_OF_WARP; row++)
        for (unsigned k = 0; k < DEPTH; k++) {
            const float factor = left[row * DEPTH + k];
            for (unsigned column = 0; column < columns; column += PIECE)
                for (unsigned i = column; i < column + PIECE; i++) sums[row * columns + i] += factor * right[k * columns + i];
        }
}

unsigned warp_of(Slots &slots) { return slots.given<unsigned>(0) / 32; }

// When all lanes have issued a product: reads its operands.
void issue_together(Slots &slots) {
    const Product *lanes[32];
    unsigned warp = warp_of(slots);
    for (unsigned lane = 0; lane < 32; lane++) {
        lanes[lane] = &state_of(warp * 32 + lane).open.back();
        if (!lanes[lane]->reads_as(*lanes[0])) fail("lanes of a warp issue different products");
    }
    auto operands = std::make_shared<ProductOperands>(read_operands(lanes, warp));
    for (unsigned lane = 0; lane < 32; lane++) state_of(warp * 32 + lane).open.back().operands = operands;
}

// Ends the product at `index` of the oldest group of all lanes.
void end_product(unsigned warp, size_t index) {
    const Product *lanes[32];
    for (unsigned lane = 0; lane < 32; lane++) lanes[lane] = &state_of(warp * 32 + lane).groups.front()[index];
    if (!(read_operands(lanes, warp) == *lanes[0]->operands)) fail("an operand changed while its product ran");
    const Product &product = *lanes[0];
    std::vector<float> by_rows(ROWS_OF_WARP * product.columns);
    for (unsigned lane = 0; lane < 32 && product.add; lane++) {
        const std::vector<float> &own = state_of(warp * 32 + lane).running.at(lanes[lane]->sums).values;
        each_sum(lane, product.columns, [&](unsigned at, unsigned place) { by_rows[place] = own[at]; });
    }
    add_product(by_rows, product);
    for (unsigned lane = 0; lane < 32; lane++) {
        auto &running = state_of(warp * 32 + lane).running;
        float *to = lanes[lane]->sums;
        RunningSums &own = running.at(to);
        each_sum(lane, product.columns, [&](unsigned at, unsigned place) { own.values[at] = by_rows[place]; });
        if (--own.products > 0) continue;
        memcpy(to, own.values.data(), own.values.size() * sizeof(float));
        running.erase(to);
    }
}

// When all lanes wait: ends the oldest groups.
template <unsigned pending> void wait_together(Slots &slots) {
    unsigned first = warp_of(slots) * 32;
    while (state_of(first).groups.size() > pending) {
        size_t products = state_of(first).groups.front().size();
        for (unsigned lane = 0; lane < 32; lane++) {
            auto &groups = state_of(first + lane).groups;
            if (groups.empty() || groups.front().size() != products) fail("lanes of a warp wait for different products");
        }
        for (size_t index = 0; index < products; index++) end_product(first / 32, index);
        for (unsigned lane = 0; lane < 32; lane++) {
            auto &groups = state_of(first + lane).groups;
            groups.erase(groups.begin());
        }
    }
}

void meet(Together together) {
    meet_warp<char>(own_thread(), together);
}

void remember(uint64_t what) { own_state().history = (own_state().history ^ what) * 0x100000001b3 + 1; }

} // namespace

void issue_product(const Product &product) {
    WarpgroupState &own = own_state();
    if (!own.begun) fail("a product without wgmma.fence after the last wait");
    auto [found, is_new] = own.running.try_emplace(product.sums);
    size_t count = product.columns / 2;
    if (is_new) found->second.values.assign(product.sums, product.sums + count);
    else if (found->second.values.size() != count) fail("products of different shapes add to the same sums");
    found->second.products++;
    memset(product.sums, 0xff, count * sizeof(float));
    own.open.push_back(product);
    remember(product.columns), remember(product.left_panels), remember(product.right_panels);
    remember(2 * product.right_over_rows + product.add);
    meet(issue_together);
}

void begin_products() {
    own_state().begun = true;
    remember(1);
}

void commit_products() {
    WarpgroupState &own = own_state();
    own.groups.push_back(std::move(own.open));
    own.open.clear();
    remember(2);
}

void wait_for_products(unsigned pending) {
    own_state().begun = false;
    remember(3 + pending);
    constexpr Together WAITS[] = {wait_together<0>, wait_together<1>, wait_together<2>};
    if (pending >= std::size(WAITS)) fail("a wait that leaves more than two groups of products");
    meet(WAITS[pending]);
}

void show_to_products() { own_state().unshown.clear(); }

void check_warpgroups() {
    unsigned threads = block_threads();
    for (unsigned thread = 0; thread < threads; thread++) {
        const WarpgroupState &state = state_of(thread);
        if (!state.running.empty()) fail_block("a thread ends with products under way");
        if (state.history == 0) continue;
        unsigned first = thread / 128 * 128;
        if (first + 128 > threads) fail_block("products of less than a warpgroup");
        else if (state.history != state_of(first).history) fail_block("warps of a warpgroup issue different products");
    }
}

} // namespace shim
