#ifndef QN_KERNELS_GEMM_CHECK_H
#define QN_KERNELS_GEMM_CHECK_H

#include "kernels/check.h"
#include "kernels/gemm.h"

/// Random rows of a weight matrix in guarded buffers. `extreme`: only the ends of the integer
/// range.
struct qn_wrows qn_gemm_check_rows(struct qn_check *c, const struct qn_wdesc *w, size_t n_rows,
                                   bool extreme);

/// Rates of one variant at M = 1 (bytes of weights) and M = 64 (multiply-adds).
void qn_gemm_check_bench(struct qn_check *c, const struct qn_gemm_impl *g);

#endif
