#include "kernels/x86/vec_avx512.h"

#include "kernels/attn_vec.h"

QN_ATTN_VEC_IMPL(qn_attn_f32_avx512, "attn_f32_avx512", QN_KV_F32, QN_ISA_AVX512, qn_attn_write_f32,
                 span_f32);
QN_ATTN_VEC_IMPL(qn_attn_bf16_avx512, "attn_bf16_avx512", QN_KV_BF16, QN_ISA_AVX512,
                 qn_attn_write_bf16, span_bf16);
