#include "text/tok.h"

#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

// BPE over one piece: symbols merge by lowest rank, leftmost first. Short pieces (words) use a scan
// over an array; longer ones a linked list and a heap of candidates, so that time stays n log n.

enum {
    SMALL = 40 // symbols; up to here the quadratic scan is the faster one
};

struct qn_tok_sym {
    uint32_t id, start;
    int32_t prev, next; // list; -1 at the ends
    uint32_t len;       // 0: merged into its left neighbour
};

void qn_tok_scratch_done(struct qn_tok_scratch *s)
{
    free(s->syms);
    free(s->heap);
    *s = (struct qn_tok_scratch){0};
}

bool qn_ids_push(struct qn_ids *ids, int32_t id)
{
    if (ids->n == ids->cap) {
        size_t cap = ids->cap == 0 ? 64 : 2 * ids->cap;
        int32_t *v = cap > SIZE_MAX / sizeof *v ? NULL : realloc(ids->v, cap * sizeof *v);
        if (v == NULL) {
            return false;
        }
        ids->v = v;
        ids->cap = cap;
    }
    ids->v[ids->n++] = id;
    return true;
}

static enum qn_status no_memory(struct qn_err *err)
{
    return qn_fail(err, QN_E_NOMEM, "could not allocate memory to tokenise");
}

/// Room for n more symbols.
static bool reserve_syms(struct qn_tok_scratch *s, size_t n)
{
    if (n <= s->syms_cap) {
        return true;
    }
    size_t cap = 2 * n < 256 ? 256 : 2 * n;
    struct qn_tok_sym *p = realloc(s->syms, cap * sizeof *p);
    if (p == NULL) {
        return false;
    }
    s->syms = p;
    s->syms_cap = cap;
    return true;
}

static void add_sym(struct qn_tok_scratch *s, size_t *n, int32_t id, size_t start, size_t len)
{
    s->syms[(*n)++] = (struct qn_tok_sym){
        .id = (uint32_t)id, .start = (uint32_t)start, .len = (uint32_t)len, .prev = -1, .next = -1};
}

/// First symbols of a piece: bytes, or characters with byte fallback, as the vocabulary has them.
/// What has no symbol becomes the unknown token (neighbours as one if fuse_unk), or nothing.
static size_t first_syms(const struct qn_tok *t, struct qn_tok_scratch *s, const char *text,
                         size_t n)
{
    size_t n_syms = 0, len, unk_start = 0, unk_len = 0;
    for (size_t i = 0; i < n; i += len) {
        unsigned char b = (unsigned char)text[i];
        int32_t id;
        len = 1;
        if (t->byte_level) {
            id = t->byte_id[b];
        } else if (b < 0x80) {
            id = t->ascii_sym[b];
        } else {
            qn_utf8_get(text + i, &len);
            id = qn_tok_keys_get(&t->keys, t->blob, t->key, text + i, len);
        }
        if (id >= 0) {
            if (unk_len > 0) {
                add_sym(s, &n_syms, t->unk, unk_start, unk_len);
                unk_len = 0;
            }
            add_sym(s, &n_syms, id, i, len);
            continue;
        }
        bool bytes = t->byte_fallback;
        for (size_t k = 0; k < len && bytes; k++) {
            bytes = t->byte_id[(unsigned char)text[i + k]] >= 0;
        }
        if (bytes) {
            for (size_t k = 0; k < len; k++) {
                add_sym(s, &n_syms, t->byte_id[(unsigned char)text[i + k]], i + k, 1);
            }
        } else if (t->unk >= 0) {
            if (unk_len > 0 && t->fuse_unk) {
                unk_len += len;
                continue;
            }
            if (unk_len > 0) {
                add_sym(s, &n_syms, t->unk, unk_start, unk_len);
            }
            unk_start = i;
            unk_len = len;
        }
    }
    if (unk_len > 0) {
        add_sym(s, &n_syms, t->unk, unk_start, unk_len);
    }
    return n_syms;
}

static size_t merge_small(const struct qn_tok *t, struct qn_tok_sym *syms, size_t n)
{
    const struct qn_tok_merge *best[SMALL]; // of symbols i and i + 1
    for (size_t i = 0; i + 1 < n; i++) {
        best[i] = qn_tok_pairs_get(&t->pairs, syms[i].id, syms[i + 1].id);
    }
    for (;;) {
        size_t at = n;
        uint32_t rank = UINT32_MAX;
        for (size_t i = 0; i + 1 < n; i++) {
            if (best[i] != NULL && best[i]->rank < rank) {
                rank = best[i]->rank;
                at = i;
            }
        }
        if (at == n) {
            return n;
        }
        syms[at].id = (uint32_t)best[at]->id;
        syms[at].len += syms[at + 1].len;
        n--;
        for (size_t i = at + 1; i < n; i++) {
            syms[i] = syms[i + 1];
        }
        for (size_t i = at + 1; i + 1 < n; i++) {
            best[i] = best[i + 1];
        }
        if (at > 0) {
            best[at - 1] = qn_tok_pairs_get(&t->pairs, syms[at - 1].id, syms[at].id);
        }
        if (at + 1 < n) {
            best[at] = qn_tok_pairs_get(&t->pairs, syms[at].id, syms[at + 1].id);
        }
    }
}

// A candidate is rank << 32 | position of its left symbol, so that the smallest comes next.

static bool heap_push(struct qn_tok_scratch *s, uint64_t c)
{
    if (s->heap_n == s->heap_cap) {
        size_t cap = s->heap_cap == 0 ? 256 : 2 * s->heap_cap;
        uint64_t *p = realloc(s->heap, cap * sizeof *p);
        if (p == NULL) {
            return false;
        }
        s->heap = p;
        s->heap_cap = cap;
    }
    size_t i = s->heap_n++;
    while (i > 0 && c < s->heap[(i - 1) / 2]) {
        s->heap[i] = s->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    s->heap[i] = c;
    return true;
}

static uint64_t heap_pop(struct qn_tok_scratch *s)
{
    uint64_t top = s->heap[0], last = s->heap[--s->heap_n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->heap_n) {
            break;
        }
        if (child + 1 < s->heap_n && s->heap[child + 1] < s->heap[child]) {
            child++;
        }
        if (s->heap[child] >= last) {
            break;
        }
        s->heap[i] = s->heap[child];
        i = child;
    }
    if (s->heap_n > 0) {
        s->heap[i] = last;
    }
    return top;
}

static bool consider(const struct qn_tok *t, struct qn_tok_scratch *s, int32_t left, int32_t right)
{
    if (left < 0 || right < 0) {
        return true;
    }
    const struct qn_tok_merge *m = qn_tok_pairs_get(&t->pairs, s->syms[left].id, s->syms[right].id);
    return m == NULL || heap_push(s, (uint64_t)m->rank << 32 | (uint32_t)left);
}

/// Returns the number of symbols left, compacted; SIZE_MAX when memory ran out.
static size_t merge_large(const struct qn_tok *t, struct qn_tok_scratch *s, size_t n)
{
    struct qn_tok_sym *syms = s->syms;
    s->heap_n = 0;
    for (size_t i = 0; i < n; i++) {
        syms[i].prev = (int32_t)i - 1;
        syms[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i + 1 < n; i++) {
        if (!consider(t, s, (int32_t)i, (int32_t)i + 1)) {
            return SIZE_MAX;
        }
    }
    while (s->heap_n > 0) {
        uint64_t c = heap_pop(s);
        int32_t left = (int32_t)(uint32_t)c;
        struct qn_tok_sym *l = &syms[left];
        if (l->len == 0 || l->next < 0) {
            continue;
        }
        struct qn_tok_sym *r = &syms[l->next];
        const struct qn_tok_merge *m = qn_tok_pairs_get(&t->pairs, l->id, r->id);
        if (m == NULL || m->rank != (uint32_t)(c >> 32)) {
            continue; // one of the two has merged meanwhile
        }
        l->id = (uint32_t)m->id;
        l->len += r->len;
        r->len = 0;
        l->next = r->next;
        if (r->next >= 0) {
            syms[r->next].prev = left;
        }
        if (!consider(t, s, l->prev, left) || !consider(t, s, left, l->next)) {
            return SIZE_MAX;
        }
    }
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (syms[i].len > 0) {
            syms[k++] = syms[i];
        }
    }
    return k;
}

/// The id of a symbol, or the bytes of one that is no token (a character of the scored family that
/// occurs inside tokens alone).
static bool push_sym(const struct qn_tok *t, const struct qn_tok_sym *sym, const char *text,
                     struct qn_ids *out)
{
    if (sym->id < t->n_ids) {
        return qn_ids_push(out, (int32_t)sym->id);
    }
    bool unk = false;
    for (size_t k = 0; k < sym->len; k++) {
        int32_t id = t->byte_id[(unsigned char)text[sym->start + k]];
        if (id < 0) {
            id = unk ? -1 : t->unk; // once per character
            unk = true;
        }
        if (id >= 0 && !qn_ids_push(out, id)) {
            return false;
        }
    }
    return true;
}

enum qn_status qn_tok_bpe(const struct qn_tok *t, struct qn_tok_scratch *s, const char *text,
                          size_t n, struct qn_ids *out, struct qn_err *err)
{
    int32_t word = -1;
    if (n <= t->max_key) {
        word = qn_tok_keys_get(&t->keys, t->blob, t->key, text, n);
    }
    if (word >= 0 && (size_t)word < t->n_ids &&
        (t->ignore_merges || atomic_load_explicit(&t->whole[word], memory_order_relaxed) == 2)) {
        return qn_ids_push(out, word) ? QN_OK : no_memory(err);
    }
    if (!reserve_syms(s, n)) {
        return no_memory(err);
    }
    size_t n_syms = first_syms(t, s, text, n);
    n_syms = n_syms <= SMALL ? merge_small(t, s->syms, n_syms) : merge_large(t, s, n_syms);
    if (n_syms == SIZE_MAX) {
        return no_memory(err);
    }
    if (word >= 0) { // every thread finds the same, so a race is harmless
        bool same = n_syms == 1 && s->syms[0].id == (uint32_t)word;
        atomic_store_explicit(&t->whole[word], same ? 2 : 1, memory_order_relaxed);
    }
    for (size_t i = 0; i < n_syms; i++) {
        if (!push_sym(t, &s->syms[i], text, out)) {
            return no_memory(err);
        }
    }
    return QN_OK;
}
