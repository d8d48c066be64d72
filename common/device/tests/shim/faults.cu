// Kernels that lack one thing that a GPU needs, and beside each the same kernel with it. Run in one
// fixed order, lane after lane and block after block, the faulty ones give the right numbers: the
// shim's rules are there to show that they are wrong.
#include "block.cuh"
#include "mma.cuh"

// A lane reads what the lane before it has written.
template <bool mended> __device__ inline void lanes(u32 *out) {
    SHARED(u32, values, WARP);
    u32 lane = threadIdx.x;
    values[lane] = lane + 1;
    if (mended) __syncthreads();
    out[lane] = lane == 0 ? 0 : values[lane - 1];
}

// The second warp reads what the first has written.
template <bool mended> __device__ inline void warps(u32 *out) {
    SHARED(u32, values, WARP);
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    if (warp == 0) values[lane] = threadIdx.x;
    if (mended) __syncthreads();
    out[threadIdx.x] = warp == 0 ? threadIdx.x : values[lane] + WARP;
}

// As above, with so much work in between that the first warp is never late where warps run in
// turns.
template <bool mended> __device__ inline void ahead(u32 *out) {
    SHARED(u32, values, WARP);
    u32 warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, mine = lane;
    if (warp == 0) values[lane] = threadIdx.x;
    if (mended) __syncthreads();
    for (u32 i = 0; i < 8; i++) mine = __shfl_xor_sync(ALL_LANES, mine, 1);
    out[threadIdx.x] = warp == 0 ? threadIdx.x : values[mine] + WARP;
}

// Overwrites places before every lane has read them.
template <bool mended> __device__ inline void reuse(u32 *out) {
    SHARED(u32, values, WARP);
    u32 lane = threadIdx.x, sum = 0;
    for (u32 round = 0; round < 2; round++) {
        values[lane] = lane * 2 + round;
        __syncthreads();
        sum += values[WARP - 1 - lane];
        if (mended) __syncthreads();
    }
    out[lane] = sum == 4 * (WARP - 1 - lane) + 1 ? lane : WARP;
}

// A block reads what the block before it has written.
template <bool mended> __device__ inline void blocks(u32 *out) {
    if (threadIdx.x > 0) return;
    out[blockIdx.x] = blockIdx.x == 0 || mended ? blockIdx.x : out[blockIdx.x - 1] + 1;
}

// Adds to memory that was never set.
template <bool mended> __device__ inline void memory(u32 *out) {
    DYNAMIC_SHARED(float, sums);
    SHARED(float, more, WARP);
    u32 lane = threadIdx.x;
    if (mended) sums[lane] = more[lane] = 0.0f;
    sums[lane] += float(lane), more[lane] += sums[lane];
    out[lane] = more[lane] == float(lane) ? lane : WARP;
}

// Numbers 0.. in pieces of four, copied to shared memory by 32 lanes.
struct Pieces {
    u32 *data;

    __device__ void fetch(const u32 *from) const { copy_async(data, 16 * threadIdx.x, from + 4 * threadIdx.x, false); }
};

// Reads its own piece before the copy is done.
template <bool mended> __device__ inline void wait(u32 *out, const u32 *in) {
    DYNAMIC_SHARED(u32, data);
    Pieces{data}.fetch(in);
    commit_copies();
    if (mended) wait_for_copies<0>();
    out[threadIdx.x] = data[4 * threadIdx.x];
    wait_for_copies<0>();
}

// Waits for all groups of copies but the one that it reads.
template <bool mended> __device__ inline void group(u32 *out, const u32 *in) {
    DYNAMIC_SHARED(u32, data);
    Pieces{data + 4 * WARP}.fetch(in);
    commit_copies();
    Pieces{data}.fetch(in);
    commit_copies();
    wait_for_copies<mended ? 0 : 1>();
    out[threadIdx.x] = data[4 * threadIdx.x];
    wait_for_copies<0>();
}

// Waits for its own copies, and reads another lane's.
template <bool mended> __device__ inline void barrier(u32 *out, const u32 *in) {
    DYNAMIC_SHARED(u32, data);
    Pieces{data}.fetch(in);
    commit_copies();
    wait_for_copies<0>();
    if (mended) __syncthreads();
    u32 other = threadIdx.x == 0 ? 0 : threadIdx.x - 1;
    out[threadIdx.x] = threadIdx.x == 0 ? 0 : data[4 * other] + 4;
}

// Fetches the next tile to where others still read this one.
template <bool mended> __device__ inline void tile(u32 *out, const u32 *in) {
    DYNAMIC_SHARED(u32, data);
    Pieces pieces = {data};
    u32 lane = threadIdx.x, sum = 0;
    pieces.fetch(in);
    commit_copies();
    for (u32 round = 0; round < 2; round++) {
        wait_for_copies<0>();
        __syncthreads();
        sum += data[4 * (WARP - 1 - lane)];
        if (mended) __syncthreads();
        if (round == 0) pieces.fetch(in + 4 * WARP);
        commit_copies();
    }
    wait_for_copies<0>();
    out[lane] = sum == 4 * WARP + 8 * (WARP - 1 - lane) ? 4 * lane : 1;
}

// Ends before its copies do.
template <bool mended> __device__ inline void end(u32 *out, const u32 *in) {
    DYNAMIC_SHARED(u32, data);
    Pieces{data}.fetch(in);
    commit_copies();
    out[threadIdx.x] = in[4 * threadIdx.x];
    if (mended) wait_for_copies<0>();
}

// Half of a warp waits at a barrier that the other half never reaches.
template <bool mended> __device__ inline void meeting(u32 *out) {
    u32 lane = threadIdx.x;
    if (mended || lane < WARP / 2) __shfl_sync(ALL_LANES, lane, 0);
    out[lane] = lane;
}

// Reads two words at once where one begins.
template <bool mended> __device__ inline void place(u32 *out, const u32 *in) {
    u32 lane = threadIdx.x, skipped = mended ? 0 : 1;
    out[lane] = reinterpret_cast<const uint2 *>(in + 4 * lane + skipped)->x - skipped;
}

#define OF_LANES(name)                                                                                                \
    KERNEL(faulty_##name, 64, u32 *out) { name<false>(out); }                                                         \
    KERNEL(mended_##name, 64, u32 *out) { name<true>(out); }
#define OF_COPIES(name)                                                                                               \
    KERNEL(faulty_##name, 32, u32 *out, const u32 *in) { name<false>(out, in); }                                      \
    KERNEL(mended_##name, 32, u32 *out, const u32 *in) { name<true>(out, in); }
OF_LANES(lanes)
OF_LANES(warps)
OF_LANES(ahead)
OF_LANES(reuse)
OF_LANES(blocks)
OF_LANES(memory)
OF_LANES(meeting)
OF_COPIES(wait)
OF_COPIES(group)
OF_COPIES(barrier)
OF_COPIES(tile)
OF_COPIES(end)
OF_COPIES(place)
