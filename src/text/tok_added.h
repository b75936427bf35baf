#ifndef QN_TEXT_TOK_ADDED_H
#define QN_TEXT_TOK_ADDED_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Added tokens: texts that are found in the input before BPE sees it, leftmost first, longest
/// among those that start at one place.
enum {
    QN_TA_LSTRIP = 1,      ///< takes the whitespace before it
    QN_TA_RSTRIP = 2,      ///< takes the whitespace after it
    QN_TA_SINGLE_WORD = 4, ///< only between characters that belong to no word
    QN_TA_SPECIAL = 8
};

enum {
    QN_TOK_MAX_ADDED_BYTES = 1024 ///< of one text: the bound on the work per position
};

struct qn_tok_added {
    struct qn_tok_added_node *nodes; ///< trie, node 0 is the root
    size_t n_nodes, cap;
    uint32_t roots[256]; ///< child of the root by first byte, 0: none
    size_t n_tokens;
};

void qn_tok_added_done(struct qn_tok_added *a);
/// The first of two equal texts counts.
enum qn_status qn_tok_added_put(struct qn_tok_added *a, const char *text, size_t n, int32_t id,
                                unsigned flags, struct qn_err *err);

/// A match, and where the search stands; zero it before the first.
struct qn_tok_match {
    size_t start, end; ///< with the whitespace that it takes
    int32_t id;
    size_t resume;    ///< where the search goes on
    size_t next_mark; ///< first byte with a mark at or after the last place looked at
};

/// Next match after the one in *m. Whitespace is taken no further back than that one's end.
/// @param plain    [n] or NULL: a special token that would cover a byte with a mark does not match,
///                 nor is such a byte taken as its whitespace.
/// @param special  false: special tokens do not match at all.
/// Returns false when there is none.
bool qn_tok_added_find(const struct qn_tok_added *a, const uint8_t *uclass, const char *text,
                       size_t n, const uint8_t *plain, bool special, struct qn_tok_match *m);

#endif
