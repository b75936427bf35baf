#include "text/tok_scan.h"

#include <string.h>

#include "text/uclass.h"
#include "text/utf8.h"

// clang-format off
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UP "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOW "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix) \
    "[^\\r\\n\\p{L}\\p{N}]?" UP "*" LOW "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UP "+" LOW "*" suffix

static const struct {
    const char *pattern;
    struct qn_tok_scan scan;
} known[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     {QN_SCAN_GPT2, 0, true, false, false}},
    {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
     {QN_SCAN_CL100K, 3, true, false, false}},
    {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES,
     {QN_SCAN_CL100K, 1, true, false, false}},
    {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES,
     {QN_SCAN_CL100K, 1, true, true, false}},
    {CASED(CONTRACTION "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES,
     {QN_SCAN_O200K, 3, true, false, true}},
    {CASED("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES,
     {QN_SCAN_O200K, 1, false, false, true}},
};
// clang-format on

bool qn_tok_scan_find(const char *pattern, size_t n, struct qn_tok_scan *out)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].pattern) == n && memcmp(known[i].pattern, pattern, n) == 0) {
            *out = known[i].scan;
            return true;
        }
    }
    return false;
}

const char *qn_tok_scan_pattern(size_t i)
{
    return i < sizeof known / sizeof *known ? known[i].pattern : NULL;
}

/// Text under the matcher.
struct view {
    const uint8_t *uclass;
    const char *p;
    size_t n;
};

static inline unsigned class_at(const struct view *v, size_t i, size_t *len)
{
    unsigned char b = (unsigned char)v->p[i];
    if (b < 0x80) {
        *len = 1;
        return v->uclass[b];
    }
    return qn_uclass(v->uclass, qn_utf8_get(v->p + i, len));
}

/// End of the longest run from i of characters with a class in `mask`.
static inline size_t run_of(const struct view *v, size_t i, unsigned mask)
{
    size_t len;
    while (i < v->n && (class_at(v, i, &len) & mask) != 0) {
        i += len;
    }
    return i;
}

/// End of the longest run from i of characters with no class in `mask`.
static inline size_t run_without(const struct view *v, size_t i, unsigned mask)
{
    size_t len;
    while (i < v->n && (class_at(v, i, &len) & mask) == 0) {
        i += len;
    }
    return i;
}

static inline char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c;
}

/// End of 's 't 're 've 'm 'll 'd at i, i if there is none. Without case, U+017F is an s too.
static size_t contraction(const struct view *v, size_t i, bool fold)
{
    if (i + 1 >= v->n || v->p[i] != '\'') {
        return i;
    }
    char a = fold ? lower(v->p[i + 1]) : v->p[i + 1];
    if (a == 's' || a == 't' || a == 'm' || a == 'd') {
        return i + 2;
    }
    if (i + 2 >= v->n) {
        return i;
    }
    char b = fold ? lower(v->p[i + 2]) : v->p[i + 2];
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) {
        return i + 3;
    }
    return fold && memcmp(v->p + i + 1, "\xC5\xBF", 2) == 0 ? i + 3 : i;
}

static bool line_end(char c)
{
    return c == '\r' || c == '\n';
}

/// \s*[\r\n]+|\s+(?!\S)|\s+ (the first part only if `lines`) at whitespace.
static size_t spaces(const struct view *v, size_t pos, bool lines)
{
    size_t end = run_of(v, pos, QN_UC_SPACE);
    for (size_t i = end; lines && i > pos; i--) {
        if (line_end(v->p[i - 1])) {
            return i; // up to the last line end of the run
        }
    }
    if (end == v->n) {
        return end;
    }
    size_t last = pos + qn_utf8_back(v->p + pos, end - pos);
    return last > pos ? last : end; // the last blank belongs to what follows
}

/// End of up to max numbers from i.
static size_t digits(const struct view *v, size_t i, unsigned max)
{
    size_t len;
    for (unsigned k = 0; k < max && i < v->n && (class_at(v, i, &len) & QN_UC_NUMBER); k++) {
        i += len;
    }
    return i;
}

/// ` ?[^\s\p{L}\p{N}]+` and the line ends (and slashes) after it; pos if it does not match.
static size_t symbols(const struct view *v, size_t pos, unsigned mask, bool lines, bool slash)
{
    size_t start = v->p[pos] == ' ' ? pos + 1 : pos;
    size_t end = run_without(v, start, mask);
    if (end == start) {
        return pos;
    }
    while (lines && end < v->n && (line_end(v->p[end]) || (slash && v->p[end] == '/'))) {
        end++;
    }
    return end;
}

static size_t next_gpt2(const struct view *v, size_t pos)
{
    const unsigned all = QN_UC_SPACE | QN_UC_LETTER | QN_UC_NUMBER;
    size_t end = contraction(v, pos, false), len;
    if (end > pos) {
        return end;
    }
    size_t start = v->p[pos] == ' ' ? pos + 1 : pos;
    if (start < v->n) {
        unsigned c = class_at(v, start, &len);
        if (c & QN_UC_LETTER) {
            return run_of(v, start + len, QN_UC_LETTER);
        }
        if (c & QN_UC_NUMBER) {
            return run_of(v, start + len, QN_UC_NUMBER);
        }
        if (!(c & all)) {
            return run_without(v, start + len, all);
        }
    }
    return spaces(v, pos, false);
}

static size_t next_cl100k(const struct qn_tok_scan *s, const struct view *v, size_t pos)
{
    const unsigned letter = QN_UC_LETTER | (s->marks ? QN_UC_MARK : 0u);
    size_t len, len2, end = contraction(v, pos, true);
    if (end > pos && s->contractions) {
        return end;
    }
    unsigned c = class_at(v, pos, &len);
    if (c & QN_UC_LETTER) {
        return run_of(v, pos + len, letter);
    }
    if (c & QN_UC_NUMBER) {
        return digits(v, pos, s->max_digits);
    }
    if (!line_end(v->p[pos])) {
        if (pos + len < v->n && (class_at(v, pos + len, &len2) & letter)) {
            return run_of(v, pos + len + len2, letter);
        }
        if (c & letter) {
            return pos + len; // a mark alone
        }
    }
    end = symbols(v, pos, QN_UC_SPACE | QN_UC_NUMBER | letter, true, s->slash);
    return end > pos ? end : spaces(v, pos, true);
}

/// UP*LOW+ at i as a backtracking matcher does it; i if it does not match.
static size_t rising(const struct view *v, size_t i)
{
    size_t up = run_of(v, i, QN_UC_UPPER), end = run_of(v, up, QN_UC_LOWER), len;
    if (end > up) {
        return end;
    }
    while (up > i) { // give back characters until one is in both sets
        size_t back = i + qn_utf8_back(v->p + i, up - i);
        if (class_at(v, back, &len) & QN_UC_LOWER) {
            return up;
        }
        up = back;
    }
    return i;
}

static size_t next_o200k(const struct qn_tok_scan *s, const struct view *v, size_t pos)
{
    const unsigned any = QN_UC_UPPER | QN_UC_LOWER;
    size_t len, end = pos;
    unsigned c = class_at(v, pos, &len);
    bool word = (c & any) != 0;
    bool prefix = !(c & (QN_UC_LETTER | QN_UC_NUMBER)) && !line_end(v->p[pos]);
    size_t from = pos + len;
    if (prefix && (end = rising(v, from)) == from) {
        end = pos;
    }
    if (end == pos && word) {
        end = rising(v, pos);
    }
    if (end == pos && prefix && (end = run_of(v, from, QN_UC_UPPER)) == from) {
        end = pos;
    }
    if (end == pos && word) {
        end = run_of(v, pos, QN_UC_UPPER);
    }
    if (end > pos) {
        return s->contractions ? contraction(v, end, true) : end;
    }
    if (c & QN_UC_NUMBER) {
        return digits(v, pos, s->max_digits);
    }
    end = symbols(v, pos, QN_UC_SPACE | QN_UC_LETTER | QN_UC_NUMBER, true, s->slash);
    return end > pos ? end : spaces(v, pos, true);
}

size_t qn_tok_scan_next(const struct qn_tok_scan *s, const uint8_t *uclass, const char *text,
                        size_t n, size_t pos)
{
    struct view v = {.uclass = uclass, .p = text, .n = n};
    switch (s->kind) {
    case QN_SCAN_GPT2:
        return next_gpt2(&v, pos);
    case QN_SCAN_CL100K:
        return next_cl100k(s, &v, pos);
    case QN_SCAN_O200K:
        return next_o200k(s, &v, pos);
    }
    return n;
}
