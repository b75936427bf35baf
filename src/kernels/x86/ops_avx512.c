#include "kernels/x86/vec_avx512.h"

#include "kernels/ops_tables.h"
#include "kernels/ops_vec.h"

QN_OPS_VEC_TABLE(qn_ops_avx512, "avx512", QN_ISA_AVX512);
