#include "formats/blocks.h"

#include <string.h>

#include "base/dtype.h"

static float load_f16(const unsigned char *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return qn_f16_to_f32(h);
}

static uint32_t load_u32(const unsigned char *p)
{
    uint32_t u;
    memcpy(&u, p, sizeof u);
    return u;
}

// Byte j of 16 holds element j in its low and element j + 16 in its high nibble.
static void split_halves(const unsigned char *qs, int8_t *q, int bias)
{
    for (int j = 0; j < 16; j++) {
        q[j] = (int8_t)((qs[j] & 15) - bias);
        q[j + 16] = (int8_t)((qs[j] >> 4) - bias);
    }
}

// Adds bit e of qh as the fifth bit of element e.
static void fifth_bits(uint32_t qh, int8_t *q)
{
    for (int e = 0; e < 32; e++) {
        q[e] = (int8_t)(q[e] + (int)((qh >> e) & 1u) * 16);
    }
}

static void unpack_q4_0(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = load_f16(b);
    split_halves(b + 2, q, 8);
}

static void unpack_q4_1(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    scale[0] = load_f16(b);
    min[0] = load_f16(b + 2);
    split_halves(b + 4, q, 0);
}

static void unpack_q5_0(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = load_f16(b);
    split_halves(b + 6, q, 16);
    fifth_bits(load_u32(b + 2), q);
}

static void unpack_q5_1(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    scale[0] = load_f16(b);
    min[0] = load_f16(b + 2);
    split_halves(b + 8, q, 0);
    fifth_bits(load_u32(b + 4), q);
}

static void unpack_q8_0(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = load_f16(b);
    memcpy(q, b + 2, 32);
}

static void unpack_q2_k(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    const unsigned char *qs = b + 16;
    float d = load_f16(b + 80), dmin = load_f16(b + 82);
    for (int k = 0; k < 16; k++) {
        scale[k] = d * (float)(b[k] & 15); // 11 + 4 bits: exact
        min[k] = -(dmin * (float)(b[k] >> 4));
    }
    for (int e = 0; e < 256; e++) {
        int h = e / 128, j = e % 128 / 32, l = e % 32;
        q[e] = (int8_t)((qs[32 * h + l] >> (2 * j)) & 3);
    }
}

static void unpack_q3_k(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    const unsigned char *hmask = b, *qs = b + 32, *sc = b + 96;
    float d = load_f16(b + 108);
    for (int k = 0; k < 16; k++) {
        int lo = k < 8 ? sc[k] & 15 : sc[k - 8] >> 4;
        int hi = (sc[8 + k % 4] >> (2 * (k / 4))) & 3;
        scale[k] = d * (float)((lo | hi << 4) - 32);
    }
    for (int e = 0; e < 256; e++) {
        int h = e / 128, j = e % 128 / 32, l = e % 32;
        int below = (hmask[l] >> (4 * h + j)) & 1 ? 0 : 4;
        q[e] = (int8_t)(((qs[32 * h + l] >> (2 * j)) & 3) - below);
    }
}

// Eight pairs of 6-bit scales and minima in 12 bytes, shared by Q4_K and Q5_K.
static void k_scales(const unsigned char *b, float *scale, float *min)
{
    const unsigned char *s = b + 4;
    float d = load_f16(b), dmin = load_f16(b + 2);
    for (int k = 0; k < 8; k++) {
        int sc = k < 4 ? s[k] & 63 : (s[k + 4] & 15) | (s[k - 4] >> 6) << 4;
        int mn = k < 4 ? s[k + 4] & 63 : s[k + 4] >> 4 | (s[k] >> 6) << 4;
        scale[k] = d * (float)sc;
        min[k] = -(dmin * (float)mn);
    }
}

static void unpack_q4_k(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    k_scales(b, scale, min);
    for (int c = 0; c < 4; c++) {
        const unsigned char *qs = b + 16 + 32 * c;
        for (int l = 0; l < 32; l++) {
            q[64 * c + l] = (int8_t)(qs[l] & 15);
            q[64 * c + 32 + l] = (int8_t)(qs[l] >> 4);
        }
    }
}

static void unpack_q5_k(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    const unsigned char *qh = b + 16;
    k_scales(b, scale, min);
    for (int c = 0; c < 4; c++) {
        const unsigned char *qs = b + 48 + 32 * c;
        for (int l = 0; l < 32; l++) {
            q[64 * c + l] = (int8_t)((qs[l] & 15) | ((qh[l] >> (2 * c)) & 1) << 4);
            q[64 * c + 32 + l] = (int8_t)(qs[l] >> 4 | ((qh[l] >> (2 * c + 1)) & 1) << 4);
        }
    }
}

static void unpack_q6_k(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    float d = load_f16(b + 208);
    for (int k = 0; k < 16; k++) {
        scale[k] = d * (float)(int8_t)b[192 + k];
    }
    for (int e = 0; e < 256; e++) {
        int h = e / 128, t = e % 128 / 32, l = e % 32;
        int ql = b[64 * h + 32 * (t & 1) + l];
        int lo = t < 2 ? ql & 15 : ql >> 4;
        int hi = (b[128 + 32 * h + l] >> (2 * t)) & 3;
        q[e] = (int8_t)((lo | hi << 4) - 32);
    }
}

static const int8_t k_iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1,    13,   25,  38,  53,  69,  89,  113};
// E2M1 values doubled; the scale is halved to match.
static const int8_t k_e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void by_table(const unsigned char *qs, int8_t *q, const int8_t *table)
{
    for (int j = 0; j < 16; j++) {
        q[j] = table[qs[j] & 15];
        q[j + 16] = table[qs[j] >> 4];
    }
}

static void unpack_iq4_nl(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = load_f16(b);
    by_table(b + 2, q, k_iq4);
}

static void unpack_iq4_xs(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    float d = load_f16(b);
    unsigned high = b[2] | (unsigned)b[3] << 8;
    for (unsigned s = 0; s < 8; s++) {
        unsigned lo = (unsigned)b[4 + s / 2] >> (4 * (s & 1)) & 15u;
        unsigned ls = lo | (high >> (2 * s) & 3u) << 4;
        scale[s] = d * (float)((int)ls - 32);
        by_table(b + 8 + 16 * s, q + 32 * s, k_iq4);
    }
}

static void unpack_mxfp4(const unsigned char *b, int8_t *q, float *scale, float *min)
{
    (void)min;
    scale[0] = 0.5f * qn_e8m0_to_f32(b[0]); // 2^-128 is a subnormal: still exact
    by_table(b + 1, q, k_e2m1);
}

static const struct qn_block_type k_blocks[] = {
    {QN_DT_Q4_0, QN_CANON_I4, 32, false, unpack_q4_0},
    {QN_DT_Q4_1, QN_CANON_I4, 32, true, unpack_q4_1},
    {QN_DT_Q5_0, QN_CANON_I8, 32, false, unpack_q5_0},
    {QN_DT_Q5_1, QN_CANON_I8, 32, true, unpack_q5_1},
    {QN_DT_Q8_0, QN_CANON_I8, 32, false, unpack_q8_0},
    {QN_DT_Q2_K, QN_CANON_I4, 16, true, unpack_q2_k},
    {QN_DT_Q3_K, QN_CANON_I8, 16, false, unpack_q3_k},
    {QN_DT_Q4_K, QN_CANON_I4, 32, true, unpack_q4_k},
    {QN_DT_Q5_K, QN_CANON_I8, 32, true, unpack_q5_k},
    {QN_DT_Q6_K, QN_CANON_I8, 16, false, unpack_q6_k},
    {QN_DT_IQ4_NL, QN_CANON_I8, 32, false, unpack_iq4_nl},
    {QN_DT_IQ4_XS, QN_CANON_I8, 32, false, unpack_iq4_xs},
    {QN_DT_MXFP4, QN_CANON_I8, 32, false, unpack_mxfp4},
};

const struct qn_block_type *qn_block_type(enum qn_dtype t)
{
    for (size_t i = 0; i < sizeof k_blocks / sizeof k_blocks[0]; i++) {
        if (k_blocks[i].dtype == t) {
            return &k_blocks[i];
        }
    }
    return NULL;
}
