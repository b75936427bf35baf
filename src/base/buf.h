#ifndef QN_BASE_BUF_H
#define QN_BASE_BUF_H

#include <stdbool.h>
#include <stddef.h>

/// Growable byte buffer with an upper limit. Zero-initialise or qn_buf_init; data is always NUL
/// terminated once anything was appended. After a failed append `failed` stays set and later
/// appends do nothing, so a writer checks once at the end.
struct qn_buf {
    char *data;
    size_t len;
    size_t cap;
    size_t limit; ///< largest len; 0: no limit
    bool failed;
};

void qn_buf_init(struct qn_buf *b, size_t limit);
void qn_buf_done(struct qn_buf *b);
void qn_buf_clear(struct qn_buf *b); // len = 0, memory kept
bool qn_buf_reserve(struct qn_buf *b, size_t extra);
bool qn_buf_add(struct qn_buf *b, const void *data, size_t n);
bool qn_buf_puts(struct qn_buf *b, const char *s);
bool qn_buf_putc(struct qn_buf *b, char c);
bool qn_buf_printf(struct qn_buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/// The buffer's memory, to be freed by the caller; b is empty afterwards. NULL if it had failed.
char *qn_buf_take(struct qn_buf *b, size_t *out_len);

#endif
