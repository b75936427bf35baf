#ifndef QN_TEXT_TOK_MAP_H
#define QN_TEXT_TOK_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Bytes inside the tokenizer's blob.
struct qn_tok_span {
    uint32_t off, len;
};

/// Map from byte strings, which lie in a blob and are named by number, to that number. Compact:
/// 8 bytes a slot, at most half full.
struct qn_tok_keys {
    uint64_t *slots; ///< upper 32 bits of the hash, number + 1; 0: empty
    size_t mask;
    uint64_t seed;
};

bool qn_tok_keys_init(struct qn_tok_keys *k, size_t n_keys);
void qn_tok_keys_done(struct qn_tok_keys *k);
/// Add number i under spans[i]; an equal key that is already there gives way when `replace`.
/// Returns the number that the key had before, -1 if none. At most n_keys distinct keys.
int32_t qn_tok_keys_put(struct qn_tok_keys *k, const char *blob, const struct qn_tok_span *spans,
                        int32_t i, bool replace);
int32_t qn_tok_keys_get(const struct qn_tok_keys *k, const char *blob,
                        const struct qn_tok_span *spans, const char *key, size_t n);

/// Map from a pair of symbols to what they merge into and its rank.
struct qn_tok_merge {
    uint32_t left, right;
    uint32_t rank;
    int32_t id; ///< -1: empty slot
};
struct qn_tok_pairs {
    struct qn_tok_merge *slots;
    size_t mask;
};

bool qn_tok_pairs_init(struct qn_tok_pairs *p, size_t n_pairs);
void qn_tok_pairs_done(struct qn_tok_pairs *p);
/// An equal pair that is already there gives way when `replace`.
void qn_tok_pairs_put(struct qn_tok_pairs *p, struct qn_tok_merge m, bool replace);

static inline size_t qn_tok_pair_hash(uint32_t left, uint32_t right)
{
    uint64_t h = (((uint64_t)left << 32) | right) * 0x9e3779b97f4a7c15u;
    return (size_t)(h ^ (h >> 29));
}

/// NULL when the pair does not merge.
static inline const struct qn_tok_merge *qn_tok_pairs_get(const struct qn_tok_pairs *p,
                                                          uint32_t left, uint32_t right)
{
    for (size_t i = qn_tok_pair_hash(left, right) & p->mask;; i = (i + 1) & p->mask) {
        const struct qn_tok_merge *m = &p->slots[i];
        if (m->id < 0) {
            return NULL;
        }
        if (m->left == left && m->right == right) {
            return m;
        }
    }
}

#endif
