#include "kernels/gemm_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/gemm_util.h"

/// One product with everything around it.
struct problem {
    struct qn_wdesc w;
    struct qn_wrows rows;
    size_t m, ldx, ldo, ldr;
    const float *x, *bias, *residual;
    float scale;
    enum qn_glu glu;
    enum qn_out out_type;
    bool extreme; ///< equal terms, whose roundings may all go one way
};

struct qn_wrows qn_gemm_check_rows(struct qn_check *c, const struct qn_wdesc *w, size_t n_rows,
                                   bool extreme)
{
    const size_t n = n_rows * w->k;
    struct qn_wrows rows = {0};

    if (w->kind == QN_W_F32) {
        rows.q = qn_check_f32(c, n, -1.0f, 1.0f);
        return rows;
    }
    if (w->kind == QN_W_BF16) {
        uint16_t *q = qn_check_bytes(c, n * sizeof *q);
        for (size_t i = 0; i < n; i++) {
            q[i] = qn_f32_to_bf16((float)(qn_check_rand(c) >> 8) * 0x1p-23f - 1.0f);
        }
        rows.q = q;
        return rows;
    }
    const int lo = w->kind == QN_W_I8 ? -128 : w->has_min ? 0 : -8;
    const int hi = w->kind == QN_W_I8 ? 127 : w->has_min ? 15 : 7;
    int8_t *q = qn_check_i8(c, n, lo, hi);
    for (size_t i = 0; extreme && i < n; i++) {
        q[i] = (int8_t)(q[i] * 2 < lo + hi ? lo : hi);
    }
    rows.q = q;
    rows.scale = qn_check_f32(c, n_rows * qn_gemm_n_groups(w), -0.02f, 0.03f);
    if (w->has_min) {
        rows.min = qn_check_f32(c, n_rows * qn_gemm_n_groups(w), -0.2f, 0.1f);
    }
    return rows;
}

/// Activations with a zero stretch and an outlier, so that activation groups differ.
static float *activations(struct qn_check *c, size_t m, size_t k, size_t ldx, bool extreme)
{
    float *x = qn_check_f32(c, (m - 1) * ldx + k, -4.0f, 4.0f);

    for (size_t r = 0; r < m; r++) {
        float *row = x + r * ldx;
        for (size_t i = 0; extreme && i < k; i++) {
            row[i] = row[i] < 0.0f ? -4.0f : 4.0f;
        }
        if (!extreme && k > 40) {
            memset(row + 2, 0, 35 * sizeof *row);
            row[qn_check_rand(c) % k] = 90.0f;
        }
    }
    return x;
}

static struct problem make(struct qn_check *c, struct qn_wdesc w, size_t m, bool extreme)
{
    const uint32_t dice = qn_check_rand(c);
    struct problem p = {.w = w, .m = m, .scale = dice & 1 ? 1.0f : 0.375f, .extreme = extreme};

    if (w.pair) {
        p.glu = dice & 2 ? QN_GLU_SILU : QN_GLU_GELU_TANH;
        p.scale *= 0.05f; // gates where the activation bends
    }
    p.out_type = (dice & 12) == 0 ? QN_OUT_BF16 : QN_OUT_F32;
    p.ldx = w.k + (dice >> 4 & 3);
    p.ldo = qn_gemm_n_out(&w) + (dice >> 6 & 3);
    p.ldr = qn_gemm_n_out(&w) + (dice >> 8 & 3);
    p.rows = qn_gemm_check_rows(c, &p.w, w.n, extreme);
    p.x = activations(c, m, w.k, p.ldx, extreme);
    p.bias = dice >> 10 & 1 ? qn_check_f32(c, w.n, -2.0f, 2.0f) : NULL;
    p.residual =
        dice >> 11 & 1 ? qn_check_f32(c, (m - 1) * p.ldr + qn_gemm_n_out(&w), -2.0f, 2.0f) : NULL;
    return p;
}

static void name_shape(struct qn_check *c, const struct problem *p)
{
    qn_check_shape(c, "M=%zu N=%zu K=%zu group=%zu%s%s%s%s%s", p->m, p->w.n, p->w.k, p->w.group,
                   p->w.has_min ? " min" : "", p->w.pair ? " pair" : "", p->bias ? " bias" : "",
                   p->residual ? " residual" : "", p->out_type == QN_OUT_BF16 ? " bf16" : "");
}

static void *pack(struct qn_check *c, const struct qn_gemm_impl *g, const struct problem *p)
{
    const size_t n_bytes = g->panel_bytes(&p->w), n_panels = qn_gemm_n_panels(g, &p->w);
    const size_t elem = p->w.kind == QN_W_F32 ? 4 : p->w.kind == QN_W_BF16 ? 2 : 1;
    unsigned char *rhs = qn_check_bytes(c, n_bytes * n_panels);

    qn_check_true(c, n_bytes % 64 == 0, "panel_bytes is a multiple of 64");
    for (size_t i = 0; i < n_panels; i++) {
        size_t row0, n_rows, n_groups = qn_gemm_n_groups(&p->w);
        qn_gemm_panel_rows(g, &p->w, i, &row0, &n_rows);
        struct qn_wrows rows = {
            .q = (const unsigned char *)p->rows.q + row0 * p->w.k * elem,
            .scale = p->rows.scale ? p->rows.scale + row0 * n_groups : NULL,
            .min = p->rows.min ? p->rows.min + row0 * n_groups : NULL,
        };
        g->pack_panel(rhs + i * n_bytes, &p->w, &rows, n_rows);
    }
    return rhs;
}

static size_t out_bytes(const struct problem *p, size_t m)
{
    size_t elem = p->out_type == QN_OUT_BF16 ? 2 : 4;

    return ((m - 1) * p->ldo + qn_gemm_n_out(&p->w)) * elem;
}

/// Rows [r0, r0 + m) of the problem as a product of their own. `cut`: in many small ranges.
static void *product(struct qn_check *c, const struct qn_gemm_impl *g, const struct problem *p,
                     const void *rhs, size_t r0, size_t m, bool cut)
{
    void *lhs = qn_check_bytes(c, g->lhs_bytes(&p->w, m)), *out;
    const size_t n_panels = qn_gemm_n_panels(g, &p->w);
    const size_t dm = cut ? g->mr : m, dp = cut ? (p->w.pair ? 2 : 1) : n_panels;

    out = qn_check_bytes(c, out_bytes(p, m));
    struct qn_gemm_args a = {
        .w = &p->w,
        .rhs = rhs,
        .lhs = lhs,
        .m = m,
        .out = out,
        .ldo = p->ldo,
        .out_type = p->out_type,
        .scale = p->scale,
        .bias = p->bias,
        .residual = p->residual ? p->residual + r0 * p->ldr : NULL,
        .ldr = p->ldr,
        .glu = p->glu,
    };
    for (size_t m0 = 0; m0 < m; m0 += dm) {
        size_t m1 = m - m0 < dm ? m : m0 + dm;
        g->lhs_pack(lhs, &p->w, p->x + r0 * p->ldx, p->ldx, m, m0, m1);
    }
    for (size_t m0 = 0; m0 < m; m0 += dm) {
        size_t m1 = m - m0 < dm ? m : m0 + dm;
        for (size_t p0 = 0; p0 < n_panels; p0 += dp) {
            g->run(&a, m0, m1, p0, p0 + dp);
        }
    }
    return out;
}

/// Value of weight (row, k) as gemm.h defines it.
static double weight(const struct problem *p, size_t row, size_t k)
{
    const size_t i = row * p->w.k + k;

    if (p->w.kind == QN_W_F32) {
        return (double)((const float *)p->rows.q)[i];
    }
    if (p->w.kind == QN_W_BF16) {
        return (double)qn_bf16_to_f32(((const uint16_t *)p->rows.q)[i]);
    }
    size_t g = row * qn_gemm_n_groups(&p->w) + k / qn_gemm_group(&p->w);
    double q = ((const int8_t *)p->rows.q)[i];
    return q * (double)p->rows.scale[g] + (p->rows.min ? (double)p->rows.min[g] : 0.0);
}

/// One activation row as the variant sees it: rounded to bf16 or to int8 and back.
static void seen_row(double *to, const struct problem *p, enum qn_act act, const float *x)
{
    const size_t span = act == QN_ACT_I8 ? qn_gemm_act_group(&p->w) : p->w.k;

    for (size_t k0 = 0; k0 < p->w.k; k0 += span) {
        size_t k1 = p->w.k - k0 < span ? p->w.k : k0 + span;
        float top = 0.0f;
        for (size_t k = k0; k < k1; k++) {
            top = fmaxf(top, fabsf(x[k]));
        }
        for (size_t k = k0; k < k1; k++) {
            if (act == QN_ACT_F32) {
                to[k] = (double)x[k];
            } else if (act == QN_ACT_BF16) {
                to[k] = (double)qn_bf16_to_f32(qn_f32_to_bf16(x[k]));
            } else {
                to[k] = top < 1e-30f
                            ? 0.0
                            : (double)rintf(x[k] * (127.0f / top)) * (double)(top / 127.0f);
            }
        }
    }
}

/// One weight row, and the magnitudes whose products bound the rounding: those of q * scale and min
/// apart, as they may be added apart.
struct naive_row {
    double *w, *mag;
};

static void naive_weights(struct naive_row *row, const struct problem *p, size_t n)
{
    const size_t group = qn_gemm_group(&p->w), n_groups = qn_gemm_n_groups(&p->w);

    for (size_t k = 0; k < p->w.k; k++) {
        row->w[k] = weight(p, n, k);
        row->mag[k] = fabs(row->w[k]);
        if (p->rows.min) {
            row->mag[k] += 2.0 * fabs((double)p->rows.min[n * n_groups + k / group]);
        }
    }
}

/// Sum over K in double, and the sum of magnitudes.
static double naive_dot(const struct naive_row *row, const double *x, size_t n_k, double *out_mag)
{
    double sum = 0.0, mag = 0.0;

    for (size_t k = 0; k < n_k; k++) {
        sum += x[k] * row->w[k];
        mag += fabs(x[k]) * row->mag[k];
    }
    *out_mag = mag;
    return sum;
}

static double gate_exact(enum qn_glu glu, double g)
{
    if (glu == QN_GLU_SILU) {
        return g / (1.0 + exp(-g));
    }
    return 0.5 * g * (1.0 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
}

/// want and bound [m][n_out]: the product in double, and how far a variant of `err_units` units of
/// 2^-24 of the magnitude may be from it.
static void naive(float *want, float *bound, const struct problem *p, enum qn_act act,
                  double err_units)
{
    const size_t n_out = qn_gemm_n_out(&p->w);
    const double eps = 0x1p-24;
    const size_t k = p->w.k;
    double *x = malloc((p->m + 4) * k * sizeof *x);

    if (!x) {
        abort();
    }
    struct naive_row row = {x + p->m * k, x + (p->m + 1) * k};
    struct naive_row up_row = {x + (p->m + 2) * k, x + (p->m + 3) * k};
    for (size_t m = 0; m < p->m; m++) {
        seen_row(x + m * k, p, act, p->x + m * p->ldx);
    }
    for (size_t n = 0; n < n_out; n++) {
        naive_weights(&row, p, n);
        if (p->w.pair) {
            naive_weights(&up_row, p, n_out + n);
        }
        for (size_t m = 0; m < p->m; m++) {
            double mag, s = (double)p->scale;
            double v = naive_dot(&row, x + m * k, k, &mag) * s;
            double err = err_units * eps * mag * s + 4 * eps * fabs(v);
            if (p->bias) {
                v += (double)p->bias[n];
                err += 2 * eps * fabs(v);
            }
            if (p->w.pair) {
                double up = naive_dot(&up_row, x + m * k, k, &mag) * s;
                double up_err = err_units * eps * mag * s + 4 * eps * fabs(up);
                if (p->bias) {
                    up += (double)p->bias[n_out + n];
                    up_err += 2 * eps * fabs(up);
                }
                double act_v = gate_exact(p->glu, v);
                err = 1.2 * err * fabs(up) + (fabs(act_v) + err) * up_err +
                      (6.0 * fabs(act_v) + 4.0) * eps * fabs(up);
                v = act_v * up;
            }
            if (p->residual) {
                v += (double)p->residual[m * p->ldr + n];
                err += 2 * eps * fabs(v);
            }
            if (p->out_type == QN_OUT_BF16) {
                err += 0x1p-7 * fabs(v); // the two may round apart
            }
            want[m * n_out + n] = (float)v;
            bound[m * n_out + n] = (float)(1.01 * err + 1e-30);
        }
    }
    free(x);
}

/// Rows of an output without their padding, as f32; the padding must be untouched.
static float *gather(struct qn_check *c, const struct problem *p, const void *out, size_t m)
{
    const size_t n_out = qn_gemm_n_out(&p->w), elem = p->out_type == QN_OUT_BF16 ? 2 : 4;
    float *to = qn_check_out(c, m * n_out);
    bool clean = true;

    for (size_t r = 0; r < m; r++) {
        const unsigned char *row = (const unsigned char *)out + r * p->ldo * elem;
        for (size_t n = 0; n < n_out; n++) {
            to[r * n_out + n] =
                elem == 2 ? qn_bf16_to_f32(((const uint16_t *)row)[n]) : ((const float *)row)[n];
        }
        for (size_t i = n_out * elem; r + 1 < m && i < p->ldo * elem; i++) {
            clean = clean && row[i] == 0xA5;
        }
    }
    qn_check_true(c, clean, "wrote into the padding between output rows");
    return to;
}

static const struct qn_gemm_impl *generic_of(const struct qn_gemm_impl *g)
{
    size_t n;
    const struct qn_gemm_impl *const *all = qn_gemm_impls(&n);

    for (size_t i = 0; i < n; i++) {
        if (all[i]->isa == QN_ISA_GENERIC && all[i]->kind == g->kind && all[i]->act == g->act) {
            return all[i];
        }
    }
    abort(); // gemm.inc has a generic row for every kind and activation
}

static void check_values(struct qn_check *c, const struct qn_gemm_impl *g, const struct problem *p,
                         const void *out)
{
    const struct qn_gemm_impl *ref = generic_of(g);
    const size_t n = p->m * qn_gemm_n_out(&p->w);
    const bool is_generic = g->isa == QN_ISA_GENERIC;
    const double units = g->act == QN_ACT_I8 ? 2.0 * (double)qn_gemm_n_groups(&p->w) + 4.0
                         : is_generic        ? 4.0
                         : p->extreme        ? (double)p->w.k + 16.0
                                             : 4.0 * sqrt((double)p->w.k) + 16.0;
    float *want = qn_check_out(c, n), *bound = qn_check_out(c, n);
    const float *got = gather(c, p, out, p->m);

    naive(want, bound, p, g->act, units);
    if (is_generic) {
        qn_check_within(c, got, want, bound, n, "against double");
        return;
    }
    const void *ref_out = product(c, ref, p, pack(c, ref, p), 0, p->m, false);
    if (g->act == QN_ACT_I8) {
        qn_check_same(c, out, ref_out, out_bytes(p, p->m), "the bits of generic");
    } else {
        qn_check_within(c, got, gather(c, p, ref_out, p->m), bound, n, "against generic");
    }
}

/// Everything that holds for any shape.
static void check_problem(struct qn_check *c, const struct qn_gemm_impl *g, const struct problem *p,
                          bool every_row)
{
    const size_t elem = p->out_type == QN_OUT_BF16 ? 2 : 4, n_out = qn_gemm_n_out(&p->w);
    const void *rhs = pack(c, g, p), *out;

    name_shape(c, p);
    out = product(c, g, p, rhs, 0, p->m, false);
    check_values(c, g, p, out);
    qn_check_same(c, product(c, g, p, rhs, 0, p->m, true), out, out_bytes(p, p->m),
                  "the same bits in small ranges");
    for (size_t r = every_row ? 0 : p->m - 1; p->m > 1 && r < p->m; r++) {
        qn_check_same(c, product(c, g, p, rhs, r, 1, false),
                      (const unsigned char *)out + r * p->ldo * elem, n_out * elem,
                      "the same bits alone and in a batch");
    }
    qn_check_release(c);
}

/// Row 1 has a value that is not finite: its outputs say so, all others keep their bits.
static void check_not_finite(struct qn_check *c, const struct qn_gemm_impl *g, float bad)
{
    const bool grouped = g->kind == QN_W_I8 || g->kind == QN_W_I4;
    const struct qn_wdesc w = {
        .kind = g->kind, .n = 2 * g->nr + 1, .k = 96, .group = grouped ? 32 : 0};
    struct problem p = make(c, w, 2 * g->mr + 1, false);
    const size_t elem = p.out_type == QN_OUT_BF16 ? 2 : 4;
    const void *rhs = pack(c, g, &p);
    const unsigned char *clean = product(c, g, &p, rhs, 0, p.m, false);
    const unsigned char *dirty;
    bool all_nan = true, none_finite = true;

    name_shape(c, &p);
    ((float *)p.x)[p.ldx + 50] = bad; // our own buffer
    dirty = product(c, g, &p, rhs, 0, p.m, false);
    for (size_t r = 0; r < p.m; r++) {
        if (r != 1) {
            qn_check_same(c, dirty + r * p.ldo * elem, clean + r * p.ldo * elem, w.n * elem,
                          "a row beside one that is not finite");
        }
    }
    const float *got = gather(c, &p, dirty, p.m);
    for (size_t n = 0; n < w.n; n++) {
        all_nan = all_nan && isnan(got[w.n + n]);
        none_finite = none_finite && !isfinite(got[w.n + n]);
    }
    qn_check_true(c, g->act == QN_ACT_I8 || isnan(bad) ? all_nan : none_finite,
                  "a row that is not finite has finite outputs");
    qn_check_release(c);
}

/// A shape for this variant or, if it does not take it, a check that another one does.
static bool takes(struct qn_check *c, const struct qn_gemm_impl *g, const struct qn_wdesc *w)
{
    const struct qn_gemm_impl *chosen = qn_gemm_select(w, g->act);

    qn_check_true(c, chosen && chosen->supports(w) && chosen->kind == g->kind, "select");
    return g->supports(w);
}

static void check_small(struct qn_check *c, const struct qn_gemm_impl *g)
{
    static const size_t ks[] = {1, 2, 3, 7, 8, 9, 16, 31, 33, 64, 65, 100};
    static const size_t groups[] = {5, 8, 16, 24, 32, 48, 64, 128, 256};
    const size_t nr = g->nr, ns[] = {1, nr - 1, nr, nr + 1, 2 * nr, 2 * nr + 3};
    struct qn_wdesc w = {.kind = g->kind};
    const bool is_int = qn_gemm_is_int(&w);
    size_t turn = 0;

    for (size_t m = 1; m <= 2 * g->mr + 1; m++) {
        for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) {
            w.k = ks[i];
            w.group = 0;
            w.pair = ++turn % 3 == 0;
            w.has_min = is_int && turn % 2 == 0;
            w.n = ns[turn % 6] * (w.pair ? 2 : 1);
            if (w.n > 0 && takes(c, g, &w)) {
                struct problem p = make(c, w, m, false);
                check_problem(c, g, &p, true);
            }
        }
        for (size_t i = 0; is_int && i < sizeof groups / sizeof groups[0]; i++) {
            for (size_t n_groups = 1; n_groups <= 5; n_groups += 2) {
                w.group = groups[i];
                w.k = n_groups * w.group;
                w.pair = ++turn % 3 == 0;
                w.has_min = turn % 4 < 2;
                w.n = ns[turn % 6] * (w.pair ? 2 : 1);
                if (w.n > 0 && takes(c, g, &w)) {
                    struct problem p = make(c, w, m, false);
                    check_problem(c, g, &p, true);
                }
            }
        }
    }
}

/// Weights and activations at the ends of their ranges, over a K that would overflow 16 bits.
static void check_extreme(struct qn_check *c, const struct qn_gemm_impl *g)
{
    static const size_t groups[] = {0, 16, 32, 64, 128, 256};
    struct qn_wdesc w = {.kind = g->kind, .n = g->nr + 1, .k = 1024};

    for (size_t i = 0; i < (qn_gemm_is_int(&w) ? sizeof groups / sizeof groups[0] : 1); i++) {
        for (int min = 0; min <= (qn_gemm_is_int(&w) ? 1 : 0); min++) {
            w.group = groups[i];
            w.has_min = min;
            if (takes(c, g, &w)) {
                struct problem p = make(c, w, g->mr + 1, true);
                // One sign everywhere: nothing cancels.
                for (size_t k = 0; k < w.k; k++) {
                    ((float *)p.x)[k] = 4.0f;
                    if (qn_gemm_is_int(&w)) {
                        ((int8_t *)p.rows.q)[k] = (int8_t)(w.kind == QN_W_I8 ? -128
                                                           : min             ? 15
                                                                             : -8);
                    }
                }
                check_problem(c, g, &p, false);
            }
        }
    }
}

/// Projections of small real models: SmolLM2 135M, Gemma 3 270M, Llama 3.2 1B heads.
static void check_models(struct qn_check *c, const struct qn_gemm_impl *g)
{
    static const struct {
        size_t n, k;
        bool pair;
    } shapes[] = {{576, 576, false},  {192, 576, false}, {3072, 576, true},  {576, 1536, false},
                  {1024, 640, false}, {4096, 640, true}, {640, 2048, false}, {512, 2560, false}};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct qn_wdesc w = {
            .kind = g->kind, .n = shapes[i].n, .k = shapes[i].k, .pair = shapes[i].pair};
        const bool is_int = qn_gemm_is_int(&w);
        // Under emulation the whole K, but a few panels' worth of N.
        if (getenv("QUERN_CHECK_SMALL") != NULL && w.n > 8 * g->nr) {
            w.n = (w.pair ? 4 : 2) * g->nr + 2;
        }
        for (int form = 0; form < (is_int ? 3 : 1); form++) {
            w.group = form == 0 ? 0 : form == 1 ? 32 : 16;
            w.has_min = form == 1 && i % 2;
            if (takes(c, g, &w)) {
                struct problem p = make(c, w, 2, false);
                check_problem(c, g, &p, false);
            }
        }
    }
}

static void check_impl(struct qn_check *c, const void *arg)
{
    const struct qn_gemm_impl *g = arg;

    if (qn_check_benching(c)) {
        qn_gemm_check_bench(c, g);
        return;
    }
    qn_check_shape(c, "table row");
    qn_check_true(c, g->mr > 0 && g->nr > 1 && g->kr > 0 && g->lhs_layout != 0, "sizes");
    check_small(c, g);
    check_extreme(c, g);
    check_models(c, g);
    check_not_finite(c, g, NAN);
    check_not_finite(c, g, INFINITY);
    check_not_finite(c, g, -INFINITY);
}

/// Selection itself: an int8 activation has no float weights, and the list is ordered.
static void check_select(struct qn_check *c, const void *arg)
{
    size_t n;
    const struct qn_gemm_impl *const *all = qn_gemm_impls(&n);
    const struct qn_wdesc f32 = {.kind = QN_W_F32, .n = 8, .k = 8};
    const struct qn_wdesc g16 = {.kind = QN_W_I8, .n = 8, .k = 96, .group = 16};
    const struct qn_wdesc g24 = {.kind = QN_W_I8, .n = 8, .k = 96, .group = 24};
    const struct qn_wdesc g64 = {.kind = QN_W_I4, .n = 8, .k = 128, .group = 64};
    const struct qn_wdesc row = {.kind = QN_W_I4, .n = 8, .k = 96};

    (void)arg;
    qn_check_shape(c, "selection");
    qn_check_true(c, qn_gemm_select(&f32, QN_ACT_I8) == NULL, "int8 activations, f32 weights");
    qn_check_true(c, qn_gemm_act_group(&g16) == 32, "activation group of 16");
    qn_check_true(c, qn_gemm_act_group(&g24) == 48, "activation group of 24");
    qn_check_true(c, qn_gemm_act_group(&g64) == 64, "activation group of 64");
    qn_check_true(c, qn_gemm_act_group(&row) == 96, "activation group of row scales");
    for (size_t i = 1; i < n; i++) {
        qn_check_true(c, all[i - 1]->isa <= all[i]->isa, "tiers in order");
    }
}

enum {
    MAX_CASES = 128
};

int main(int argc, char **argv)
{
    static struct qn_check_case cases[MAX_CASES];
    size_t n;
    const struct qn_gemm_impl *const *all = qn_gemm_impls(&n);

    if (n + 1 > MAX_CASES) {
        return 1;
    }
    cases[0] = (struct qn_check_case){"gemm_select", QN_ISA_GENERIC, check_select, NULL};
    for (size_t i = 0; i < n; i++) {
        cases[i + 1] = (struct qn_check_case){all[i]->name, all[i]->isa, check_impl, all[i]};
    }
    return qn_check_main(argc, argv, cases, n + 1);
}
