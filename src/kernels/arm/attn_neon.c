#include "kernels/arm/vec_neon.h"

#include "kernels/attn_vec.h"

QN_ATTN_VEC_IMPL(qn_attn_f32_neon, "attn_f32_neon", QN_KV_F32, QN_ISA_NEON, qn_attn_write_f32,
                 span_f32);
QN_ATTN_VEC_IMPL(qn_attn_bf16_neon, "attn_bf16_neon", QN_KV_BF16, QN_ISA_NEON, qn_attn_write_bf16,
                 span_bf16);
