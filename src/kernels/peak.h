#ifndef QN_KERNELS_PEAK_H
#define QN_KERNELS_PEAK_H

#include "kernels/cpu.h"

/// What one core of this machine reaches now, for the share that benches print. Each is measured on
/// the first call (about 0.2 s) and kept, so that all benches of a run are held against one figure.

/// Sequential read of a buffer far above the caches, bytes per nanosecond.
double qn_peak_read(void);
/// Independent f32 multiply-adds with the widest registers of tier `isa`, per nanosecond.
double qn_peak_fma(enum qn_isa isa);
/// 8-bit multiply-adds of tier `isa` into 16-bit sums (x86) or 32-bit sums (Arm), per nanosecond;
/// 0 where the tier has no such instruction.
double qn_peak_dot8(enum qn_isa isa);

#endif
