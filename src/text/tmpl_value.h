#ifndef QN_TEXT_TMPL_VALUE_H
#define QN_TEXT_TMPL_VALUE_H

#include "base/mem.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Values of the template language. Everything lives in an arena: the template's own (constants,
/// never written after compilation) or that of one render.
struct qn_trt;
struct qn_tloop;
struct qn_tmacro;
struct qn_tfunc;
struct qn_tmethod;

enum qn_tv_kind {
    QN_TV_UNDEF,
    QN_TV_NONE,
    QN_TV_BOOL,
    QN_TV_INT,
    QN_TV_FLOAT,
    QN_TV_STR,
    QN_TV_LIST,
    QN_TV_TUPLE,
    QN_TV_DICT,
    QN_TV_VIEW, ///< dict.keys(), values(), items(): iterable with a length, no subscripts
    QN_TV_GEN,  ///< what map, select, … give: read once, always true, no length
    QN_TV_RANGE,
    QN_TV_NS,
    QN_TV_MACRO,
    QN_TV_FUNC,
    QN_TV_METHOD,
    QN_TV_LOOP,
    QN_TV_CYCLER,
    QN_TV_JOINER,
    QN_TV_MISSING ///< an argument that was not given; never seen by a template
};

/// A growing string: bytes and, once they differ, one mark per byte.
struct qn_tsbuf {
    char *p;
    unsigned char *marks; ///< NULL while all bytes are alike
    size_t n;
    size_t cap;
    bool plain;     ///< what all bytes are while marks is NULL
    bool any_plain; ///< at least one byte came from the request
};

/// An immutable string, UTF-8. `marks` has one byte per byte of text (1: from the request) or is
/// NULL when all bytes are alike, then `plain` says which.
struct qn_ts {
    const char *p;
    size_t n;
    const unsigned char *marks;
    struct qn_tsbuf *buf; ///< growable owner, when this string was its end (appending is cheap)
    size_t n_cp;          ///< code points
    bool plain;
    bool markup; ///< made by safe or escape: + and % escape what joins it
};

struct qn_tv {
    enum qn_tv_kind kind;
    union {
        bool b;
        int64_t i;
        double f;
        const struct qn_ts *s;
        struct qn_tlist *list; ///< LIST, TUPLE, VIEW, GEN, CYCLER, JOINER
        struct qn_tdict *dict; ///< DICT, NS
        const struct qn_trange *range;
        const struct qn_tmacro *macro;
        const struct qn_tfunc *func;
        const struct qn_tmethod *method;
        struct qn_tloop *loop;
        const struct qn_tundef *undef; ///< NULL: nothing is known about it
    };
};

struct qn_tlist {
    struct qn_tv *at;
    size_t n;
    size_t cap;
    size_t next;      ///< GEN: items already read; CYCLER: position; JOINER: uses
    const char *what; ///< VIEW, GEN: the name that printing shows; TUPLE: "group" of groupby
};

struct qn_tdent {
    struct qn_tv key;
    struct qn_tv val;
};

/// Insertion-ordered map; keys are strings, numbers, booleans, none and tuples of them.
struct qn_tdict {
    struct qn_tdent *at;
    size_t n;
    size_t cap;
    uint32_t *index; ///< entry + 1, 0 free; only from 9 entries on
    size_t n_index;  ///< power of two
};

struct qn_trange {
    int64_t start;
    int64_t step;
    int64_t n;
    int64_t stop; ///< as given, for printing
};

/// Where an undefined value came from, for the message when it is used.
struct qn_tundef {
    const char *hint;         ///< whole sentence, or NULL
    const struct qn_ts *name; ///< attribute, key or variable
    enum qn_tv_kind owner;    ///< QN_TV_MISSING: a variable
};

static inline struct qn_tv qn_tv_undef(void)
{
    return (struct qn_tv){.kind = QN_TV_UNDEF};
}

static inline struct qn_tv qn_tv_none(void)
{
    return (struct qn_tv){.kind = QN_TV_NONE};
}

static inline struct qn_tv qn_tv_missing(void)
{
    return (struct qn_tv){.kind = QN_TV_MISSING};
}

static inline struct qn_tv qn_tv_bool(bool b)
{
    return (struct qn_tv){.kind = QN_TV_BOOL, .b = b};
}

static inline struct qn_tv qn_tv_int(int64_t i)
{
    return (struct qn_tv){.kind = QN_TV_INT, .i = i};
}

static inline struct qn_tv qn_tv_float(double f)
{
    return (struct qn_tv){.kind = QN_TV_FLOAT, .f = f};
}

static inline struct qn_tv qn_tv_of_ts(const struct qn_ts *s)
{
    return (struct qn_tv){.kind = QN_TV_STR, .s = s};
}

static inline struct qn_tv qn_tv_of_list(enum qn_tv_kind kind, struct qn_tlist *list)
{
    return (struct qn_tv){.kind = kind, .list = list};
}

static inline bool qn_tv_is_given(struct qn_tv v)
{
    return v.kind != QN_TV_MISSING;
}

/// BOOL or INT, which Python counts as integers.
static inline bool qn_tv_is_int(struct qn_tv v)
{
    return v.kind == QN_TV_INT || v.kind == QN_TV_BOOL;
}

static inline bool qn_tv_is_num(struct qn_tv v)
{
    return qn_tv_is_int(v) || v.kind == QN_TV_FLOAT;
}

static inline int64_t qn_tv_as_int(struct qn_tv v)
{
    return v.kind == QN_TV_BOOL ? (v.b ? 1 : 0) : v.i;
}

static inline double qn_tv_as_num(struct qn_tv v)
{
    return v.kind == QN_TV_FLOAT ? v.f : (double)qn_tv_as_int(v);
}

/// "a string", "a list", … for messages.
const char *qn_tv_kind_name(enum qn_tv_kind kind);

bool qn_tv_truthy(struct qn_tv v);
bool qn_tv_callable(struct qn_tv v);
/// Python's ==. False after a failure (values nested too deep).
bool qn_tv_eq(struct qn_trt *rt, struct qn_tv a, struct qn_tv b);
/// Python's ordering: negative, 0, positive. Kinds without order fail; NaN compares as 2.
int qn_tv_cmp(struct qn_trt *rt, struct qn_tv a, struct qn_tv b);
/// Same object, as Python's `is` shows it.
bool qn_tv_same(struct qn_tv a, struct qn_tv b);
/// len(v); false when v has none.
bool qn_tv_len(struct qn_tv v, size_t *out_n);
/// Python's `item in v`.
bool qn_tv_contains(struct qn_trt *rt, struct qn_tv v, struct qn_tv item);

/// Iteration over anything iterable. A GEN is consumed.
struct qn_titer {
    struct qn_tv v;
    size_t at;
};
bool qn_titer_able(struct qn_tv v);
/// Fails (and returns false) when v cannot be iterated.
bool qn_titer_init(struct qn_trt *rt, struct qn_titer *it, struct qn_tv v);
bool qn_titer_next(struct qn_trt *rt, struct qn_titer *it, struct qn_tv *out);

struct qn_tlist *qn_tlist_new(struct qn_trt *rt, size_t cap);
void qn_tlist_add(struct qn_trt *rt, struct qn_tlist *list, struct qn_tv v);
/// All items of an iterable in a fresh list.
struct qn_tlist *qn_tlist_of(struct qn_trt *rt, struct qn_tv v);

struct qn_tdict *qn_tdict_new(struct qn_trt *rt, size_t cap);
/// Whether a value can be a key.
bool qn_tv_hashable(struct qn_tv v);
/// NULL when absent. `key` must be hashable.
struct qn_tv *qn_tdict_find(struct qn_trt *rt, const struct qn_tdict *d, struct qn_tv key);
/// Insert or replace. An unhashable key fails.
void qn_tdict_put(struct qn_trt *rt, struct qn_tdict *d, struct qn_tv key, struct qn_tv val);

#endif
