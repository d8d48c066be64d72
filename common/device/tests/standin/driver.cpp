// A stand-in for NVIDIA's driver: the calls that the CUDA device makes, on main memory.
//
// Compiled with the host shim into a library called `libcuda.so`; beside it stand `blas.cpp`
// (`libcublasLt.so`) and `compiler.cpp` (`libnvrtc.so`). A program that finds them on
// `LD_LIBRARY_PATH` runs its whole CUDA path without a GPU.
//
// A stream is a thread with a queue. Before each piece of work it may sleep for a random time, so
// that streams overtake each other wherever no event orders them: a missing fence shows as wrong
// numbers. It is stricter than a GPU where that helps: copies to main memory are never complete
// before the stream is waited for, fresh memory is full of NaN, and calls without a current
// context, copies out of bounds or of freed memory, launches that a GPU would refuse, page-locked
// memory that changes while a copy from it is queued, and copies from pageable memory that are not
// waited for are errors.
//
// Environment: STANDIN_GPUS (how many, 1), STANDIN_MEMORY (bytes of each, 1 GiB),
// STANDIN_MULTIPROCESSORS (of each, 132), STANDIN_CAPABILITY (90 is 9.0; 80,75: of the first GPU, and
// of those after it), STANDIN_DRIVER (13000 is for CUDA 13.0), STANDIN_DOZE (longest sleep in
// microseconds, 200), STANDIN_SEED, STANDIN_FENCES (0: no stream ever waits for an event),
// STANDIN_PEERS (0: no GPU reaches another's memory), STANDIN_REGISTER (0: it locks no main
// memory that the program has mapped), STANDIN_HOST_BLOCK (bytes of the largest page-locked block
// that it allocates itself), STANDIN_HOST_MEMORY (bytes of page-locked memory that there are),
// STANDIN_LOCKS (1: while memory is freed, no thread of the process queues anything), STANDIN_FREED
// (1: memory, communicators and cuBLASLt's handles that are left at the end make the program fail),
// STANDIN_BREAKS (the beginning of a kernel's name: launching it breaks the context).
#include "shim.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

enum Status {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    PEER_ACCESS_UNSUPPORTED = 217,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
    LAUNCH_FAILED = 719,
};

// The only struct that kernels take by value: addresses of up to 64 ranks.
constexpr size_t PEERS_BYTES = 64 * 8;
// Shared memory that a block may use by default, its own arrays included, and the most that it may
// request.
constexpr unsigned UNASKED = 48 << 10, MOST_SHARED = 227 << 10;
constexpr unsigned char POISON = 0xff;
// Blocks from this size on are mapped, and no longer there once they are freed.
constexpr size_t LARGE = 2 << 20;

uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : otherwise;
}

// A file of LARGE bytes of poison, or -1.
int poison_file() {
    int file = memfd_create("poison", MFD_CLOEXEC);
    if (file < 0) return -1;
    std::vector<unsigned char> poison(LARGE, POISON);
    if (write(file, poison.data(), LARGE) == ssize_t(LARGE)) return file;
    close(file);
    return -1;
}

// Maps one file again and again, so that pages that nobody writes take no memory. cuBLASLt's workspace
// has 32 MiB of them per rank.
void *map_poison(size_t bytes) {
    static const int file = poison_file();
    if (file < 0) return nullptr;
    void *memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    for (size_t at = 0; at < bytes; at += LARGE) {
        void *part = static_cast<unsigned char *>(memory) + at;
        void *mapped = mmap(part, std::min(LARGE, bytes - at), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0);
        if (mapped == MAP_FAILED) return munmap(memory, bytes), nullptr;
    }
    return memory;
}

// A block that is full of poison, or null.
void *poisoned_block(size_t bytes) {
    if (bytes >= LARGE) return map_poison(bytes);
    void *memory = aligned_alloc(512, (bytes + 511) / 512 * 512);
    return memory ? memset(memory, POISON, bytes) : nullptr;
}

void free_block(void *memory, size_t bytes) {
    if (bytes >= LARGE) munmap(memory, bytes);
    else memset(memory, POISON, bytes), free(memory);
}

// Set once by the first work that fails; every later call reports it, as a GPU's context does.
std::atomic<int> broken{SUCCESS};

void fail(const std::string &what) {
    fprintf(stderr, "stand-in driver: %s\n", what.c_str());
    broken = LAUNCH_FAILED;
}

struct Device;

struct Context {
    Device *device;
    std::set<Context *> reached;
};

struct Device {
    int ordinal;
    uint64_t memory, used = 0;
    Context context;
    int retained = 0;
};

std::vector<Device> &devices() {
    static std::vector<Device> all = [] {
        std::vector<Device> made(setting("STANDIN_GPUS", 1));
        for (size_t i = 0; i < made.size(); i++) made[i] = {int(i), setting("STANDIN_MEMORY", 1ull << 30), 0, {}, 0};
        for (Device &device : made) device.context.device = &device;
        return made;
    }();
    return all;
}

thread_local Context *current = nullptr;

struct Event {
    std::mutex mutex;
    std::condition_variable changed;
    uint64_t recorded = 0, reached = 0;
    std::chrono::steady_clock::time_point when;
};

// Events outlive their handles while a stream still refers to them.
struct EventHandle {
    bool timed;
    std::shared_ptr<Event> event = std::make_shared<Event>();
};

struct Stream {
    Context *context;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> queue;
    bool busy = false, closing = false;
    // A copy from pageable memory was queued, which the driver may still read.
    std::atomic<bool> reading{false};
    uint64_t random;
    std::thread worker;

    Stream(Context *context, uint64_t seed) : context(context), random(seed * 0x9e3779b97f4a7c15 + 1) {
        worker = std::thread([this] { run(); });
    }

    void doze() {
        static const uint64_t longest = setting("STANDIN_DOZE", 200);
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        // Often not at all: the other streams' sleeps suffice for overtaking.
        if (longest == 0 || random % 8 != 0) return;
        std::this_thread::sleep_for(std::chrono::microseconds((random >> 8) % (longest + 1)));
    }

    void run() {
        current = context;
        shim_seed(random);
        std::unique_lock<std::mutex> lock(mutex);
        for (;;) {
            changed.wait(lock, [this] { return closing || !queue.empty(); });
            if (queue.empty()) return;
            std::function<void()> work = std::move(queue.front());
            queue.pop_front();
            busy = true;
            lock.unlock();
            doze();
            if (broken == SUCCESS) work();
            work = nullptr;
            lock.lock();
            busy = false;
            changed.notify_all();
        }
    }

    void push(std::function<void()> work) {
        std::lock_guard<std::mutex> lock(mutex);
        queue.push_back(std::move(work));
        changed.notify_all();
    }

    void wait() {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [this] { return queue.empty() && !busy; });
    }
};

std::mutex &registry_lock() {
    static std::mutex mutex;
    return mutex;
}

// By handle. Shared, since one rank may wait for all streams of a context while another destroys
// one.
std::map<Stream *, std::shared_ptr<Stream>> &streams() {
    static std::map<Stream *, std::shared_ptr<Stream>> all;
    return all;
}

// Blocks of one kind of memory: size by address.
using Blocks = std::map<uint64_t, uint64_t>;

Blocks &on_device() {
    static Blocks all;
    return all;
}

// Page-locked memory: all of it, and what the program had mapped itself.
Blocks &pinned() {
    static Blocks all;
    return all;
}

Blocks &registered() {
    static Blocks all;
    return all;
}

// Ends the program with an error if it leaves memory behind.
struct FreedAtTheEnd {
    FreedAtTheEnd() { on_device(), pinned(), registered(); }

    ~FreedAtTheEnd() {
        if (!setting("STANDIN_FREED", 0) || (on_device().empty() && pinned().empty())) return;
        fprintf(stderr, "stand-in driver: %zu blocks on GPUs and %zu page-locked ones were not freed\n", on_device().size(),
                pinned().size());
        _exit(1);
    }
};

const FreedAtTheEnd freed_at_the_end;

// Page-locked memory that queued copies will read.
std::multimap<uint64_t, uint64_t> &being_read() {
    static std::multimap<uint64_t, uint64_t> all;
    return all;
}

bool is_being_read(uint64_t address, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(registry_lock());
    for (auto &[start, length] : being_read())
        if (start < address + bytes && address < start + length) return true;
    return false;
}

bool inside(const Blocks &blocks, uint64_t address, uint64_t bytes) {
    auto after = blocks.upper_bound(address);
    if (after == blocks.begin()) return false;
    auto block = std::prev(after);
    return address + bytes <= block->first + block->second;
}

bool holds(const Blocks &blocks, uint64_t address, uint64_t bytes) {
    std::lock_guard<std::mutex> lock(registry_lock());
    return inside(blocks, address, bytes);
}

struct Function {
    std::string name;
    std::string signature;
    // Dynamic shared memory that was requested; 0 if none was.
    unsigned asked = 0;
};

struct Module {
    std::string source;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

// A launch's arguments, copied.
struct Arguments {
    std::vector<std::vector<unsigned char>> values;
    std::vector<void *> addresses;

    Arguments(const std::string &signature, void **from) {
        for (size_t i = 0; i < signature.size(); i++) {
            auto *start = static_cast<unsigned char *>(from[i]);
            values.emplace_back(start, start + size_of(signature[i]));
        }
        for (auto &value : values) addresses.push_back(value.data());
    }

    static size_t size_of(char letter) {
        switch (letter) {
        case 'u':
        case 'f': return 4;
        case 'P': return PEERS_BYTES;
        case 'F': return 9 * sizeof(float);
        default: return 8;
        }
    }
};

// Bytes of page-locked memory.
uint64_t pinned_bytes() {
    uint64_t all = 0;
    for (auto &block : pinned()) all += block.second;
    return all;
}

bool has_host_memory(uint64_t bytes) {
    static const uint64_t most = setting("STANDIN_HOST_MEMORY", UINT64_MAX);
    return bytes <= most && pinned_bytes() <= most - bytes;
}

// Held alone while memory is freed, and together by threads that queue work, if STANDIN_LOCKS is set.
std::shared_mutex &launches() {
    static std::shared_mutex mutex;
    return mutex;
}

bool locks() {
    static const bool set = setting("STANDIN_LOCKS", 0) != 0;
    return set;
}

int ready() { return current ? broken.load() : INVALID_CONTEXT; }

int enqueue(Stream *stream, std::function<void()> work) {
    if (int status = ready()) return status;
    if (stream->context != current) return INVALID_CONTEXT;
    if (stream->reading) {
        fail("a copy from pageable memory, which may be read late, was not waited for");
        return broken;
    }
    std::shared_lock<std::shared_mutex> lock(launches(), std::defer_lock);
    if (locks()) lock.lock();
    stream->push(std::move(work));
    return SUCCESS;
}

// Of GPU `device`: the number of its place in the list, or the last one.
int capability(int device) {
    const char *text = getenv("STANDIN_CAPABILITY");
    if (!text) return 90;
    for (const char *next; device > 0 && (next = strchr(text, ',')); device--) text = next + 1;
    return atoi(text);
}

}  // namespace

extern "C" {

// For `blas.cpp`: queues `work(data)`.
int standin_enqueue(void *stream, void (*work)(void *), void *data) {
    return enqueue(static_cast<Stream *>(stream), [work, data] { work(data); });
}

int cuInit(unsigned) { return SUCCESS; }

int cuDriverGetVersion(int *version) {
    *version = int(setting("STANDIN_DRIVER", 13000));
    return SUCCESS;
}

int cuGetErrorString(int status, const char **text) {
    switch (status) {
    case INVALID_VALUE: *text = "invalid argument"; break;
    case OUT_OF_MEMORY: *text = "out of memory"; break;
    case INVALID_DEVICE: *text = "invalid device ordinal"; break;
    case INVALID_IMAGE: *text = "device kernel image is invalid"; break;
    case INVALID_CONTEXT: *text = "invalid device context"; break;
    case PEER_ACCESS_UNSUPPORTED: *text = "peer access is not supported between these two devices"; break;
    case PEER_ACCESS_ALREADY_ENABLED: *text = "peer access is already enabled"; break;
    case NOT_FOUND: *text = "named symbol not found"; break;
    case ALREADY_REGISTERED: *text = "part or all of the requested memory range is already mapped"; break;
    case NOT_REGISTERED: *text = "pointer does not correspond to a registered memory region"; break;
    case LAUNCH_FAILED: *text = "unspecified launch failure"; break;
    default: *text = "unknown error";
    }
    return SUCCESS;
}

int cuGetErrorName(int status, const char **text) { return cuGetErrorString(status, text); }

int cuDeviceGetCount(int *count) {
    *count = int(devices().size());
    return SUCCESS;
}

int cuDeviceGet(int *device, int ordinal) {
    if (ordinal < 0 || size_t(ordinal) >= devices().size()) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

int cuDeviceGetName(char *name, int bytes, int) {
    snprintf(name, size_t(bytes), "Stand-in GPU");
    return SUCCESS;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) {
    case 16: *value = int(setting("STANDIN_MULTIPROCESSORS", 132)); return SUCCESS;
    case 75: *value = capability(device) / 10; return SUCCESS;
    case 76: *value = capability(device) % 10; return SUCCESS;
    default: return INVALID_VALUE;
    }
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    memset(uuid, 0, 16);
    uuid[0] = 0x5d, uuid[15] = (unsigned char)(device);
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = devices()[size_t(device)].memory;
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(Context **context, int device) {
    devices()[size_t(device)].retained++;
    *context = &devices()[size_t(device)].context;
    return SUCCESS;
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    return --devices()[size_t(device)].retained < 0 ? INVALID_CONTEXT : SUCCESS;
}

int cuCtxSetCurrent(Context *context) {
    current = context;
    return broken;
}

int cuCtxGetCurrent(Context **context) {
    *context = current;
    return broken;
}

int cuCtxGetDevice(int *device) {
    if (int status = ready()) return status;
    *device = current->device->ordinal;
    return SUCCESS;
}

int cuCtxSynchronize() {
    if (!current) return INVALID_CONTEXT;
    std::vector<std::shared_ptr<Stream>> all;
    {
        std::lock_guard<std::mutex> lock(registry_lock());
        for (auto &[handle, stream] : streams())
            if (handle->context == current) all.push_back(stream);
    }
    for (auto &stream : all) stream->wait();
    return broken;
}

int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0, *greatest = -5;
    return ready();
}

int cuCtxEnablePeerAccess(Context *peer, unsigned) {
    if (int status = ready()) return status;
    static const bool peers = setting("STANDIN_PEERS", 1) != 0;
    if (!peers) return PEER_ACCESS_UNSUPPORTED;
    return current->reached.insert(peer).second ? SUCCESS : PEER_ACCESS_ALREADY_ENABLED;
}

int cuStreamCreateWithPriority(Stream **stream, unsigned, int) {
    if (int status = ready()) return status;
    static std::atomic<uint64_t> count{setting("STANDIN_SEED", 0) << 16};
    auto made = std::make_shared<Stream>(current, ++count);
    *stream = made.get();
    std::lock_guard<std::mutex> lock(registry_lock());
    streams()[*stream] = made;
    return SUCCESS;
}

int cuStreamDestroy_v2(Stream *stream) {
    std::shared_ptr<Stream> kept;
    {
        std::lock_guard<std::mutex> lock(registry_lock());
        auto found = streams().find(stream);
        if (found == streams().end()) return INVALID_VALUE;
        kept = found->second;
        streams().erase(found);
    }
    {
        std::lock_guard<std::mutex> lock(stream->mutex);
        stream->closing = true;
        stream->changed.notify_all();
    }
    stream->worker.join();
    return SUCCESS;
}

int cuStreamSynchronize(Stream *stream) {
    if (int status = ready()) return status;
    stream->wait();
    stream->reading = false;
    return broken;
}

int cuEventCreate(EventHandle **event, unsigned flags) {
    if (int status = ready()) return status;
    // CU_EVENT_DISABLE_TIMING
    *event = new EventHandle{(flags & 2) == 0};
    return SUCCESS;
}

int cuEventDestroy_v2(EventHandle *event) {
    delete event;
    return SUCCESS;
}

int cuEventRecord(EventHandle *handle, Stream *stream) {
    std::shared_ptr<Event> event = handle->event;
    uint64_t number;
    {
        std::lock_guard<std::mutex> lock(event->mutex);
        number = ++event->recorded;
    }
    return enqueue(stream, [event, number] {
        std::lock_guard<std::mutex> lock(event->mutex);
        event->reached = std::max(event->reached, number);
        event->when = std::chrono::steady_clock::now();
        event->changed.notify_all();
    });
}

int cuEventQuery(EventHandle *handle) {
    std::lock_guard<std::mutex> lock(handle->event->mutex);
    if (broken != SUCCESS) return broken;
    return handle->event->reached < handle->event->recorded ? NOT_READY : SUCCESS;
}

static void await(Event &event, uint64_t number) {
    std::unique_lock<std::mutex> lock(event.mutex);
    // A broken context runs nothing any more: waits must not last forever.
    while (event.reached < number && broken == SUCCESS) event.changed.wait_for(lock, std::chrono::milliseconds(50));
}

int cuStreamWaitEvent(Stream *stream, EventHandle *handle, unsigned) {
    static const bool fences = setting("STANDIN_FENCES", 1) != 0;
    if (!fences) return ready();
    std::shared_ptr<Event> event = handle->event;
    uint64_t number;
    {
        std::lock_guard<std::mutex> lock(event->mutex);
        number = event->recorded;
    }
    return enqueue(stream, [event, number] { await(*event, number); });
}

int cuEventSynchronize(EventHandle *handle) {
    await(*handle->event, handle->event->recorded);
    return broken;
}

int cuEventElapsedTime(float *milliseconds, EventHandle *start, EventHandle *end) {
    if (!start->timed || !end->timed) return INVALID_HANDLE;
    for (EventHandle *handle : {start, end}) {
        if (handle->event->recorded == 0) return INVALID_HANDLE;
        if (int status = cuEventQuery(handle)) return status;
    }
    *milliseconds = std::chrono::duration<float, std::milli>(end->event->when - start->event->when).count();
    return broken;
}

int cuMemGetInfo_v2(size_t *free, size_t *total) {
    if (int status = ready()) return status;
    std::lock_guard<std::mutex> lock(registry_lock());
    *total = current->device->memory;
    *free = current->device->memory - current->device->used;
    return SUCCESS;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    if (int status = ready()) return status;
    if (bytes == 0) return INVALID_VALUE;
    std::lock_guard<std::mutex> lock(registry_lock());
    Device &device = *current->device;
    if (device.used + bytes > device.memory) return OUT_OF_MEMORY;
    void *memory = poisoned_block(bytes);
    if (!memory) return OUT_OF_MEMORY;
    device.used += bytes;
    *address = reinterpret_cast<uint64_t>(memory);
    on_device()[*address] = bytes;
    return SUCCESS;
}

int cuMemFree_v2(uint64_t address) {
    if (!current) return INVALID_CONTEXT;
    // As the driver does: nothing runs while memory is freed.
    {
        std::unique_lock<std::shared_mutex> lock(launches(), std::defer_lock);
        if (locks()) lock.lock();
        cuCtxSynchronize();
    }
    std::lock_guard<std::mutex> lock(registry_lock());
    auto block = on_device().find(address);
    if (block == on_device().end()) return INVALID_VALUE;
    current->device->used -= block->second;
    free_block(reinterpret_cast<void *>(address), block->second);
    on_device().erase(block);
    return SUCCESS;
}

int cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
    if (int status = ready()) return status;
    static const uint64_t most = setting("STANDIN_HOST_BLOCK", UINT64_MAX);
    std::lock_guard<std::mutex> lock(registry_lock());
    if (bytes > most || !has_host_memory(bytes)) return OUT_OF_MEMORY;
    *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    if (!*memory) return OUT_OF_MEMORY;
    pinned()[reinterpret_cast<uint64_t>(*memory)] = bytes;
    return SUCCESS;
}

int cuMemFreeHost(void *memory) {
    std::lock_guard<std::mutex> lock(registry_lock());
    uint64_t address = reinterpret_cast<uint64_t>(memory);
    if (registered().count(address) || !pinned().erase(address)) return INVALID_VALUE;
    free(memory);
    return SUCCESS;
}

int cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags) {
    if (int status = ready()) return status;
    static const bool allowed = setting("STANDIN_REGISTER", 1) != 0;
    // CU_MEMHOSTREGISTER_PORTABLE
    if (!allowed || bytes == 0 || flags > 1) return INVALID_VALUE;
    uint64_t first = reinterpret_cast<uint64_t>(memory), page = 4096;
    std::lock_guard<std::mutex> lock(registry_lock());
    if (!has_host_memory(bytes)) return OUT_OF_MEMORY;
    // Whole pages are locked, each once.
    for (auto &[start, length] : pinned())
        if (start / page <= (first + bytes - 1) / page && first / page <= (start + length - 1) / page) return ALREADY_REGISTERED;
    pinned()[first] = registered()[first] = bytes;
    return SUCCESS;
}

int cuMemHostUnregister(void *memory) {
    if (int status = ready()) return status;
    std::lock_guard<std::mutex> lock(registry_lock());
    uint64_t address = reinterpret_cast<uint64_t>(memory);
    if (!registered().erase(address)) return NOT_REGISTERED;
    pinned().erase(address);
    return SUCCESS;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, Stream *stream) {
    if (!holds(on_device(), to, bytes)) return INVALID_VALUE;
    auto *start = static_cast<const unsigned char *>(from);
    std::vector<unsigned char> copy(start, start + bytes);
    if (!holds(pinned(), reinterpret_cast<uint64_t>(from), bytes)) {
        int status = enqueue(stream, [to, copy] { memcpy(reinterpret_cast<void *>(to), copy.data(), copy.size()); });
        stream->reading = true;
        return status;
    }
    uint64_t source = reinterpret_cast<uint64_t>(from);
    {
        std::lock_guard<std::mutex> lock(registry_lock());
        being_read().emplace(source, bytes);
    }
    return enqueue(stream, [to, from, source, copy] {
        // A GPU reads page-locked memory when it runs the copy: a change before that is copied.
        bool intact = holds(pinned(), source, copy.size()) && memcmp(from, copy.data(), copy.size()) == 0;
        memcpy(reinterpret_cast<void *>(to), copy.data(), copy.size());
        // Only after the copy: a copy back to this memory poisons it unless it is listed here.
        std::lock_guard<std::mutex> lock(registry_lock());
        auto [first, last] = being_read().equal_range(source);
        while (first != last && first->second != copy.size()) ++first;
        if (first != last) being_read().erase(first);
        if (!intact) fail("page-locked memory was changed or freed before a copy from it was done");
    });
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, Stream *stream) {
    if (!holds(on_device(), from, bytes)) return INVALID_VALUE;
    // Memory that a copy queued before still reads is overwritten after that copy, if an event orders the two.
    if (!is_being_read(reinterpret_cast<uint64_t>(to), bytes)) memset(to, POISON, bytes);
    return enqueue(stream, [=] {
        if (!holds(on_device(), from, bytes)) return fail("a copy reads memory that was given back before it ran");
        memcpy(to, reinterpret_cast<void *>(from), bytes);
    });
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, Stream *stream) {
    if (!holds(on_device(), to, bytes) || !holds(on_device(), from, bytes)) return INVALID_VALUE;
    return enqueue(stream, [=] {
        if (!holds(on_device(), to, bytes) || !holds(on_device(), from, bytes))
            return fail("a copy reaches memory that was given back before it ran");
        memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
    });
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, Stream *stream) {
    if (!holds(on_device(), to, bytes)) return INVALID_VALUE;
    return enqueue(stream, [=] { memset(reinterpret_cast<void *>(to), value, bytes); });
}

int cuModuleLoadData(Module **module, const void *image) {
    if (int status = ready()) return status;
    const char *text = static_cast<const char *>(image);
    const char *start = "stand-in image of ";
    if (strncmp(text, start, strlen(start)) != 0) return INVALID_IMAGE;
    *module = new Module{text + strlen(start), {}};
    return SUCCESS;
}

int cuModuleUnload(Module *module) {
    delete module;
    return SUCCESS;
}

int cuModuleGetFunction(Function **function, Module *module, const char *name) {
    if (!shim_find(name)) return NOT_FOUND;
    std::unique_ptr<Function> &found = module->functions[name];
    if (!found) found.reset(new Function{name, shim_signature(name)});
    *function = found.get();
    return SUCCESS;
}

int cuFuncSetAttribute(Function *function, int attribute, int value) {
    // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    if (attribute != 8 || value < 0 || unsigned(value) > MOST_SHARED) return INVALID_VALUE;
    // The last one counts, even if it is less than one before.
    function->asked = unsigned(value);
    return SUCCESS;
}

int cuLaunchKernel(Function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared, Stream *stream, void **parameters, void **) {
    uint64_t blocks = uint64_t(grid_x) * grid_y * grid_z, threads = uint64_t(block_x) * block_y * block_z;
    if (blocks == 0 || grid_y > 65535 || grid_z > 65535) return INVALID_VALUE;
    unsigned asked = function->asked;
    if (threads == 0 || threads > 1024 || shared > std::max(asked, UNASKED)) return INVALID_VALUE;
    auto arguments = std::make_shared<Arguments>(function->signature, parameters);
    std::string name = function->name;
    static const char *breaks = getenv("STANDIN_BREAKS");
    if (breaks && name.rfind(breaks, 0) == 0) return enqueue(stream, [=] { fail(name + ": as it was told to"); });
    return enqueue(stream, [=] {
        int status = shim_launch(name.c_str(), grid_x, grid_y, grid_z, block_x, block_y, block_z, shared,
                                 arguments->addresses.data());
        if (status) return fail(name + ": " + shim_error());
        // A kernel's static shared memory is known only after it has run here; a GPU would have
        // refused the launch.
        size_t all = shared + shim_static_bytes();
        if (all > (shared <= asked ? MOST_SHARED : UNASKED)) fail(name + ": more shared memory than was asked for");
    });
}
}
