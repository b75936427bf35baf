#include "engine/kv.h"

#include <stdlib.h>
#include <string.h>

struct pool {
    size_t n_blocks, n_free;
    size_t window;
    int32_t *free_list; // [n_blocks], the last n_free returned are on top
    uint32_t *refs;     // [n_blocks]
};

struct table {
    int32_t *blocks;
    size_t first; // entries below hold no block any more
    size_t n;     // entries in use
};

struct qn_kv {
    size_t n_groups, n_slots, block_tokens, max_blocks;
    struct pool pools[QN_KV_MAX_GROUPS];
    struct table *tables;      // [n_slots][n_groups]
    const int32_t **table_ptr; // [n_slots][n_groups], as the forward pass wants them
    int32_t *entries;          // [n_slots][n_groups][max_blocks]
};

enum qn_status qn_kv_new(const struct qn_kv_opts *o, struct qn_kv **out_kv, struct qn_err *err)
{
    QN_ASSERT(o->n_groups <= QN_KV_MAX_GROUPS && o->block_tokens > 0);
    struct qn_kv *kv = calloc(1, sizeof *kv);
    if (kv == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate KV block tables");
    }
    kv->n_groups = o->n_groups;
    kv->n_slots = o->n_slots;
    kv->block_tokens = o->block_tokens;
    kv->max_blocks = (o->max_tokens + o->block_tokens - 1) / o->block_tokens;
    size_t n_tables = o->n_slots * o->n_groups;
    kv->tables = calloc(n_tables, sizeof *kv->tables);
    kv->table_ptr = calloc(n_tables, sizeof *kv->table_ptr);
    kv->entries = calloc(n_tables * kv->max_blocks, sizeof *kv->entries);
    bool ok = kv->tables != NULL && kv->table_ptr != NULL && kv->entries != NULL;
    for (size_t g = 0; g < o->n_groups && ok; g++) {
        struct pool *p = &kv->pools[g];
        p->n_blocks = p->n_free = o->n_blocks[g];
        p->window = o->window[g];
        p->free_list = calloc(p->n_blocks, sizeof *p->free_list);
        p->refs = calloc(p->n_blocks, sizeof *p->refs);
        ok = p->free_list != NULL && p->refs != NULL;
        for (size_t i = 0; i < p->n_blocks && ok; i++) {
            p->free_list[i] = (int32_t)(p->n_blocks - 1 - i);
        }
    }
    if (!ok) {
        qn_kv_free(kv);
        return qn_fail(err, QN_E_NOMEM, "could not allocate KV block tables");
    }
    for (size_t i = 0; i < n_tables; i++) {
        kv->tables[i].blocks = kv->entries + i * kv->max_blocks;
        kv->table_ptr[i] = kv->tables[i].blocks;
    }
    *out_kv = kv;
    return QN_OK;
}

void qn_kv_free(struct qn_kv *kv)
{
    if (kv == NULL) {
        return;
    }
    for (size_t g = 0; g < kv->n_groups; g++) {
        free(kv->pools[g].free_list);
        free(kv->pools[g].refs);
    }
    free(kv->tables);
    free(kv->table_ptr);
    free(kv->entries);
    free(kv);
}

static struct table *table_of(const struct qn_kv *kv, size_t slot, size_t group)
{
    return &kv->tables[slot * kv->n_groups + group];
}

const int32_t *const *qn_kv_tables(const struct qn_kv *kv, size_t slot)
{
    return kv->table_ptr + slot * kv->n_groups;
}

size_t qn_kv_slot_blocks(const struct qn_kv *kv, size_t slot, size_t group)
{
    const struct table *t = table_of(kv, slot, group);
    return t->n - t->first;
}

static int32_t take(struct pool *p)
{
    int32_t b = p->free_list[--p->n_free];
    p->refs[b] = 1;
    return b;
}

static void drop(struct pool *p, int32_t b)
{
    QN_ASSERT(p->refs[b] > 0);
    if (--p->refs[b] == 0) {
        p->free_list[p->n_free++] = b;
    }
}

static size_t blocks_for(const struct qn_kv *kv, size_t n_tokens)
{
    return (n_tokens + kv->block_tokens - 1) / kv->block_tokens;
}

// Blocks wholly behind the window of a query at position `pos`: it sees keys j > pos - window.
static size_t blocks_behind(const struct qn_kv *kv, const struct pool *p, size_t pos)
{
    if (p->window == 0 || pos + 1 <= p->window) {
        return 0;
    }
    return (pos + 1 - p->window) / kv->block_tokens;
}

bool qn_kv_extend(struct qn_kv *kv, size_t slot, size_t n_tokens)
{
    size_t want = blocks_for(kv, n_tokens);
    QN_ASSERT(want <= kv->max_blocks);
    for (size_t g = 0; g < kv->n_groups; g++) {
        size_t have = table_of(kv, slot, g)->n;
        if (want > have && want - have > kv->pools[g].n_free) {
            return false;
        }
    }
    for (size_t g = 0; g < kv->n_groups; g++) {
        struct table *t = table_of(kv, slot, g);
        while (t->n < want) {
            t->blocks[t->n++] = take(&kv->pools[g]);
        }
    }
    return true;
}

size_t qn_kv_extendable(const struct qn_kv *kv, size_t slot)
{
    size_t least = kv->max_blocks;
    for (size_t g = 0; g < kv->n_groups; g++) {
        size_t n = table_of(kv, slot, g)->n + kv->pools[g].n_free;
        least = n < least ? n : least;
    }
    return least * kv->block_tokens;
}

void qn_kv_trim(struct qn_kv *kv, size_t slot, size_t n_computed)
{
    for (size_t g = 0; g < kv->n_groups; g++) {
        struct table *t = table_of(kv, slot, g);
        size_t behind = blocks_behind(kv, &kv->pools[g], n_computed);
        for (; t->first < behind && t->first < t->n; t->first++) {
            drop(&kv->pools[g], t->blocks[t->first]);
            t->blocks[t->first] = -1;
        }
    }
}

void qn_kv_release(struct qn_kv *kv, size_t slot)
{
    for (size_t g = 0; g < kv->n_groups; g++) {
        struct table *t = table_of(kv, slot, g);
        for (size_t i = t->first; i < t->n; i++) {
            drop(&kv->pools[g], t->blocks[i]);
        }
        t->first = t->n = 0;
    }
}

bool qn_kv_fork(struct qn_kv *kv, size_t dst, size_t src, size_t n_tokens, int32_t *out_dst,
                int32_t *out_src)
{
    size_t n = blocks_for(kv, n_tokens), full = n_tokens / kv->block_tokens;
    for (size_t g = 0; g < kv->n_groups; g++) {
        QN_ASSERT(table_of(kv, dst, g)->n == 0 && table_of(kv, src, g)->n >= n);
        if (n > full && kv->pools[g].n_free == 0) {
            return false;
        }
    }
    for (size_t g = 0; g < kv->n_groups; g++) {
        const struct table *from = table_of(kv, src, g);
        struct table *to = table_of(kv, dst, g);
        struct pool *p = &kv->pools[g];
        for (size_t i = 0; i < full; i++) {
            to->blocks[i] = from->blocks[i];
            if (i >= from->first) {
                p->refs[from->blocks[i]]++;
            }
        }
        out_dst[g] = out_src[g] = -1;
        if (n > full) {
            out_src[g] = from->blocks[full];
            out_dst[g] = to->blocks[full] = take(p);
        }
        to->first = from->first;
        to->n = n;
    }
    return true;
}

size_t qn_kv_n_groups(const struct qn_kv *kv)
{
    return kv->n_groups;
}

size_t qn_kv_window(const struct qn_kv *kv, size_t group)
{
    return kv->pools[group].window;
}

size_t qn_kv_n_blocks(const struct qn_kv *kv, size_t group)
{
    return kv->pools[group].n_blocks;
}

size_t qn_kv_n_free(const struct qn_kv *kv, size_t group)
{
    return kv->pools[group].n_free;
}

size_t qn_kv_refs(const struct qn_kv *kv, size_t group, int32_t block)
{
    return kv->pools[group].refs[block];
}
