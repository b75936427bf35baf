#include "formats/ckpt.h"

#include "base/status.h"

// One row per type: name for messages, elements and bytes of a block. QN_DT_OTHER has no block.
static const struct {
    const char *name;
    unsigned elems;
    unsigned bytes;
} k_types[QN_N_DTYPES] = {
    [QN_DT_F32] = {"F32", 1, 4},
    [QN_DT_F16] = {"F16", 1, 2},
    [QN_DT_BF16] = {"BF16", 1, 2},
    [QN_DT_F64] = {"F64", 1, 8},
    [QN_DT_I8] = {"I8", 1, 1},
    [QN_DT_U8] = {"U8", 1, 1},
    [QN_DT_I16] = {"I16", 1, 2},
    [QN_DT_I32] = {"I32", 1, 4},
    [QN_DT_I64] = {"I64", 1, 8},
    [QN_DT_BOOL] = {"BOOL", 1, 1},
    [QN_DT_E4M3] = {"F8_E4M3", 1, 1},
    [QN_DT_E8M0] = {"F8_E8M0", 1, 1},
    [QN_DT_OTHER] = {"other", 1, 0},
    [QN_DT_Q4_0] = {"Q4_0", 32, 18},
    [QN_DT_Q4_1] = {"Q4_1", 32, 20},
    [QN_DT_Q5_0] = {"Q5_0", 32, 22},
    [QN_DT_Q5_1] = {"Q5_1", 32, 24},
    [QN_DT_Q8_0] = {"Q8_0", 32, 34},
    [QN_DT_Q2_K] = {"Q2_K", 256, 84},
    [QN_DT_Q3_K] = {"Q3_K", 256, 110},
    [QN_DT_Q4_K] = {"Q4_K", 256, 144},
    [QN_DT_Q5_K] = {"Q5_K", 256, 176},
    [QN_DT_Q6_K] = {"Q6_K", 256, 210},
    [QN_DT_IQ4_NL] = {"IQ4_NL", 32, 18},
    [QN_DT_IQ4_XS] = {"IQ4_XS", 256, 136},
    [QN_DT_MXFP4] = {"MXFP4", 32, 17},
};

size_t qn_dtype_block_elems(enum qn_dtype t)
{
    QN_ASSERT((unsigned)t < QN_N_DTYPES);
    return k_types[t].elems;
}

size_t qn_dtype_block_bytes(enum qn_dtype t)
{
    QN_ASSERT((unsigned)t < QN_N_DTYPES);
    return k_types[t].bytes;
}

const char *qn_dtype_name(enum qn_dtype t)
{
    QN_ASSERT((unsigned)t < QN_N_DTYPES);
    return k_types[t].name;
}
