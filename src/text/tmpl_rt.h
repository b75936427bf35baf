#ifndef QN_TEXT_TMPL_RT_H
#define QN_TEXT_TMPL_RT_H

#include "base/buf.h"
#include "text/tmpl_ast.h"
#include "text/tmpl_str.h"
#include "text/tmpl_value.h"

/// One render. A failure is sticky: the first is kept, everything after it is skipped, so
/// functions return plain values and callers test rt->status where they loop.

struct qn_tslot {
    const struct qn_tsym *name;
    struct qn_tv val;
};

/// Variables of one block; names are looked up through the parents.
struct qn_tscope {
    struct qn_tscope *parent;
    struct qn_tslot *slots;
    size_t n;
    size_t cap;
};

/// Where text goes: the caller's buffers, or a capture.
struct qn_tsink {
    struct qn_buf *text;
    struct qn_buf *plain; ///< NULL if not wanted
    struct qn_tsbuf *capture;
};

struct qn_trt {
    const struct qn_tmpl *t;
    struct qn_arena *arena;
    struct qn_err *err;
    enum qn_status status;
    uint32_t pos; ///< source offset of the node in work
    uint64_t steps;
    uint64_t max_steps;
    size_t n_calls; ///< nested macro calls and recursive loops
    size_t max_calls;
    size_t n_levels; ///< nested evaluations, bounded so that the C stack is
    size_t max_levels;
    size_t max_output;
    size_t n_output;
    int64_t now_s;
    uint64_t hash_seed; ///< keys the mappings' indexes against crafted collisions
    struct qn_tdict *context;
    struct qn_tdict *trusted; ///< NULL if none
    struct qn_tsink sink;
    struct qn_tlist no_list; ///< what a failed allocation gives
    struct qn_tdict no_dict;
};

/// Values may not nest deeper than this; printing and comparing recurse.
#define QN_TV_MAX_DEPTH 200

struct qn_tv qn_trt_fail(struct qn_trt *rt, enum qn_status code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/// Fail because memory ran out (the render's budget or the machine).
void qn_trt_nomem(struct qn_trt *rt);
/// Count n steps; false when the budget is spent or the render has failed.
bool qn_trt_step(struct qn_trt *rt, uint64_t n);
/// Zeroed memory of the render, NULL after failing it.
void *qn_trt_alloc(struct qn_trt *rt, size_t n, size_t size);
/// An undefined value that knows the missing thing.
struct qn_tv qn_trt_undef(struct qn_trt *rt, enum qn_tv_kind owner, const struct qn_ts *name);
struct qn_tv qn_trt_undef_hint(struct qn_trt *rt, const char *hint);
/// Fail because an undefined value was used.
struct qn_tv qn_trt_fail_undef(struct qn_trt *rt, struct qn_tv v);

/// Evaluated arguments of a call.
struct qn_targs {
    const struct qn_tv *pos;
    size_t n_pos;
    const struct qn_ts *const *kw_names;
    const struct qn_tv *kw;
    size_t n_kw;
};

/// Match arguments to parameter names, "old", "new", …; absent ones become MISSING.
/// @param what  the callee, for messages.
bool qn_targs_bind(struct qn_trt *rt, const char *what, const struct qn_targs *args,
                   const char *const *names, size_t n_names, size_t n_required, struct qn_tv *out);

typedef struct qn_tv qn_tfilter_fn(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args);
typedef bool qn_ttest_fn(struct qn_trt *rt, struct qn_tv in, const struct qn_targs *args);

struct qn_tfilter {
    const char *name;
    qn_tfilter_fn *fn;
};

struct qn_ttest {
    const char *name;
    qn_ttest_fn *fn;
};

/// A global function.
struct qn_tfunc {
    const char *name;
    struct qn_tv (*fn)(struct qn_trt *rt, const struct qn_targs *args);
};

/// A method of a built-in kind, bound to its object.
struct qn_tmethoddef {
    const char *name;
    struct qn_tv (*fn)(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args);
};

struct qn_tmethod {
    const struct qn_tmethoddef *def;
    struct qn_tv self;
};

/// A macro or caller with the scope it was defined in.
struct qn_tmacro {
    const struct qn_tnode *node;
    struct qn_tscope *scope;
};

/// A running for statement.
struct qn_tloop {
    const struct qn_tnode *node;
    struct qn_tscope *scope; ///< around the statement
    struct qn_titer it;
    struct qn_tv items; ///< what is iterated
    int64_t index0;
    int64_t depth0;
    int64_t length; ///< -1: not known yet
    struct qn_tv before;
    struct qn_tv current;
    struct qn_tv after; ///< MISSING: not looked ahead
    bool ended;         ///< nothing more comes
    bool filtered;      ///< the rest was read ahead: the filter has been applied
    struct qn_tv changed;
};

/// Tables; NULL when there is no such name.
const struct qn_tfilter *qn_tfilter_find(const struct qn_ts *name);
const struct qn_ttest *qn_ttest_find(const struct qn_ts *name);
const struct qn_tfunc *qn_tfunc_find(const struct qn_ts *name);
const struct qn_tmethoddef *qn_tmethod_find(enum qn_tv_kind kind, const struct qn_ts *name);
/// The tables' parts, each ended by a NULL name.
extern const struct qn_tfilter qn_tfilters_text[];
extern const struct qn_tfilter qn_tfilters_num[];
extern const struct qn_tfilter qn_tfilters_seq[];
extern const struct qn_tfilter qn_tfilters_pick[];
extern const struct qn_tmethoddef qn_tmethods_str[];

/// str(v) and repr(v) as Python prints them.
const struct qn_ts *qn_tv_str(struct qn_trt *rt, struct qn_tv v);
const struct qn_ts *qn_tv_repr(struct qn_trt *rt, struct qn_tv v);
/// Shortest decimal that reads back the same, in Python's form. out holds QN_FLOAT_REPR_MAX bytes.
#define QN_FLOAT_REPR_MAX 64
void qn_float_repr(double f, char *out);
/// What json.dumps takes.
struct qn_tjson_opts {
    bool ensure_ascii;
    bool sort_keys;
    bool indented;
    const struct qn_ts *indent;   ///< one level, when indented
    const struct qn_ts *item_sep; ///< NULL: default
    const struct qn_ts *key_sep;  ///< NULL: default
};
const struct qn_ts *qn_tv_json(struct qn_trt *rt, struct qn_tv v, const struct qn_tjson_opts *opts);

/// Operators and access.
struct qn_tv qn_tv_binary(struct qn_trt *rt, enum qn_tn_op op, struct qn_tv a, struct qn_tv b);
struct qn_tv qn_tv_negate(struct qn_trt *rt, struct qn_tv v);
bool qn_tv_compare(struct qn_trt *rt, enum qn_tn_op op, struct qn_tv a, struct qn_tv b);
/// v.name: methods and attributes first, then keys; UNDEF when absent.
struct qn_tv qn_tv_attr(struct qn_trt *rt, struct qn_tv v, const struct qn_ts *name);
/// v[key]: keys first, then attributes.
struct qn_tv qn_tv_item(struct qn_trt *rt, struct qn_tv v, struct qn_tv key);
/// The attribute alone, never a key; UNDEF when absent.
struct qn_tv qn_tv_attr_only(struct qn_trt *rt, struct qn_tv v, const struct qn_ts *name);
/// v[from:to:step]; each bound NONE or an integer.
struct qn_tv qn_tv_slice(struct qn_trt *rt, struct qn_tv v, struct qn_tv from, struct qn_tv to,
                         struct qn_tv step);
/// "a.b.0" as filters take it: each part a key, digits an index.
struct qn_tv qn_tv_path(struct qn_trt *rt, struct qn_tv v, struct qn_tv path);
/// The same; every part that is undefined becomes `otherwise` (MISSING: stays undefined).
struct qn_tv qn_tv_path_or(struct qn_trt *rt, struct qn_tv v, struct qn_tv path,
                           struct qn_tv otherwise);
/// Python's "%" formatting and str.format.
struct qn_tv qn_tv_percent(struct qn_trt *rt, const struct qn_ts *fmt, struct qn_tv args);
struct qn_tv qn_tv_format(struct qn_trt *rt, const struct qn_ts *fmt, const struct qn_targs *args);
/// HTML escaping of text that is not markup yet.
const struct qn_ts *qn_ts_escape(struct qn_trt *rt, const struct qn_ts *s);
/// Stable sort by Python's order.
void qn_tlist_sort(struct qn_trt *rt, struct qn_tlist *keys, struct qn_tlist *vals, bool reverse);

/// Case mapping of whole strings: 'u' upper, 'l' lower, 'c' capitalise, 't' title, 's' swap.
const struct qn_ts *qn_ts_case(struct qn_trt *rt, const struct qn_ts *s, char mode);
/// Strip white space or, with chars, those code points; left and right as asked.
const struct qn_ts *qn_ts_strip(struct qn_trt *rt, const struct qn_ts *s, const struct qn_ts *chars,
                                bool left, bool right);
/// At most max replacements, negative for all.
const struct qn_ts *qn_ts_replace(struct qn_trt *rt, const struct qn_ts *s, const struct qn_ts *old,
                                  const struct qn_ts *with, int64_t max);
/// Lines as str.splitlines gives them.
struct qn_tlist *qn_ts_splitlines(struct qn_trt *rt, const struct qn_ts *s, bool keep_ends);

/// Evaluate and run (tmpl_eval.c, tmpl_exec.c).
struct qn_tv qn_teval(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n);
struct qn_tv qn_teval_filters(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n,
                              struct qn_tv in);
/// A call node; `caller` is MISSING outside of call blocks.
struct qn_tv qn_teval_call(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnode *n,
                           struct qn_tv caller);
enum qn_tflow {
    QN_FLOW_ON,
    QN_FLOW_BREAK,
    QN_FLOW_CONTINUE,
};
enum qn_tflow qn_texec(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tnodes *body);
struct qn_tv qn_tcall(struct qn_trt *rt, struct qn_tv callee, const struct qn_targs *args);
struct qn_tv qn_tcall_macro(struct qn_trt *rt, const struct qn_tmacro *m,
                            const struct qn_targs *args);
/// The body of a recursive loop for other items.
struct qn_tv qn_tcall_loop(struct qn_trt *rt, const struct qn_tloop *loop,
                           const struct qn_targs *args);
/// loop.NAME, MISSING when there is no such attribute.
struct qn_tv qn_tloop_attr(struct qn_trt *rt, struct qn_tloop *loop, const struct qn_ts *name);
bool qn_tloop_next(struct qn_trt *rt, struct qn_tloop *loop, struct qn_tv *out);
void qn_temit(struct qn_trt *rt, const struct qn_ts *s);

/// A variable's value: blocks outwards, then the context, then what every template has.
struct qn_tv qn_tscope_get(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tsym *name);
struct qn_tscope *qn_tscope_new(struct qn_trt *rt, struct qn_tscope *parent);
void qn_tscope_set(struct qn_trt *rt, struct qn_tscope *sc, const struct qn_tsym *name,
                   struct qn_tv v);

#endif
