#include "text/tmpl_str.h"

#include <string.h>

#include "text/tmpl_rt.h"
#include "text/utf8.h"

static const struct qn_ts g_empty = {.p = ""};

const struct qn_ts *qn_ts_empty(void)
{
    return &g_empty;
}

uint32_t qn_tcp_get(const char *p, size_t n, size_t *out_len)
{
    const unsigned char *s = (const unsigned char *)p;
    uint32_t c = s[0];
    size_t len = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    *out_len = 1;
    if (len < 2 || len > n) {
        return c;
    }
    uint32_t cp = c & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((s[i] & 0xc0) != 0x80) {
            return c;
        }
        cp = cp << 6 | (s[i] & 0x3fu);
    }
    *out_len = len;
    return cp;
}

size_t qn_tcp_count(const char *p, size_t n)
{
    size_t count = 0;
    for (size_t at = 0; at < n; count++) {
        size_t len;
        (void)qn_tcp_get(p + at, n - at, &len);
        at += len;
    }
    return count;
}

bool qn_cp_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32) || cp == 0x85 || cp == 0xa0 ||
           cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
           cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

static struct qn_ts *ts_alloc(struct qn_trt *rt)
{
    return qn_trt_alloc(rt, 1, sizeof(struct qn_ts));
}

const struct qn_ts *qn_ts_new(struct qn_trt *rt, const char *p, size_t n, bool plain)
{
    struct qn_ts *s = ts_alloc(rt);
    if (s == NULL) {
        return &g_empty;
    }
    *s = (struct qn_ts){.p = p, .n = n, .n_cp = qn_tcp_count(p, n), .plain = plain};
    return s;
}

const struct qn_ts *qn_ts_lit(struct qn_trt *rt, const char *s)
{
    return qn_ts_new(rt, s, strlen(s), false);
}

const struct qn_ts *qn_ts_sub(struct qn_trt *rt, const struct qn_ts *s, size_t from, size_t n)
{
    if (from == 0 && n == s->n) {
        return s;
    }
    struct qn_ts *sub = ts_alloc(rt);
    if (sub == NULL) {
        return &g_empty;
    }
    *sub = (struct qn_ts){.p = s->p + from,
                          .n = n,
                          .marks = s->marks != NULL ? s->marks + from : NULL,
                          .n_cp = s->n_cp == s->n ? n : qn_tcp_count(s->p + from, n),
                          .plain = s->plain,
                          .markup = s->markup};
    return sub;
}

const struct qn_ts *qn_ts_with_markup(struct qn_trt *rt, const struct qn_ts *s, bool markup)
{
    if (s->markup == markup) {
        return s;
    }
    struct qn_ts *copy = ts_alloc(rt);
    if (copy == NULL) {
        return &g_empty;
    }
    *copy = *s;
    copy->markup = markup;
    return copy;
}

bool qn_ts_eq(const struct qn_ts *a, const struct qn_ts *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->p, b->p, a->n) == 0);
}

bool qn_ts_is(const struct qn_ts *s, const char *lit)
{
    size_t n = strlen(lit);
    return s->n == n && memcmp(s->p, lit, n) == 0;
}

bool qn_ts_any_plain(const struct qn_ts *s)
{
    if (s->n == 0 || s->marks == NULL) {
        return s->n > 0 && s->plain;
    }
    return memchr(s->marks, 1, s->n) != NULL;
}

size_t qn_ts_offset(const struct qn_ts *s, size_t i)
{
    if (s->n_cp == s->n) {
        return i;
    }
    size_t at = 0;
    for (; i > 0 && at < s->n; i--) {
        size_t len;
        (void)qn_tcp_get(s->p + at, s->n - at, &len);
        at += len;
    }
    return at;
}

size_t qn_ts_find(const struct qn_ts *s, const struct qn_ts *what, size_t from)
{
    if (from > s->n || what->n > s->n - from) {
        return SIZE_MAX;
    }
    if (what->n == 0) {
        return from;
    }
    const char *hit = memmem(s->p + from, s->n - from, what->p, what->n);
    return hit == NULL ? SIZE_MAX : (size_t)(hit - s->p);
}

size_t qn_ts_rfind(const struct qn_ts *s, const struct qn_ts *what, size_t end)
{
    if (what->n > end) {
        return SIZE_MAX;
    }
    for (size_t at = end - what->n + 1; at-- > 0;) {
        if (what->n == 0 || memcmp(s->p + at, what->p, what->n) == 0) {
            return at;
        }
    }
    return SIZE_MAX;
}

struct qn_tsbuf *qn_tsbuf_new(struct qn_trt *rt, size_t cap)
{
    struct qn_tsbuf *b = qn_trt_alloc(rt, 1, sizeof *b);
    if (b != NULL && cap > 0) {
        b->p = qn_trt_alloc(rt, cap, 1);
        b->cap = b->p != NULL ? cap : 0;
    }
    return b;
}

static bool grow(struct qn_trt *rt, struct qn_tsbuf *b, size_t extra)
{
    if (extra > rt->max_output || b->n > rt->max_output - extra) {
        qn_trt_fail(rt, QN_E_LIMIT, "a string longer than %zu bytes", rt->max_output);
        return false;
    }
    size_t need = b->n + extra;
    if (need <= b->cap) {
        return true;
    }
    size_t cap = need < 32 ? 64 : need * 2;
    char *p = qn_trt_alloc(rt, cap, 1);
    unsigned char *marks = b->marks != NULL ? qn_trt_alloc(rt, cap, 1) : NULL;
    if (p == NULL || (b->marks != NULL && marks == NULL)) {
        return false;
    }
    if (b->n > 0) {
        memcpy(p, b->p, b->n);
    }
    if (marks != NULL) {
        memcpy(marks, b->marks, b->n);
        b->marks = marks;
    }
    b->p = p;
    b->cap = cap;
    return true;
}

// Make place for per-byte marks, filled with what all bytes were so far.
static bool start_marks(struct qn_trt *rt, struct qn_tsbuf *b)
{
    b->marks = qn_trt_alloc(rt, b->cap, 1);
    if (b->marks == NULL) {
        return false;
    }
    memset(b->marks, b->plain ? 1 : 0, b->n);
    return true;
}

static bool add(struct qn_trt *rt, struct qn_tsbuf *b, const char *p, size_t n,
                const unsigned char *marks, bool plain)
{
    if (b == NULL || n == 0) {
        return rt->status == QN_OK;
    }
    if (!qn_trt_step(rt, n / 16) || !grow(rt, b, n)) {
        return false;
    }
    if (b->n == 0 && marks == NULL) {
        b->plain = plain;
        b->marks = NULL;
    } else if (b->marks == NULL && (marks != NULL || plain != b->plain) && !start_marks(rt, b)) {
        return false;
    }
    memcpy(b->p + b->n, p, n);
    if (marks != NULL) {
        memcpy(b->marks + b->n, marks, n);
        b->any_plain |= memchr(marks, 1, n) != NULL;
    } else {
        if (b->marks != NULL) {
            memset(b->marks + b->n, plain ? 1 : 0, n);
        }
        b->any_plain |= plain;
    }
    b->n += n;
    return true;
}

bool qn_tsbuf_add(struct qn_trt *rt, struct qn_tsbuf *b, const char *p, size_t n, bool plain)
{
    return add(rt, b, p, n, NULL, plain);
}

bool qn_tsbuf_puts(struct qn_trt *rt, struct qn_tsbuf *b, const char *s)
{
    return add(rt, b, s, strlen(s), NULL, false);
}

bool qn_tsbuf_add_ts(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_ts *s)
{
    return add(rt, b, s->p, s->n, s->marks, s->plain);
}

bool qn_tsbuf_add_sub(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_ts *s, size_t from,
                      size_t n)
{
    return add(rt, b, s->p + from, n, s->marks != NULL ? s->marks + from : NULL, s->plain);
}

bool qn_tsbuf_add_cp(struct qn_trt *rt, struct qn_tsbuf *b, uint32_t cp, bool plain)
{
    char out[4];
    size_t n = qn_utf8_put(cp, out);
    return add(rt, b, out, n, NULL, plain);
}

const struct qn_ts *qn_tsbuf_ts(struct qn_trt *rt, struct qn_tsbuf *b)
{
    struct qn_ts *s = b != NULL && b->n > 0 ? ts_alloc(rt) : NULL;
    if (s == NULL) {
        return &g_empty;
    }
    *s = (struct qn_ts){.p = b->p,
                        .n = b->n,
                        .marks = b->marks,
                        .buf = b,
                        .n_cp = qn_tcp_count(b->p, b->n),
                        .plain = b->plain};
    return s;
}

const struct qn_ts *qn_tsbuf_ts_whole(struct qn_trt *rt, struct qn_tsbuf *b)
{
    if (b == NULL || b->n == 0) {
        return &g_empty;
    }
    return qn_ts_new(rt, b->p, b->n, b->any_plain);
}

const struct qn_ts *qn_ts_concat(struct qn_trt *rt, const struct qn_ts *a, const struct qn_ts *b)
{
    if (a->n == 0) {
        return qn_ts_with_markup(rt, b, false);
    }
    if (b->n == 0) {
        return qn_ts_with_markup(rt, a, false);
    }
    struct qn_tsbuf *buf = a->buf;
    if (buf == NULL || buf->p != a->p || buf->n != a->n) {
        buf = qn_tsbuf_new(rt, a->n + b->n);
        qn_tsbuf_add_ts(rt, buf, a);
    }
    // Otherwise a is all that its buffer holds: text that grows piece by piece is not copied.
    if (!qn_tsbuf_add_ts(rt, buf, b)) {
        return &g_empty;
    }
    struct qn_ts *s = ts_alloc(rt);
    if (s == NULL) {
        return &g_empty;
    }
    *s = (struct qn_ts){.p = buf->p,
                        .n = buf->n,
                        .marks = buf->marks,
                        .buf = buf,
                        .n_cp = a->n_cp + b->n_cp,
                        .plain = buf->plain};
    return s;
}
