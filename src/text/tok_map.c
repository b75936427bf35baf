#include "text/tok_map.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

static size_t slots_for(size_t n)
{
    size_t slots = 64;
    while (slots < 2 * n + 2) {
        slots *= 2;
    }
    return slots;
}

bool qn_tok_keys_init(struct qn_tok_keys *k, size_t n_keys)
{
    size_t n = slots_for(n_keys);
    *k = (struct qn_tok_keys){.slots = calloc(n, sizeof *k->slots), .mask = n - 1};
    k->seed = qn_hash_seed();
    return k->slots != NULL;
}

void qn_tok_keys_done(struct qn_tok_keys *k)
{
    free(k->slots);
    *k = (struct qn_tok_keys){0};
}

static size_t find_slot(const struct qn_tok_keys *k, const char *blob,
                        const struct qn_tok_span *spans, const char *key, size_t n, uint64_t *tag)
{
    uint64_t h = qn_hash64(key, n, k->seed);
    *tag = h & 0xffffffff00000000u;
    for (size_t i = (size_t)h & k->mask;; i = (i + 1) & k->mask) {
        uint64_t s = k->slots[i];
        if (s == 0) {
            return i;
        }
        if ((s & 0xffffffff00000000u) == *tag) {
            const struct qn_tok_span *at = &spans[(uint32_t)s - 1];
            if (at->len == n && memcmp(blob + at->off, key, n) == 0) {
                return i;
            }
        }
    }
}

int32_t qn_tok_keys_put(struct qn_tok_keys *k, const char *blob, const struct qn_tok_span *spans,
                        int32_t i, bool replace)
{
    uint64_t tag;
    size_t at = find_slot(k, blob, spans, blob + spans[i].off, spans[i].len, &tag);
    int32_t old = (int32_t)((uint32_t)k->slots[at] - 1u);
    if (old < 0 || replace) {
        k->slots[at] = tag | ((uint32_t)i + 1u);
    }
    return old;
}

int32_t qn_tok_keys_get(const struct qn_tok_keys *k, const char *blob,
                        const struct qn_tok_span *spans, const char *key, size_t n)
{
    uint64_t tag;
    size_t at = find_slot(k, blob, spans, key, n, &tag);
    return (int32_t)((uint32_t)k->slots[at] - 1u);
}

bool qn_tok_pairs_init(struct qn_tok_pairs *p, size_t n_pairs)
{
    size_t n = slots_for(n_pairs);
    *p = (struct qn_tok_pairs){.slots = malloc(n * sizeof *p->slots), .mask = n - 1};
    if (p->slots == NULL) {
        return false;
    }
    memset(p->slots, 0xff, n * sizeof *p->slots); // id -1
    return true;
}

void qn_tok_pairs_done(struct qn_tok_pairs *p)
{
    free(p->slots);
    *p = (struct qn_tok_pairs){0};
}

void qn_tok_pairs_put(struct qn_tok_pairs *p, struct qn_tok_merge m, bool replace)
{
    size_t i = qn_tok_pair_hash(m.left, m.right) & p->mask;
    while (p->slots[i].id >= 0 && !(p->slots[i].left == m.left && p->slots[i].right == m.right)) {
        i = (i + 1) & p->mask;
    }
    if (p->slots[i].id < 0 || replace) {
        p->slots[i] = m;
    }
}
