#ifndef QN_KERNELS_ARM_VEC_NEON_H
#define QN_KERNELS_ARM_VEC_NEON_H

#if !defined(__ARM_NEON) || !defined(__aarch64__)
#error "this file is for the neon tier: -march=armv8-a"
#endif

#include <arm_neon.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/// The vector vocabulary of vec_math.h, ops_vec.h and attn_vec.h: four f32 lanes.

enum {
    VW = 4
};
typedef float32x4_t vf;
typedef uint32x4_t vm;

static inline vf v_load(const float *p)
{
    return vld1q_f32(p);
}

static inline void v_store(float *p, vf a)
{
    vst1q_f32(p, a);
}

/// The first n < VW lanes; the others are zero and not read.
static inline vf v_load_n(const float *p, size_t n)
{
    float tmp[VW] = {0};
    memcpy(tmp, p, n * sizeof(float));
    return vld1q_f32(tmp);
}

static inline void v_store_n(float *p, vf a, size_t n)
{
    float tmp[VW];
    vst1q_f32(tmp, a);
    memcpy(p, tmp, n * sizeof(float));
}

static inline vf v_set1(float x)
{
    return vdupq_n_f32(x);
}

static inline vf v_add(vf a, vf b)
{
    return vaddq_f32(a, b);
}

static inline vf v_sub(vf a, vf b)
{
    return vsubq_f32(a, b);
}

static inline vf v_mul(vf a, vf b)
{
    return vmulq_f32(a, b);
}

static inline vf v_div(vf a, vf b)
{
    return vdivq_f32(a, b);
}

/// a * b + c, one rounding.
static inline vf v_fma(vf a, vf b, vf c)
{
    return vfmaq_f32(c, a, b);
}

/// a > b ? a : b, so b where either is NaN. FMAX would return the NaN.
static inline vf v_max(vf a, vf b)
{
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

static inline vf v_abs(vf a)
{
    return vabsq_f32(a);
}

/// Magnitude of a, sign of s.
static inline vf v_copysign(vf a, vf s)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), s, a);
}

/// Ordered comparisons: false with NaN.
static inline vm v_lt(vf a, vf b)
{
    return vcltq_f32(a, b);
}

static inline vm v_le(vf a, vf b)
{
    return vcleq_f32(a, b);
}

static inline vm v_and(vm a, vm b)
{
    return vandq_u32(a, b);
}

/// m ? a : b
static inline vf v_select(vm m, vf a, vf b)
{
    return vbslq_f32(m, a, b);
}

/// 0, 1, …, VW - 1
static inline vf v_iota(void)
{
    static const float lanes[VW] = {0, 1, 2, 3};
    return vld1q_f32(lanes);
}

/// p * 2^n for the integer n in the low bits of t.
static inline vf v_scale2(vf p, vf t)
{
    const int32x4_t n = vshlq_n_s32(vreinterpretq_s32_f32(t), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(p), n));
}

/// Sum of the lanes in one fixed order.
static inline float v_sum(vf a)
{
    return vaddvq_f32(a);
}

/// Largest lane; no lane may be NaN.
static inline float v_top(vf a)
{
    return vmaxvq_f32(a);
}

static inline float v_first(vf a)
{
    return vgetq_lane_f32(a, 0);
}

static inline vf v_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

#endif
