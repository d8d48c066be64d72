// Floats of the types that kernels know, by the numbers that cuBLASLt gives them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

enum Type { F32 = 0, F16 = 2, BF16 = 14 };

inline size_t size_of(int type) { return type == F32 ? 4 : 2; }

inline float widen_half(uint16_t bits) {
    uint32_t sign = uint32_t(bits >> 15) << 31, exponent = (bits >> 10) & 31, fraction = bits & 1023, wide;
    if (exponent == 31) {
        wide = sign | 0x7f800000 | fraction << 13;
    } else if (exponent != 0) {
        wide = sign | (exponent + 112) << 23 | fraction << 13;
    } else {
        float value = float(fraction) / 16777216.0f;
        return sign ? -value : value;
    }
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

inline uint16_t narrow_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t sign = uint16_t(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000) return sign | 0x7e00;
    if (bits >= 0x477ff000) return sign | 0x7c00;
    if (bits < 0x38800000) {
        // Subnormal: as a multiple of 2^-24, rounded to nearest even by adding a number whose last
        // bit is that.
        float magnitude, shifted;
        memcpy(&magnitude, &bits, 4);
        shifted = magnitude + 0.5f;
        uint32_t rounded;
        memcpy(&rounded, &shifted, 4);
        return sign | uint16_t(rounded - 0x3f000000);
    }
    return sign | uint16_t((bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13);
}

inline float read(int type, const void *data, size_t index) {
    if (type == F32) return static_cast<const float *>(data)[index];
    uint16_t bits = static_cast<const uint16_t *>(data)[index];
    if (type == F16) return widen_half(bits);
    uint32_t wide = uint32_t(bits) << 16;
    float value;
    memcpy(&value, &wide, 4);
    return value;
}

inline void write(int type, void *data, size_t index, float value) {
    if (type == F32) {
        static_cast<float *>(data)[index] = value;
    } else if (type == F16) {
        static_cast<uint16_t *>(data)[index] = narrow_half(value);
    } else {
        uint32_t bits;
        memcpy(&bits, &value, 4);
        bool nan = value != value;
        uint32_t rounded = nan ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        static_cast<uint16_t *>(data)[index] = uint16_t(rounded);
    }
}

}  // namespace
