#include "kernels/arm/vec_neon.h"

#include "kernels/ops_tables.h"
#include "kernels/ops_vec.h"

QN_OPS_VEC_TABLE(qn_ops_neon, "neon", QN_ISA_NEON);
