#ifndef QN_KERNELS_CPU_H
#define QN_KERNELS_CPU_H

#include "base/status.h"

#include <stdbool.h>

/// Instruction-set tiers, lowest first within each architecture. A variant states the tier it was
/// built for; a CPU runs every variant of its own tier and below.
enum qn_isa {
    QN_ISA_GENERIC = 0,
    QN_ISA_AVX2,    ///< AVX2, FMA, F16C, BMI2
    QN_ISA_AVX512,  ///< F, BW, VL, DQ, VNNI, BF16
    QN_ISA_NEON,    ///< Armv8-A baseline
    QN_ISA_DOTPROD, ///< + SDOT/UDOT
    QN_ISA_I8MM,    ///< + SMMLA/USMMLA and BFMMLA/BFDOT
    QN_N_ISAS
};

/// Read CPU flags once (HWCAP, CPUID). `force` is the value of QUERN_ISA or NULL; it can only
/// lower the tier. An unknown name or a tier that this CPU lacks is an error that lists what is
/// available. Call before threads start; later calls with the same force are harmless.
enum qn_status qn_cpu_init(const char *force, struct qn_err *err);
/// The tier in force after qn_cpu_init (which it calls with getenv("QUERN_ISA") when needed; a bad
/// value then ends the program with the message, so programs call qn_cpu_init first).
enum qn_isa qn_cpu_isa(void);
/// The highest tier of this CPU, whatever is in force.
enum qn_isa qn_cpu_best(void);
/// Whether a variant built for `isa` may run: same architecture, and not above the tier in force.
bool qn_cpu_has(enum qn_isa isa);
const char *qn_isa_name(enum qn_isa isa); // "generic", "avx2", …

#endif
