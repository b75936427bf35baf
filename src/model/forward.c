// The forward pass of a ragged batch: one fork of the team, phases separated by its barrier. A
// phase is split by rows (norms, packing of GEMM inputs, rotation, KV writes), by panels (GEMM) or
// by (tile of queries, KV head, span) (attention). No split changes the order of a sum, so none
// changes a bit.
#include <string.h>

#include "model/run.h"

enum {
    STATIC_ROWS = 24, ///< up to here each worker always takes the same panels
    CHUNK_PANELS = 4, ///< even: pairs stay together
    CHUNK_ROWS = 96   ///< a multiple of QN_ROW_UNIT
};

struct ctx {
    struct qn_run *r;
    const struct qn_ops *ops;
    size_t worker, n_workers;
    unsigned phase;
};

static void end_phase(struct ctx *c)
{
    qn_team_barrier(c->r->opts.team, c->worker);
    // The counter just used serves the phase after the next; the next barrier publishes its reset.
    if (c->worker == 0) {
        qn_claim_reset(&c->r->claims[c->phase & 1]);
    }
    c->phase++;
}

static size_t claim(struct ctx *c)
{
    return qn_claim_next(&c->r->claims[c->phase & 1]);
}

static void share(const struct ctx *c, size_t n, size_t unit, size_t *out0, size_t *out1)
{
    size_t units = (n + unit - 1) / unit;
    size_t a = units * c->worker / c->n_workers * unit;
    size_t b = units * (c->worker + 1) / c->n_workers * unit;
    *out0 = a < n ? a : n;
    *out1 = b < n ? b : n;
}

// ---- GEMM ---------------------------------------------------------------------------------------

/// One product of a phase: x is packed into lhs by the phase before.
struct product {
    const struct qn_linear *l;
    const unsigned char *lhs;
    float *out;
    size_t ldo;
    const float *residual;
};

// Linears of one input share a packed lhs where their kernels read the same bytes.
static size_t lhs_slot(const struct qn_linear *ls, size_t j)
{
    for (size_t i = 0; i < j; i++) {
        if (ls[i].gemm->lhs_layout == ls[j].gemm->lhs_layout && ls[i].w.k == ls[j].w.k &&
            qn_gemm_act_group(&ls[i].w) == qn_gemm_act_group(&ls[j].w)) {
            return lhs_slot(ls, i);
        }
    }
    return j;
}

// Rows that one worker must take together so that no packing unit of these linears is split.
static size_t row_unit(const struct qn_linear *ls, size_t n)
{
    size_t unit = 1;
    for (size_t j = 0; j < n; j++) {
        size_t mr = ls[j].gemm->mr;
        unit = unit % mr == 0 ? unit : (mr % unit == 0 ? mr : QN_ROW_UNIT);
    }
    return unit;
}

static void pack_rows(struct ctx *c, const struct qn_linear *ls, size_t n, const float *x,
                      size_t ldx, size_t m, size_t r0, size_t r1)
{
    for (size_t j = 0; j < n && r0 < r1; j++) {
        if (lhs_slot(ls, j) == j) {
            ls[j].gemm->lhs_pack(c->r->lhs[j], &ls[j].w, x, ldx, m, r0, r1);
        }
    }
}

static void run_product(const struct product *p, enum qn_glu glu, size_t m, size_t m0, size_t m1,
                        size_t p0, size_t p1, size_t ldr)
{
    const struct qn_gemm_args a = {.w = &p->l->w,
                                   .rhs = p->l->rhs,
                                   .lhs = p->lhs,
                                   .m = m,
                                   .out = p->out,
                                   .ldo = p->ldo,
                                   .out_type = QN_OUT_F32,
                                   .scale = 1.0f,
                                   .bias = p->l->bias,
                                   .residual = p->residual,
                                   .ldr = ldr,
                                   .glu = p->l->w.pair ? glu : QN_GLU_NONE};
    p->l->gemm->run(&a, m0, m1, p0, p1);
}

static void gemm(struct ctx *c, const struct product *ps, size_t n, size_t m)
{
    const enum qn_glu glu = c->r->m->desc.glu;
    const size_t ldr = c->r->m->desc.d_model;
    if (m <= STATIC_ROWS) {
        for (size_t j = 0; j < n; j++) {
            size_t p0, p1;
            share(c, ps[j].l->n_panels, ps[j].l->w.pair ? 2 : 1, &p0, &p1);
            if (p0 < p1) {
                run_product(&ps[j], glu, m, 0, m, p0, p1, ldr);
            }
        }
        return;
    }
    const size_t m_chunks = (m + CHUNK_ROWS - 1) / CHUNK_ROWS;
    size_t first = 0, item = claim(c);
    for (size_t j = 0; j < n; j++) {
        const size_t n_panels = ps[j].l->n_panels;
        const size_t items = (n_panels + CHUNK_PANELS - 1) / CHUNK_PANELS * m_chunks;
        for (; item < first + items; item = claim(c)) {
            size_t p0 = (item - first) / m_chunks * CHUNK_PANELS;
            size_t m0 = (item - first) % m_chunks * CHUNK_ROWS;
            size_t p1 = p0 + CHUNK_PANELS < n_panels ? p0 + CHUNK_PANELS : n_panels;
            size_t m1 = m0 + CHUNK_ROWS < m ? m0 + CHUNK_ROWS : m;
            run_product(&ps[j], glu, m, m0, m1, p0, p1, ldr);
        }
        first += items;
    }
}

// ---- rows ---------------------------------------------------------------------------------------

static float *rope_row(const struct qn_run *r, size_t set, size_t row)
{
    return r->rope + (set * r->opts.max_rows + row) * r->rope_width;
}

static void embed(struct ctx *c)
{
    struct qn_run *r = c->r;
    const struct qn_model *m = r->m;
    const size_t d = m->desc.d_model;
    size_t r0, r1;
    share(c, r->batch->n_rows, 1, &r0, &r1);
    for (size_t i = r0; i < r1; i++) {
        float *x = r->x + i * d;
        enum qn_status rc =
            qn_tensor_read_f32(m->embed, (uint64_t)r->batch->tokens[i], 0, d, x, NULL);
        QN_ASSERT(rc == QN_OK); // the engine checks ids, the loader checked the tensor
        if (m->embed_scale != 1.0f) {
            c->ops->scale(x, m->embed_scale, d);
        }
        for (size_t s = 0; s < m->desc.n_rope_sets; s++) {
            const struct qn_rope_set *set = &m->desc.rope[s];
            float *t = rope_row(r, s, i);
            qn_rope_angles(t, t + set->n_pairs, set->w, set->n_pairs, r->row_pos[i], set->m);
        }
    }
}

// x += norm(branch), where the descriptor has a norm on the branch.
static void add_branch(struct ctx *c, const float *norm, size_t r0, size_t r1)
{
    struct qn_run *r = c->r;
    const size_t d = r->m->desc.d_model;
    if (norm == NULL || r0 == r1) {
        return;
    }
    float *b = r->branch + r0 * d;
    c->ops->rmsnorm(b, d, b, d, norm, r1 - r0, d, r->m->desc.rms_eps);
    c->ops->axpy(r->x + r0 * d, b, 1.0f, (r1 - r0) * d);
}

// Norm rows of the stream and pack them for the linears that read them.
static void norm_and_pack(struct ctx *c, const float *norm, const struct qn_linear *ls, size_t n,
                          const float *pending)
{
    struct qn_run *r = c->r;
    const size_t d = r->m->desc.d_model, m = r->batch->n_rows;
    size_t r0, r1;
    share(c, m, row_unit(ls, n), &r0, &r1);
    add_branch(c, pending, r0, r1);
    if (r0 < r1) {
        c->ops->rmsnorm(r->h + r0 * d, d, r->x + r0 * d, d, norm, r1 - r0, d, r->m->desc.rms_eps);
        pack_rows(c, ls, n, r->h, d, m, r0, r1);
    }
}

static void rotate_and_write(struct ctx *c, size_t layer)
{
    struct qn_run *r = c->r;
    const struct qn_desc *desc = &r->m->desc;
    const struct qn_desc_layer *d = &desc->layers[layer];
    const struct qn_layer *l = &r->m->layers[layer];
    const size_t q_n = d->n_heads * d->head_dim, kv_n = d->n_kv_heads * d->head_dim;
    const size_t ld = q_n + 2 * kv_n, hd = d->head_dim;
    size_t r0, r1;
    share(c, r->batch->n_rows, 1, &r0, &r1);
    for (size_t i = r0; i < r1; i++) {
        float *q = r->qkv + i * ld, *k = q + q_n, *v = k + kv_n;
        const struct qn_batch_seq *seq = &r->batch->seqs[r->row_seq[i]];
        if (l->q_norm != NULL) {
            c->ops->rmsnorm(q, hd, q, hd, l->q_norm, d->n_heads, hd, desc->rms_eps);
            c->ops->rmsnorm(k, hd, k, hd, l->k_norm, d->n_kv_heads, hd, desc->rms_eps);
        }
        if (d->rope_set >= 0) {
            const struct qn_rope_set *set = &desc->rope[d->rope_set];
            const float *t = rope_row(r, (size_t)d->rope_set, i);
            c->ops->rope(q, d->n_heads, hd, set->n_pairs, set->pair_distance, t, t + set->n_pairs);
            c->ops->rope(k, d->n_kv_heads, hd, set->n_pairs, set->pair_distance, t,
                         t + set->n_pairs);
        }
        r->attn[layer]->write(&r->kv[layer], seq->blocks[l->kv_group], r->row_pos[i], k, v);
    }
}

// ---- attention ----------------------------------------------------------------------------------

struct attn_job {
    const struct qn_attn_impl *impl;
    size_t n_kv, group_heads, row_floats; ///< row_floats: one span's partials of one row
};

static struct qn_attn_args tile_args(const struct ctx *c, size_t layer,
                                     const struct qn_attn_tile *tile)
{
    const struct qn_run *r = c->r;
    const struct qn_desc_layer *d = &r->m->desc.layers[layer];
    const struct qn_batch_seq *seq = &r->batch->seqs[tile->seq];
    const size_t ld = (d->n_heads + 2 * d->n_kv_heads) * d->head_dim,
                 ldo = d->n_heads * d->head_dim;
    return (struct qn_attn_args){.kv = &r->kv[layer],
                                 .blocks = seq->blocks[r->m->layers[layer].kv_group],
                                 .pos0 = seq->pos0,
                                 .q = r->qkv + seq->row0 * ld,
                                 .ldq = ld,
                                 .n_rows = seq->n_rows,
                                 .n_heads = d->n_heads,
                                 .out = r->h + seq->row0 * ldo,
                                 .ldo = ldo,
                                 .scale = d->attn_scale,
                                 .softcap = d->attn_softcap,
                                 .window = d->window};
}

static void merge_tile(const struct attn_job *j, const struct qn_attn_args *a,
                       const struct qn_attn_tile *tile, size_t kvh, const float *slot,
                       size_t n_spans)
{
    const size_t hd = a->kv->shape.head_dim, one = qn_attn_partial_floats(hd);
    const size_t ld = (tile->row1 - tile->row0) * j->row_floats;
    for (size_t row = tile->row0; row < tile->row1; row++) {
        for (size_t g = 0; g < j->group_heads; g++) {
            float *out = a->out + row * a->ldo + (kvh * j->group_heads + g) * hd;
            j->impl->merge(out, slot + (row - tile->row0) * j->row_floats + g * one, ld, n_spans,
                           hd, NULL);
        }
    }
}

// Enough items for everyone: each worker takes whole tiles, all their spans.
static void attend_tiles(struct ctx *c, size_t layer, const struct attn_job *j)
{
    struct qn_run *r = c->r;
    float *slot = r->partials + c->worker * r->slot_floats;
    for (size_t item; (item = claim(c)) < r->n_tiles * j->n_kv;) {
        const struct qn_attn_tile *tile = &r->tiles[item / j->n_kv];
        const size_t kvh = item % j->n_kv, ld = (tile->row1 - tile->row0) * j->row_floats;
        const struct qn_attn_args a = tile_args(c, layer, tile);
        size_t s0, s1;
        qn_attn_spans(&a, tile->row0, tile->row1, &s0, &s1);
        for (size_t s = s0; s < s1; s++) {
            j->impl->span(&a, tile->row0, tile->row1, kvh, s, slot + (s - s0) * ld);
        }
        merge_tile(j, &a, tile, kvh, slot, s1 - s0);
    }
}

// Few queries over a long context: the spans are shared out, then merged.
static void attend_spans(struct ctx *c, size_t layer, const struct attn_job *j)
{
    struct qn_run *r = c->r;
    const size_t n_items = r->n_tiles * j->n_kv;
    size_t turn = 0;
    for (size_t item = 0; item < n_items; item++) {
        const struct qn_attn_tile *tile = &r->tiles[item / j->n_kv];
        const size_t ld = (tile->row1 - tile->row0) * j->row_floats;
        const struct qn_attn_args a = tile_args(c, layer, tile);
        size_t s0, s1;
        qn_attn_spans(&a, tile->row0, tile->row1, &s0, &s1);
        for (size_t s = s0; s < s1; s++, turn++) {
            if (turn % c->n_workers == c->worker) {
                j->impl->span(&a, tile->row0, tile->row1, item % j->n_kv, s,
                              r->partials + item * r->slot_floats + (s - s0) * ld);
            }
        }
    }
    end_phase(c);
    for (size_t item = c->worker; item < n_items; item += c->n_workers) {
        const struct qn_attn_tile *tile = &r->tiles[item / j->n_kv];
        const struct qn_attn_args a = tile_args(c, layer, tile);
        size_t s0, s1;
        qn_attn_spans(&a, tile->row0, tile->row1, &s0, &s1);
        merge_tile(j, &a, tile, item % j->n_kv, r->partials + item * r->slot_floats, s1 - s0);
    }
}

static void attend(struct ctx *c, size_t layer)
{
    const struct qn_desc_layer *d = &c->r->m->desc.layers[layer];
    struct attn_job j = {.impl = c->r->attn[layer],
                         .n_kv = d->n_kv_heads,
                         .group_heads = d->n_heads / d->n_kv_heads};
    j.row_floats = j.group_heads * qn_attn_partial_floats(d->head_dim);
    if (c->n_workers > 1 && c->r->n_tiles * j.n_kv <= 2 * c->n_workers) {
        attend_spans(c, layer, &j);
    } else {
        attend_tiles(c, layer, &j);
    }
}

// ---- a layer ------------------------------------------------------------------------------------

// A branch's last linear adds to the stream itself, or leaves its output for the post norm.
static struct product to_stream(const struct qn_run *r, const struct qn_linear *l,
                                const float *post)
{
    float *out = post != NULL ? r->branch : r->x;
    return (struct product){.l = l,
                            .lhs = r->lhs[0],
                            .out = out,
                            .ldo = r->m->desc.d_model,
                            .residual = post != NULL ? NULL : r->x};
}

static void attention_block(struct ctx *c, size_t layer, const float *pending)
{
    struct qn_run *r = c->r;
    const struct qn_desc_layer *d = &r->m->desc.layers[layer];
    const struct qn_layer *l = &r->m->layers[layer];
    const size_t m = r->batch->n_rows, q_n = d->n_heads * d->head_dim;
    const size_t ld = q_n + 2 * d->n_kv_heads * d->head_dim;
    struct product ps[QN_MAX_PARTS];
    float *out = r->qkv;
    norm_and_pack(c, l->pre_attn, l->qkv, l->n_qkv, pending);
    end_phase(c);
    for (size_t j = 0; j < l->n_qkv; j++) {
        ps[j] = (struct product){
            .l = &l->qkv[j], .lhs = r->lhs[lhs_slot(l->qkv, j)], .out = out, .ldo = ld};
        out += l->qkv[j].w.n;
    }
    gemm(c, ps, l->n_qkv, m);
    end_phase(c);
    rotate_and_write(c, layer);
    end_phase(c);
    attend(c, layer);
    end_phase(c);
    size_t r0, r1;
    share(c, m, row_unit(&l->o, 1), &r0, &r1);
    pack_rows(c, &l->o, 1, r->h, q_n, m, r0, r1);
    end_phase(c);
    ps[0] = to_stream(r, &l->o, l->post_attn);
    gemm(c, ps, 1, m);
    end_phase(c);
}

static void ffn_block(struct ctx *c, size_t layer)
{
    struct qn_run *r = c->r;
    const struct qn_layer *l = &r->m->layers[layer];
    const size_t m = r->batch->n_rows, ff = r->m->desc.layers[layer].d_ff;
    struct product ps[2];
    norm_and_pack(c, l->pre_ffn, l->gate_up, l->n_gate_up, l->post_attn);
    end_phase(c);
    for (size_t j = 0; j < l->n_gate_up; j++) {
        ps[j] = (struct product){.l = &l->gate_up[j],
                                 .lhs = r->lhs[lhs_slot(l->gate_up, j)],
                                 .out = r->ffn[j],
                                 .ldo = ff};
    }
    gemm(c, ps, l->n_gate_up, m);
    end_phase(c);
    size_t r0, r1;
    share(c, m, row_unit(&l->down, 1), &r0, &r1);
    if (l->n_gate_up == 2 && r0 < r1) {
        float *gate = r->ffn[0] + r0 * ff;
        const float *up = r->ffn[1] + r0 * ff;
        if (r->m->desc.glu == QN_GLU_SILU) {
            c->ops->glu_silu(gate, gate, up, (r1 - r0) * ff);
        } else {
            c->ops->glu_gelu_tanh(gate, gate, up, (r1 - r0) * ff);
        }
    }
    pack_rows(c, &l->down, 1, r->ffn[0], ff, m, r0, r1);
    end_phase(c);
    ps[0] = to_stream(r, &l->down, l->post_ffn);
    gemm(c, ps, 1, m);
    end_phase(c);
}

// Logits of the rows that are wanted. Their post norm is still due.
static void head(struct ctx *c, const float *pending)
{
    struct qn_run *r = c->r;
    const struct qn_model *m = r->m;
    const size_t d = m->desc.d_model, n = r->batch->n_out, v = m->desc.vocab_size;
    size_t r0, r1;
    share(c, n, row_unit(&m->head, 1), &r0, &r1);
    for (size_t i = r0; i < r1; i++) {
        size_t row = (size_t)r->batch->out_rows[i];
        add_branch(c, pending, row, row + 1);
        c->ops->rmsnorm(r->h + i * d, d, r->x + row * d, d, m->final_norm, 1, d, m->desc.rms_eps);
    }
    pack_rows(c, &m->head, 1, r->h, d, n, r0, r1);
    end_phase(c);
    const struct product p = {.l = &m->head, .lhs = r->lhs[0], .out = r->batch->logits, .ldo = v};
    gemm(c, &p, 1, n);
    end_phase(c);
    if (m->desc.final_softcap > 0) {
        share(c, n * v, 64, &r0, &r1);
        if (r0 < r1) {
            c->ops->softcap(r->batch->logits + r0, m->desc.final_softcap, r1 - r0);
        }
        end_phase(c);
    }
}

void qn_forward(void *arg, size_t worker, size_t n_workers)
{
    struct qn_run *r = arg;
    struct ctx c = {.r = r, .ops = qn_ops_get(), .worker = worker, .n_workers = n_workers};
    const float *pending = NULL;
    embed(&c);
    // Later phases split the rows by other units, so every row must be there first.
    end_phase(&c);
    for (size_t i = 0; i < r->m->desc.n_layers; i++) {
        attention_block(&c, i, pending);
        ffn_block(&c, i);
        pending = r->m->layers[i].post_ffn;
    }
    if (r->batch->n_out > 0) {
        head(&c, pending);
    }
}
