#include "kernels/x86/vec_avx2.h"

#include "kernels/ops_tables.h"
#include "kernels/ops_vec.h"

QN_OPS_VEC_TABLE(qn_ops_avx2, "avx2", QN_ISA_AVX2);
