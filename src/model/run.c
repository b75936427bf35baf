#include "model/run.h"

#include <stdlib.h>
#include <string.h>

struct layout {
    size_t x, h, qkv, ffn[2], branch, lhs[QN_MAX_PARTS], rope, partials, row_pos, row_seq, tiles,
        total;
    size_t rope_width, slot_floats;
};

struct widths {
    size_t h, qkv, ff, lhs_bytes, group_heads, head_dim;
    bool separate, post_norms;
};

static size_t max_of(size_t a, size_t b)
{
    return a > b ? a : b;
}

static void see_linear(struct widths *w, const struct qn_linear *l, size_t rows)
{
    QN_ASSERT(QN_ROW_UNIT % l->gemm->mr == 0);
    w->lhs_bytes = max_of(w->lhs_bytes, l->gemm->lhs_bytes(&l->w, rows));
}

static struct widths widths_of(const struct qn_model *m, const struct qn_run_opts *o)
{
    struct widths w = {.h = m->desc.d_model};
    for (size_t i = 0; i < m->desc.n_layers; i++) {
        const struct qn_desc_layer *d = &m->desc.layers[i];
        const struct qn_layer *l = &m->layers[i];
        w.h = max_of(w.h, d->n_heads * d->head_dim);
        w.qkv = max_of(w.qkv, (d->n_heads + 2 * d->n_kv_heads) * d->head_dim);
        w.ff = max_of(w.ff, d->d_ff);
        w.group_heads = max_of(w.group_heads, d->n_heads / d->n_kv_heads);
        w.head_dim = max_of(w.head_dim, d->head_dim);
        w.separate = w.separate || l->n_gate_up == 2;
        w.post_norms = w.post_norms || l->post_attn != NULL || l->post_ffn != NULL;
        for (size_t j = 0; j < l->n_qkv; j++) {
            see_linear(&w, &l->qkv[j], o->max_rows);
        }
        see_linear(&w, &l->o, o->max_rows);
        for (size_t j = 0; j < l->n_gate_up; j++) {
            see_linear(&w, &l->gate_up[j], o->max_rows);
        }
        see_linear(&w, &l->down, o->max_rows);
    }
    see_linear(&w, &m->head, o->max_out_rows);
    return w;
}

static void place(size_t *total, size_t *out, size_t n, size_t size)
{
    *out = *total;
    *total += (n * size + 63) / 64 * 64;
}

static struct layout layout_of(const struct qn_model *m, const struct qn_run_opts *o)
{
    struct layout l = {0};
    const struct widths w = widths_of(m, o);
    const size_t rows = o->max_rows, f = sizeof(float);
    const size_t n_workers = o->team != NULL ? qn_team_size(o->team) : o->n_threads;
    const size_t h_rows = max_of(rows, o->max_out_rows);
    const size_t n_spans = (m->info.max_model_len + QN_ATTN_SPAN - 1) / QN_ATTN_SPAN + 1;
    for (size_t i = 0; i < m->desc.n_rope_sets; i++) {
        l.rope_width = max_of(l.rope_width, 2 * m->desc.rope[i].n_pairs);
    }
    l.slot_floats =
        QN_ATTN_TILE_ROWS * w.group_heads * n_spans * qn_attn_partial_floats(w.head_dim);
    place(&l.total, &l.x, rows * m->desc.d_model, f);
    place(&l.total, &l.h, h_rows * w.h, f);
    place(&l.total, &l.qkv, rows * w.qkv, f);
    place(&l.total, &l.ffn[0], rows * w.ff, f);
    place(&l.total, &l.ffn[1], w.separate ? rows * w.ff : 0, f);
    place(&l.total, &l.branch, w.post_norms ? rows * m->desc.d_model : 0, f);
    for (size_t i = 0; i < QN_MAX_PARTS; i++) {
        place(&l.total, &l.lhs[i], w.lhs_bytes, 1);
    }
    place(&l.total, &l.rope, m->desc.n_rope_sets * rows * l.rope_width, f);
    place(&l.total, &l.partials, 2 * n_workers * l.slot_floats, f);
    place(&l.total, &l.row_pos, rows, sizeof(size_t));
    place(&l.total, &l.row_seq, rows, sizeof(size_t));
    place(&l.total, &l.tiles, rows + o->max_seqs, sizeof(struct qn_attn_tile));
    return l;
}

size_t qn_run_bytes(const struct qn_model *m, const struct qn_run_opts *o)
{
    return layout_of(m, o).total;
}

static size_t pool_bytes(const struct qn_run *r, size_t g)
{
    struct qn_kv_group group;
    qn_model_kv_group(r->m, r->opts.block_tokens, g, &group);
    return r->n_blocks[g] * group.block_bytes;
}

void qn_run_free(struct qn_run *r)
{
    if (r == NULL) {
        return;
    }
    for (size_t g = 0; r->pools != NULL && r->n_blocks != NULL && g < r->m->n_groups; g++) {
        qn_pages_free(r->pools[g], pool_bytes(r, g), QN_MEM_KV);
    }
    qn_pages_free(r->mem, r->mem_bytes, QN_MEM_ACTIVATIONS);
    free(r->pools);
    free(r->n_blocks);
    free(r->attn);
    free(r->kv);
    free(r);
}

static enum qn_status reserve_pools(struct qn_run *r, struct qn_err *err)
{
    for (size_t g = 0; g < r->m->n_groups; g++) {
        r->pools[g] = qn_pages_alloc(pool_bytes(r, g), QN_MEM_KV);
        if (r->pools[g] == NULL) {
            return qn_fail(err, QN_E_NOMEM, "could not reserve %zu bytes for %zu KV blocks",
                           pool_bytes(r, g), r->n_blocks[g]);
        }
    }
    for (size_t i = 0; i < r->m->desc.n_layers; i++) {
        const struct qn_layer *l = &r->m->layers[i];
        struct qn_kv_group group;
        qn_model_kv_group(r->m, r->opts.block_tokens, l->kv_group, &group);
        r->attn[i] = qn_attn_select(&group.shape);
        r->kv[i] = (struct qn_kv_view){.shape = group.shape,
                                       .base = r->pools[l->kv_group] +
                                               l->kv_index * qn_kv_block_bytes(&group.shape),
                                       .stride_bytes = group.block_bytes};
    }
    return QN_OK;
}

enum qn_status qn_run_new(const struct qn_model *m, const struct qn_run_opts *o,
                          struct qn_run **out_run, struct qn_err *err)
{
    const struct layout l = layout_of(m, o);
    enum qn_status rc = QN_OK;
    struct qn_run *r = qn_aligned_alloc(1, sizeof *r);
    if (r == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate a forward pass");
    }
    memset(r, 0, sizeof *r);
    r->m = m;
    r->opts = *o;
    r->n_workers = qn_team_size(o->team);
    r->n_blocks = calloc(m->n_groups, sizeof *r->n_blocks);
    r->pools = calloc(m->n_groups, sizeof *r->pools);
    r->attn = calloc(m->desc.n_layers, sizeof *r->attn);
    r->kv = calloc(m->desc.n_layers, sizeof *r->kv);
    r->mem_bytes = l.total;
    r->mem = qn_pages_alloc(l.total, QN_MEM_ACTIVATIONS);
    if (r->n_blocks == NULL || r->pools == NULL || r->attn == NULL || r->kv == NULL ||
        r->mem == NULL) {
        rc = qn_fail(err, QN_E_NOMEM, "could not reserve %zu bytes for activations", l.total);
        goto fail;
    }
    memcpy(r->n_blocks, o->n_blocks, m->n_groups * sizeof *r->n_blocks);
    r->opts.n_blocks = r->n_blocks;
    rc = reserve_pools(r, err);
    if (rc != QN_OK) {
        goto fail;
    }
    r->x = (float *)(void *)(r->mem + l.x);
    r->h = (float *)(void *)(r->mem + l.h);
    r->qkv = (float *)(void *)(r->mem + l.qkv);
    r->ffn[0] = (float *)(void *)(r->mem + l.ffn[0]);
    r->ffn[1] = (float *)(void *)(r->mem + l.ffn[1]);
    r->branch = (float *)(void *)(r->mem + l.branch);
    for (size_t i = 0; i < QN_MAX_PARTS; i++) {
        r->lhs[i] = r->mem + l.lhs[i];
    }
    r->rope = (float *)(void *)(r->mem + l.rope);
    r->rope_width = l.rope_width;
    r->partials = (float *)(void *)(r->mem + l.partials);
    r->slot_floats = l.slot_floats;
    r->row_pos = (size_t *)(void *)(r->mem + l.row_pos);
    r->row_seq = (size_t *)(void *)(r->mem + l.row_seq);
    r->tiles = (struct qn_attn_tile *)(void *)(r->mem + l.tiles);
    *out_run = r;
    return QN_OK;
fail:
    qn_run_free(r);
    return rc;
}

void qn_run_step(struct qn_run *r, const struct qn_batch *b)
{
    QN_ASSERT(b->n_rows <= r->opts.max_rows && b->n_seqs <= r->opts.max_seqs &&
              b->n_out <= r->opts.max_out_rows);
    if (b->n_rows == 0) {
        return;
    }
    r->n_tiles = 0;
    for (size_t s = 0; s < b->n_seqs; s++) {
        const struct qn_batch_seq *seq = &b->seqs[s];
        for (size_t i = 0; i < seq->n_rows; i++) {
            r->row_pos[seq->row0 + i] = seq->pos0 + i;
            r->row_seq[seq->row0 + i] = s;
        }
        for (size_t i = 0; i < seq->n_rows; i += QN_ATTN_TILE_ROWS) {
            size_t end = i + QN_ATTN_TILE_ROWS;
            r->tiles[r->n_tiles++] = (struct qn_attn_tile){
                .seq = s, .row0 = i, .row1 = end < seq->n_rows ? end : seq->n_rows};
        }
    }
    r->batch = b;
    qn_claim_reset(&r->claims[0]);
    qn_claim_reset(&r->claims[1]);
    qn_team_run(r->opts.team, qn_forward, r);
}

void qn_run_copy_block(struct qn_run *r, size_t group, int32_t dst, int32_t src)
{
    struct qn_kv_group g;
    qn_model_kv_group(r->m, r->opts.block_tokens, group, &g);
    memcpy(r->pools[group] + (size_t)dst * g.block_bytes,
           r->pools[group] + (size_t)src * g.block_bytes, g.block_bytes);
}
