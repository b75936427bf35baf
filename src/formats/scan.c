#include "formats/scan.h"

#include <string.h>

void qn_scan_init(struct qn_scan *s, const void *text, size_t n)
{
    s->start = text;
    s->p = text;
    s->end = s->start + n;
}

size_t qn_scan_at(const struct qn_scan *s)
{
    return (size_t)(s->p - s->start);
}

bool qn_scan_done(struct qn_scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r')) {
        s->p++;
    }
    return s->p == s->end;
}

bool qn_scan_take(struct qn_scan *s, char c)
{
    if (qn_scan_done(s) || *s->p != (unsigned char)c) {
        return false;
    }
    s->p++;
    return true;
}

static enum qn_status unexpected(struct qn_scan *s, const char *want, struct qn_err *err)
{
    if (qn_scan_done(s)) {
        return qn_fail(err, QN_E_FORMAT, "header byte %zu: found the end, expected %s",
                       qn_scan_at(s), want);
    }
    if (*s->p < 0x20 || *s->p > 0x7e) {
        return qn_fail(err, QN_E_FORMAT, "header byte %zu: found byte 0x%02x, expected %s",
                       qn_scan_at(s), *s->p, want);
    }
    return qn_fail(err, QN_E_FORMAT, "header byte %zu: found '%c', expected %s", qn_scan_at(s),
                   *s->p, want);
}

enum qn_status qn_scan_expect(struct qn_scan *s, char c, struct qn_err *err)
{
    if (qn_scan_take(s, c)) {
        return QN_OK;
    }
    const char want[4] = {'\'', c, '\'', '\0'};
    return unexpected(s, want, err);
}

// Length of the UTF-8 sequence at p, 0 if it is not valid (overlong, surrogate, past U+10FFFF).
static size_t utf8_len(const unsigned char *p, const unsigned char *end)
{
    size_t left = (size_t)(end - p);
    unsigned char lo = 0x80, hi = 0xbf;
    size_t n;
    if (p[0] < 0x80) {
        return 1;
    } else if (p[0] >= 0xc2 && p[0] <= 0xdf) {
        n = 2;
    } else if (p[0] >= 0xe0 && p[0] <= 0xef) {
        n = 3;
        lo = p[0] == 0xe0 ? 0xa0 : lo;
        hi = p[0] == 0xed ? 0x9f : hi;
    } else if (p[0] >= 0xf0 && p[0] <= 0xf4) {
        n = 4;
        lo = p[0] == 0xf0 ? 0x90 : lo;
        hi = p[0] == 0xf4 ? 0x8f : hi;
    } else {
        return 0;
    }
    if (left < n || p[1] < lo || p[1] > hi) {
        return 0;
    }
    for (size_t i = 2; i < n; i++) {
        if (p[i] < 0x80 || p[i] > 0xbf) {
            return 0;
        }
    }
    return n;
}

static bool hex4(struct qn_scan *s, uint32_t *out)
{
    if (s->end - s->p < 4) {
        return false;
    }
    uint32_t v = 0;
    for (int i = 0; i < 4; i++) {
        unsigned char c = s->p[i];
        unsigned digit;
        if (c >= '0' && c <= '9') {
            digit = c - '0';
        } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f') {
            digit = (c | 0x20u) - 'a' + 10u;
        } else {
            return false;
        }
        v = v << 4 | digit;
    }
    s->p += 4;
    *out = v;
    return true;
}

static void add_utf8(struct qn_buf *b, uint32_t c)
{
    if (c < 0x80) {
        qn_buf_putc(b, (char)c);
    } else if (c < 0x800) {
        qn_buf_putc(b, (char)(0xc0 | c >> 6));
        qn_buf_putc(b, (char)(0x80 | (c & 63)));
    } else if (c < 0x10000) {
        qn_buf_putc(b, (char)(0xe0 | c >> 12));
        qn_buf_putc(b, (char)(0x80 | (c >> 6 & 63)));
        qn_buf_putc(b, (char)(0x80 | (c & 63)));
    } else {
        qn_buf_putc(b, (char)(0xf0 | c >> 18));
        qn_buf_putc(b, (char)(0x80 | (c >> 12 & 63)));
        qn_buf_putc(b, (char)(0x80 | (c >> 6 & 63)));
        qn_buf_putc(b, (char)(0x80 | (c & 63)));
    }
}

// After the backslash.
static bool escape(struct qn_scan *s, struct qn_buf *out)
{
    static const char k_from[] = "\"\\/bfnrt", k_to[] = "\"\\/\b\f\n\r\t";
    if (s->p == s->end) {
        return false;
    }
    char c = (char)*s->p++;
    const char *at = c != '\0' ? strchr(k_from, c) : NULL;
    if (at != NULL) {
        qn_buf_putc(out, k_to[at - k_from]);
        return true;
    }
    uint32_t hi, lo;
    if (c != 'u' || !hex4(s, &hi) || (hi >= 0xdc00 && hi <= 0xdfff)) {
        return false;
    }
    if (hi >= 0xd800 && hi <= 0xdbff) {
        if (s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u') {
            return false;
        }
        s->p += 2;
        if (!hex4(s, &lo) || lo < 0xdc00 || lo > 0xdfff) {
            return false;
        }
        hi = 0x10000 + ((hi - 0xd800) << 10) + (lo - 0xdc00);
    }
    add_utf8(out, hi);
    return true;
}

enum qn_status qn_scan_string(struct qn_scan *s, size_t limit, struct qn_buf *out,
                              struct qn_err *err)
{
    qn_buf_clear(out);
    if (!qn_scan_take(s, '"')) {
        return unexpected(s, "a string", err);
    }
    for (;;) {
        const unsigned char *run = s->p;
        while (s->p < s->end && *s->p >= 0x20 && *s->p < 0x80 && *s->p != '"' && *s->p != '\\') {
            s->p++;
        }
        qn_buf_add(out, run, (size_t)(s->p - run));
        if (out->failed) {
            return qn_fail(err, QN_E_NOMEM, "could not allocate %zu bytes for a string", out->len);
        }
        if (out->len > limit) {
            return qn_fail(err, QN_E_LIMIT, "header byte %zu: string longer than %zu bytes",
                           qn_scan_at(s), limit);
        }
        if (s->p == s->end) {
            return unexpected(s, "the end of a string", err);
        }
        if (*s->p < 0x20) {
            return qn_fail(err, QN_E_FORMAT, "header byte %zu: found byte 0x%02x in a string",
                           qn_scan_at(s), *s->p);
        }
        if (*s->p == '"') {
            s->p++;
            return QN_OK;
        }
        if (*s->p == '\\') {
            size_t at = qn_scan_at(s);
            s->p++;
            if (!escape(s, out)) {
                return qn_fail(err, QN_E_FORMAT, "header byte %zu: invalid escape in a string", at);
            }
            continue;
        }
        size_t n = utf8_len(s->p, s->end);
        if (n == 0) {
            return qn_fail(err, QN_E_FORMAT, "header byte %zu: invalid UTF-8", qn_scan_at(s));
        }
        qn_buf_add(out, s->p, n);
        s->p += n;
    }
}

enum qn_status qn_scan_uint(struct qn_scan *s, uint64_t max, uint64_t *out, struct qn_err *err)
{
    if (qn_scan_done(s) || *s->p < '0' || *s->p > '9') {
        return unexpected(s, "a non-negative integer", err);
    }
    const size_t at = qn_scan_at(s);
    const unsigned char *first = s->p;
    uint64_t v = 0;
    while (s->p < s->end && *s->p >= '0' && *s->p <= '9') {
        unsigned digit = (unsigned)(*s->p - '0');
        if (v > (max - digit) / 10) {
            return qn_fail(err, QN_E_FORMAT, "header byte %zu: integer above %llu", at,
                           (unsigned long long)max);
        }
        v = v * 10 + digit;
        s->p++;
    }
    if ((*first == '0' && s->p - first > 1) ||
        (s->p < s->end && (*s->p == '.' || *s->p == 'e' || *s->p == 'E'))) {
        return qn_fail(err, QN_E_FORMAT,
                       "header byte %zu: found a number with a fraction, exponent or leading "
                       "zero, expected an integer",
                       at);
    }
    *out = v;
    return QN_OK;
}
