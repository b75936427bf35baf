#include "kernels/ops_tables.h"

#include <math.h>

static void rmsnorm(float *y, size_t ldy, const float *x, size_t ldx, const float *w, size_t rows,
                    size_t dim, float eps)
{
    for (size_t r = 0; r < rows; r++, x += ldx, y += ldy) {
        double sum = 0.0;
        for (size_t i = 0; i < dim; i++) {
            sum += (double)x[i] * (double)x[i];
        }
        const double inv = 1.0 / sqrt(sum / (double)dim + (double)eps);
        for (size_t i = 0; i < dim; i++) {
            y[i] = (float)((double)x[i] * inv * (w != NULL ? (double)w[i] : 1.0));
        }
    }
}

static void rope(float *x, size_t n_heads, size_t head_dim, size_t n_pairs, size_t pair_distance,
                 const float *cos_t, const float *sin_t)
{
    for (size_t h = 0; h < n_heads; h++, x += head_dim) {
        for (size_t i = 0; i < n_pairs; i++) {
            const double a = (double)x[i], b = (double)x[i + pair_distance];
            const double c = (double)cos_t[i], s = (double)sin_t[i];
            x[i] = (float)(a * c - b * s);
            x[i + pair_distance] = (float)(b * c + a * s);
        }
    }
}

static void glu_silu(float *y, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const double g = (double)gate[i];
        y[i] = (float)(g / (1.0 + exp(-g)) * (double)up[i]);
    }
}

static void glu_gelu_tanh(float *y, const float *gate, const float *up, size_t n)
{
    const double root_2_over_pi = 0.79788456080286535588;
    for (size_t i = 0; i < n; i++) {
        const double g = (double)gate[i];
        const double u = root_2_over_pi * (g + 0.044715 * g * g * g);
        y[i] = (float)(0.5 * g * (1.0 + tanh(u)) * (double)up[i]);
    }
}

static void axpy(float *y, const float *x, float s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = (float)((double)y[i] + (double)x[i] * (double)s);
    }
}

static void scale(float *x, float s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= s;
    }
}

static void softcap(float *x, float c, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)((double)c * tanh((double)x[i] / (double)c));
    }
}

/// Largest value that is not NaN and its lowest index; -inf and n when there is none.
static float max_of(const float *x, size_t n, size_t *out_index)
{
    float best = -INFINITY;
    *out_index = n;
    for (size_t i = 0; i < n; i++) {
        if (x[i] > best || (x[i] == best && *out_index == n)) {
            best = x[i];
            *out_index = i;
        }
    }
    return best;
}

static void argmax(const float *x, size_t n, float *out_max, size_t *out_index)
{
    max_of(x, n, out_index);
    if (*out_index == n) { // all NaN
        *out_index = 0;
    }
    *out_max = x[*out_index];
}

static float logsumexp(const float *x, size_t n)
{
    size_t at;
    const double max = (double)max_of(x, n, &at);
    double sum = 0.0;
    if (isinf(max)) { // +inf; or every value is -inf or NaN
        double any = max;
        for (size_t i = 0; i < n; i++) {
            any = isnan(x[i]) ? (double)x[i] : any;
        }
        return (float)any;
    }
    for (size_t i = 0; i < n; i++) {
        sum += exp((double)x[i] - max);
    }
    return (float)(max + log(sum));
}

static void softmax(float *x, size_t n, float inv_temperature)
{
    size_t at;
    const double max = (double)max_of(x, n, &at);
    double sum = 0.0;
    for (size_t i = 0; i < n; i++) {
        const double e = exp(((double)x[i] - max) * (double)inv_temperature);
        x[i] = (float)e;
        sum += e;
    }
    for (size_t i = 0; i < n; i++) {
        x[i] = (float)((double)x[i] / sum);
    }
}

const struct qn_ops qn_ops_generic = {
    .name = "generic",
    .isa = QN_ISA_GENERIC,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .glu_silu = glu_silu,
    .glu_gelu_tanh = glu_gelu_tanh,
    .axpy = axpy,
    .scale = scale,
    .softcap = softcap,
    .argmax = argmax,
    .logsumexp = logsumexp,
    .softmax = softmax,
};
