#ifndef QN_BASE_DTYPE_H
#define QN_BASE_DTYPE_H

#include <stdint.h>
#include <string.h>

/// Bit casts and exact conversions between storage formats. All round to nearest, ties to even.

static inline float qn_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint32_t qn_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static inline float qn_bf16_to_f32(uint16_t h)
{
    return qn_f32_from_bits((uint32_t)h << 16);
}

/// NaN stays NaN (made quiet), overflow becomes infinity.
static inline uint16_t qn_f32_to_bf16(float f)
{
    uint32_t u = qn_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((u >> 16) | 0x40u);
    }
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/// IEEE binary16, subnormals included.
static inline float qn_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exp = (h >> 10) & 0x1fu;
    uint32_t man = h & 0x3ffu;
    if (exp == 0x1fu) {
        return qn_f32_from_bits(sign | 0x7f800000u | (man << 13));
    }
    if (exp != 0) {
        return qn_f32_from_bits(sign | ((exp + 112u) << 23) | (man << 13));
    }
    float f = (float)man * 0x1p-24f; // subnormal or zero: exact
    return qn_f32_from_bits(sign | qn_f32_bits(f));
}

static inline uint16_t qn_f32_to_f16(float f)
{
    uint32_t u = qn_f32_bits(f);
    uint16_t sign = (uint16_t)((u >> 16) & 0x8000u);
    uint32_t mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (mag >= 0x477ff000u) { // rounds to 65536 or more
        return (uint16_t)(sign | 0x7c00u);
    }
    if (mag < 0x38800000u) { // below 2^-14: fixed point with 2^-24 steps, rounded by the FPU
        float scaled = qn_f32_from_bits(mag) * 0x1p24f;
        float whole = (scaled + 8388608.0f) - 8388608.0f;
        return (uint16_t)(sign | (uint16_t)whole);
    }
    uint32_t round = 0xfffu + ((mag >> 13) & 1u);
    return (uint16_t)(sign | ((mag + round - 0x38000000u) >> 13));
}

/// E8M0 scale byte: 2^(e - 127); 255 is NaN.
static inline float qn_e8m0_to_f32(uint8_t e)
{
    if (e == 255) {
        return qn_f32_from_bits(0x7fc00000u);
    }
    return e == 0 ? 0x1p-127f : qn_f32_from_bits((uint32_t)e << 23);
}

/// E4M3 ("FN"): bias 7, no infinities, S.1111.111 is NaN, largest 448.
static inline float qn_e4m3_to_f32(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80u) << 24;
    uint32_t exp = (b >> 3) & 15u;
    uint32_t man = b & 7u;
    if ((b & 0x7fu) == 0x7fu) {
        return qn_f32_from_bits(sign | 0x7fc00000u);
    }
    if (exp == 0) {
        return qn_f32_from_bits(sign | qn_f32_bits((float)man * 0x1p-9f));
    }
    return qn_f32_from_bits(sign | ((exp + 120u) << 23) | (man << 20));
}

#endif
