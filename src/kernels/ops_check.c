#include "kernels/check.h"
#include "kernels/ops.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct qn_ops *reference(void)
{
    size_t n;
    return qn_ops_tables(&n)[0];
}

/// Every length to three vectors of the widest tier, then some that models have.
static size_t length(size_t i)
{
    static const size_t more[] = {63, 64, 65, 96, 128, 257, 576, 640, 1024, 4099};
    return i < 50 ? i + 1 : i < 50 + sizeof more / sizeof more[0] ? more[i - 50] : 0;
}

static float *copy_of(struct qn_check *c, const float *x, size_t n)
{
    float *y = qn_check_out(c, n);
    memcpy(y, x, n * sizeof *y);
    return y;
}

static void check_rmsnorm(struct qn_check *c, const void *arg)
{
    const struct qn_ops *ops = arg;

    for (size_t i = 0, dim; (dim = length(i)) != 0; i++) {
        const size_t rows = 5, ldx = dim + 3, ldy = dim + 1;
        qn_check_shape(c, "rows=%zu dim=%zu", rows, dim);
        float *x = qn_check_f32(c, (rows - 1) * ldx + dim, -8.0f, 8.0f);
        const float *w = i % 3 == 0 ? NULL : qn_check_f32(c, dim, 0.1f, 2.0f);
        float *want = qn_check_out(c, (rows - 1) * ldy + dim);
        float *got = qn_check_out(c, (rows - 1) * ldy + dim);
        float *one = qn_check_out(c, dim);

        reference()->rmsnorm(want, ldy, x, ldx, w, rows, dim, 1e-5f);
        ops->rmsnorm(got, ldy, x, ldx, w, rows, dim, 1e-5f);
        for (size_t r = 0; r < rows; r++) {
            qn_check_near(c, got + r * ldy, want + r * ldy, dim, 16.0f, "norm");
        }
        ops->rmsnorm(one, dim, x + 4 * ldx, ldx, w, 1, dim, 1e-5f);
        qn_check_same(c, one, got + 4 * ldy, dim * sizeof *one, "row alone");
        if (dim >= 64) {
            QN_BENCH(c, 2 * rows * dim * sizeof(float), "B",
                     ops->rmsnorm(got, ldy, x, ldx, w, rows, dim, 1e-5f));
        }
        x[ldx + dim / 2] = NAN;
        ops->rmsnorm(x, ldx, x, ldx, w, rows, dim, 1e-5f); // in place
        qn_check_same(c, x + 4 * ldx, one, dim * sizeof *one, "in place");
        qn_check_true(c, isnan(x[ldx]) && isnan(x[ldx + dim - 1]), "NaN reaches its row");
        qn_check_true(c, !isnan(x[0]) && !isnan(x[2 * ldx]), "NaN stays in its row");
        qn_check_release(c);
    }
}

static void check_rope(struct qn_check *c, const void *arg)
{
    static const struct {
        size_t heads, head_dim, pairs, distance;
    } shapes[] = {{1, 2, 1, 1},      {3, 6, 3, 3},     {2, 10, 3, 5},    {9, 64, 32, 32},
                  {5, 80, 20, 20},   {4, 96, 36, 48},  {8, 128, 64, 64}, {4, 256, 128, 128},
                  {2, 512, 64, 256}, {3, 128, 48, 48}, {2, 26, 13, 13}};
    const struct qn_ops *ops = arg;

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const size_t heads = shapes[i].heads, hd = shapes[i].head_dim, pairs = shapes[i].pairs;
        const size_t distance = shapes[i].distance, n = heads * hd;
        qn_check_shape(c, "heads=%zu dim=%zu pairs=%zu", heads, hd, pairs);
        const float *x = qn_check_f32(c, n, -4.0f, 4.0f);
        float *cos_t = qn_check_f32(c, pairs, -1.0f, 1.0f);
        float *sin_t = qn_check_out(c, pairs);
        for (size_t d = 0; d < pairs; d++) { // a rotation: a bench that repeats it stays in range
            sin_t[d] = sqrtf(1.0f - cos_t[d] * cos_t[d]);
        }
        float *want = copy_of(c, x, n), *got = copy_of(c, x, n), *one = copy_of(c, x, n);

        reference()->rope(want, heads, hd, pairs, distance, cos_t, sin_t);
        ops->rope(got, heads, hd, pairs, distance, cos_t, sin_t);
        qn_check_near(c, got, want, n, 2.0f, "rotated");
        ops->rope(one + n - hd, 1, hd, pairs, distance, cos_t, sin_t);
        qn_check_same(c, one + n - hd, got + n - hd, hd * sizeof *one, "head alone");
        for (size_t d = 0; d < n; d++) {
            const size_t at = d % hd;
            const bool turned = at < pairs || (at >= distance && at < distance + pairs);
            qn_check_true(c, turned || got[d] == x[d], "dimension outside the pairs changed");
        }
        QN_BENCH(c, 2 * n * sizeof(float), "B",
                 ops->rope(got, heads, hd, pairs, distance, cos_t, sin_t));
        qn_check_release(c);
    }
}

/// Relative error that an activation may have: the error of the exponent's argument counts in full.
static float silu_bound(float g)
{
    (void)g;
    return 8 * FLT_EPSILON;
}

static float gelu_bound(float g)
{
    return 4 * FLT_EPSILON * (2.0f + 1.6f * (fabsf(g) + 0.044715f * fabsf(g * g * g)));
}

static void check_glu(struct qn_check *c, qn_glu_fn *want_fn, qn_glu_fn *fn,
                      float (*bound_of)(float))
{
    for (size_t i = 0, n; (n = length(i)) != 0; i++) {
        qn_check_shape(c, "n=%zu", n);
        float *gate = qn_check_f32(c, n, i % 2 ? -30.0f : -6.0f, i % 2 ? 30.0f : 6.0f);
        float *up = qn_check_f32(c, n, -8.0f, 8.0f);
        float *want = qn_check_out(c, n), *got = qn_check_out(c, n), *bound = qn_check_out(c, n);

        want_fn(want, gate, up, n);
        fn(got, gate, up, n);
        for (size_t j = 0; j < n; j++) {
            bound[j] = bound_of(gate[j]) * fabsf(want[j]) + 1e-14f; // generic's own rounding
        }
        qn_check_within(c, got, want, bound, n, "values");
        if (n >= 64) {
            QN_BENCH(c, 3 * n * sizeof(float), "B", fn(got, gate, up, n));
        }
        fn(gate, gate, up, n); // y is gate
        qn_check_same(c, gate, got, n * sizeof *got, "in place");
        qn_check_release(c);
    }
    static const float odd[] = {0.0f, -0.0f, INFINITY, NAN, 1e30f, 200.0f, -200.0f, -1e30f};
    enum {
        N_ODD = sizeof odd / sizeof odd[0]
    };
    const float *gate = copy_of(c, odd, N_ODD);
    const float *up = qn_check_f32(c, N_ODD, 1.0f, 2.0f);
    float *want = qn_check_out(c, N_ODD), *got = qn_check_out(c, N_ODD);
    float *bound = qn_check_out(c, N_ODD);
    qn_check_shape(c, "limits");
    want_fn(want, gate, up, N_ODD);
    fn(got, gate, up, N_ODD);
    for (size_t j = 0; j < N_ODD; j++) {
        bound[j] = 8 * FLT_EPSILON * fabsf(want[j]) + 1e-14f;
    }
    qn_check_within(c, got, want, bound, N_ODD, "values");
    qn_check_release(c);
}

static void check_silu(struct qn_check *c, const void *arg)
{
    const struct qn_ops *ops = arg;
    check_glu(c, reference()->glu_silu, ops->glu_silu, silu_bound);
}

static void check_gelu(struct qn_check *c, const void *arg)
{
    const struct qn_ops *ops = arg;
    check_glu(c, reference()->glu_gelu_tanh, ops->glu_gelu_tanh, gelu_bound);
}

static void check_linear(struct qn_check *c, const void *arg)
{
    const struct qn_ops *ops = arg;

    for (size_t i = 0, n; (n = length(i)) != 0; i++) {
        qn_check_shape(c, "n=%zu", n);
        const float *x = qn_check_f32(c, n, -4.0f, 4.0f), *y = qn_check_f32(c, n, -4.0f, 4.0f);
        float *want = copy_of(c, y, n), *got = copy_of(c, y, n);

        reference()->axpy(want, x, 0.37f, n);
        ops->axpy(got, x, 0.37f, n);
        qn_check_near(c, got, want, n, 1.0f, "axpy");
        memcpy(want, x, n * sizeof *x);
        memcpy(got, x, n * sizeof *x);
        reference()->scale(want, -1.7f, n);
        ops->scale(got, -1.7f, n);
        qn_check_same(c, got, want, n * sizeof *x, "scale");
        qn_check_release(c);
    }
}

static void check_softcap(struct qn_check *c, const void *arg)
{
    const struct qn_ops *ops = arg;
    const float cap = 30.0f;

    for (size_t i = 0, n; (n = length(i)) != 0; i++) {
        static const float reach[] = {0.5f, 25.0f, 400.0f};
        qn_check_shape(c, "n=%zu", n);
        float *x = qn_check_f32(c, n, -reach[i % 3], reach[i % 3]);
        if (n > 8) {
            x[1] = INFINITY;
            x[2] = -INFINITY;
            x[3] = NAN;
            x[4] = -0.0f;
        }
        float *want = copy_of(c, x, n), *got = copy_of(c, x, n), *bound = qn_check_out(c, n);

        reference()->softcap(want, cap, n);
        ops->softcap(got, cap, n);
        for (size_t j = 0; j < n; j++) {
            bound[j] = 6 * FLT_EPSILON * fabsf(want[j]);
        }
        qn_check_within(c, got, want, bound, n, "values");
        QN_BENCH(c, 2 * n * sizeof(float), "B", ops->softcap(got, cap, n));
        qn_check_release(c);
    }
}

/// A case of lengths and of values that are not finite, for the functions over a vocabulary.
enum kind {
    KIND_PLAIN,
    KIND_TIES,
    KIND_SOME_NAN,
    KIND_ALL_NAN,
    KIND_MINUS_INF,
    KIND_NAN_AND_MINUS_INF,
    KIND_PLUS_INF,
    N_KINDS
};

static float *vocabulary(struct qn_check *c, size_t n, enum kind kind)
{
    float *x = qn_check_f32(c, n, -20.0f, 20.0f);

    for (size_t i = 0; i < n; i++) {
        const uint32_t r = qn_check_rand(c);
        switch (kind) {
        case KIND_TIES:
            x[i] = (r & 1u) ? 0.0f : -0.0f;
            break;
        case KIND_SOME_NAN:
            x[i] = r % 3 == 0 ? NAN : x[i];
            break;
        case KIND_ALL_NAN:
            x[i] = NAN;
            break;
        case KIND_MINUS_INF:
            x[i] = -INFINITY;
            break;
        case KIND_NAN_AND_MINUS_INF:
            x[i] = r % 2 == 0 ? NAN : -INFINITY;
            break;
        case KIND_PLUS_INF:
            x[i] = r % 5 == 0 ? INFINITY : x[i];
            break;
        case KIND_PLAIN:
        default:
            break;
        }
    }
    return x;
}

static size_t vocabulary_size(size_t i)
{
    static const size_t more[] = {4095, 4096, 4097, 8192, 49152, 128256, 262144};
    return i < 70 ? i + 1 : i < 70 + sizeof more / sizeof more[0] ? more[i - 70] : 0;
}

static void check_argmax(struct qn_check *c, const void *arg)
{
    const struct qn_ops *ops = arg;

    for (size_t i = 0, n; (n = vocabulary_size(i)) != 0; i++) {
        for (enum kind kind = 0; kind < N_KINDS; kind++) {
            const float *x = vocabulary(c, n, kind);
            float want_max, got_max;
            size_t want_at, got_at;

            qn_check_shape(c, "n=%zu kind=%d", n, (int)kind);
            reference()->argmax(x, n, &want_max, &want_at);
            ops->argmax(x, n, &got_max, &got_at);
            qn_check_true(c, got_at == want_at, "index of the largest");
            qn_check_close(c, &got_max, &want_max, 1, 0.0f, "largest");
            if (kind == KIND_PLAIN && n > 4097) {
                QN_BENCH(c, n * sizeof(float), "B", ops->argmax(x, n, &got_max, &got_at));
            }
            qn_check_release(c);
        }
    }
}

static void check_logsumexp(struct qn_check *c, const void *arg)
{
    const struct qn_ops *ops = arg;

    for (size_t i = 0, n; (n = vocabulary_size(i)) != 0; i++) {
        for (enum kind kind = 0; kind < N_KINDS; kind++) {
            const float *x = vocabulary(c, n, kind);
            const float want = reference()->logsumexp(x, n), got = ops->logsumexp(x, n);

            qn_check_shape(c, "n=%zu kind=%d", n, (int)kind);
            qn_check_close(c, &got, &want, 1, fabsf(want) * FLT_EPSILON + 2e-7f, "value");
            if (kind == KIND_PLAIN && n > 4097) {
                volatile float sink;
                QN_BENCH(c, n * sizeof(float), "B", sink = ops->logsumexp(x, n));
                (void)sink;
            }
            qn_check_release(c);
        }
    }
}

static void check_softmax(struct qn_check *c, const void *arg)
{
    const struct qn_ops *ops = arg;

    for (size_t i = 0, n; (n = vocabulary_size(i)) != 0; i++) {
        const float inv_t = i % 2 ? 1.0f : 1.6f;
        qn_check_shape(c, "n=%zu", n);
        float *x = vocabulary(c, n, KIND_PLAIN);
        if (n > 5) {
            x[n / 2] = -INFINITY;
            x[n - 2] = -400.0f;
        }
        float *want = copy_of(c, x, n), *got = copy_of(c, x, n), *bound = qn_check_out(c, n);
        float max;
        size_t at;
        double sum = 0.0;

        reference()->softmax(want, n, inv_t);
        ops->softmax(got, n, inv_t);
        reference()->argmax(x, n, &max, &at);
        for (size_t j = 0; j < n; j++) {
            const float far = isinf(x[j]) ? 0.0f : (max - x[j]) * inv_t; // rounded twice
            bound[j] = want[j] * FLT_EPSILON * (8.0f + 2.0f * far) + 1e-36f;
            sum += (double)got[j];
        }
        qn_check_within(c, got, want, bound, n, "values");
        qn_check_true(c, fabs(sum - 1.0) < 1e-5, "probabilities add to 1");
        qn_check_true(c, n <= 5 || (got[n / 2] == 0.0f && got[n - 2] == 0.0f), "exact zeros");
        if (n > 4097) {
            QN_BENCH(c, 2 * n * sizeof(float), "B", ops->softmax(got, n, inv_t));
        }
        qn_check_release(c);
    }
}

/// Two values 0 and -t: the second probability over the first is e^-t, nothing else rounds much.
static void check_exp(struct qn_check *c, const void *arg)
{
    const struct qn_ops *ops = arg;
    enum {
        N = 64,
        STEPS = 400
    };

    for (size_t i = 0; i < STEPS; i++) {
        qn_check_shape(c, "part=%zu of %d", i, STEPS);
        float *x = qn_check_out(c, N), *got = qn_check_out(c, N);
        for (size_t j = 0; j < N; j++) {
            const float unit = (float)(qn_check_rand(c) >> 8) * 0x1p-24f;
            x[j] = -86.5f * ((float)i + unit) / STEPS;
        }
        x[0] = 0.0f;
        memcpy(got, x, N * sizeof *got);
        ops->softmax(got, N, 1.0f);
        for (size_t j = 1; j < N; j++) {
            const double want = exp((double)x[j]), ratio = (double)got[j] / (double)got[0];
            qn_check_true(c, fabs(ratio - want) <= 5e-7 * want, "e^-t within 5e-7 of itself");
        }
        qn_check_release(c);
    }
}

static void check_tables(struct qn_check *c, const void *arg)
{
    size_t n;
    const struct qn_ops *const *all = qn_ops_tables(&n);
    const struct qn_ops *best = qn_ops_get();

    (void)arg;
    qn_check_shape(c, "tables");
    qn_check_true(c, all[0]->isa == QN_ISA_GENERIC, "generic comes first");
    for (size_t i = 0; i < n; i++) {
        qn_check_true(c, i == 0 || all[i - 1]->isa < all[i]->isa, "tiers in order");
        qn_check_true(c, strcmp(all[i]->name, qn_isa_name(all[i]->isa)) == 0, "named by tier");
        qn_check_true(c, !qn_cpu_has(all[i]->isa) || best->isa >= all[i]->isa, "best is chosen");
    }
    qn_check_true(c, qn_cpu_has(best->isa), "the chosen table runs here");
}

int main(int argc, char **argv)
{
    enum {
        MAX_TABLES = 8
    };
    static const struct {
        const char *name;
        void (*fn)(struct qn_check *, const void *);
    } ops[] = {
        {"rmsnorm", check_rmsnorm},   {"rope", check_rope},
        {"glu_silu", check_silu},     {"glu_gelu_tanh", check_gelu},
        {"axpy_scale", check_linear}, {"softcap", check_softcap},
        {"exp", check_exp},           {"argmax", check_argmax},
        {"softmax", check_softmax},   {"logsumexp", check_logsumexp},
    };
    enum {
        N_OPS = sizeof ops / sizeof ops[0]
    };
    static struct qn_check_case cases[MAX_TABLES * N_OPS + 1];
    static char names[MAX_TABLES * N_OPS][48];
    size_t n_tables, n = 0;
    const struct qn_ops *const *tables = qn_ops_tables(&n_tables);

    if (n_tables > MAX_TABLES) {
        return 1;
    }
    for (size_t t = 0; t < n_tables; t++) {
        for (size_t i = 0; i < N_OPS; i++, n++) {
            snprintf(names[n], sizeof names[n], "%s_%s", ops[i].name, tables[t]->name);
            cases[n] = (struct qn_check_case){names[n], tables[t]->isa, ops[i].fn, tables[t]};
        }
    }
    cases[n++] = (struct qn_check_case){"ops_tables", QN_ISA_GENERIC, check_tables, NULL};
    return qn_check_main(argc, argv, cases, n);
}
