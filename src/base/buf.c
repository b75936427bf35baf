#include "base/buf.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void qn_buf_init(struct qn_buf *b, size_t limit)
{
    *b = (struct qn_buf){.limit = limit};
}

void qn_buf_done(struct qn_buf *b)
{
    free(b->data);
    *b = (struct qn_buf){0};
}

void qn_buf_clear(struct qn_buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data != NULL) {
        b->data[0] = '\0';
    }
}

bool qn_buf_reserve(struct qn_buf *b, size_t extra)
{
    if (b->failed) {
        return false;
    }
    if (extra > SIZE_MAX / 4 || b->len > SIZE_MAX / 4 ||
        (b->limit != 0 && (b->len > b->limit || extra > b->limit - b->len))) {
        b->failed = true;
        return false;
    }
    size_t need = b->len + extra + 1;
    if (need <= b->cap) {
        return true;
    }
    size_t cap = b->cap < 64 ? 64 : b->cap * 2;
    cap = cap < need ? need : cap;
    char *p = realloc(b->data, cap);
    if (p == NULL) {
        b->failed = true;
        return false;
    }
    b->data = p;
    b->cap = cap;
    return true;
}

bool qn_buf_add(struct qn_buf *b, const void *data, size_t n)
{
    if (!qn_buf_reserve(b, n)) {
        return false;
    }
    if (n > 0) {
        memcpy(b->data + b->len, data, n);
    }
    b->len += n;
    b->data[b->len] = '\0';
    return true;
}

bool qn_buf_puts(struct qn_buf *b, const char *s)
{
    return qn_buf_add(b, s, strlen(s));
}

bool qn_buf_putc(struct qn_buf *b, char c)
{
    return qn_buf_add(b, &c, 1);
}

bool qn_buf_printf(struct qn_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    bool ok = n >= 0 && qn_buf_reserve(b, (size_t)n);
    if (ok) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    } else {
        b->failed = true;
    }
    va_end(again);
    return ok;
}

char *qn_buf_take(struct qn_buf *b, size_t *out_len)
{
    if (b->failed || !qn_buf_reserve(b, 0)) {
        qn_buf_done(b);
        return NULL;
    }
    b->data[b->len] = '\0';
    char *p = b->data;
    if (out_len != NULL) {
        *out_len = b->len;
    }
    *b = (struct qn_buf){.limit = b->limit};
    return p;
}
