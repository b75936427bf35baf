#include "engine/stop.h"

#include <string.h>

size_t qn_stop_tail_bytes(size_t longest, size_t max_piece)
{
    return (longest > 0 ? longest - 1 : 0) + max_piece;
}

// Length of the longest end of the tail with which some string begins: text that may still become
// a stop string.
static size_t held(const struct qn_stop *s)
{
    size_t most = 0;
    for (size_t i = 0; i < s->n; i++) {
        size_t n = s->lens[i] - 1 < s->n_tail ? s->lens[i] - 1 : s->n_tail;
        for (; n > most; n--) {
            if (memcmp(s->tail + s->n_tail - n, s->strings[i], n) == 0) {
                most = n;
                break;
            }
        }
    }
    return most;
}

bool qn_stop_push(struct qn_stop *s, const char *piece, size_t n, bool test, size_t *out_index,
                  size_t *out_cut, size_t *out_safe)
{
    memcpy(s->tail + s->n_tail, piece, n);
    s->n_tail += n;
    s->n_total += n;
    size_t tail_at = s->n_total - s->n_tail; // place of the tail in the text
    for (size_t i = 0; i < s->n && test && n > 0; i++) {
        // A match must end in the new piece: look at no more old text than that needs.
        size_t look = s->lens[i] - 1 + n < s->n_tail ? s->lens[i] - 1 + n : s->n_tail;
        const char *from = s->tail + s->n_tail - look;
        const char *hit = memmem(from, look, s->strings[i], s->lens[i]);
        if (hit != NULL) {
            *out_index = i;
            *out_cut = tail_at + (size_t)(hit - s->tail) + (s->include ? s->lens[i] : 0);
            return true;
        }
    }
    *out_safe = s->n_total - (s->include ? 0 : held(s));
    size_t keep = s->longest > 0 ? s->longest - 1 : 0;
    if (s->n_tail > keep) {
        memmove(s->tail, s->tail + s->n_tail - keep, keep);
        s->n_tail = keep;
    }
    return false;
}
