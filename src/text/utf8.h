#ifndef QN_TEXT_UTF8_H
#define QN_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/// U+FFFD in UTF-8.
#define QN_UTF8_REPLACEMENT "\xEF\xBF\xBD"

/// Code point at p, which is the start of a character of valid UTF-8.
static inline uint32_t qn_utf8_get(const char *p, size_t *out_len)
{
    const unsigned char *u = (const unsigned char *)p;
    if (u[0] < 0x80) {
        *out_len = 1;
        return u[0];
    }
    if (u[0] < 0xE0) {
        *out_len = 2;
        return ((u[0] & 0x1Fu) << 6) | (u[1] & 0x3Fu);
    }
    if (u[0] < 0xF0) {
        *out_len = 3;
        return ((u[0] & 0x0Fu) << 12) | ((u[1] & 0x3Fu) << 6) | (u[2] & 0x3Fu);
    }
    *out_len = 4;
    return ((u[0] & 0x07u) << 18) | ((u[1] & 0x3Fu) << 12) | ((u[2] & 0x3Fu) << 6) | (u[3] & 0x3Fu);
}

/// Start of the character that ends at p[n - 1]; n > 0, valid UTF-8.
static inline size_t qn_utf8_back(const char *p, size_t n)
{
    size_t i = n - 1;
    while (i > 0 && ((unsigned char)p[i] & 0xC0u) == 0x80u) {
        i--;
    }
    return i;
}

/// Length written to out, which holds 4 bytes.
size_t qn_utf8_put(uint32_t cp, char *out);

/// How n > 0 bytes start: a whole character of *out_len bytes, a prefix of one (all n bytes, more
/// could complete it), or an invalid sequence of *out_len bytes (the longest that one U+FFFD
/// stands for, Unicode 3.9 "maximal subpart").
enum qn_utf8_kind {
    QN_UTF8_CHAR,
    QN_UTF8_PARTIAL,
    QN_UTF8_INVALID
};
enum qn_utf8_kind qn_utf8_next(const unsigned char *p, size_t n, size_t *out_len);

/// Index of the first byte that does not start a whole valid character, n when all is valid.
size_t qn_utf8_valid_prefix(const char *p, size_t n);

#endif
