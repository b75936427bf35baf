#include "kernels/attn_check.h"
#include "kernels/peak.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum option {
    WITH_WINDOW = 1,
    WITH_SOFTCAP = 2,
    WITH_SINKS = 4,
    STEEP = 8 ///< scores far apart: most weights are tiny or exactly zero
};

/// Queries at the last n_rows positions of a sequence of n_tokens; strides are wider than the rows.
static struct qn_attn_args make_args(struct qn_check *c, const struct attn_seq *seq,
                                     const struct attn_shape *shape, size_t n_rows, size_t window,
                                     unsigned options)
{
    const size_t width = shape->n_heads * shape->head_dim;
    const float steep = options & STEEP ? 40.0f : 1.0f;
    struct qn_attn_args a = {
        .kv = &seq->kv,
        .blocks = seq->blocks,
        .pos0 = seq->n_tokens - n_rows,
        .ldq = width + 5,
        .n_rows = n_rows,
        .n_heads = shape->n_heads,
        .ldo = width + 3,
        .scale = steep / sqrtf((float)shape->head_dim),
        .softcap = options & WITH_SOFTCAP ? 0.8f : 0.0f,
        .window = options & WITH_WINDOW ? window : 0,
    };
    a.q = qn_check_f32(c, (n_rows - 1) * a.ldq + width, -2.0f, 2.0f);
    a.out = qn_check_out(c, (n_rows - 1) * a.ldo + width);
    a.sinks = options & WITH_SINKS ? qn_check_f32(c, shape->n_heads, -1.0f, 2.0f) : NULL;
    return a;
}

static void compare(struct qn_check *c, const struct qn_attn_args *a, const float *want,
                    float bound)
{
    for (size_t r = 0; r < a->n_rows; r++) {
        qn_check_close(c, a->out + r * a->ldo, want + r * a->ldo,
                       a->n_heads * a->kv->shape.head_dim, bound, "row");
    }
}

/// Against the dense reference, then every row alone and the rows in two parts: the same bits.
static void check_one(struct qn_check *c, const struct qn_attn_impl *impl,
                      const struct attn_shape *shape, size_t n_tokens, size_t n_rows, size_t window,
                      unsigned options)
{
    const size_t width = shape->n_heads * shape->head_dim;
    struct attn_seq seq;

    qn_check_shape(c, "heads=%zu/%zu dim=%zu block=%zu tokens=%zu rows=%zu window=%zu options=%u",
                   shape->n_heads, shape->n_kv_heads, shape->head_dim, shape->block_tokens,
                   n_tokens, n_rows, window, options);
    attn_seq_make(c, &seq, impl, shape, n_tokens);
    struct qn_attn_args a = make_args(c, &seq, shape, n_rows, window, options);
    const size_t n_out = (n_rows - 1) * a.ldo + width;
    float *want = qn_check_out(c, n_out), *all = qn_check_out(c, n_out);

    attn_dense(want, a.ldo, &seq, &a);
    if (a.window != 0 && a.pos0 + 1 > a.window) {
        attn_seq_forget(&seq, a.pos0 + 1 - a.window);
    }
    attn_run(c, impl, &a, 0, n_rows);
    compare(c, &a, want, options & STEEP ? 1e-4f : 1e-5f); // steep scores carry their own rounding
    memcpy(all, a.out, n_out * sizeof *all);
    for (size_t r = 0; r < n_rows; r++) {
        attn_run(c, impl, &a, r, r + 1);
    }
    qn_check_same(c, a.out, all, n_out * sizeof *all, "rows alone");
    if (n_rows > 2) {
        const size_t cut = 1 + qn_check_rand(c) % (n_rows - 1);
        attn_run(c, impl, &a, 0, cut);
        attn_run(c, impl, &a, cut, n_rows);
        qn_check_same(c, a.out, all, n_out * sizeof *all, "rows in two parts");
    }
    qn_check_release(c);
}

static const struct attn_shape shapes[] = {
    {1, 1, 8, 16},   {4, 2, 16, 16},  {9, 3, 64, 16},  {7, 1, 24, 32}, {4, 1, 256, 64},
    {8, 1, 64, 128}, {4, 2, 128, 32}, {3, 3, 80, 256}, {5, 1, 96, 16}, {2, 1, 512, 16},
    {12, 1, 64, 16}, {2, 2, 5, 16},   {3, 1, 33, 32},  {4, 4, 1, 16},  {14, 2, 64, 64},
};

static bool takes(const struct qn_attn_impl *impl, const struct attn_shape *shape)
{
    return shape->head_dim % impl->head_dim_multiple == 0 &&
           shape->block_tokens % impl->head_dim_multiple == 0;
}

static void check_shapes(struct qn_check *c, const void *arg)
{
    static const size_t tokens[] = {1, 2, 15, 16, 17, 33, 70};
    const struct qn_attn_impl *impl = arg;

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        if (!takes(impl, &shapes[i])) {
            continue;
        }
        for (size_t t = 0; t < sizeof tokens / sizeof tokens[0]; t++) {
            const size_t rows = 1 + qn_check_rand(c) % (tokens[t] < 9 ? tokens[t] : 9);
            check_one(c, impl, &shapes[i], tokens[t], rows, 5 + t, (unsigned)(i + t) % 16);
        }
    }
}

/// Several spans: their borders, windows across them, rows on both sides.
static void check_spans(struct qn_check *c, const void *arg)
{
    static const struct {
        size_t tokens, rows, window;
    } cases[] = {{512, 3, 512},  {513, 3, 512},    {514, 6, 100}, {1023, 1, 513}, {1025, 4, 2},
                 {1030, 9, 600}, {1030, 25, 1029}, {700, 30, 1},  {1537, 2, 1024}};
    static const struct attn_shape shape = {4, 2, 16, 32};
    const struct qn_attn_impl *impl = arg;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const unsigned plain = (unsigned)i % 2 * WITH_WINDOW; // the other options in turn
        check_one(c, impl, &shape, cases[i].tokens, cases[i].rows, cases[i].window, plain);
        check_one(c, impl, &shape, cases[i].tokens, cases[i].rows, cases[i].window,
                  (unsigned)(i * 2 + 3) % 16);
    }
}

/// Window 8 around its border, as one prefill and token by token.
static void check_SCH_10_window(struct qn_check *c, const void *arg)
{
    static const size_t lengths[] = {7, 8, 9, 15, 16, 17, 24, 25};
    static const struct attn_shape shape = {4, 2, 32, 16};
    const struct qn_attn_impl *impl = arg;

    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct attn_seq seq;

        qn_check_shape(c, "window=8 length=%zu", lengths[i]);
        attn_seq_make(c, &seq, impl, &shape, lengths[i]);
        struct qn_attn_args a = make_args(c, &seq, &shape, lengths[i], 8, WITH_WINDOW);
        float *want = qn_check_out(c, (a.n_rows - 1) * a.ldo + shape.n_heads * shape.head_dim);
        attn_dense(want, a.ldo, &seq, &a);
        attn_run(c, impl, &a, 0, a.n_rows);
        compare(c, &a, want, 1e-5f);
        for (size_t r = 0; r < a.n_rows; r++) {
            const size_t width = shape.n_heads * shape.head_dim;
            struct qn_attn_args step = a;
            step.pos0 = r;
            step.n_rows = 1;
            step.q = a.q + r * a.ldq;
            step.out = qn_check_out(c, width);
            attn_seq_forget(&seq, r + 1 > 8 ? r + 1 - 8 : 0);
            attn_run(c, impl, &step, 0, 1);
            qn_check_close(c, step.out, want + r * a.ldo, width, 1e-5f, "token by token");
            qn_check_same(c, step.out, a.out + r * a.ldo, width * sizeof *step.out,
                          "as in prefill");
        }
        qn_check_release(c);
    }
}

/// A NaN of the sequence itself must not vanish between spans.
static void check_not_finite(struct qn_check *c, const void *arg)
{
    static const struct attn_shape shape = {2, 1, 16, 16};
    const struct qn_attn_impl *impl = arg;
    struct attn_seq seq;

    qn_check_shape(c, "NaN key");
    attn_seq_make(c, &seq, impl, &shape, 600);
    struct qn_attn_args a = make_args(c, &seq, &shape, 2, 0, 0);
    float *k = qn_check_f32(c, shape.head_dim, -1.0f, 1.0f);
    const float *v = qn_check_f32(c, shape.head_dim, -1.0f, 1.0f);
    k[3] = NAN;
    for (size_t p = 0; p < QN_ATTN_SPAN; p++) { // the whole first span
        impl->write(&seq.kv, seq.blocks, p, k, v);
    }
    attn_run(c, impl, &a, 0, 2);
    qn_check_true(c, isnan(a.out[0]) && isnan(a.out[a.ldo]), "NaN reaches the output");
    a.window = 64; // and what a window hides stays hidden
    attn_run(c, impl, &a, 0, 2);
    qn_check_true(c, isfinite(a.out[0]) && isfinite(a.out[a.ldo]), "NaN outside the window");
}

static void bench(struct qn_check *c, const struct qn_attn_impl *impl)
{
    static const struct attn_shape model[] = {
        {3, 1, 64, 16}, {4, 1, 128, 16}, {4, 1, 128, 64}, {4, 1, 256, 64}};
    static const size_t rows[] = {1, 8, 64};

    for (size_t i = 0; i < sizeof model / sizeof model[0]; i++) {
        for (size_t j = 0; j < sizeof rows / sizeof rows[0]; j++) {
            struct attn_seq seq;
            const size_t hd = model[i].head_dim, n = rows[j] * model[i].n_heads;
            attn_seq_make(c, &seq, impl, &model[i], QN_ATTN_SPAN + rows[j]);
            struct qn_attn_args a = make_args(c, &seq, &model[i], rows[j], 0, 0);
            float *partial = qn_check_out(c, n * qn_attn_partial_floats(hd));
            uint64_t t0, ns;
            size_t reps = 0;

            qn_check_shape(c, "heads=%zu dim=%zu block=%zu rows=%zu", model[i].n_heads, hd,
                           model[i].block_tokens, rows[j]);
            impl->span(&a, 0, rows[j], 0, 0, partial);
            t0 = qn_check_now();
            do {
                impl->span(&a, 0, rows[j], 0, 0, partial);
                reps++;
                ns = qn_check_now() - t0;
            } while (ns < 200000000u);
            qn_check_rate_of(c, 2.0 * (double)(n * QN_ATTN_SPAN * hd * reps), "MAC", ns,
                             qn_peak_fma(impl->isa));
            qn_check_release(c);
        }
    }
}

static void check_impl(struct qn_check *c, const void *arg)
{
    if (qn_check_benching(c)) {
        bench(c, arg);
        return;
    }
    check_shapes(c, arg);
    check_spans(c, arg);
    check_not_finite(c, arg);
}

static void check_select(struct qn_check *c, const void *arg)
{
    size_t n;
    const struct qn_attn_impl *const *all = qn_attn_impls(&n);

    (void)arg;
    qn_check_shape(c, "selection");
    for (enum qn_kv_type type = 0; type < QN_N_KV_TYPES; type++) {
        struct qn_kv_shape s = {.type = type, .n_kv_heads = 3, .head_dim = 64, .block_tokens = 16};
        const struct qn_attn_impl *best = qn_attn_select(&s);
        qn_check_true(c, best != NULL && best->type == type, "variant of the type");
        for (size_t i = 0; i < n; i++) {
            qn_check_true(
                c, all[i]->type != type || !qn_cpu_has(all[i]->isa) || all[i]->isa <= best->isa,
                "the best tier is chosen");
        }
        qn_check_true(c, qn_kv_block_bytes(&s) == 2u * 3 * 64 * 16 * (type == QN_KV_F32 ? 4 : 2),
                      "block bytes");
        s.head_dim = 5;
        best = qn_attn_select(&s);
        qn_check_true(c, best != NULL && best->isa == QN_ISA_GENERIC,
                      "generic takes any head size");
        qn_check_true(c, qn_kv_block_bytes(&s) % 64 == 0, "block bytes are a multiple of 64");
    }
}

int main(int argc, char **argv)
{
    enum {
        MAX_IMPLS = 16
    };
    static struct qn_check_case cases[2 * MAX_IMPLS + 1];
    static char names[MAX_IMPLS][64];
    size_t n, k = 0;
    const struct qn_attn_impl *const *all = qn_attn_impls(&n);

    if (n > MAX_IMPLS) {
        return 1;
    }
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "SCH_10_window_%s", all[i]->name);
        cases[k++] = (struct qn_check_case){all[i]->name, all[i]->isa, check_impl, all[i]};
        cases[k++] = (struct qn_check_case){names[i], all[i]->isa, check_SCH_10_window, all[i]};
    }
    cases[k++] = (struct qn_check_case){"attn_select", QN_ISA_GENERIC, check_select, NULL};
    return qn_check_main(argc, argv, cases, k);
}
