#ifndef QN_KERNELS_OPS_TABLES_H
#define QN_KERNELS_OPS_TABLES_H

#include "kernels/ops.h"

/// The tables that ops.inc lists.
#define QN_OPS_ROW(symbol) extern const struct qn_ops symbol;
#include "kernels/ops.inc"
#undef QN_OPS_ROW

#endif
