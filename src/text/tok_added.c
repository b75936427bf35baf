#include "text/tok_added.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "text/uclass.h"
#include "text/utf8.h"

struct qn_tok_added_node {
    uint32_t child, sibling; // 0: none
    int32_t id;              // -1: no token ends here
    uint8_t byte, flags;
};

void qn_tok_added_done(struct qn_tok_added *a)
{
    free(a->nodes);
    *a = (struct qn_tok_added){0};
}

static uint32_t new_node(struct qn_tok_added *a, uint8_t byte)
{
    if (a->n_nodes == a->cap) {
        size_t cap = a->cap == 0 ? 256 : 2 * a->cap;
        struct qn_tok_added_node *p = cap > UINT32_MAX ? NULL : realloc(a->nodes, cap * sizeof *p);
        if (p == NULL) {
            return 0;
        }
        a->nodes = p;
        a->cap = cap;
    }
    a->nodes[a->n_nodes] = (struct qn_tok_added_node){.id = -1, .byte = byte};
    return (uint32_t)a->n_nodes++;
}

static uint32_t child_of(const struct qn_tok_added *a, uint32_t node, uint8_t byte)
{
    uint32_t c = a->nodes[node].child;
    while (c != 0 && a->nodes[c].byte != byte) {
        c = a->nodes[c].sibling;
    }
    return c;
}

enum qn_status qn_tok_added_put(struct qn_tok_added *a, const char *text, size_t n, int32_t id,
                                unsigned flags, struct qn_err *err)
{
    if (n > QN_TOK_MAX_ADDED_BYTES) {
        return qn_fail(err, QN_E_LIMIT, "added token %d: %zu bytes, expected at most %d", id, n,
                       QN_TOK_MAX_ADDED_BYTES);
    }
    if (n == 0) {
        return QN_OK; // never found in text
    }
    uint32_t node = 0;
    bool ok = a->n_nodes > 0 || (new_node(a, 0), a->n_nodes > 0);
    for (size_t i = 0; i < n && ok; i++) {
        uint8_t b = (uint8_t)text[i];
        uint32_t next = i == 0 ? a->roots[b] : child_of(a, node, b);
        if (next == 0) {
            next = new_node(a, b);
            ok = next != 0;
            if (ok && i == 0) {
                a->roots[b] = next;
            } else if (ok) {
                a->nodes[next].sibling = a->nodes[node].child;
                a->nodes[node].child = next;
            }
        }
        node = next;
    }
    if (!ok) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the added tokens");
    }
    if (a->nodes[node].id < 0) {
        a->nodes[node].id = id;
        a->nodes[node].flags = (uint8_t)flags;
        a->n_tokens++;
    }
    return QN_OK;
}

/// Letters, marks, decimal and letter numbers, connectors, joiners and circled letters: \w of the
/// reference's token search.
static bool in_word(uint32_t cp)
{
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
        return true;
    default:
        return cp == 0x200C || cp == 0x200D || (cp >= 0x24B6 && cp <= 0x24E9) ||
               (cp >= 0x1F130 && cp <= 0x1F149) || (cp >= 0x1F150 && cp <= 0x1F169) ||
               (cp >= 0x1F170 && cp <= 0x1F189);
    }
}

static bool stands_alone(const char *text, size_t n, size_t start, size_t end)
{
    size_t len;
    if (start > 0 && in_word(qn_utf8_get(text + qn_utf8_back(text, start), &len))) {
        return false;
    }
    return end == n || !in_word(qn_utf8_get(text + end, &len));
}

static bool is_space(const uint8_t *uclass, const char *p, size_t *len)
{
    return (qn_uclass(uclass, qn_utf8_get(p, len)) & QN_UC_SPACE) != 0;
}

static bool marked(const uint8_t *plain, size_t i, size_t len)
{
    return plain != NULL && memchr(plain + i, 1, len) != NULL;
}

/// Longest token that may match at i, 0 if none.
static uint32_t longest(const struct qn_tok_added *a, const char *text, size_t n, size_t i,
                        size_t special_end, size_t *out_end)
{
    uint32_t best = 0, node = a->roots[(uint8_t)text[i]];
    for (size_t end = i + 1; node != 0; end++) {
        const struct qn_tok_added_node *t = &a->nodes[node];
        if (t->id >= 0 && (!(t->flags & QN_TA_SPECIAL) || end <= special_end)) {
            best = node;
            *out_end = end;
        }
        node = end < n ? child_of(a, node, (uint8_t)text[end]) : 0;
    }
    return best;
}

bool qn_tok_added_find(const struct qn_tok_added *a, const uint8_t *uclass, const char *text,
                       size_t n, const uint8_t *plain, bool special, struct qn_tok_match *m)
{
    size_t floor = m->end, end, len;
    for (size_t i = m->resume; i < n && a->n_tokens > 0; i++) {
        if (a->roots[(uint8_t)text[i]] == 0) {
            continue;
        }
        if (plain == NULL) {
            m->next_mark = n;
        } else if (m->next_mark <= i) { // found once per mark, so the scan stays linear
            const uint8_t *hit = memchr(plain + i, 1, n - i);
            m->next_mark = hit == NULL ? n : (size_t)(hit - plain);
        }
        uint32_t best = longest(a, text, n, i, special ? m->next_mark : 0, &end);
        if (best == 0) {
            continue;
        }
        const struct qn_tok_added_node *t = &a->nodes[best];
        if ((t->flags & QN_TA_SINGLE_WORD) && !stands_alone(text, n, i, end)) {
            i = end - 1;
            continue;
        }
        const uint8_t *marks = t->flags & QN_TA_SPECIAL ? plain : NULL;
        m->resume = end;
        m->start = i < floor ? floor : i;
        m->end = end < floor ? floor : end;
        m->id = t->id;
        while ((t->flags & QN_TA_LSTRIP) && m->start > floor) {
            size_t back = qn_utf8_back(text, m->start);
            if (!is_space(uclass, text + back, &len) || marked(marks, back, len)) {
                break;
            }
            m->start = back;
        }
        while ((t->flags & QN_TA_RSTRIP) && m->end < n && is_space(uclass, text + m->end, &len) &&
               !marked(marks, m->end, len)) {
            m->end += len;
        }
        return true;
    }
    return false;
}
