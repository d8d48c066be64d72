// The meeting place of a stand-in communicator's ranks, threads or processes: a file in /dev/shm
// that all of them map.
//
// Ranks take steps together (`together`) and put data where the others read it. A rank that waits
// polls its own abort flag, as a kernel of NCCL does; the others do not learn that a rank has
// aborted.
#pragma once
#include "floats.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

namespace {

constexpr size_t MOST = 8, STAGE = 256 << 10;

// The call that a rank is about to make.
struct Call {
    int what, type, root;
    size_t count;
    bool operator==(const Call &other) const {
        return what == other.what && type == other.type && root == other.root && count == other.count;
    }
};

struct Shared {
    std::atomic<uint64_t> steps[MOST];
    unsigned char gpu[MOST][16];
    int process[MOST];
    int color[MOST], key[MOST];
    Call calls[MOST];
    alignas(64) unsigned char stage[MOST][STAGE];
};

class World {
public:
    const std::string name;
    const int rank, size;
    std::atomic<bool> aborted{false};

    World(const std::string &name, int rank, int size) : name(name), rank(rank), size(size) {
        int file = shm_open(path().c_str(), O_RDWR | O_CREAT, 0600);
        if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return;
        void *memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (memory != MAP_FAILED) shared = static_cast<Shared *>(memory);
    }

    ~World() {
        if (shared) munmap(shared, sizeof(Shared));
        forget();
    }

    // All ranks have opened the file: its name is not needed any more.
    void forget() { shm_unlink(path().c_str()); }

    bool usable() const { return shared && size <= int(MOST); }
    Shared &here() { return *shared; }

    // Waits until every rank has called this as often as this one; false if aborted.
    bool together() {
        uint64_t mine = ++shared->steps[rank];
        for (int other = 0; other < size; other++)
            for (int tries = 0; shared->steps[other] < mine; tries++)
                if (!pause(tries)) return false;
        return true;
    }

    bool pause(int tries) {
        if (tries < 50)
            sched_yield();
        else
            usleep(50);
        return !aborted;
    }

    // True if all ranks are about to do the same.
    bool agree(const Call &call, bool &same) {
        shared->calls[rank] = call;
        if (!together()) return false;
        same = std::all_of(shared->calls, shared->calls + size, [&](const Call &other) { return other == call; });
        return together();
    }

    // Sums over ranks, each element from the rank after its owner round to the owner, rounded at
    // every hop. Those of `wanted` (elements from, to) are kept, at `to` as if it began with
    // element `wanted.first`.
    bool sum(const unsigned char *from, unsigned char *to, size_t len, int type, std::pair<size_t, size_t> wanted) {
        size_t width = size_of(type), most = STAGE / width;
        std::vector<unsigned char> kept((wanted.second - wanted.first) * width);
        for (size_t start = 0; start < len; start += most) {
            size_t end = std::min(len, start + most);
            memcpy(shared->stage[rank], from + start * width, (end - start) * width);
            if (!together()) return false;
            for (size_t i = std::max(start, wanted.first); i < std::min(end, wanted.second); i++) {
                int owner = int(i * size_t(size) / len);
                if (type == F32) {
                    float total = staged((owner + 1) % size)[i - start];
                    for (int hop = 2; hop <= size; hop++) total += staged((owner + hop) % size)[i - start];
                    memcpy(&kept[(i - wanted.first) * width], &total, width);
                    continue;
                }
                unsigned char sum[4];
                memcpy(sum, shared->stage[(owner + 1) % size] + (i - start) * width, width);
                for (int hop = 2; hop <= size; hop++)
                    write(type, sum, 0, read(type, sum, 0) + read(type, shared->stage[(owner + hop) % size], i - start));
                memcpy(&kept[(i - wanted.first) * width], sum, width);
            }
            if (!together()) return false;
        }
        memcpy(to, kept.data(), kept.size());
        return true;
    }

    // Copies `bytes` of every rank that `sends` to all ranks: rank r's to `to(r)`.
    template <class Sends, class To>
    bool spread(const unsigned char *from, size_t bytes, Sends sends, To to) {
        for (size_t start = 0; start < bytes; start += STAGE) {
            size_t piece = std::min(STAGE, bytes - start);
            if (sends(rank)) memcpy(shared->stage[rank], from + start, piece);
            if (!together()) return false;
            for (int other = 0; other < size; other++)
                if (sends(other) && other != rank) memcpy(to(other) + start, shared->stage[other], piece);
            if (!together()) return false;
        }
        return true;
    }

private:
    Shared *shared = nullptr;

    const float *staged(int of) const { return reinterpret_cast<const float *>(shared->stage[of]); }
    std::string path() const { return "/standin-nccl-" + name; }
};

}  // namespace
