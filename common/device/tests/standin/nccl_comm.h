// A communicator of the stand-in NCCL, and its operations as a stream runs them.
#pragma once
#include "nccl_world.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

extern "C" {
int standin_enqueue(void *stream, void (*work)(void *), void *data);
int cuCtxGetCurrent(void **context);
int cuCtxSetCurrent(void *context);
int cuCtxGetDevice(int *device);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuDeviceGetUuid_v2(unsigned char *uuid, int device);
int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemFree_v2(uint64_t address);
}

namespace {

enum Result { SUCCESS = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum What { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST };
enum Number { U32 = 3, HALF = 6, FLOAT = 7, BFLOAT = 9 };

// Memory that a communicator takes for itself.
constexpr size_t OWN = 4 << 20;

struct Id {
    char text[128];
};

struct Settings {
    size_t size;
    unsigned magic, version;
    int blocking, cluster, least_blocks, most_blocks;
};

struct Fault {
    int rank = -1, number = -1, extra = 0;
    explicit Fault(const char *name) {
        if (const char *text = getenv(name)) sscanf(text, "%d:%d:%d", &rank, &number, &extra);
    }
    bool hits(int at_rank, int at_number) const { return rank == at_rank && number == at_number; }
};

const Fault &absent() {
    static const Fault fault("STANDIN_NCCL_ABSENT");
    return fault;
}

const Fault &refused() {
    static const Fault fault("STANDIN_NCCL_REFUSED");
    return fault;
}

const Fault &error() {
    static const Fault fault("STANDIN_NCCL_ERROR");
    return fault;
}

int version() {
    const char *text = getenv("STANDIN_NCCL_VERSION");
    return text ? atoi(text) : 23004;
}

bool is(const char *name, const char *value) {
    const char *text = getenv(name);
    return text && std::string(text) == value;
}

int complain(int result, const std::string &what) {
    fprintf(stderr, "stand-in NCCL: %s\n", what.c_str());
    return result;
}

// A communicator. Its memory is never freed, so that a call that hangs in it may outlive an abort.
struct Comm {
    std::shared_ptr<World> world;
    void *context = nullptr;
    uint64_t own = 0;
    bool root = false, ended = false;
    // Of a kernel; negative if it has not been set.
    int most_blocks = -1;
    int collectives = 0, splits = 0;
    unsigned turns = 0;
    std::atomic<int> state{IN_PROGRESS};
    // Calls that its GPU has not finished.
    std::atomic<int> under_way{0};
    std::thread helper;

    // Runs `work` after the call has returned; its result becomes the state, unless a collective
    // of an earlier call fails meanwhile: an error remains.
    void later(std::function<int()> work) {
        if (helper.joinable()) helper.join();
        change_state(SUCCESS, IN_PROGRESS);
        helper = std::thread([this, work] {
            cuCtxSetCurrent(context);
            int result = work();
            if (!world->aborted) change_state(IN_PROGRESS, result);
        });
    }

    void change_state(int from, int to) { state.compare_exchange_strong(from, to); }

    // Returns once nothing runs on the GPU, as a call that frees its memory does: kernels of other
    // communicators of this process run until they are done or aborted. A context that is broken
    // runs nothing. NCCL would wait forever; 20 seconds fail a test.
    void wait_for_gpu() {
        world->aborted = true;
        auto runs = [this](Comm *other) { return other->context == context && other->under_way > 0 && !other->world->aborted; };
        for (int waited = 0; waited < 20000 && cuCtxSetCurrent(context) == 0 && any_comm(runs); waited++) usleep(1000);
    }

    template <class Is>
    static bool any_comm(Is is) {
        std::lock_guard<std::mutex> lock(all_lock());
        return std::any_of(all().begin(), all().end(), is);
    }

    static std::mutex &all_lock() {
        static std::mutex mutex;
        return mutex;
    }

    // All of this process.
    static std::vector<Comm *> &all() {
        static std::vector<Comm *> comms;
        return comms;
    }

    void end(bool orderly) {
        ended = true;
        world->aborted = true;
        if (helper.joinable()) helper.join();
        cuCtxSetCurrent(context);
        if (orderly && own) cuMemFree_v2(own);
        world->forget();
    }
};

// Ends the program with an error if it leaves a communicator behind.
struct EndedAtTheEnd {
    EndedAtTheEnd() { Comm::all(); }

    ~EndedAtTheEnd() {
        if (!getenv("STANDIN_FREED") || !Comm::any_comm([](Comm *comm) { return !comm->ended; })) return;
        complain(0, "a communicator was neither destroyed nor aborted");
        _exit(1);
    }
};

const EndedAtTheEnd ended_at_the_end;

struct Operation {
    Call call;
    const unsigned char *from;
    unsigned char *to;
    void *stream;
};

size_t width(int number) { return number == U32 || number == FLOAT ? 4 : 2; }
int kind(int number) { return number == FLOAT ? F32 : number == HALF ? F16 : BF16; }

// Runs a collective; false if aborted.
bool run(World &world, const Operation &op) {
    bool same = false;
    if (!world.agree(op.call, same)) return false;
    if (!same) {
        complain(0, "ranks call differently");
        while (world.pause(100)) {}
        return false;
    }
    auto [what, number, root, count] = op.call;
    size_t bytes = count * width(number), me = size_t(world.rank), size = size_t(world.size);
    switch (what) {
    case ALL_REDUCE: return world.sum(op.from, op.to, count, kind(number), {0, count});
    case REDUCE_SCATTER:
        return world.sum(op.from, op.to, count * size, kind(number), {me * count, (me + 1) * count});
    case ALL_GATHER:
        if (op.to + me * bytes != op.from) memmove(op.to + me * bytes, op.from, bytes);
        return world.spread(op.from, bytes, [](int) { return true; }, [&](int rank) { return op.to + size_t(rank) * bytes; });
    default:
        return world.spread(op.from, bytes, [&](int rank) { return rank == root; }, [&](int) { return op.to; });
    }
}

struct Batch {
    Comm *comm;
    std::shared_ptr<World> world;
    std::vector<Operation> operations;
    bool broken = false;

    explicit Batch(Comm *comm) : comm(comm), world(comm->world) { comm->under_way++; }
    ~Batch() { comm->under_way--; }
};

void work(void *data) {
    std::unique_ptr<Batch> batch(static_cast<Batch *>(data));
    World &world = *batch->world;
    if (batch->broken) {
        if (!world.aborted) batch->comm->state = error().extra ? error().extra : INTERNAL_ERROR;
        while (world.pause(100)) {}
        return;
    }
    for (const Operation &op : batch->operations)
        if (world.aborted || !run(world, op)) return;
}

}  // namespace
