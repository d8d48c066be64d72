// A stand-in for NCCL: the calls of it that the collectives make, as work on the stand-in driver's
// streams.
//
// It is stricter than NCCL where that helps: communicators must be non-blocking, a call while the
// last one is still in progress is refused, some calls continue after they have returned (an event
// that is recorded too early is then before the work), ranks whose calls differ get an error, and
// ranks share a GPU only from version 2.30 on and with the variables that this takes. An abort
// waits for everything else that runs on the GPU, other communicators' kernels included, as NCCL's
// does.
//
// Environment: STANDIN_NCCL_VERSION (23004 is 2.30.4); STANDIN_NCCL_ERROR=RANK:N:CODE (the N-th
// collective of that rank in the world fails while it runs, N from 1, by itself with an internal
// error); STANDIN_NCCL_ABSENT=RANK:N:MS (that call does not return before MS milliseconds or an
// abort; N = 0 is the communicator's making); STANDIN_NCCL_REFUSED=RANK:0 (to make that rank's
// communicator returns an error, and a handle); STANDIN_FREED (1: a communicator that is left at the
// end makes the program fail).
#include "nccl_comm.h"

namespace {

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
    auto batch = std::make_unique<Batch>(comm);
    void *stream = all[0].second.stream;
    for (auto &[owner, op] : all) {
        if (owner != comm || op.stream != stream) return complain(INVALID_USAGE, "a group over several communicators or streams");
        batch->operations.push_back(op);
    }
    comm->collectives++;
    if (comm->root) {
        if (absent().hits(comm->world->rank, comm->collectives)) hang(*comm->world, absent().extra);
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

// What a call of `comm` returns at once: the error of an earlier collective, or a complaint if the
// last call is still in progress.
int ready(const Comm *comm, const char *what) {
    int state = comm->state;
    return state == IN_PROGRESS ? complain(INVALID_ARGUMENT, what) : state;
}

int call(int what, const void *from, void *to, size_t count, int type, int root, Comm *comm, void *stream) {
    if (int state = ready(comm, "a call before the last one was done")) return state;
    if (what <= REDUCE_SCATTER && type == U32) return complain(INVALID_ARGUMENT, "a sum of integers");
    Operation op{{what, type, root, count}, static_cast<const unsigned char *>(from), static_cast<unsigned char *>(to), stream};
    pending.emplace_back(comm, op);
    return depth == 0 ? submit() : SUCCESS;
}

// Waits for all ranks, and compares their identities.
int meet(Comm &comm, bool root) {
    World &world = *comm.world;
    int device = 0;
    if (cuCtxGetDevice(&device) || cuDeviceGetUuid_v2(world.here().gpu[world.rank], device)) return SYSTEM_ERROR;
    world.here().process[world.rank] = getpid();
    if (root && absent().hits(world.rank, 0)) hang(world, absent().extra);
    if (!world.together()) return INTERNAL_ERROR;
    int here = 1;
    auto share = [&](int a, int b) { return !memcmp(world.here().gpu[a], world.here().gpu[b], 16); };
    for (int other = 0; other < world.size; other++) {
        if (other == world.rank) continue;
        bool threads = world.here().process[other] == getpid();
        if (threads && !is("CUDA_MODULE_LOADING", "EAGER")) return complain(INVALID_USAGE, "CUDA_MODULE_LOADING is not EAGER");
        if (!share(other, world.rank)) continue;
        here++;
        if (version() < 23000) return complain(INVALID_USAGE, "duplicate GPU");
        if (!is("NCCL_MULTI_RANK_GPU_ENABLE", "1")) return complain(INVALID_USAGE, "NCCL_MULTI_RANK_GPU_ENABLE is not 1");
        if (!is("CUDA_DEVICE_MAX_CONNECTIONS", "32")) return complain(INVALID_USAGE, "CUDA_DEVICE_MAX_CONNECTIONS is not 32");
        bool seen = share(world.size - 2, world.size - 1);
        if (!seen && !is("NCCL_NVLS_ENABLE", "0")) return complain(INVALID_USAGE, "NCCL_NVLS_ENABLE is not 0");
    }
    // NCCL itself would try, and hang if kernels that wait for each other do not fit on the GPU
    // together.
    int room = 0;
    if (cuDeviceGetAttribute(&room, 16, device)) return SYSTEM_ERROR;
    bool fits = comm.most_blocks == 1 || (comm.most_blocks > 0 && comm.most_blocks * here <= std::min(room, 32));
    if (here > 1 && !fits) return complain(INVALID_USAGE, "too many blocks for ranks that share a GPU");
    world.forget();
    return cuMemAlloc_v2(&comm.own, OWN) ? SYSTEM_ERROR : SUCCESS;
}

bool acceptable(const Settings *settings) {
    return settings && settings->magic == 0xcafebeef && settings->version <= unsigned(version()) && settings->blocking == 0;
}

Comm *make(const std::string &name, int rank, int size, const Settings *settings) {
    Comm *comm = new Comm;
    comm->most_blocks = settings->most_blocks;
    comm->world = std::make_shared<World>(name, rank, size);
    std::lock_guard<std::mutex> lock(Comm::all_lock());
    Comm::all().push_back(comm);
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
    Comm *comm = make(id.text, rank, size, settings);
    if (!comm) return complain(SYSTEM_ERROR, "no context, or no shared memory");
    comm->root = true;
    *place = comm;
    if (refused().hits(rank, 0)) return SYSTEM_ERROR;
    comm->later([comm] { return meet(*comm, true); });
    return IN_PROGRESS;
}

int ncclCommSplit(Comm *parent, int color, int key, Comm **place, const Settings *settings) {
    if (!acceptable(settings)) return complain(INVALID_ARGUMENT, "the stand-in knows communicators that do not block");
    if (int state = ready(parent, "a split too early")) return state;
    std::string name = parent->world->name + "-" + std::to_string(parent->splits++) + "-" + std::to_string(color);
    parent->later([=, copy = *settings] {
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
        Comm *comm = make(name, rank, size, &copy);
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
    if (int state = ready(comm, "an end too early")) return state;
    comm->later([comm] {
        // NCCL completes what was queued before, too. A collective that still runs would be mixed up
        // with this: both count the same steps.
        while (comm->under_way > 0 && comm->world->pause(100)) {}
        return comm->world->together() ? SUCCESS : INTERNAL_ERROR;
    });
    return IN_PROGRESS;
}

int ncclCommDestroy(Comm *comm) {
    comm->end(true);
    return SUCCESS;
}

int ncclCommAbort(Comm *comm) {
    comm->wait_for_gpu();
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
}
