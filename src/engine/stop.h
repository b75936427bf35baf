#ifndef QN_ENGINE_STOP_H
#define QN_ENGINE_STOP_H

#include <stdbool.h>
#include <stddef.h>

enum {
    QN_STOP_MAX_STRINGS = 64,
    QN_STOP_MAX_BYTES = 4096 ///< of one string
};

/// Search of one answer's text for stop strings as it grows. Text comes in whole characters; a
/// match may span any number of pieces. Memory is the caller's; nothing is allocated.
struct qn_stop {
    const char *const *strings;
    const size_t *lens;
    size_t n, longest;
    bool include; ///< a match stays in the text
    char *tail;   ///< end of the text so far, room for longest - 1 + the largest piece
    size_t n_tail;
    size_t n_total; ///< bytes of text so far
};

/// Bytes of tail memory for pieces of at most max_piece bytes.
size_t qn_stop_tail_bytes(size_t longest, size_t max_piece);

/// Take a piece of text. With `test` a match ends the text: true, *out_index is the first string of
/// the list that occurs in the new text (not the leftmost) and *out_cut the length at which the
/// text ends. Otherwise *out_safe is the length that no later match can shorten.
bool qn_stop_push(struct qn_stop *s, const char *piece, size_t n, bool test, size_t *out_index,
                  size_t *out_cut, size_t *out_safe);

#endif
