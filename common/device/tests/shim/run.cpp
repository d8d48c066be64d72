// See `shim.h`. Runs the blocks of a launch in turn, and the threads of a block as fibers that meet
// at barriers.
#include "shim.h"

#include "fibers.h"
#include "host.h"
#include "warpgroup.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

namespace shim {

__thread const Thread *running_thread = nullptr;

namespace {

constexpr size_t STACK = 64 << 10;
// Of a block's shared memory, what a kernel's own arrays may take (`STATIC_SHARED` in
// `kernels/mod.rs`).
constexpr size_t MOST_STATIC = 8 << 10;
// Bytes after every array, and at the end of every stack, that must not be written.
constexpr size_t FENCE = 64;
constexpr unsigned char FENCE_BYTE = 0xa5;
// What arrays begin at a multiple of: a block's own, and the one whose size the launch gives.
constexpr size_t PLACE = 16, DYNAMIC_PLACE = 1024;
// Orders of lanes that are drawn for a seed. A round takes one of them and exchanges lanes by a mask of
// five bits, so each of two lanes is first in half of the rounds.
constexpr unsigned ORDERS = 64;
// Every bit set: NaN in all float types.
constexpr unsigned char POISON = 0xff;
// The prefixes of the names of the kernels in `faults.cu`.
constexpr const char *FAULTY = "faulty_", *MENDED = "mended_";

void put_fence(unsigned char *at) { memset(at, FENCE_BYTE, FENCE); }

bool is_fence(const unsigned char *at) {
    return at[0] == FENCE_BYTE && memcmp(at, at + 1, FENCE - 1) == 0;
}

struct Copy {
    void *to;
    const void *from;
    unsigned bytes;
    bool zero;
};

struct Fiber : Thread {
    Context context;
    // Asynchronous copies: groups that were committed, the oldest first, and the one that is open.
    std::vector<std::vector<Copy>> groups;
    std::vector<Copy> open;
    WarpgroupState products;
};

struct Warp {
    Slots slots;
    unsigned arrived;
    Together together;
    // A bit for each lane: those that have not ended, and those of them that wait for nothing.
    uint32_t live, ready;
};

// A block's array and the fence after it.
struct SharedArray {
    const void *key;
    size_t bytes;
    std::unique_ptr<unsigned char[]> memory;
    unsigned char *data;

    SharedArray(const void *key, size_t bytes) : key(key), bytes(bytes) {
        uintptr_t place = key ? PLACE : DYNAMIC_PLACE;
        memory.reset(new unsigned char[bytes + FENCE + place]);
        data = reinterpret_cast<unsigned char *>((reinterpret_cast<uintptr_t>(memory.get()) + place - 1) & ~(place - 1));
        memset(data, POISON, bytes);
        put_fence(data + bytes);
    }
};

Fiber &own_fiber() { return static_cast<Fiber &>(const_cast<Thread &>(*running_thread)); }

// One OS thread's machine().
struct Machine {
    Kernel kernel;
    void **arguments;
    Geometry geometry;
    size_t shared_bytes;
    // The most that a block's own arrays have taken in this launch.
    size_t static_bytes;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::vector<SharedArray> arrays;
    // The fibers of this round, from the one that runs next.
    unsigned round[32], next, last;
    // Orders of the lanes of a warp.
    std::vector<std::array<unsigned char, 32>> orders;
    std::unique_ptr<unsigned char[]> stacks;
    size_t stack_count = 0;
    Context scheduler;
    unsigned live, at_barrier;
    bool vote, verdict;
    uint64_t random = 0x9e3779b97f4a7c15;
    std::string error;

    Machine() : orders(ORDERS) { draw_orders(); }

    uint64_t draw(uint64_t below) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        // From the high bits: the low ones of a small state change slowly.
        return (random * 0x2545f4914f6cdd1d >> 32) * below >> 32;
    }

    template <class T> void shuffle(T *items, size_t count) {
        for (size_t i = count; i > 1; i--) std::swap(items[i - 1], items[draw(i)]);
    }

    void draw_orders() {
        for (auto &order : orders) {
            std::iota(order.begin(), order.end(), 0);
            shuffle(order.data(), order.size());
        }
    }

    unsigned char *stack(unsigned index) { return stacks.get() + index * (STACK + FENCE); }

    void reserve_stacks(size_t count) {
        if (count <= stack_count) return;
        stacks.reset(new unsigned char[count * (STACK + FENCE)]);
        stack_count = count;
    }

    // Continues, in place of `from`, with the next fiber of this round, or where the round began.
    [[gnu::always_inline]] void switch_to_next(Context &from) {
        if (next == last || !error.empty()) return switch_stacks(from, scheduler);
        Fiber &fiber = fibers[round[next++]];
        running_thread = &fiber;
        switch_stacks(from, fiber.context);
    }

    // Suspends the running fiber until it is woken.
    [[gnu::always_inline]] void wait() {
        Fiber &self = own_fiber();
        warps[self.index / 32].ready &= ~(1u << self.lane());
        switch_to_next(self.context);
    }

    void release_barrier() {
        verdict = vote;
        vote = false, at_barrier = 0;
        for (Warp &warp : warps) warp.ready = warp.live;
    }

    void start_block(uint3 block);
    bool run_lanes(unsigned warp);
    bool run_block();
    void check_fences();
};

// The calling thread's. It is read at every switch: a pointer at a fixed place costs no call,
// unlike other thread-local variables of a library.
[[gnu::tls_model("initial-exec")]] thread_local Machine *known_machine = nullptr;

[[gnu::noinline]] Machine &first_machine() {
    static thread_local Machine own;
    return *(known_machine = &own);
}

[[gnu::always_inline]] inline Machine &machine() { return known_machine ? *known_machine : first_machine(); }

std::map<std::string, Kernel> &kernels() {
    static std::map<std::string, Kernel> all;
    return all;
}

// The entry of every fiber.
void run_fiber() {
    machine().kernel.call(machine().kernel.function, machine().arguments);
    Fiber *self = &own_fiber();
    bool idle = std::all_of(self->groups.begin(), self->groups.end(), [](const auto &group) { return group.empty(); });
    if (!idle || !self->open.empty()) machine().error = "a thread ends with copies under way";
    Warp &warp = machine().warps[self->index / 32];
    warp.live &= ~(1u << self->lane()), warp.ready &= warp.live;
    machine().live--;
    if (machine().live > 0 && machine().at_barrier == machine().live) machine().release_barrier();
    machine().switch_to_next(self->context);
    __builtin_unreachable();
}

void Machine::start_block(uint3 block) {
    uint3 size = geometry.block;
    unsigned threads = size.x * size.y * size.z;
    arrays.clear();
    fibers.assign(threads, Fiber());
    warps.resize((threads + 31) / 32);
    for (size_t i = 0; i < warps.size(); i++) {
        unsigned lanes = std::min(32u, threads - unsigned(i) * 32);
        warps[i].arrived = 0, warps[i].live = warps[i].ready = 0xffffffff >> (32 - lanes);
    }
    live = threads, at_barrier = 0, vote = false;
    for (unsigned i = 0; i < threads; i++) {
        uint3 place = {i % size.x, i / size.x % size.y, i / size.x / size.y};
        static_cast<Thread &>(fibers[i]) = {place, block, i, &warps[i / 32].slots};
        put_fence(stack(i));
        fibers[i].context = start_of(run_fiber, stack(i) + FENCE, STACK);
    }
}

// Runs every lane of a warp that is ready, in an order that is drawn; false if none is, or after an error.
bool Machine::run_lanes(unsigned warp) {
    uint32_t ready = warps[warp].ready;
    if (ready == 0 || !error.empty()) return false;
    unsigned count = 0, drawn = unsigned(draw(ORDERS * 32));
    for (unsigned place : orders[drawn / 32]) {
        unsigned lane = place ^ drawn % 32;
        round[count] = warp * 32 + lane;
        count += ready >> lane & 1;
    }
    next = 0, last = count;
    switch_to_next(scheduler);
    return error.empty();
}

// Runs warps in a new order each time, some of them as far ahead of the others as barriers allow,
// until all are done.
bool Machine::run_block() {
    std::vector<unsigned> warp_order(warps.size());
    std::iota(warp_order.begin(), warp_order.end(), 0);
    while (live > 0 && error.empty()) {
        shuffle(warp_order.data(), warp_order.size());
        bool moved = false;
        for (unsigned warp : warp_order) {
            bool ahead = draw(2) == 0;
            while (run_lanes(warp)) {
                moved = true;
                if (!ahead) break;
            }
        }
        if (!moved && error.empty()) error = "threads wait for others that never come";
    }
    check_fences();
    if (error.empty()) check_warpgroups();
    return error.empty();
}

void Machine::check_fences() {
    size_t own = 0;
    for (const SharedArray &array : arrays) {
        if (!is_fence(array.data + array.bytes)) error = "a write behind a shared array";
        if (array.key) own += array.bytes;
    }
    static_bytes = std::max(static_bytes, own);
    if (own > MOST_STATIC) error = "shared arrays of more than 8 KiB: STATIC_SHARED says that there are none";
    for (const Fiber &fiber : fibers)
        if (!is_fence(stack(fiber.index))) error = "a fiber's stack overflowed";
}

} // namespace

const Geometry &geometry() { return machine().geometry; }

void fail(const char *what) {
    machine().error = what;
    for (;;) switch_stacks(own_fiber().context, machine().scheduler);
}

void fail_block(const char *what) { machine().error = what; }

WarpgroupState &own_state() { return own_fiber().products; }
WarpgroupState &state_of(unsigned thread) { return machine().fibers[thread].products; }
unsigned own_thread() { return own_fiber().index; }
unsigned block_threads() { return static_cast<unsigned>(machine().fibers.size()); }

bool meet_block(bool vote) {
    machine().vote |= vote;
    machine().at_barrier++;
    if (machine().at_barrier == machine().live) machine().release_barrier();
    else machine().wait();
    return machine().verdict;
}

void meet_warp(Together together) {
    Warp &warp = machine().warps[own_fiber().index / 32];
    if (warp.arrived > 0 && warp.together != together) fail("lanes of a warp meet in different operations");
    warp.together = together;
    if (++warp.arrived < 32) return machine().wait();
    together(warp.slots);
    warp.arrived = 0, warp.ready = warp.live;
}

void *shared_array(const void *key, size_t bytes) {
    for (const SharedArray &array : machine().arrays)
        if (array.key == key) return array.data;
    machine().arrays.emplace_back(key, bytes);
    return machine().arrays.back().data;
}

void *dynamic_shared_memory() { return shared_array(nullptr, machine().shared_bytes); }

SharedMemory dynamic_shared() {
    return {static_cast<unsigned char *>(dynamic_shared_memory()), machine().shared_bytes};
}

unsigned shared_address(const void *place) {
    return unsigned(static_cast<const unsigned char *>(place) - dynamic_shared().begin);
}

unsigned ballot(unsigned mask, bool vote) {
    if (mask != 0xffffffff) fail("a vote that is not of the whole warp");
    return meet_warp<unsigned>(vote, [](Slots &slots) {
        unsigned votes = 0;
        for (unsigned lane = 0; lane < 32; lane++) votes |= unsigned(slots.given<bool>(lane)) << lane;
        for (unsigned lane = 0; lane < 32; lane++) slots.send(lane, votes);
    });
}

namespace {

// Lane l provides row l%8 of matrix l/8, and receives of each matrix two neighbours in row l/4, or
// in column l/4.
template <bool transposed> void exchange_rows(Slots &slots) {
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned matrix = 0; matrix < 4; matrix++)
            for (unsigned i = 0; i < 2; i++) {
                unsigned line = lane / 4, place = lane % 4 * 2 + i;
                unsigned row = transposed ? place : line, column = transposed ? line : place;
                memcpy(slots.out + 16 * lane + 4 * matrix + 2 * i, slots.in + 16 * (8 * matrix + row) + 2 * column, 2);
            }
}

} // namespace

void load_matrices(unsigned (&to)[4], const void *row, bool transposed) {
    if (reinterpret_cast<uintptr_t>(row) % 16) fail("a matrix row that does not lie on 16 bytes");
    auto given = take<uint4>(static_cast<const unsigned char *>(row));
    auto received = meet_warp<uint4>(given, transposed ? exchange_rows<true> : exchange_rows<false>);
    memcpy(to, &received, sizeof to);
}

void copy_async(void *to, const void *from, unsigned bytes, bool zero) {
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % bytes) fail("a copy that does not lie on its size");
    memset(to, POISON, bytes);
    own_fiber().open.push_back({to, from, bytes, zero});
}

void commit_copies() {
    Fiber &fiber = own_fiber();
    fiber.groups.push_back(std::move(fiber.open));
    fiber.open.clear();
}

void wait_for_copies(unsigned pending) {
    auto &groups = own_fiber().groups;
    while (groups.size() > pending) {
        for (const Copy &copy : groups.front()) {
            if (copy.zero) memset(copy.to, 0, copy.bytes);
            else memcpy(copy.to, copy.from, copy.bytes);
            own_state().unshown.push_back(copy.to);
        }
        groups.erase(groups.begin());
    }
}

float widen_f16(unsigned short bits) {
    unsigned sign = unsigned(bits & 0x8000) << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
    if (exponent == 31) return bits_as<float>(sign | 0x7f800000 | fraction << 13);
    if (exponent > 0) return bits_as<float>(sign | (exponent + 112) << 23 | fraction << 13);
    float magnitude = std::ldexp(float(fraction), -24);
    return sign ? -magnitude : magnitude;
}

unsigned short narrow_f16(float x) {
    unsigned bits = bits_as<unsigned>(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return static_cast<unsigned short>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    // At 65520 and above the nearest is infinity.
    if (magnitude >= 0x477ff000) return static_cast<unsigned short>(sign | 0x7c00);
    if (magnitude < 0x38800000) {
        // Subnormal: in units of 2^-24; `nearbyint` rounds ties to even.
        float units = std::nearbyint(std::ldexp(bits_as<float>(magnitude), 24));
        return static_cast<unsigned short>(sign | unsigned(units));
    }
    unsigned rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return static_cast<unsigned short>(sign | ((rounded >> 13) - (112 << 10)));
}

void add_kernel(const Kernel &kernel) { kernels()[kernel.name] = kernel; }

namespace {

int refuse(const std::string &why) {
    machine().error = why;
    return 1;
}

std::vector<unsigned> block_order(unsigned count) {
    std::vector<unsigned> order(count);
    std::iota(order.begin(), order.end(), 0);
    machine().shuffle(order.data(), order.size());
    return order;
}

int run_grid(uint3 grid) {
    for (unsigned block : block_order(grid.x * grid.y * grid.z)) {
        uint3 at = {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
        machine().start_block(at);
        if (!machine().run_block()) {
            machine().error = std::string(machine().kernel.name) + ": " + machine().error;
            return 1;
        }
    }
    return 0;
}

} // namespace
} // namespace shim

using namespace shim;

extern "C" {

const void *shim_find(const char *kernel) {
    auto found = kernels().find(kernel);
    return found == kernels().end() ? nullptr : &found->second;
}

const char *shim_signature(const char *kernel) {
    auto found = kernels().find(kernel);
    return found == kernels().end() ? nullptr : found->second.signature;
}

size_t shim_kernel_count(void) {
    auto is_real = [](const auto &entry) { return entry.first.rfind(FAULTY, 0) != 0 && entry.first.rfind(MENDED, 0) != 0; };
    return size_t(std::count_if(kernels().begin(), kernels().end(), is_real));
}

int shim_launch(const char *kernel, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                unsigned block_z, size_t shared_bytes, void **args) {
    machine().error.clear();
    auto found = kernels().find(kernel);
    if (found == kernels().end()) return refuse(std::string("no kernel is called ") + kernel);
    unsigned threads = block_x * block_y * block_z;
    bool empty = threads == 0 || grid_x == 0 || grid_y == 0 || grid_z == 0;
    if (empty || threads > found->second.most_threads || grid_y > 65535 || grid_z > 65535)
        return refuse(std::string(kernel) + " cannot have this grid or block");
    machine().kernel = found->second;
    machine().arguments = args;
    machine().geometry = {{block_x, block_y, block_z}, {grid_x, grid_y, grid_z}};
    machine().shared_bytes = shared_bytes, machine().static_bytes = 0;
    machine().reserve_stacks(threads);
    return run_grid(machine().geometry.grid);
}

// Called by code compiled with -fsanitize=alignment before a misaligned access.
[[noreturn]] void __ubsan_handle_type_mismatch_v1_abort(void *, void *) {
    shim::fail("an address that is no multiple of what is read or written there");
}

size_t shim_static_bytes(void) { return machine().static_bytes; }

const char *shim_error(void) { return machine().error.c_str(); }

void shim_seed(unsigned long long seed) {
    machine().random = (seed * 2 + 1) * 0x9e3779b97f4a7c15;
    machine().draw_orders();
}
}
