// Packing: panels are claimed by the workers of the team; each reads its rows in canonical form
// into scratch of its own and hands them to the kernel's packer. Peak memory is the packed size. An
// embedding that is no linear too stays in the map; its rows are read once to see that they are
// finite.
#include "model/weights.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/team.h"
#include "model/rows.h"

enum {
    CHECK_ROWS = 64 ///< embedding rows checked at a time
};

struct job {
    void (*body)(void *worker); ///< claims and does items until none is left
    struct qn_linear *l;
    const struct qn_tensor *embed;
    struct qn_claim claim;
    size_t scratch_bytes;
    unsigned char *scratch; ///< one stretch of scratch_bytes a worker
    atomic_bool failed;
    atomic_flag err_taken; ///< the first worker to fail writes err and rc
    enum qn_status rc;
    struct qn_err err;
    const struct qn_model_opts *opts;
    atomic_uint_fast64_t *done;
    uint64_t total;
};

static size_t elem_bytes(enum qn_wkind kind)
{
    return kind == QN_W_F32 ? 4 : (kind == QN_W_BF16 ? 2 : 1);
}

static size_t n_groups(const struct qn_wdesc *w)
{
    return w->kind == QN_W_F32 || w->kind == QN_W_BF16 ? 0 : (w->group > 0 ? w->k / w->group : 1);
}

static size_t round64(size_t n)
{
    return (n + 63) / 64 * 64;
}

// values | scales | minima of one panel's rows
static size_t q_bytes(const struct qn_linear *l)
{
    return round64(l->gemm->nr * l->w.k * elem_bytes(l->w.kind));
}

static size_t scale_bytes(const struct qn_linear *l)
{
    return round64(l->gemm->nr * n_groups(&l->w) * sizeof(float));
}

static enum qn_status read_row(const struct qn_linear *l, size_t row, void *q, float *scale,
                               float *min, struct qn_err *err)
{
    const struct qn_part *p = l->parts;
    while (row >= p->n_rows) {
        row -= p->n_rows;
        p++;
    }
    return qn_tensor_read_canon(p->tensor, qn_stored_row(p->head_dim, row), q, scale, min, err);
}

static enum qn_status pack_one(const struct job *j, size_t panel, unsigned char *scratch,
                               struct qn_err *err)
{
    const struct qn_linear *l = j->l;
    const size_t groups = n_groups(&l->w), k_bytes = l->w.k * elem_bytes(l->w.kind);
    float *scale = (float *)(void *)(scratch + q_bytes(l));
    float *min = (float *)(void *)(scratch + q_bytes(l) + scale_bytes(l));
    size_t row0, n_rows;
    qn_gemm_panel_rows(l->gemm, &l->w, panel, &row0, &n_rows);
    for (size_t r = 0; r < n_rows; r++) {
        enum qn_status rc =
            read_row(l, row0 + r, scratch + r * k_bytes, scale + r * groups, min + r * groups, err);
        if (rc != QN_OK) {
            return rc;
        }
    }
    const struct qn_wrows rows = {.q = scratch, .scale = scale, .min = min};
    l->gemm->pack_panel(l->rhs + panel * l->gemm->panel_bytes(&l->w), &l->w, &rows, n_rows);
    return QN_OK;
}

struct worker {
    struct job *j;
    size_t index;
    enum qn_status rc;
    struct qn_err err;
};

static void pack_panels(void *arg)
{
    struct worker *w = arg;
    struct job *j = w->j;
    unsigned char *scratch = j->scratch + w->index * j->scratch_bytes;
    const size_t n = j->l->gemm->panel_bytes(&j->l->w);
    size_t panel;
    while (!atomic_load_explicit(&j->failed, memory_order_relaxed) &&
           (panel = qn_claim_next(&j->claim)) < j->l->n_panels) {
        w->rc = pack_one(j, panel, scratch, &w->err);
        if (w->rc != QN_OK) {
            return;
        }
        uint64_t done = atomic_fetch_add_explicit(j->done, n, memory_order_relaxed) + n;
        if (w->index == 0 && j->opts->progress != NULL) {
            j->opts->progress(j->opts->progress_user, done, j->total);
        }
    }
}

static enum qn_status check_row(const struct qn_tensor *t, uint64_t row, float *x,
                                struct qn_err *err)
{
    const size_t n = (size_t)t->shape[1];
    enum qn_status rc = qn_tensor_read_f32(t, row, 0, n, x, err);
    for (size_t i = 0; rc == QN_OK && i < n; i++) {
        if (!(x[i] - x[i] == 0)) {
            rc = qn_fail(err, QN_E_FORMAT,
                         "tensor \"%s\": row %llu, column %zu is %g, expected a finite number",
                         t->name, (unsigned long long)row, i, (double)x[i]);
        }
    }
    return rc;
}

static void check_rows(void *arg)
{
    struct worker *w = arg;
    struct job *j = w->j;
    float *x = (float *)(void *)(j->scratch + w->index * j->scratch_bytes);
    const uint64_t n = j->embed->shape[0];
    uint64_t row;
    while (!atomic_load_explicit(&j->failed, memory_order_relaxed) &&
           (row = (uint64_t)qn_claim_next(&j->claim) * CHECK_ROWS) < n) {
        const uint64_t end = n - row < CHECK_ROWS ? n : row + CHECK_ROWS;
        for (; row < end; row++) {
            w->rc = check_row(j->embed, row, x, &w->err);
            if (w->rc != QN_OK) {
                return;
            }
        }
    }
}

static void work(void *arg, size_t index, size_t n_workers)
{
    (void)n_workers;
    struct job *j = arg;
    struct worker w = {.j = j, .index = index};
    struct qn_err guard = {0};
    enum qn_status rc = qn_map_guard(j->body, &w, &guard);
    if (rc == QN_OK) {
        rc = w.rc;
        guard = w.err;
    }
    if (rc != QN_OK) {
        atomic_store_explicit(&j->failed, true, memory_order_relaxed);
        if (!atomic_flag_test_and_set_explicit(&j->err_taken, memory_order_relaxed)) {
            j->rc = rc; // published by the end of the fork
            j->err = guard;
        }
    }
}

struct packer {
    const struct qn_model_opts *opts;
    size_t n_workers, scratch_bytes;
    unsigned char *scratch;
    atomic_uint_fast64_t done;
    uint64_t total;
};

static enum qn_status size_scratch(struct qn_linear *l, void *arg, struct qn_err *err)
{
    (void)err;
    struct packer *p = arg;
    size_t n = q_bytes(l) + 2 * scale_bytes(l);
    p->scratch_bytes = n > p->scratch_bytes ? n : p->scratch_bytes;
    p->total += l->rhs_bytes;
    return QN_OK;
}

static enum qn_status run_job(const struct packer *p, struct job *j, struct qn_err *err)
{
    if (p->opts->team != NULL) {
        qn_team_run(p->opts->team, work, j);
    } else {
        work(j, 0, 1);
    }
    if (j->rc != QN_OK && err != NULL) {
        *err = j->err;
    }
    return j->rc;
}

static enum qn_status pack_linear(struct qn_linear *l, void *arg, struct qn_err *err)
{
    struct packer *p = arg;
    l->rhs = qn_pages_alloc(l->rhs_bytes, QN_MEM_WEIGHTS);
    if (l->rhs == NULL) {
        return qn_fail(err, QN_E_NOMEM,
                       "tensor \"%s\": could not reserve %zu bytes for packed weights",
                       l->parts[0].tensor->name, l->rhs_bytes);
    }
    struct job j = {.body = pack_panels,
                    .l = l,
                    .scratch_bytes = p->scratch_bytes,
                    .scratch = p->scratch,
                    .err_taken = ATOMIC_FLAG_INIT,
                    .opts = p->opts,
                    .done = &p->done,
                    .total = p->total};
    return run_job(p, &j, err);
}

static enum qn_status check_embedding(struct packer *p, const struct qn_model *m,
                                      struct qn_err *err)
{
    if (m->embed == m->head.parts[0].tensor) {
        return QN_OK; // packed, and so checked
    }
    struct job j = {.body = check_rows,
                    .embed = m->embed,
                    .scratch_bytes = p->scratch_bytes,
                    .scratch = p->scratch,
                    .err_taken = ATOMIC_FLAG_INIT,
                    .opts = p->opts};
    return run_job(p, &j, err);
}

enum qn_status qn_pack_all(struct qn_model *m, const struct qn_model_opts *opts, struct qn_err *err)
{
    struct packer p = {.opts = opts,
                       .n_workers = opts->team != NULL ? qn_team_size(opts->team) : 1};
    enum qn_status rc = qn_each_linear(m, size_scratch, &p, err);
    const size_t row_bytes = round64(m->desc.d_model * sizeof(float));
    p.scratch_bytes = row_bytes > p.scratch_bytes ? row_bytes : p.scratch_bytes;
    p.scratch = qn_aligned_alloc(p.n_workers, p.scratch_bytes);
    if (p.scratch == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate %zu bytes to pack weights",
                       p.n_workers * p.scratch_bytes);
    }
    rc = rc == QN_OK ? check_embedding(&p, m, err) : rc;
    rc = rc == QN_OK ? qn_each_linear(m, pack_linear, &p, err) : rc;
    if (rc == QN_OK && opts->progress != NULL) {
        opts->progress(opts->progress_user, p.total, p.total);
    }
    free(p.scratch);
    return rc;
}
