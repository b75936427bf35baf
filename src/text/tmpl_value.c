#include "text/tmpl_value.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "text/tmpl_rt.h"

const char *qn_tv_kind_name(enum qn_tv_kind kind)
{
    static const char *const names[] = {
        [QN_TV_UNDEF] = "an undefined value",
        [QN_TV_NONE] = "none",
        [QN_TV_BOOL] = "a boolean",
        [QN_TV_INT] = "an integer",
        [QN_TV_FLOAT] = "a number",
        [QN_TV_STR] = "a string",
        [QN_TV_LIST] = "a list",
        [QN_TV_TUPLE] = "a tuple",
        [QN_TV_DICT] = "a mapping",
        [QN_TV_VIEW] = "a view of a mapping",
        [QN_TV_GEN] = "a generator",
        [QN_TV_RANGE] = "a range",
        [QN_TV_NS] = "a namespace",
        [QN_TV_MACRO] = "a macro",
        [QN_TV_FUNC] = "a function",
        [QN_TV_METHOD] = "a method",
        [QN_TV_LOOP] = "a loop",
        [QN_TV_CYCLER] = "a cycler",
        [QN_TV_JOINER] = "a joiner",
        [QN_TV_MISSING] = "nothing",
    };
    return names[kind];
}

bool qn_tv_truthy(struct qn_tv v)
{
    size_t n;
    switch (v.kind) {
    case QN_TV_UNDEF:
    case QN_TV_NONE:
    case QN_TV_MISSING:
        return false;
    case QN_TV_BOOL:
        return v.b;
    case QN_TV_INT:
        return v.i != 0;
    case QN_TV_FLOAT:
        return v.f != 0;
    default:
        return !qn_tv_len(v, &n) || n > 0;
    }
}

bool qn_tv_callable(struct qn_tv v)
{
    return v.kind == QN_TV_MACRO || v.kind == QN_TV_FUNC || v.kind == QN_TV_METHOD ||
           v.kind == QN_TV_LOOP || v.kind == QN_TV_JOINER || v.kind == QN_TV_UNDEF;
}

bool qn_tv_len(struct qn_tv v, size_t *out_n)
{
    switch (v.kind) {
    case QN_TV_UNDEF:
        *out_n = 0;
        return true;
    case QN_TV_STR:
        *out_n = v.s->n_cp;
        return true;
    case QN_TV_LIST:
    case QN_TV_TUPLE:
    case QN_TV_VIEW:
        *out_n = v.list->n;
        return true;
    case QN_TV_DICT:
        *out_n = v.dict->n;
        return true;
    case QN_TV_RANGE:
        *out_n = (size_t)v.range->n;
        return true;
    default:
        return false;
    }
}

bool qn_tv_same(struct qn_tv a, struct qn_tv b)
{
    if (a.kind != b.kind) {
        return false;
    }
    switch (a.kind) {
    case QN_TV_NONE:
        return true;
    case QN_TV_BOOL:
        return a.b == b.b;
    case QN_TV_INT: // small integers are one object each
        return a.i == b.i && a.i >= -5 && a.i <= 256;
    case QN_TV_FLOAT:
        return false;
    case QN_TV_STR:
        return a.s == b.s || (a.s->n == b.s->n && (a.s->p == b.s->p || a.s->n == 0));
    case QN_TV_LIST:
    case QN_TV_TUPLE:
    case QN_TV_VIEW:
    case QN_TV_GEN:
    case QN_TV_CYCLER:
    case QN_TV_JOINER:
        return a.list == b.list;
    case QN_TV_DICT:
    case QN_TV_NS:
        return a.dict == b.dict;
    case QN_TV_RANGE:
        return a.range == b.range;
    case QN_TV_MACRO:
        return a.macro == b.macro;
    case QN_TV_FUNC:
        return a.func == b.func;
    case QN_TV_METHOD:
        return a.method == b.method;
    case QN_TV_LOOP:
        return a.loop == b.loop;
    case QN_TV_UNDEF:
        return a.undef == b.undef && a.undef != NULL;
    case QN_TV_MISSING:
        return true;
    }
    return false;
}

static int num_cmp(struct qn_tv a, struct qn_tv b)
{
    if (qn_tv_is_int(a) && qn_tv_is_int(b)) {
        int64_t x = qn_tv_as_int(a), y = qn_tv_as_int(b);
        return x < y ? -1 : x > y;
    }
    // long double holds every int64 exactly on the targets (64 or 113 bits of mantissa).
    long double x = a.kind == QN_TV_FLOAT ? (long double)a.f : (long double)qn_tv_as_int(a);
    long double y = b.kind == QN_TV_FLOAT ? (long double)b.f : (long double)qn_tv_as_int(b);
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
}

static bool too_deep(struct qn_trt *rt, size_t depth)
{
    if (depth > QN_TV_MAX_DEPTH) {
        qn_trt_fail(rt, QN_E_LIMIT, "a value nested deeper than %d levels", QN_TV_MAX_DEPTH);
        return true;
    }
    return !qn_trt_step(rt, 1);
}

static bool eq(struct qn_trt *rt, struct qn_tv a, struct qn_tv b, size_t depth);

static bool list_eq(struct qn_trt *rt, const struct qn_tlist *a, const struct qn_tlist *b,
                    size_t depth)
{
    if (a->n != b->n) {
        return false;
    }
    for (size_t i = 0; i < a->n; i++) {
        if (!eq(rt, a->at[i], b->at[i], depth + 1)) {
            return false;
        }
    }
    return true;
}

static bool dict_eq(struct qn_trt *rt, const struct qn_tdict *a, const struct qn_tdict *b,
                    size_t depth)
{
    if (a->n != b->n) {
        return false;
    }
    for (size_t i = 0; i < a->n; i++) {
        const struct qn_tv *v = qn_tdict_find(rt, b, a->at[i].key);
        if (v == NULL || !eq(rt, a->at[i].val, *v, depth + 1)) {
            return false;
        }
    }
    return true;
}

static bool eq(struct qn_trt *rt, struct qn_tv a, struct qn_tv b, size_t depth)
{
    if (too_deep(rt, depth)) {
        return false;
    }
    if (qn_tv_is_num(a) && qn_tv_is_num(b)) {
        return num_cmp(a, b) == 0;
    }
    if (a.kind != b.kind) {
        return false;
    }
    switch (a.kind) {
    case QN_TV_UNDEF:
        return true;
    case QN_TV_STR:
        return qn_ts_eq(a.s, b.s);
    case QN_TV_LIST:
    case QN_TV_TUPLE:
        return a.list == b.list || list_eq(rt, a.list, b.list, depth);
    case QN_TV_DICT:
        return a.dict == b.dict || dict_eq(rt, a.dict, b.dict, depth);
    case QN_TV_RANGE:
        return a.range->n == b.range->n &&
               (a.range->n == 0 || (a.range->start == b.range->start &&
                                    (a.range->n == 1 || a.range->step == b.range->step)));
    default:
        return qn_tv_same(a, b);
    }
}

bool qn_tv_eq(struct qn_trt *rt, struct qn_tv a, struct qn_tv b)
{
    return eq(rt, a, b, 0) && rt->status == QN_OK;
}

static int cmp(struct qn_trt *rt, struct qn_tv a, struct qn_tv b, size_t depth)
{
    if (too_deep(rt, depth)) {
        return 0;
    }
    if (qn_tv_is_num(a) && qn_tv_is_num(b)) {
        return num_cmp(a, b);
    }
    if (a.kind == QN_TV_STR && b.kind == QN_TV_STR) {
        // The order of UTF-8 bytes is that of code points.
        size_t n = a.s->n < b.s->n ? a.s->n : b.s->n;
        int c = n > 0 ? memcmp(a.s->p, b.s->p, n) : 0;
        return c != 0 ? (c < 0 ? -1 : 1) : a.s->n < b.s->n ? -1 : a.s->n > b.s->n;
    }
    if (a.kind == b.kind && (a.kind == QN_TV_LIST || a.kind == QN_TV_TUPLE)) {
        for (size_t i = 0; i < a.list->n && i < b.list->n; i++) {
            if (!eq(rt, a.list->at[i], b.list->at[i], depth + 1)) {
                return cmp(rt, a.list->at[i], b.list->at[i], depth + 1);
            }
        }
        return a.list->n < b.list->n ? -1 : a.list->n > b.list->n;
    }
    if (a.kind == QN_TV_UNDEF || b.kind == QN_TV_UNDEF) {
        qn_trt_fail_undef(rt, a.kind == QN_TV_UNDEF ? a : b);
        return 0;
    }
    qn_trt_fail(rt, QN_E_INVALID, "%s and %s have no order", qn_tv_kind_name(a.kind),
                qn_tv_kind_name(b.kind));
    return 0;
}

int qn_tv_cmp(struct qn_trt *rt, struct qn_tv a, struct qn_tv b)
{
    return cmp(rt, a, b, 0);
}

static bool range_has(const struct qn_trange *r, struct qn_tv item)
{
    if (!qn_tv_is_num(item) || r->n == 0) {
        return false;
    }
    int64_t i;
    if (item.kind == QN_TV_FLOAT) {
        if (!(item.f >= -9e15 && item.f <= 9e15) || item.f != floor(item.f)) {
            return false;
        }
        i = (int64_t)item.f;
    } else {
        i = qn_tv_as_int(item);
    }
    int64_t off;
    if (__builtin_sub_overflow(i, r->start, &off)) {
        return false;
    }
    return off % r->step == 0 && off / r->step >= 0 && off / r->step < r->n;
}

bool qn_tv_contains(struct qn_trt *rt, struct qn_tv v, struct qn_tv item)
{
    if (v.kind == QN_TV_STR) {
        if (item.kind != QN_TV_STR) {
            qn_trt_fail(rt, QN_E_INVALID, "found %s in front of \"in\" a string, expected a string",
                        qn_tv_kind_name(item.kind));
            return false;
        }
        return qn_trt_step(rt, v.s->n / 16) && qn_ts_find(v.s, item.s, 0) != SIZE_MAX;
    }
    if (v.kind == QN_TV_DICT) {
        if (!qn_tv_hashable(item)) {
            qn_trt_fail(rt, QN_E_INVALID, "%s cannot be a key", qn_tv_kind_name(item.kind));
            return false;
        }
        return qn_tdict_find(rt, v.dict, item) != NULL;
    }
    if (v.kind == QN_TV_RANGE) {
        return range_has(v.range, item);
    }
    struct qn_titer it;
    struct qn_tv x;
    if (!qn_titer_init(rt, &it, v)) {
        return false;
    }
    while (qn_titer_next(rt, &it, &x)) {
        if (qn_tv_same(x, item) || qn_tv_eq(rt, x, item)) {
            return true;
        }
    }
    return false;
}

bool qn_titer_able(struct qn_tv v)
{
    size_t n;
    return v.kind == QN_TV_GEN || v.kind == QN_TV_LOOP || qn_tv_len(v, &n);
}

bool qn_titer_init(struct qn_trt *rt, struct qn_titer *it, struct qn_tv v)
{
    *it = (struct qn_titer){.v = v};
    if (!qn_titer_able(v)) {
        qn_trt_fail(rt, QN_E_INVALID, "%s cannot be iterated", qn_tv_kind_name(v.kind));
        return false;
    }
    return rt->status == QN_OK;
}

bool qn_titer_next(struct qn_trt *rt, struct qn_titer *it, struct qn_tv *out)
{
    if (!qn_trt_step(rt, 1)) {
        return false;
    }
    struct qn_tv v = it->v;
    switch (v.kind) {
    case QN_TV_STR: {
        if (it->at >= v.s->n) {
            return false;
        }
        size_t len;
        (void)qn_tcp_get(v.s->p + it->at, v.s->n - it->at, &len);
        *out = qn_tv_of_ts(qn_ts_sub(rt, v.s, it->at, len));
        it->at += len;
        return true;
    }
    case QN_TV_LIST:
    case QN_TV_TUPLE:
    case QN_TV_VIEW:
        if (it->at >= v.list->n) {
            return false;
        }
        *out = v.list->at[it->at++];
        return true;
    case QN_TV_GEN:
        if (v.list->next >= v.list->n) {
            return false;
        }
        *out = v.list->at[v.list->next++];
        return true;
    case QN_TV_DICT:
        if (it->at >= v.dict->n) {
            return false;
        }
        *out = v.dict->at[it->at++].key;
        return true;
    case QN_TV_RANGE:
        if ((int64_t)it->at >= v.range->n) {
            return false;
        }
        *out = qn_tv_int(v.range->start + (int64_t)it->at++ * v.range->step);
        return true;
    case QN_TV_LOOP: {
        struct qn_tlist *pair = qn_tlist_new(rt, 2);
        struct qn_tv item;
        if (!qn_tloop_next(rt, v.loop, &item)) {
            return false;
        }
        qn_tlist_add(rt, pair, item);
        qn_tlist_add(rt, pair, v);
        *out = qn_tv_of_list(QN_TV_TUPLE, pair);
        return rt->status == QN_OK;
    }
    default:
        return false;
    }
}

struct qn_tlist *qn_tlist_new(struct qn_trt *rt, size_t cap)
{
    struct qn_tlist *list = qn_trt_alloc(rt, 1, sizeof *list);
    if (list == NULL) {
        return &rt->no_list;
    }
    list->at = cap > 0 ? qn_trt_alloc(rt, cap, sizeof *list->at) : NULL;
    list->cap = list->at != NULL ? cap : 0;
    return list;
}

void qn_tlist_add(struct qn_trt *rt, struct qn_tlist *list, struct qn_tv v)
{
    if (rt->status != QN_OK) {
        return;
    }
    if (list->n == list->cap) {
        size_t cap = list->cap < 4 ? 4 : list->cap * 2;
        struct qn_tv *at = qn_trt_alloc(rt, cap, sizeof *at);
        if (at == NULL) {
            return;
        }
        if (list->n > 0) {
            memcpy(at, list->at, list->n * sizeof *at);
        }
        list->at = at;
        list->cap = cap;
    }
    list->at[list->n++] = v;
}

struct qn_tlist *qn_tlist_of(struct qn_trt *rt, struct qn_tv v)
{
    size_t n = 0;
    (void)qn_tv_len(v, &n);
    struct qn_tlist *list = qn_tlist_new(rt, v.kind == QN_TV_STR || n > 4096 ? 4 : n);
    struct qn_titer it;
    struct qn_tv x;
    if (qn_titer_init(rt, &it, v)) {
        while (qn_titer_next(rt, &it, &x)) {
            qn_tlist_add(rt, list, x);
        }
    }
    return list;
}

struct qn_tdict *qn_tdict_new(struct qn_trt *rt, size_t cap)
{
    struct qn_tdict *d = qn_trt_alloc(rt, 1, sizeof *d);
    if (d == NULL) {
        return &rt->no_dict;
    }
    d->at = cap > 0 ? qn_trt_alloc(rt, cap, sizeof *d->at) : NULL;
    d->cap = d->at != NULL ? cap : 0;
    return d;
}

static bool hashable(struct qn_tv v, size_t depth)
{
    if (v.kind == QN_TV_LIST || v.kind == QN_TV_DICT || depth > QN_TV_MAX_DEPTH) {
        return false;
    }
    if (v.kind == QN_TV_TUPLE) {
        for (size_t i = 0; i < v.list->n; i++) {
            if (!hashable(v.list->at[i], depth + 1)) {
                return false;
            }
        }
    }
    return true;
}

bool qn_tv_hashable(struct qn_tv v)
{
    return hashable(v, 0);
}

static uint64_t hash(const struct qn_trt *rt, struct qn_tv v)
{
    if (v.kind == QN_TV_STR) {
        return qn_hash64(v.s->p, v.s->n, rt->hash_seed);
    }
    if (qn_tv_is_num(v)) {
        double f = qn_tv_as_num(v); // equal numbers of both kinds round to the same double
        f = f == 0 ? 0 : f;
        return qn_hash64(&f, sizeof f, 1);
    }
    uint64_t h = (uint64_t)v.kind;
    if (v.kind == QN_TV_TUPLE) {
        for (size_t i = 0; i < v.list->n; i++) {
            uint64_t item = hash(rt, v.list->at[i]);
            h = qn_hash64(&item, sizeof item, h);
        }
    }
    return h;
}

static bool index_put(struct qn_trt *rt, struct qn_tdict *d, size_t entry)
{
    size_t mask = d->n_index - 1;
    size_t slot = hash(rt, d->at[entry].key) & mask;
    while (d->index[slot] != 0) {
        slot = (slot + 1) & mask;
    }
    d->index[slot] = (uint32_t)(entry + 1);
    return qn_trt_step(rt, 1);
}

struct qn_tv *qn_tdict_find(struct qn_trt *rt, const struct qn_tdict *d, struct qn_tv key)
{
    if (d->index == NULL) {
        for (size_t i = 0; i < d->n; i++) {
            if (qn_tv_eq(rt, d->at[i].key, key)) {
                return &d->at[i].val;
            }
        }
        return NULL;
    }
    size_t mask = d->n_index - 1;
    for (size_t slot = hash(rt, key) & mask; d->index[slot] != 0; slot = (slot + 1) & mask) {
        struct qn_tdent *e = &d->at[d->index[slot] - 1];
        if (qn_tv_eq(rt, e->key, key)) {
            return &e->val;
        }
    }
    return NULL;
}

void qn_tdict_put(struct qn_trt *rt, struct qn_tdict *d, struct qn_tv key, struct qn_tv val)
{
    if (!qn_tv_hashable(key)) {
        qn_trt_fail(rt, QN_E_INVALID, "%s cannot be a key", qn_tv_kind_name(key.kind));
    }
    if (rt->status != QN_OK) {
        return;
    }
    struct qn_tv *old = qn_tdict_find(rt, d, key);
    if (old != NULL) {
        *old = val;
        return;
    }
    if (d->n == d->cap) {
        size_t cap = d->cap < 4 ? 4 : d->cap * 2;
        struct qn_tdent *at = qn_trt_alloc(rt, cap, sizeof *at);
        if (at == NULL) {
            return;
        }
        if (d->n > 0) {
            memcpy(at, d->at, d->n * sizeof *at);
        }
        d->at = at;
        d->cap = cap;
    }
    d->at[d->n++] = (struct qn_tdent){.key = key, .val = val};
    if (d->n <= 8) {
        return;
    }
    if (d->index == NULL || d->n * 2 > d->n_index) {
        size_t n_index = 32;
        while (n_index < d->n * 4) {
            n_index *= 2;
        }
        d->index = qn_trt_alloc(rt, n_index, sizeof *d->index);
        if (d->index == NULL) {
            d->n--;
            return;
        }
        d->n_index = n_index;
        for (size_t i = 0; i < d->n; i++) {
            index_put(rt, d, i);
        }
        return;
    }
    index_put(rt, d, d->n - 1);
}
