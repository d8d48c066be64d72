// Functions with the bits of the CPU kernels' own, the same f32 operations in the same order,
// uncontracted; and a faster one for kernels that need not have these bits.
#ifndef MATH_CUH
#define MATH_CUH
#include "types.cuh"

constexpr float LOG2_E = 1.44269504088896340736f;

__device__ inline float infinity() { return __uint_as_float(0x7f800000); }

__device__ inline float not_a_number() { return __uint_as_float(0x7fc00000); }

// e^x to within 2 units in the last place; 0 for x < -86.9; +infinity above the largest f32; NaN
// for NaN.
//
// x = n·ln 2 + r with |r| <= ln 2 / 2 (ln 2 in two parts, so that n·ln 2 loses nothing; Cody &
// Waite, 1980); e^r by its Taylor polynomial of degree 7.
__device__ inline float exponential(float x) {
    // Adding it to a small number rounds that to an integer, which the low bits of the sum then
    // hold.
    const float round = 12582912.0f;
    float shifted = x * LOG2_E + round;
    float n = shifted - round;
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    float e_r = 1.0f + (r + r * r * p);
    // 2^(n-1) from its bits: n may be 128.
    float half_power = __uint_as_float((__float_as_uint(shifted) << 23) + (126u << 23));
    float y = (e_r + e_r) * half_power;
    y = x < -86.9f ? 0.0f : y;
    return x > 88.72284f ? infinity() : y;
}

// 1 / (1 + e^-x).
__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

// 2^x in one instruction, to a relative error of 2^-22 (PTX ISA: ex2.approx): not the CPU's bits.
__device__ inline float power_of_two(float x) {
#ifdef SHIM
    return exp2f(x);
#else
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#endif
}

#endif
