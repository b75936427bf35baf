#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/tok_norm.h"
#include "text/utf8.h"

// Unicode normalisation forms out of utf8proc's character data. Its own driver sorts combining
// marks by exchange, which is quadratic on long runs; here they are sorted by counting.

// Characters with a decomposition or a combining class that came after Unicode 9, which is what the
// reference library normalises by: to it they are plain letters.
// clang-format off
static const struct {
    uint32_t first, last;
} newer[] = {
    {0x7fd, 0x7fd}, {0x897, 0x89f}, {0x8ca, 0x8d3}, {0x9fe, 0x9fe}, {0xc3c, 0xc3c}, {0xd3b, 0xd3c},
    {0xeba, 0xeba}, {0x1715, 0x1715}, {0x1abf, 0x1aff}, {0x1df6, 0x1dfa}, {0x32ff, 0x32ff},
    {0xa7f1, 0xa7f4}, {0xa82c, 0xa82c}, {0xab69, 0xab69}, {0x105c0, 0x105ff}, {0x10781, 0x10785},
    {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10d69, 0x10d6d},
    {0x10eab, 0x10eac}, {0x10efa, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85},
    {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x11380, 0x113ff}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11900, 0x1195f}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34},
    {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45},
    {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16100, 0x1613f}, {0x16d40, 0x16d7f},
    {0x16ff0, 0x16ff1}, {0x1ccd6, 0x1ccf9}, {0x1e030, 0x1e06d}, {0x1e08f, 0x1e08f},
    {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
    {0x1e5ee, 0x1e5ef}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};
// clang-format on

static bool is_newer(uint32_t cp)
{
    size_t low = 0, high = sizeof newer / sizeof *newer;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (cp > newer[mid].last) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < sizeof newer / sizeof *newer && cp >= newer[low].first;
}

static unsigned combining_class(uint32_t cp)
{
    if (cp >= newer[0].first && is_newer(cp)) {
        return 0;
    }
    return (unsigned)utf8proc_get_property((utf8proc_int32_t)cp)->combining_class;
}

/// Stable sort of cps[0..n) by combining class; tmp holds n.
static void sort_marks(uint32_t *cps, size_t n, uint32_t *tmp)
{
    size_t start[257] = {0};
    if (n < 2) {
        return;
    }
    if (n <= 16) { // insertion
        for (size_t i = 1; i < n; i++) {
            uint32_t cp = cps[i];
            unsigned c = combining_class(cp);
            size_t k = i;
            for (; k > 0 && combining_class(cps[k - 1]) > c; k--) {
                cps[k] = cps[k - 1];
            }
            cps[k] = cp;
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        start[(combining_class(cps[i]) & 255u) + 1]++;
    }
    for (size_t c = 0; c < 256; c++) {
        start[c + 1] += start[c];
    }
    for (size_t i = 0; i < n; i++) {
        tmp[start[combining_class(cps[i]) & 255u]++] = cps[i];
    }
    memcpy(cps, tmp, n * sizeof *cps);
}

/// Compose cps[0..*n) in place, between the characters that take no part.
static bool compose_all(uint32_t *cps, size_t *n)
{
    size_t k = 0;
    for (size_t i = 0; i < *n;) {
        size_t stop = i;
        // utf8proc takes U+11A7, the one before the first Hangul final, for a final and drops it.
        while (stop < *n && cps[stop] != 0x11A7 && !is_newer(cps[stop])) {
            stop++;
        }
        utf8proc_ssize_t left = 0;
        if (stop > i) {
            left =
                utf8proc_normalize_utf32((utf8proc_int32_t *)cps + i, (utf8proc_ssize_t)(stop - i),
                                         (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
        }
        if (left < 0) {
            return false;
        }
        memmove(cps + k, cps + i, (size_t)left * sizeof *cps);
        k += (size_t)left;
        if (stop < *n) {
            cps[k++] = cps[stop++];
        }
        i = stop;
    }
    *n = k;
    return true;
}

bool qn_tok_form(enum qn_tok_norm_kind form, struct qn_tok_norm_run *r, const char *text, size_t n,
                 struct qn_buf *out)
{
    bool compose = form == QN_NORM_NFC || form == QN_NORM_NFKC;
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    options |= form == QN_NORM_NFKC || form == QN_NORM_NFKD ? UTF8PROC_COMPAT : 0;
    enum {
        LONGEST = 18 // code points of one decomposition (U+FDFA)
    };
    size_t k = 0, len;
    for (size_t i = 0; i < n; i += len) {
        if (2 * (k + LONGEST) > r->cps_cap) { // the upper half is for the sort
            size_t cap = 2 * r->cps_cap + 4 * LONGEST + 256;
            uint32_t *p = realloc(r->cps, cap * sizeof *p);
            if (p == NULL) {
                return false;
            }
            r->cps = p;
            r->cps_cap = cap;
        }
        uint32_t cp = qn_utf8_get(text + i, &len);
        int boundary = 0;
        utf8proc_ssize_t got = -1;
        if (!is_newer(cp)) {
            got = utf8proc_decompose_char((utf8proc_int32_t)cp, (utf8proc_int32_t *)&r->cps[k],
                                          LONGEST, (utf8proc_option_t)options, &boundary);
        }
        if (got < 0 || got > LONGEST) {
            r->cps[k] = cp;
            got = 1;
        }
        k += (size_t)got;
    }
    uint32_t *tmp = r->cps + r->cps_cap / 2;
    for (size_t i = 0; i < k;) {
        size_t stop = i;
        while (stop < k && combining_class(r->cps[stop]) != 0) {
            stop++;
        }
        sort_marks(r->cps + i, stop - i, tmp);
        i = stop + 1;
    }
    if (compose && !compose_all(r->cps, &k)) {
        return false;
    }
    for (size_t i = 0; i < k; i++) {
        char c[4];
        if (!qn_buf_add(out, c, qn_utf8_put(r->cps[i], c))) {
            return false;
        }
    }
    return true;
}
