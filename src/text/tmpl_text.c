#include <string.h>
#include <utf8proc.h>

#include "text/tmpl_rt.h"

/// Work on whole strings that keeps every byte's origin.

struct special_case {
    uint32_t cp;
    uint32_t upper[3];
    uint32_t title[3];
};

// clang-format off
static const struct special_case g_special[] = {
#include "text/tmpl_case.inc"
};
// clang-format on

static const struct special_case *special(uint32_t cp)
{
    size_t low = 0, high = sizeof g_special / sizeof g_special[0];
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (g_special[mid].cp < cp) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < sizeof g_special / sizeof g_special[0] && g_special[low].cp == cp ? &g_special[low]
                                                                                   : NULL;
}

static bool is_cased(uint32_t cp)
{
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

static bool byte_plain(const struct qn_ts *s, size_t at)
{
    return s->marks != NULL ? s->marks[at] != 0 : s->plain;
}

// A capital sigma is final when a letter stands before it and none after (marks aside).
static bool final_sigma(const struct qn_ts *s, size_t at)
{
    bool before = false;
    for (size_t i = at; i > 0 && !before;) {
        i--;
        while (i > 0 && ((unsigned char)s->p[i] & 0xc0) == 0x80) {
            i--;
        }
        size_t len;
        uint32_t cp = qn_tcp_get(s->p + i, s->n - i, &len);
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
        if (c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_CF || cp == '\'' || cp == ':') {
            continue;
        }
        before = is_cased(cp);
        break;
    }
    if (!before) {
        return false;
    }
    for (size_t i = at + 2; i < s->n;) {
        size_t len;
        uint32_t cp = qn_tcp_get(s->p + i, s->n - i, &len);
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
        if (c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_CF || cp == '\'' || cp == ':') {
            i += len;
            continue;
        }
        return !is_cased(cp);
    }
    return true;
}

static void put_case(struct qn_trt *rt, struct qn_tsbuf *b, const struct qn_ts *s, size_t at,
                     uint32_t cp, char mode)
{
    bool plain = byte_plain(s, at);
    const struct special_case *sp = mode != 'l' && cp >= 0x80 ? special(cp) : NULL;
    if (sp != NULL) {
        const uint32_t *to = mode == 'u' ? sp->upper : sp->title;
        for (size_t i = 0; i < 3 && to[i] != 0; i++) {
            qn_tsbuf_add_cp(rt, b, to[i], plain);
        }
        return;
    }
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    if (mode == 'l' && cp == 0x130) { // capital I with dot: i and a combining dot
        qn_tsbuf_add_cp(rt, b, 'i', plain);
        qn_tsbuf_add_cp(rt, b, 0x307, plain);
        return;
    }
    if (mode == 'l' && cp == 0x3a3) {
        qn_tsbuf_add_cp(rt, b, final_sigma(s, at) ? 0x3c2 : 0x3c3, plain);
        return;
    }
    c = mode == 'u' ? utf8proc_toupper(c) : mode == 'l' ? utf8proc_tolower(c) : utf8proc_totitle(c);
    qn_tsbuf_add_cp(rt, b, (uint32_t)c, plain);
}

const struct qn_ts *qn_ts_case(struct qn_trt *rt, const struct qn_ts *s, char mode)
{
    struct qn_tsbuf *b = qn_tsbuf_new(rt, s->n);
    bool start = true;
    for (size_t at = 0; at < s->n && qn_trt_step(rt, 1);) {
        size_t len;
        uint32_t cp = qn_tcp_get(s->p + at, s->n - at, &len);
        char how = mode;
        if (mode == 'c') {
            how = at == 0 ? 't' : 'l';
        } else if (mode == 't') {
            how = start ? 't' : 'l';
            start = !is_cased(cp);
        } else if (mode == 's') {
            utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
            how = c == UTF8PROC_CATEGORY_LU ? 'l' : c == UTF8PROC_CATEGORY_LL ? 'u' : '=';
        }
        if (how == '=' || (len == 1 && cp >= 0x80)) {
            qn_tsbuf_add_sub(rt, b, s, at, len);
        } else {
            put_case(rt, b, s, at, cp, how);
        }
        at += len;
    }
    return qn_ts_with_markup(rt, qn_tsbuf_ts(rt, b), s->markup);
}

static bool in_chars(const struct qn_ts *chars, const char *p, size_t len, uint32_t cp)
{
    if (chars == NULL) {
        return qn_cp_is_space(cp);
    }
    for (size_t i = 0; i < chars->n;) {
        size_t n;
        (void)qn_tcp_get(chars->p + i, chars->n - i, &n);
        if (n == len && memcmp(chars->p + i, p, n) == 0) {
            return true;
        }
        i += n;
    }
    return false;
}

const struct qn_ts *qn_ts_strip(struct qn_trt *rt, const struct qn_ts *s, const struct qn_ts *chars,
                                bool left, bool right)
{
    size_t from = 0, end = s->n;
    uint64_t cost = chars != NULL ? chars->n / 16 : 0;
    while (left && from < end && qn_trt_step(rt, cost)) {
        size_t len;
        uint32_t cp = qn_tcp_get(s->p + from, end - from, &len);
        if (!in_chars(chars, s->p + from, len, cp)) {
            break;
        }
        from += len;
    }
    while (right && end > from && qn_trt_step(rt, cost)) {
        size_t start = end - 1;
        while (start > from && ((unsigned char)s->p[start] & 0xc0) == 0x80) {
            start--;
        }
        size_t len;
        uint32_t cp = qn_tcp_get(s->p + start, end - start, &len);
        if (start + len != end || !in_chars(chars, s->p + start, len, cp)) {
            break;
        }
        end = start;
    }
    return qn_ts_sub(rt, s, from, end - from);
}

const struct qn_ts *qn_ts_replace(struct qn_trt *rt, const struct qn_ts *s, const struct qn_ts *old,
                                  const struct qn_ts *with, int64_t max)
{
    struct qn_tsbuf *b = qn_tsbuf_new(rt, s->n);
    size_t at = 0;
    if (old->n == 0) { // between all code points
        for (int64_t done = 0; (max < 0 || done < max) && qn_trt_step(rt, 1); done++) {
            qn_tsbuf_add_ts(rt, b, with);
            if (at >= s->n) {
                break;
            }
            size_t len;
            (void)qn_tcp_get(s->p + at, s->n - at, &len);
            qn_tsbuf_add_sub(rt, b, s, at, len);
            at += len;
        }
    }
    for (int64_t done = 0; old->n > 0 && (max < 0 || done < max) && qn_trt_step(rt, 1); done++) {
        size_t hit = qn_ts_find(s, old, at);
        if (hit == SIZE_MAX) {
            break;
        }
        qn_tsbuf_add_sub(rt, b, s, at, hit - at);
        qn_tsbuf_add_ts(rt, b, with);
        at = hit + old->n;
    }
    if (at == 0 && old->n > 0) {
        return s;
    }
    qn_tsbuf_add_sub(rt, b, s, at, s->n - at);
    return qn_ts_with_markup(rt, qn_tsbuf_ts(rt, b), s->markup);
}

static bool is_line_end(uint32_t cp)
{
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
}

struct qn_tlist *qn_ts_splitlines(struct qn_trt *rt, const struct qn_ts *s, bool keep_ends)
{
    struct qn_tlist *list = qn_tlist_new(rt, 0);
    size_t from = 0;
    for (size_t at = 0; at < s->n && rt->status == QN_OK;) {
        size_t len;
        uint32_t cp = qn_tcp_get(s->p + at, s->n - at, &len);
        size_t end = at;
        at += len;
        if (!is_line_end(cp)) {
            continue;
        }
        if (cp == '\r' && at < s->n && s->p[at] == '\n') {
            at++;
        }
        qn_tlist_add(rt, list, qn_tv_of_ts(qn_ts_sub(rt, s, from, (keep_ends ? at : end) - from)));
        from = at;
    }
    if (from < s->n) {
        qn_tlist_add(rt, list, qn_tv_of_ts(qn_ts_sub(rt, s, from, s->n - from)));
    }
    return list;
}

const struct qn_ts *qn_ts_escape(struct qn_trt *rt, const struct qn_ts *s)
{
    if (s->markup) {
        return s;
    }
    struct qn_tsbuf *b = qn_tsbuf_new(rt, s->n);
    for (size_t at = 0; at < s->n && rt->status == QN_OK; at++) {
        const char *to = s->p[at] == '&'    ? "&amp;"
                         : s->p[at] == '<'  ? "&lt;"
                         : s->p[at] == '>'  ? "&gt;"
                         : s->p[at] == '\'' ? "&#39;"
                         : s->p[at] == '"'  ? "&#34;"
                                            : NULL;
        if (to != NULL) {
            qn_tsbuf_add(rt, b, to, strlen(to), byte_plain(s, at));
        } else {
            qn_tsbuf_add_sub(rt, b, s, at, 1);
        }
    }
    return qn_ts_with_markup(rt, qn_tsbuf_ts(rt, b), true);
}
