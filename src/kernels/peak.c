#include "kernels/peak.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/mem.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

/// Before a loop over registers, which must vanish.
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/// Keeps a value alive without storing it.
static volatile uint64_t sink;

typedef uint64_t peak_fn(size_t reps);

/// Best of several short runs: a neighbour's burst must not lower the peak.
static double measure(peak_fn *fn, size_t reps, double macs_per_rep)
{
    double best = 0.0;

    for (int i = 0; i < 12; i++) {
        uint64_t t0 = qn_clock_ns();
        sink += fn(reps);
        double rate = macs_per_rep * (double)reps / (double)(qn_clock_ns() - t0);
        best = rate > best ? rate : best;
    }
    return best;
}

static uint64_t read_all(const uint64_t *p, size_t n)
{
    uint64_t a = 0, b = 0, c = 0, d = 0;

    for (size_t i = 0; i + 8 <= n; i += 8) {
        a += p[i] ^ p[i + 4];
        b += p[i + 1] ^ p[i + 5];
        c += p[i + 2] ^ p[i + 6];
        d += p[i + 3] ^ p[i + 7];
    }
    return a + b + c + d;
}

#if defined(__x86_64__)

__attribute__((target("avx2"))) static uint64_t read_all_avx2(const uint64_t *p, size_t n)
{
    __m256i a = _mm256_setzero_si256(), b = a;

    for (size_t i = 0; i + 8 <= n; i += 8) {
        _mm_prefetch((const char *)(p + i + 256), _MM_HINT_T0);
        a = _mm256_xor_si256(a, _mm256_load_si256((const __m256i *)(p + i)));
        b = _mm256_xor_si256(b, _mm256_load_si256((const __m256i *)(p + i + 4)));
    }
    return (uint64_t)_mm256_extract_epi64(_mm256_xor_si256(a, b), 0);
}

#endif

/// The fastest way to read that the CPU has, whatever tier is in force.
static uint64_t read_fast(const uint64_t *p, size_t n)
{
#if defined(__x86_64__)
    if (qn_cpu_best() >= QN_ISA_AVX2) {
        return read_all_avx2(p, n);
    }
#endif
    return read_all(p, n);
}

double qn_peak_read(void)
{
    static double kept;
    const size_t n_bytes = (size_t)256 << 20;

    if (kept > 0.0) {
        return kept;
    }
    uint64_t *p = qn_pages_alloc(n_bytes, QN_MEM_OTHER);
    if (!p) {
        return 0.0;
    }
    for (size_t i = 0; i < n_bytes / sizeof *p; i++) {
        p[i] = i;
    }
    for (int i = 0; i < 6; i++) {
        uint64_t t0 = qn_clock_ns();
        sink += read_fast(p, n_bytes / sizeof *p);
        double rate = (double)n_bytes / (double)(qn_clock_ns() - t0);
        kept = rate > kept ? rate : kept;
    }
    qn_pages_free(p, n_bytes, QN_MEM_OTHER);
    return kept;
}

/// Scalar multiply and add, as the generic tier has them.
static uint64_t fma_generic(size_t reps)
{
    float acc[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    volatile float seed = 0.9999f;
    const float x = seed;

    for (size_t r = 0; r < reps; r++) {
        for (int i = 0; i < 8; i++) {
            acc[i] = acc[i] * x + x;
        }
    }
    return (uint64_t)(acc[0] + acc[1] + acc[2] + acc[3] + acc[4] + acc[5] + acc[6] + acc[7]);
}

#if defined(__x86_64__)

__attribute__((target("avx2,fma"))) static uint64_t fma_avx2(size_t reps)
{
    __m256 acc[12];
    volatile float seed = 0.9999f;
    const __m256 x = _mm256_set1_ps(seed);

    UNROLL
    for (int i = 0; i < 12; i++) {
        acc[i] = _mm256_set1_ps((float)i);
    }
    for (size_t r = 0; r < reps; r++) {
        UNROLL
        for (int i = 0; i < 12; i++) {
            acc[i] = _mm256_fmadd_ps(acc[i], x, x);
        }
    }
    UNROLL
    for (int i = 1; i < 12; i++) {
        acc[0] = _mm256_add_ps(acc[0], acc[i]);
    }
    return (uint64_t)_mm256_cvtss_f32(acc[0]);
}

__attribute__((target("avx2"))) static uint64_t dot8_avx2(size_t reps)
{
    __m256i acc[8];
    volatile char seed = 3;
    __m256i a = _mm256_set1_epi8(seed);
    const __m256i w = _mm256_set1_epi8(seed);

    UNROLL
    for (int i = 0; i < 8; i++) {
        acc[i] = _mm256_set1_epi16((short)i);
    }
    for (size_t r = 0; r < reps; r++) {
        UNROLL
        for (int i = 0; i < 8; i++) {
            __asm__ volatile("" : "+x"(a)); // or one product would serve all
            acc[i] = _mm256_add_epi16(acc[i], _mm256_maddubs_epi16(w, a));
        }
    }
    UNROLL
    for (int i = 1; i < 8; i++) {
        acc[0] = _mm256_add_epi16(acc[0], acc[i]);
    }
    return (uint64_t)_mm256_extract_epi16(acc[0], 0);
}

static double measure_fma(enum qn_isa isa)
{
    return isa == QN_ISA_GENERIC ? measure(fma_generic, 1000000, 8.0)
                                 : measure(fma_avx2, 1000000, 12.0 * 8.0);
}

static double measure_dot8(enum qn_isa isa)
{
    return isa == QN_ISA_GENERIC ? 0.0 : measure(dot8_avx2, 1000000, 8.0 * 32.0);
}

#elif defined(__aarch64__)

static uint64_t fma_neon(size_t reps)
{
    float32x4_t acc[16];
    volatile float seed = 0.9999f;
    const float32x4_t x = vdupq_n_f32(seed);

    UNROLL
    for (int i = 0; i < 16; i++) {
        acc[i] = vdupq_n_f32((float)i);
    }
    for (size_t r = 0; r < reps; r++) {
        UNROLL
        for (int i = 0; i < 16; i++) {
            acc[i] = vfmaq_f32(x, acc[i], x);
        }
    }
    UNROLL
    for (int i = 1; i < 16; i++) {
        acc[0] = vaddq_f32(acc[0], acc[i]);
    }
    return (uint64_t)vgetq_lane_f32(acc[0], 0);
}

static double measure_fma(enum qn_isa isa)
{
    return isa == QN_ISA_GENERIC ? measure(fma_generic, 1000000, 8.0)
                                 : measure(fma_neon, 1000000, 16.0 * 4.0);
}

static double measure_dot8(enum qn_isa isa)
{
    (void)isa;
    return 0.0;
}

#else

static double measure_fma(enum qn_isa isa)
{
    (void)isa;
    return measure(fma_generic, 1000000, 8.0);
}

static double measure_dot8(enum qn_isa isa)
{
    (void)isa;
    return 0.0;
}

#endif

double qn_peak_fma(enum qn_isa isa)
{
    static double kept[QN_N_ISAS];

    if (kept[isa] == 0.0) {
        kept[isa] = measure_fma(isa);
    }
    return kept[isa];
}

double qn_peak_dot8(enum qn_isa isa)
{
    static double kept[QN_N_ISAS];

    if (kept[isa] == 0.0) {
        kept[isa] = measure_dot8(isa);
    }
    return kept[isa];
}
