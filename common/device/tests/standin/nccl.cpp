// A stand-in for NCCL: the calls of it that the collectives make, as work on the stand-in driver's streams.
//
// It is stricter than NCCL where that helps: communicators must be made not to block, a call while the last one is still under
// way is refused, now and then a call goes on after it has returned (whoever records an event too early, records it before
// the work), ranks that call differently are told, and ranks share a GPU only from version 2.30 on and with the variables that
// this takes.
//
// Environment: STANDIN_NCCL_VERSION (23004 is 2.30.4); STANDIN_NCCL_ERROR=RANK:N (the N-th collective of that rank in the
// world fails while it runs, N from 1); STANDIN_NCCL_ABSENT=RANK:N:MS (that call does not return before MS milliseconds or
// an abort; N = 0 is the communicator's making).
#include "nccl_world.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <thread>

extern "C" {
int standin_enqueue(void *stream, void (*work)(void *), void *data);
int cuCtxGetCurrent(void **context);
int cuCtxSetCurrent(void *context);
int cuCtxGetDevice(int *device);
int cuDeviceGetUuid_v2(unsigned char *uuid, int device);
int cuMemAlloc_v2(uint64_t *address, size_t bytes);
int cuMemFree_v2(uint64_t address);
}

namespace {

enum Result { SUCCESS = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7 };
enum What { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECV };
enum Number { U32 = 3, HALF = 6, FLOAT = 7, BFLOAT = 9 };

// Memory that a communicator takes for itself.
constexpr size_t OWN = 4 << 20;

struct Id {
    char text[128];
};

struct Settings {
    size_t size;
    unsigned magic, version;
    int blocking;
};

struct Fault {
    int rank = -1, number = -1, time = 0;
    explicit Fault(const char *name) {
        if (const char *text = getenv(name)) sscanf(text, "%d:%d:%d", &rank, &number, &time);
    }
    bool hits(int at_rank, int at_number) const { return rank == at_rank && number == at_number; }
};

const Fault &absent() {
    static const Fault fault("STANDIN_NCCL_ABSENT");
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

// A communicator. Its memory is never given back, so that a call that hangs in it may outlive an abort.
struct Comm {
    std::shared_ptr<World> world;
    void *context = nullptr;
    uint64_t own = 0;
    bool root = false;
    int collectives = 0, splits = 0;
    unsigned turns = 0;
    std::atomic<int> state{IN_PROGRESS};
    std::thread helper;

    // Goes on with `work` after the call has returned; its result becomes the state.
    void later(std::function<int()> work) {
        if (helper.joinable()) helper.join();
        state = IN_PROGRESS;
        helper = std::thread([this, work] {
            cuCtxSetCurrent(context);
            int result = work();
            if (!world->aborted) state = result;
        });
    }

    void end(bool orderly) {
        world->aborted = true;
        if (helper.joinable()) helper.join();
        cuCtxSetCurrent(context);
        if (orderly && own) cuMemFree_v2(own);
        world->forget();
    }
};

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

// Runs messages side by side; false if aborted.
bool exchange(World &world, const std::vector<Operation> &messages) {
    std::vector<size_t> done(messages.size());
    std::vector<bool> begun(messages.size());
    for (int tries = 0;; tries++) {
        bool finished = true;
        std::vector<int> blocked;
        for (size_t i = 0; i < messages.size(); i++) {
            const Operation &op = messages[i];
            size_t bytes = op.call.count * width(op.call.type);
            if (done[i] == bytes) continue;
            finished = false;
            // Messages of one pair go one after the other.
            int lane = op.call.what == SEND ? op.call.root : ~op.call.root;
            bool waits = std::find(blocked.begin(), blocked.end(), lane) != blocked.end();
            blocked.push_back(lane);
            if (waits) continue;
            size_t piece = op.call.what == SEND ? world.put(op.call.root, op.from + done[i], bytes - done[i])
                                                : world.take(op.call.root, op.to + done[i]);
            done[i] += piece;
            if (piece) tries = 0;
        }
        if (finished) return true;
        if (!world.pause(tries)) return false;
    }
}

struct Batch {
    Comm *comm;
    std::shared_ptr<World> world;
    std::vector<Operation> operations;
    bool broken = false;
};

void work(void *data) {
    std::unique_ptr<Batch> batch(static_cast<Batch *>(data));
    World &world = *batch->world;
    if (batch->broken) {
        if (!world.aborted) batch->comm->state = REMOTE_ERROR;
        while (world.pause(100)) {}
        return;
    }
    std::vector<Operation> messages;
    for (const Operation &op : batch->operations) {
        if (op.call.what >= SEND)
            messages.push_back(op);
        else if (world.aborted || !run(world, op))
            return;
    }
    if (!world.aborted) exchange(world, messages);
}

thread_local int depth = 0;
thread_local std::vector<std::pair<Comm *, Operation>> pending;

// Does not return for a while, as a call that hangs in the driver.
void hang(World &world, int milliseconds) {
    for (int waited = 0; waited < milliseconds && !world.aborted; waited++) usleep(1000);
}

int submit() {
    auto all = std::move(pending);
    pending.clear();
    if (all.empty()) return SUCCESS;
    Comm *comm = all[0].first;
    auto batch = std::make_unique<Batch>();
    batch->comm = comm, batch->world = comm->world;
    void *stream = all[0].second.stream;
    for (auto &[owner, op] : all) {
        if (owner != comm || op.stream != stream) return complain(INVALID_USAGE, "a group over several communicators or streams");
        batch->operations.push_back(op);
    }
    bool messages = batch->operations[0].call.what >= SEND;
    comm->collectives += messages ? 0 : 1;
    if (comm->root && !messages) {
        if (absent().hits(comm->world->rank, comm->collectives)) hang(*comm->world, absent().time);
        batch->broken = error().hits(comm->world->rank, comm->collectives);
    }
    if (comm->world->aborted) return INTERNAL_ERROR;
    // The first time connections are made, and that takes a while.
    if (comm->turns++ % 8 == 0) {
        auto shared = std::make_shared<std::unique_ptr<Batch>>(std::move(batch));
        comm->later([shared, stream] {
            usleep(500);
            return standin_enqueue(stream, work, shared->release()) ? INTERNAL_ERROR : SUCCESS;
        });
        return IN_PROGRESS;
    }
    return standin_enqueue(stream, work, batch.release()) ? INTERNAL_ERROR : SUCCESS;
}

int call(int what, const void *from, void *to, size_t count, int type, int root, Comm *comm, void *stream) {
    if (comm->state != SUCCESS) return complain(INVALID_ARGUMENT, "a call before the last one was done");
    if (what <= REDUCE_SCATTER && type == U32) return complain(INVALID_ARGUMENT, "a sum of integers");
    Operation op{{what, type, root, count}, static_cast<const unsigned char *>(from), static_cast<unsigned char *>(to), stream};
    pending.emplace_back(comm, op);
    return depth == 0 ? submit() : SUCCESS;
}

// Waits for all ranks, and looks at who they are.
int meet(Comm &comm, bool root) {
    World &world = *comm.world;
    int device = 0;
    if (cuCtxGetDevice(&device) || cuDeviceGetUuid_v2(world.here().gpu[world.rank], device)) return SYSTEM_ERROR;
    if (root && absent().hits(world.rank, 0)) hang(world, absent().time);
    if (!world.together()) return INTERNAL_ERROR;
    for (int other = 0; other < world.size; other++) {
        bool shares = other != world.rank && !memcmp(world.here().gpu[other], world.here().gpu[world.rank], 16);
        if (!shares) continue;
        if (version() < 23000) return complain(INVALID_USAGE, "duplicate GPU");
        if (!is("NCCL_MULTI_RANK_GPU_ENABLE", "1")) return complain(INVALID_USAGE, "NCCL_MULTI_RANK_GPU_ENABLE is not 1");
        if (!is("CUDA_DEVICE_MAX_CONNECTIONS", "32")) return complain(INVALID_USAGE, "CUDA_DEVICE_MAX_CONNECTIONS is not 32");
    }
    world.forget();
    return cuMemAlloc_v2(&comm.own, OWN) ? SYSTEM_ERROR : SUCCESS;
}

bool acceptable(const Settings *settings) {
    return settings && settings->magic == 0xcafebeef && settings->version <= unsigned(version()) && settings->blocking == 0;
}

Comm *make(const std::string &name, int rank, int size) {
    Comm *comm = new Comm;
    comm->world = std::make_shared<World>(name, rank, size);
    return cuCtxGetCurrent(&comm->context) || !comm->context || !comm->world->usable() ? nullptr : comm;
}

}  // namespace

extern "C" {

int ncclGetVersion(int *number) {
    *number = version();
    return SUCCESS;
}

const char *ncclGetErrorString(int result) {
    switch (result) {
    case SUCCESS: return "no error";
    case SYSTEM_ERROR: return "unhandled system error";
    case INTERNAL_ERROR: return "internal error";
    case INVALID_ARGUMENT: return "invalid argument";
    case INVALID_USAGE: return "invalid usage";
    case REMOTE_ERROR: return "remote process exited or there was a network error";
    default: return "unknown result code";
    }
}

const char *ncclGetLastError(Comm *) { return ""; }

int ncclGetUniqueId(Id *id) {
    std::random_device random;
    snprintf(id->text, sizeof id->text, "%08x%08x%08x", random(), random(), random());
    return SUCCESS;
}

int ncclCommInitRankConfig(Comm **place, int size, Id id, int rank, const Settings *settings) {
    if (!acceptable(settings)) return complain(INVALID_ARGUMENT, "the stand-in knows communicators that do not block");
    Comm *comm = make(id.text, rank, size);
    if (!comm) return complain(SYSTEM_ERROR, "no context, or no shared memory");
    comm->root = true;
    *place = comm;
    comm->later([comm] { return meet(*comm, true); });
    return IN_PROGRESS;
}

int ncclCommSplit(Comm *parent, int color, int key, Comm **place, const Settings *settings) {
    if (!acceptable(settings) || parent->state != SUCCESS) return complain(INVALID_ARGUMENT, "a split too early");
    std::string name = parent->world->name + "-" + std::to_string(parent->splits++) + "-" + std::to_string(color);
    parent->later([=] {
        World &world = *parent->world;
        world.here().color[world.rank] = color, world.here().key[world.rank] = key;
        if (!world.together()) return int(INTERNAL_ERROR);
        int rank = 0, size = 0;
        for (int other = 0; other < world.size; other++) {
            if (world.here().color[other] != color) continue;
            size++;
            rank += world.here().key[other] < key;
        }
        if (!world.together()) return int(INTERNAL_ERROR);
        if (color < 0) return int(SUCCESS);
        Comm *comm = make(name, rank, size);
        if (!comm) return int(SYSTEM_ERROR);
        comm->later([comm] { return meet(*comm, false); });
        *place = comm;
        return int(SUCCESS);
    });
    return IN_PROGRESS;
}

int ncclCommGetAsyncError(Comm *comm, int *state) {
    *state = comm->state;
    return SUCCESS;
}

int ncclCommFinalize(Comm *comm) {
    if (comm->state != SUCCESS) return complain(INVALID_ARGUMENT, "an end too early");
    comm->later([comm] { return comm->world->together() ? SUCCESS : INTERNAL_ERROR; });
    return IN_PROGRESS;
}

int ncclCommDestroy(Comm *comm) {
    comm->end(true);
    return SUCCESS;
}

int ncclCommAbort(Comm *comm) {
    comm->end(false);
    return SUCCESS;
}

int ncclGroupStart() {
    depth++;
    return SUCCESS;
}

int ncclGroupEnd() { return --depth == 0 ? submit() : SUCCESS; }

int ncclAllReduce(const void *from, void *to, size_t count, int type, int, Comm *comm, void *stream) {
    return call(ALL_REDUCE, from, to, count, type, 0, comm, stream);
}

int ncclReduceScatter(const void *from, void *to, size_t count, int type, int, Comm *comm, void *stream) {
    return call(REDUCE_SCATTER, from, to, count, type, 0, comm, stream);
}

int ncclAllGather(const void *from, void *to, size_t count, int type, Comm *comm, void *stream) {
    return call(ALL_GATHER, from, to, count, type, 0, comm, stream);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, Comm *comm, void *stream) {
    return call(BROADCAST, from, to, count, type, root, comm, stream);
}

int ncclSend(const void *from, size_t count, int type, int peer, Comm *comm, void *stream) {
    return call(SEND, from, nullptr, count, type, peer, comm, stream);
}

int ncclRecv(void *to, size_t count, int type, int peer, Comm *comm, void *stream) {
    return call(RECV, nullptr, to, count, type, peer, comm, stream);
}
}
