// A stand-in for cuBLASLt: products in f32, one rounding at the end, queued on the stand-in
// driver's streams.
//
// As in the library, the algorithm follows from all inputs of the heuristic: each sum is cut into a
// number of parts that depends on shapes, types, strides and promised alignments, so that a part of
// a product has other bits than the whole. The parts are rounded to the output's type before they
// are added up, unless the preference forbids it.
//
// Environment: STANDIN_BLAS_ALIGNED (the heuristic finds nothing for operands that are promised to
// be aligned to more bytes), STANDIN_FREED (1: a handle that is left at the end makes the program
// fail).
#include "floats.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>

extern "C" int standin_enqueue(void *stream, void (*work)(void *), void *data);

namespace {

enum Status { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum Compute { COMPUTE_F32 = 68, COMPUTE_BF16 = 75, COMPUTE_TF32 = 77 };

// Column-major, as in the library.
struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t stride;
};

struct Product {
    int compute;
    int32_t transpose_a = 0, transpose_b = 0;
};

// Promised alignments of a, b, c and d in bytes.
struct Alignments {
    uint32_t bytes[4] = {256, 256, 256, 256};
};

enum Scheme { COMPUTE_TYPE = 2, ALL_SCHEMES = 7 };

struct Preference {
    uint32_t schemes = ALL_SCHEMES;
    Alignments promised;
};

// The contents of the library's eight opaque words.
struct Algorithm {
    uint32_t parts = 1;
    uint32_t rounds_parts = 0;
    Alignments promised;
    uint64_t unused[5] = {};
};
static_assert(sizeof(Algorithm) == 64);

// d = a · b + beta · c, of m × n and depth k.
struct Task {
    Product product;
    Algorithm algorithm;
    Layout a, b, d;
    const void *from_a, *from_b, *from_c;
    void *to;
    float alpha, beta;
};

// Handles that are not destroyed.
std::atomic<int> handles{0};

struct DestroyedAtTheEnd {
    ~DestroyedAtTheEnd() {
        if (!getenv("STANDIN_FREED") || handles == 0) return;
        fprintf(stderr, "stand-in cuBLASLt: %d handles were not destroyed\n", int(handles));
        _exit(1);
    }
};

const DestroyedAtTheEnd destroyed_at_the_end;

uint64_t rows(const Layout &layout, bool transposed) { return transposed ? layout.columns : layout.rows; }
uint64_t columns(const Layout &layout, bool transposed) { return transposed ? layout.rows : layout.columns; }

// Rounded to what remains if the last `dropped` bits are zeros, ties to even.
float without_bits(float x, int dropped) {
    uint32_t bits, rest = (1u << dropped) - 1;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7f800000) != 0x7f800000) bits = (bits + rest / 2 + (bits >> dropped & 1)) & ~rest;
    memcpy(&x, &bits, 4);
    return x;
}

// What a way to multiply leaves of a factor.
float factor(float x, int compute) {
    switch (compute) {
    case COMPUTE_TF32: return without_bits(x, 13);
    case COMPUTE_BF16: return without_bits(x, 16);
    default: return x;
    }
}

// The matrix as f32, as it is multiplied, a column of the product's operand after the other.
std::vector<float> packed(const Layout &layout, const void *data, bool transposed, int compute) {
    uint64_t m = rows(layout, transposed), n = columns(layout, transposed);
    std::vector<float> out(m * n);
    for (uint64_t column = 0; column < n; column++)
        for (uint64_t row = 0; row < m; row++) {
            size_t from = transposed ? column + row * uint64_t(layout.stride) : row + column * uint64_t(layout.stride);
            out[row + column * m] = factor(read(layout.type, data, from), compute);
        }
    return out;
}

float rounded(int type, float x) {
    unsigned char place[4];
    write(type, place, 0, x);
    return read(type, place, 0);
}

void multiply(void *data) {
    std::vector<float> column, part;
    Task *task = static_cast<Task *>(data);
    uint64_t parts = task->algorithm.parts;
    uint64_t m = task->d.rows, n = task->d.columns, depth = columns(task->a, task->product.transpose_a);
    std::vector<float> a = packed(task->a, task->from_a, task->product.transpose_a, task->product.compute);
    std::vector<float> b = packed(task->b, task->from_b, task->product.transpose_b, task->product.compute);
    for (uint64_t j = 0; j < n; j++) {
        column.assign(m, 0.0f);
        for (uint64_t p = 0; p < parts; p++) {
            part.assign(m, 0.0f);
            for (uint64_t k = p * depth / parts; k < (p + 1) * depth / parts; k++) {
                float factor = b[k + j * depth];
                const float *from = &a[k * m];
                for (uint64_t i = 0; i < m; i++) part[i] += from[i] * factor;
            }
            bool rounds = task->algorithm.rounds_parts;
            for (uint64_t i = 0; i < m; i++) column[i] += rounds ? rounded(task->d.type, part[i]) : part[i];
        }
        for (uint64_t i = 0; i < m; i++) {
            size_t place = i + j * uint64_t(task->d.stride);
            float before = task->beta == 0 ? 0 : task->beta * read(task->d.type, task->from_c, place);
            write(task->d.type, task->to, place, task->alpha * column[i] + before);
        }
    }
    delete task;
}

bool fits(const Task &task) {
    bool ta = task.product.transpose_a, tb = task.product.transpose_b;
    bool types = task.a.type == task.b.type && (task.d.type == task.a.type || task.d.type == F32);
    bool shapes = rows(task.a, ta) == task.d.rows && columns(task.b, tb) == task.d.columns &&
                  columns(task.a, ta) == rows(task.b, tb);
    bool strides = true;
    for (const Layout *layout : {&task.a, &task.b, &task.d}) strides = strides && uint64_t(layout->stride) >= layout->rows;
    int way = task.product.compute;
    bool compute = way == COMPUTE_F32 || ((way == COMPUTE_TF32 || way == COMPUTE_BF16) && task.a.type == F32);
    return types && shapes && strides && compute;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return 990000; }

int cublasLtCreate(void **handle) {
    *handle = new int(0);
    handles++;
    return SUCCESS;
}

int cublasLtDestroy(void *handle) {
    delete static_cast<int *>(handle);
    handles--;
    return SUCCESS;
}

int cublasLtMatrixLayoutCreate(Layout **layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    *layout = new Layout{type, rows, columns, stride};
    return SUCCESS;
}

int cublasLtMatrixLayoutDestroy(const Layout *layout) {
    delete layout;
    return SUCCESS;
}

int cublasLtMatmulDescCreate(Product **product, int compute, int) {
    *product = new Product{compute};
    return SUCCESS;
}

int cublasLtMatmulDescSetAttribute(Product *product, int attribute, const void *value, size_t bytes) {
    if (bytes != 4 || (attribute != 3 && attribute != 4)) return INVALID_VALUE;
    memcpy(attribute == 3 ? &product->transpose_a : &product->transpose_b, value, 4);
    return SUCCESS;
}

int cublasLtMatmulDescDestroy(const Product *product) {
    delete product;
    return SUCCESS;
}

int cublasLtMatmulPreferenceCreate(Preference **preference) {
    *preference = new Preference;
    return SUCCESS;
}

int cublasLtMatmulPreferenceSetAttribute(Preference *preference, int attribute, const void *value, size_t bytes) {
    switch (attribute) {
    case 1: return bytes == 8 ? SUCCESS : INVALID_VALUE;
    case 3: return bytes == 4 ? (memcpy(&preference->schemes, value, 4), SUCCESS) : INVALID_VALUE;
    case 5:
    case 6:
    case 7:
    case 8: return bytes == 4 ? (memcpy(&preference->promised.bytes[attribute - 5], value, 4), SUCCESS) : INVALID_VALUE;
    default: return INVALID_VALUE;
    }
}

int cublasLtMatmulPreferenceDestroy(const Preference *preference) {
    delete preference;
    return SUCCESS;
}

// The library's answer: eight words, the workspace's size, a status, and numbers that are not read
// here.
struct Found {
    Algorithm algorithm;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};

int cublasLtMatmulAlgoGetHeuristic(void *, const Product *product, const Layout *a, const Layout *b, const Layout *,
                                   const Layout *d, const Preference *preference, int, Found *found, int *count) {
    *found = Found{};
    Task task{*product, {}, *a, *b, *d, nullptr, nullptr, nullptr, nullptr, 1, 0};
    static const char *most = getenv("STANDIN_BLAS_ALIGNED");
    bool known = true;
    for (uint32_t bytes : preference->promised.bytes) known = known && (!most || bytes <= strtoul(most, nullptr, 10));
    *count = known && fits(task);
    if (!*count) return NOT_SUPPORTED;
    uint64_t mixed = uint64_t(product->transpose_a) * 2 + uint64_t(product->transpose_b);
    auto mix = [&](uint64_t x) { mixed = (mixed ^ x) * 0x9e3779b97f4a7c15 ^ mixed >> 29; };
    for (const Layout *layout : {a, b, d}) mix(uint64_t(layout->type)), mix(layout->rows), mix(layout->columns), mix(uint64_t(layout->stride));
    for (uint32_t bytes : preference->promised.bytes) mix(bytes);
    found->algorithm.parts = 1 + uint32_t(mixed >> 40) % 4;
    found->algorithm.rounds_parts = preference->schemes != COMPUTE_TYPE;
    found->algorithm.promised = preference->promised;
    return SUCCESS;
}

static bool keeps(const Alignments &promised, const void *a, const void *b, const void *c, const void *d) {
    const void *pointers[] = {a, b, c, d};
    for (int i = 0; i < 4; i++)
        if (reinterpret_cast<uintptr_t>(pointers[i]) % promised.bytes[i]) return false;
    return true;
}

int cublasLtMatmul(void *, const Product *product, const void *alpha, const void *from_a, const Layout *a, const void *from_b,
                   const Layout *b, const void *beta, const void *from_c, const Layout *, void *to, const Layout *d,
                   const Algorithm *algorithm, void *, size_t, void *stream) {
    auto *task = new Task{*product, *algorithm, *a, *b, *d, from_a, from_b, from_c, to, *static_cast<const float *>(alpha),
                          *static_cast<const float *>(beta)};
    if (!fits(*task) || !keeps(algorithm->promised, from_a, from_b, from_c, to)) return INVALID_VALUE;
    return standin_enqueue(stream, multiply, task) == 0 ? SUCCESS : INVALID_VALUE;
}
}
