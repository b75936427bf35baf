#ifndef QN_KERNELS_OPS_VEC_H
#define QN_KERNELS_OPS_VEC_H

/// The operations of ops.h for any tier with a vector vocabulary. Include vec_<tier>.h first; the
/// including file makes the table with QN_OPS_VEC_TABLE. Sums run in 4 vector accumulators over
/// blocks of 4 * VW elements, then the tail, then the lanes: one order for a given length.

#include "kernels/ops.h"
#include "kernels/vec_math.h"

enum {
    SUM_BLOCK = 64 * VW ///< elements summed in f32 before they join a double
};

static void rmsnorm(float *y, size_t ldy, const float *x, size_t ldx, const float *w, size_t rows,
                    size_t dim, float eps)
{
    for (size_t r = 0; r < rows; r++, x += ldx, y += ldy) {
        vf s[4];
        size_t i = 0;
        for (size_t u = 0; u < 4; u++) {
            s[u] = v_set1(0.0f);
        }
        for (; i + 4 * VW <= dim; i += 4 * VW) {
            QN_UNROLL
            for (size_t u = 0; u < 4; u++) {
                const vf a = v_load(x + i + u * VW);
                s[u] = v_fma(a, a, s[u]);
            }
        }
        for (; i + VW <= dim; i += VW) {
            const vf a = v_load(x + i);
            s[0] = v_fma(a, a, s[0]);
        }
        if (i < dim) {
            const vf a = v_load_n(x + i, dim - i);
            s[1] = v_fma(a, a, s[1]);
        }
        const float sum = v_sum(v_add(v_add(s[0], s[1]), v_add(s[2], s[3])));
        const vf inv = v_set1(1.0f / sqrtf(sum / (float)dim + eps));

        for (i = 0; i + VW <= dim; i += VW) {
            const vf a = v_mul(v_load(x + i), inv);
            v_store(y + i, w != NULL ? v_mul(a, v_load(w + i)) : a);
        }
        if (i < dim) {
            const vf a = v_mul(v_load_n(x + i, dim - i), inv);
            v_store_n(y + i, w != NULL ? v_mul(a, v_load_n(w + i, dim - i)) : a, dim - i);
        }
    }
}

static void rope(float *x, size_t n_heads, size_t head_dim, size_t n_pairs, size_t pair_distance,
                 const float *cos_t, const float *sin_t)
{
    const vf zero = v_set1(0.0f);
    for (size_t h = 0; h < n_heads; h++, x += head_dim) {
        float *lo = x, *hi = x + pair_distance;
        size_t i = 0;
        for (; i + VW <= n_pairs; i += VW) {
            const vf c = v_load(cos_t + i), s = v_load(sin_t + i);
            const vf a = v_load(lo + i), b = v_load(hi + i);
            v_store(lo + i, v_fma(a, c, v_sub(zero, v_mul(b, s))));
            v_store(hi + i, v_fma(b, c, v_mul(a, s)));
        }
        if (i < n_pairs) {
            const size_t n = n_pairs - i;
            const vf c = v_load_n(cos_t + i, n), s = v_load_n(sin_t + i, n);
            const vf a = v_load_n(lo + i, n), b = v_load_n(hi + i, n);
            v_store_n(lo + i, v_fma(a, c, v_sub(zero, v_mul(b, s))), n);
            v_store_n(hi + i, v_fma(b, c, v_mul(a, s)), n);
        }
    }
}

QN_INLINE vf silu_of(vf g)
{
    return v_mul(g, v_sigmoid(g));
}

/// 0.5 g (1 + tanh(u)) = g * sigmoid(2 u), u = sqrt(2 / pi) (g + 0.044715 g^3): no cancellation.
QN_INLINE vf gelu_tanh_of(vf g)
{
    const vf g2 = v_mul(g, g);
    const vf inner = v_mul(g, v_fma(v_set1(0.044715f), g2, v_set1(1.0f)));
    return v_mul(g, v_sigmoid(v_mul(v_set1(1.5957691216f), inner)));
}

#define GLU(name, act)                                                                             \
    static void name(float *y, const float *gate, const float *up, size_t n)                       \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + VW <= n; i += VW) {                                                             \
            v_store(y + i, v_mul(act(v_load(gate + i)), v_load(up + i)));                          \
        }                                                                                          \
        if (i < n) {                                                                               \
            const size_t m = n - i;                                                                \
            v_store_n(y + i, v_mul(act(v_load_n(gate + i, m)), v_load_n(up + i, m)), m);           \
        }                                                                                          \
    }

GLU(glu_silu, silu_of)
GLU(glu_gelu_tanh, gelu_tanh_of)
#undef GLU

static void axpy(float *y, const float *x, float s, size_t n)
{
    const vf vs = v_set1(s);
    size_t i = 0;
    for (; i + VW <= n; i += VW) {
        v_store(y + i, v_fma(v_load(x + i), vs, v_load(y + i)));
    }
    if (i < n) {
        v_store_n(y + i, v_fma(v_load_n(x + i, n - i), vs, v_load_n(y + i, n - i)), n - i);
    }
}

static void scale(float *x, float s, size_t n)
{
    const vf vs = v_set1(s);
    size_t i = 0;
    for (; i + VW <= n; i += VW) {
        v_store(x + i, v_mul(v_load(x + i), vs));
    }
    if (i < n) {
        v_store_n(x + i, v_mul(v_load_n(x + i, n - i), vs), n - i);
    }
}

static void softcap(float *x, float c, size_t n)
{
    const vf vc = v_set1(c);
    size_t i = 0;
    for (; i + VW <= n; i += VW) {
        v_store(x + i, v_mul(vc, v_tanh(v_div(v_load(x + i), vc))));
    }
    if (i < n) {
        v_store_n(x + i, v_mul(vc, v_tanh(v_div(v_load_n(x + i, n - i), vc))), n - i);
    }
}

/// Largest of n values that are not NaN; -inf when there is none.
static float max_of(const float *x, size_t n)
{
    vf m[4];
    size_t i = 0;
    for (size_t u = 0; u < 4; u++) {
        m[u] = v_set1(-INFINITY);
    }
    for (; i + 4 * VW <= n; i += 4 * VW) {
        QN_UNROLL
        for (size_t u = 0; u < 4; u++) {
            m[u] = v_max(v_load(x + i + u * VW), m[u]);
        }
    }
    float best = v_top(v_max(v_max(m[0], m[1]), v_max(m[2], m[3])));
    for (; i < n; i++) {
        best = x[i] > best ? x[i] : best;
    }
    return best;
}

static void argmax(const float *x, size_t n, float *out_max, size_t *out_index)
{
    enum {
        BLOCK = 4096
    };
    float best = -INFINITY;
    size_t at = 0; // start of the first block that holds the best
    for (size_t b = 0; b < n; b += BLOCK) {
        const float m = max_of(x + b, n - b < BLOCK ? n - b : BLOCK);
        if (m > best) {
            best = m;
            at = b;
        }
    }
    for (size_t i = at; i < n; i++) {
        if (x[i] == best) {
            *out_max = x[i];
            *out_index = i;
            return;
        }
    }
    *out_max = x[0]; // all NaN
    *out_index = 0;
}

/// Sum of e^((x - max) * s), and the terms themselves into y unless it is NULL (may be x).
static double exp_sum(float *y, const float *x, size_t n, float max, float s)
{
    const vf vmax = v_set1(max), vs = v_set1(s);
    double total = 0.0;
    for (size_t b = 0; b < n; b += SUM_BLOCK) {
        const size_t end = n - b < SUM_BLOCK ? n : b + SUM_BLOCK;
        vf sum = v_set1(0.0f);
        size_t i = b;
        for (; i + VW <= end; i += VW) {
            const vf e = v_exp(v_mul(v_sub(v_load(x + i), vmax), vs));
            sum = v_add(sum, e);
            if (y != NULL) {
                v_store(y + i, e);
            }
        }
        if (i < end) {
            float e[VW];
            const size_t m = end - i;
            v_store(e, v_exp(v_mul(v_sub(v_load_n(x + i, m), vmax), vs)));
            for (size_t j = 0; j < m; j++) {
                total += (double)e[j];
            }
            if (y != NULL) {
                memcpy(y + i, e, m * sizeof(float));
            }
        }
        total += (double)v_sum(sum);
    }
    return total;
}

static float logsumexp(const float *x, size_t n)
{
    const float max = max_of(x, n);
    if (isinf(max)) { // +inf; or every value is -inf or NaN
        float any = max;
        for (size_t i = 0; i < n; i++) {
            any = isnan(x[i]) ? x[i] : any;
        }
        return any;
    }
    return (float)((double)max + log(exp_sum(NULL, x, n, max, 1.0f)));
}

static void softmax(float *x, size_t n, float inv_temperature)
{
    const double sum = exp_sum(x, x, n, max_of(x, n), inv_temperature);
    scale(x, (float)(1.0 / sum), n);
}

#define QN_OPS_VEC_TABLE(symbol, tier_name, tier)                                                  \
    const struct qn_ops symbol = {                                                                 \
        .name = tier_name,                                                                         \
        .isa = tier,                                                                               \
        .rmsnorm = rmsnorm,                                                                        \
        .rope = rope,                                                                              \
        .glu_silu = glu_silu,                                                                      \
        .glu_gelu_tanh = glu_gelu_tanh,                                                            \
        .axpy = axpy,                                                                              \
        .scale = scale,                                                                            \
        .softcap = softcap,                                                                        \
        .argmax = argmax,                                                                          \
        .logsumexp = logsumexp,                                                                    \
        .softmax = softmax,                                                                        \
    }

#endif
