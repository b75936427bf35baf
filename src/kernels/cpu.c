#include "kernels/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#endif

static const char *const isa_names[QN_N_ISAS] = {
    [QN_ISA_GENERIC] = "generic", [QN_ISA_AVX2] = "avx2",       [QN_ISA_AVX512] = "avx512",
    [QN_ISA_NEON] = "neon",       [QN_ISA_DOTPROD] = "dotprod", [QN_ISA_I8MM] = "i8mm",
};

/// Set once, before threads start.
static bool ready;
static enum qn_isa best;
static enum qn_isa in_force;

#if defined(__x86_64__)

static bool all_bits(unsigned value, unsigned mask)
{
    return (value & mask) == mask;
}

static enum qn_isa detect(void)
{
    enum {
        C1_FMA = 1u << 12,
        C1_OSXSAVE = 1u << 27,
        C1_AVX = 1u << 28,
        C1_F16C = 1u << 29,
        B7_AVX2 = 1u << 5,
        B7_BMI2 = 1u << 8,
        B7_AVX512F = 1u << 16,
        B7_AVX512DQ = 1u << 17,
        B7_AVX512BW = 1u << 30,
        C7_VNNI = 1u << 11,
        A71_BF16 = 1u << 5
    };
    const unsigned b7_avx512vl = 1u << 31;
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || !all_bits(c, C1_FMA | C1_OSXSAVE | C1_AVX | C1_F16C)) {
        return QN_ISA_GENERIC;
    }
    // The operating system must save the wide registers too.
    unsigned xcr0, xcr0_hi;
    __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(xcr0_hi) : "c"(0));
    if (!all_bits(xcr0, 0x6) || !__get_cpuid_count(7, 0, &a, &b, &c, &d) ||
        !all_bits(b, B7_AVX2 | B7_BMI2)) {
        return QN_ISA_GENERIC;
    }
    if (!all_bits(xcr0, 0xe6) || !all_bits(b, B7_AVX512F | B7_AVX512DQ | B7_AVX512BW) ||
        !all_bits(b, b7_avx512vl) || !all_bits(c, C7_VNNI) ||
        !__get_cpuid_count(7, 1, &a, &b, &c, &d) || !all_bits(a, A71_BF16)) {
        return QN_ISA_AVX2;
    }
    return QN_ISA_AVX512;
}

#elif defined(__aarch64__)

static enum qn_isa detect(void)
{
    // Bit numbers of the Linux arm64 ABI; headers of older systems lack some of the names.
    const unsigned long asimd = 1ul << 1, asimddp = 1ul << 20;
    const unsigned long i8mm_bf16 = 1ul << 13 | 1ul << 14;
    unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);

    if (!(cap & asimd)) {
        return QN_ISA_GENERIC;
    }
    if (!(cap & asimddp)) {
        return QN_ISA_NEON;
    }
    return (cap2 & i8mm_bf16) == i8mm_bf16 ? QN_ISA_I8MM : QN_ISA_DOTPROD;
}

#else

static enum qn_isa detect(void)
{
    return QN_ISA_GENERIC;
}

#endif

/// Lowest tier above generic of the architecture that `isa` belongs to.
static enum qn_isa first_tier(enum qn_isa isa)
{
    return isa >= QN_ISA_NEON ? QN_ISA_NEON : QN_ISA_AVX2;
}

static bool within(enum qn_isa isa, enum qn_isa top)
{
    return isa == QN_ISA_GENERIC ||
           (top != QN_ISA_GENERIC && isa <= top && first_tier(isa) == first_tier(top));
}

static void list_available(char *buf, size_t size)
{
    size_t len = 0;

    buf[0] = '\0';
    for (int i = 0; i < QN_N_ISAS; i++) {
        if (within((enum qn_isa)i, best) && len < size) {
            int n = snprintf(buf + len, size - len, "%s%s", len > 0 ? ", " : "", isa_names[i]);
            len += n > 0 ? (size_t)n : 0;
        }
    }
}

enum qn_status qn_cpu_init(const char *force, struct qn_err *err)
{
    char available[128];
    int i;

    best = detect();
    if (!force || !force[0]) {
        in_force = best;
        ready = true;
        return QN_OK;
    }
    list_available(available, sizeof available);
    for (i = 0; i < QN_N_ISAS && strcmp(force, isa_names[i]) != 0; i++) {
    }
    if (i == QN_N_ISAS) {
        return qn_fail(err, QN_E_INVALID,
                       "QUERN_ISA: unknown instruction set \"%.40s\", this CPU has: %s", force,
                       available);
    }
    if (!within((enum qn_isa)i, best)) {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "QUERN_ISA: this CPU lacks instruction set \"%s\", it has: %s", force,
                       available);
    }
    in_force = (enum qn_isa)i;
    ready = true;
    return QN_OK;
}

static void init_if_needed(void)
{
    struct qn_err err;

    if (!ready && qn_cpu_init(getenv("QUERN_ISA"), &err) != QN_OK) {
        // No caller to return it to; running another tier than asked for would be worse.
        fprintf(stderr, "quern: %s\n", err.msg);
        exit(1);
    }
}

enum qn_isa qn_cpu_isa(void)
{
    init_if_needed();
    return in_force;
}

enum qn_isa qn_cpu_best(void)
{
    init_if_needed();
    return best;
}

bool qn_cpu_has(enum qn_isa isa)
{
    return within(isa, qn_cpu_isa());
}

const char *qn_isa_name(enum qn_isa isa)
{
    return (unsigned)isa < QN_N_ISAS ? isa_names[isa] : "unknown";
}
