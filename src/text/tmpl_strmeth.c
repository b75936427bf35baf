#include <string.h>
#include <utf8proc.h>

#include "text/tmpl_rt.h"

/// Methods of strings.

static bool no_args(struct qn_trt *rt, const char *what, const struct qn_targs *args)
{
    return qn_targs_bind(rt, what, args, NULL, 0, 0, NULL);
}

static bool want_str(struct qn_trt *rt, const char *what, struct qn_tv v)
{
    if (v.kind != QN_TV_STR && rt->status == QN_OK) {
        qn_trt_fail(rt, QN_E_INVALID, "%s: found %s, expected a string", what,
                    qn_tv_kind_name(v.kind));
    }
    return rt->status == QN_OK;
}

static bool want_int(struct qn_trt *rt, const char *what, struct qn_tv v, int64_t *out)
{
    if (!qn_tv_is_given(v)) {
        return true;
    }
    if (!qn_tv_is_int(v)) {
        qn_trt_fail(rt, QN_E_INVALID, "%s: found %s, expected an integer", what,
                    qn_tv_kind_name(v.kind));
        return false;
    }
    *out = qn_tv_as_int(v);
    return true;
}

#define CASE_METHOD(fn, name, mode)                                                                \
    static struct qn_tv fn(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)      \
    {                                                                                              \
        return no_args(rt, name, args) ? qn_tv_of_ts(qn_ts_case(rt, self.s, mode))                 \
                                       : qn_tv_undef();                                            \
    }
CASE_METHOD(m_upper, "upper", 'u')
CASE_METHOD(m_lower, "lower", 'l')
CASE_METHOD(m_title, "title", 't')
CASE_METHOD(m_capitalize, "capitalize", 'c')
CASE_METHOD(m_swapcase, "swapcase", 's')

static struct qn_tv strip(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args,
                          const char *what, bool left, bool right)
{
    struct qn_tv chars;
    if (!qn_targs_bind(rt, what, args, (const char *const[]){"chars"}, 1, 0, &chars)) {
        return qn_tv_undef();
    }
    bool given = qn_tv_is_given(chars) && chars.kind != QN_TV_NONE;
    if (given && !want_str(rt, what, chars)) {
        return qn_tv_undef();
    }
    return qn_tv_of_ts(qn_ts_strip(rt, self.s, given ? chars.s : NULL, left, right));
}

static struct qn_tv m_strip(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    return strip(rt, self, args, "strip", true, true);
}

static struct qn_tv m_lstrip(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    return strip(rt, self, args, "lstrip", true, false);
}

static struct qn_tv m_rstrip(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    return strip(rt, self, args, "rstrip", false, true);
}

static void add_piece(struct qn_trt *rt, struct qn_tlist *list, const struct qn_ts *s, size_t from,
                      size_t end)
{
    qn_tlist_add(rt, list, qn_tv_of_ts(qn_ts_sub(rt, s, from, end - from)));
}

static struct qn_tlist *split_space(struct qn_trt *rt, const struct qn_ts *s, int64_t max)
{
    struct qn_tlist *list = qn_tlist_new(rt, 0);
    const struct qn_ts *rest = qn_ts_strip(rt, s, NULL, true, false);
    for (int64_t n = 0; rest->n > 0 && qn_trt_step(rt, 1); n++) {
        size_t end = 0, len = 0;
        if (max >= 0 && n == max) {
            add_piece(rt, list, rest, 0, rest->n);
            break;
        }
        while (end < rest->n && !qn_cp_is_space(qn_tcp_get(rest->p + end, rest->n - end, &len))) {
            end += len;
        }
        add_piece(rt, list, rest, 0, end);
        rest = qn_ts_strip(rt, qn_ts_sub(rt, rest, end, rest->n - end), NULL, true, false);
    }
    return list;
}

static struct qn_tlist *split_sep(struct qn_trt *rt, const struct qn_ts *s, const struct qn_ts *sep,
                                  int64_t max)
{
    struct qn_tlist *list = qn_tlist_new(rt, 0);
    size_t at = 0;
    for (int64_t n = 0; (max < 0 || n < max) && qn_trt_step(rt, 1); n++) {
        size_t hit = qn_ts_find(s, sep, at);
        if (hit == SIZE_MAX) {
            break;
        }
        add_piece(rt, list, s, at, hit);
        at = hit + sep->n;
    }
    add_piece(rt, list, s, at, s->n);
    return list;
}

static void reverse(struct qn_tlist *list)
{
    for (size_t i = 0; i < list->n / 2; i++) {
        struct qn_tv t = list->at[i];
        list->at[i] = list->at[list->n - 1 - i];
        list->at[list->n - 1 - i] = t;
    }
}

static struct qn_tlist *rsplit_sep(struct qn_trt *rt, const struct qn_ts *s,
                                   const struct qn_ts *sep, int64_t max)
{
    struct qn_tlist *list = qn_tlist_new(rt, 0);
    size_t end = s->n;
    for (int64_t n = 0; (max < 0 || n < max) && qn_trt_step(rt, 1); n++) {
        size_t hit = qn_ts_rfind(s, sep, end);
        if (hit == SIZE_MAX) {
            break;
        }
        add_piece(rt, list, s, hit + sep->n, end);
        end = hit;
    }
    add_piece(rt, list, s, 0, end);
    reverse(list);
    return list;
}

static struct qn_tlist *rsplit_space(struct qn_trt *rt, const struct qn_ts *s, int64_t max)
{
    struct qn_tlist *list = qn_tlist_new(rt, 0);
    const struct qn_ts *rest = qn_ts_strip(rt, s, NULL, false, true);
    for (int64_t n = 0; rest->n > 0 && qn_trt_step(rt, 1); n++) {
        if (max >= 0 && n == max) {
            add_piece(rt, list, rest, 0, rest->n);
            break;
        }
        size_t word = rest->n; // where the last word begins
        while (word > 0) {
            size_t start = word - 1, len;
            while (start > 0 && ((unsigned char)rest->p[start] & 0xc0) == 0x80) {
                start--;
            }
            if (qn_cp_is_space(qn_tcp_get(rest->p + start, word - start, &len))) {
                break;
            }
            word = start;
        }
        add_piece(rt, list, rest, word, rest->n);
        rest = qn_ts_strip(rt, qn_ts_sub(rt, rest, 0, word), NULL, false, true);
    }
    reverse(list);
    return list;
}

static struct qn_tv split(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args,
                          bool from_right)
{
    const char *what = from_right ? "rsplit" : "split";
    struct qn_tv a[2];
    int64_t max = -1;
    if (!qn_targs_bind(rt, what, args, (const char *const[]){"sep", "maxsplit"}, 2, 0, a) ||
        !want_int(rt, what, a[1], &max)) {
        return qn_tv_undef();
    }
    struct qn_tlist *list;
    if (!qn_tv_is_given(a[0]) || a[0].kind == QN_TV_NONE) {
        list = from_right ? rsplit_space(rt, self.s, max) : split_space(rt, self.s, max);
        return qn_tv_of_list(QN_TV_LIST, list);
    }
    if (!want_str(rt, what, a[0])) {
        return qn_tv_undef();
    }
    if (a[0].s->n == 0) {
        return qn_trt_fail(rt, QN_E_INVALID, "%s: empty separator", what);
    }
    list = from_right ? rsplit_sep(rt, self.s, a[0].s, max) : split_sep(rt, self.s, a[0].s, max);
    return qn_tv_of_list(QN_TV_LIST, list);
}

static struct qn_tv m_split(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    return split(rt, self, args, false);
}

static struct qn_tv m_rsplit(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    return split(rt, self, args, true);
}

static struct qn_tv m_splitlines(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    struct qn_tv keep;
    if (!qn_targs_bind(rt, "splitlines", args, (const char *const[]){"keepends"}, 1, 0, &keep)) {
        return qn_tv_undef();
    }
    return qn_tv_of_list(QN_TV_LIST, qn_ts_splitlines(rt, self.s, qn_tv_truthy(keep)));
}

// Python's [start:end) arguments in code points, as byte offsets. False: the range is empty and
// not even the empty string is in it.
static bool span(struct qn_trt *rt, const char *what, const struct qn_ts *s, struct qn_tv from,
                 struct qn_tv to, size_t *out_from, size_t *out_end)
{
    int64_t n = (int64_t)s->n_cp, i = 0, j = n;
    if ((from.kind != QN_TV_NONE && !want_int(rt, what, from, &i)) ||
        (to.kind != QN_TV_NONE && !want_int(rt, what, to, &j))) {
        return false;
    }
    i = i < 0 ? (i + n < 0 ? 0 : i + n) : i;
    j = j < 0 ? (j + n < 0 ? 0 : j + n) : j > n ? n : j;
    if (i > n || i > j) {
        return false;
    }
    *out_from = qn_ts_offset(s, (size_t)i);
    *out_end = qn_ts_offset(s, (size_t)j);
    return true;
}

static bool affix_is(const struct qn_ts *s, const struct qn_ts *fix, bool at_end)
{
    return fix->n <= s->n && memcmp(s->p + (at_end ? s->n - fix->n : 0), fix->p, fix->n) == 0;
}

static struct qn_tv affix(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args,
                          bool at_end)
{
    const char *what = at_end ? "endswith" : "startswith";
    struct qn_tv a[3];
    size_t from, end;
    if (!qn_targs_bind(rt, what, args, (const char *const[]){"prefix", "start", "end"}, 3, 1, a)) {
        return qn_tv_undef();
    }
    bool ok = span(rt, what, self.s, a[1], a[2], &from, &end);
    const struct qn_ts *s = ok ? qn_ts_sub(rt, self.s, from, end - from) : qn_ts_empty();
    if (a[0].kind == QN_TV_TUPLE) {
        for (size_t i = 0; i < a[0].list->n; i++) {
            if (want_str(rt, what, a[0].list->at[i]) && ok &&
                affix_is(s, a[0].list->at[i].s, at_end)) {
                return qn_tv_bool(true);
            }
        }
        return qn_tv_bool(false);
    }
    return qn_tv_bool(want_str(rt, what, a[0]) && ok && affix_is(s, a[0].s, at_end));
}

static struct qn_tv m_startswith(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    return affix(rt, self, args, false);
}

static struct qn_tv m_endswith(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    return affix(rt, self, args, true);
}

static struct qn_tv m_replace(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    struct qn_tv a[3];
    int64_t max = -1;
    if (!qn_targs_bind(rt, "replace", args, (const char *const[]){"old", "new", "count"}, 3, 2,
                       a) ||
        !want_str(rt, "replace", a[0]) || !want_str(rt, "replace", a[1]) ||
        !want_int(rt, "replace", a[2], &max)) {
        return qn_tv_undef();
    }
    const struct qn_ts *with = self.s->markup ? qn_ts_escape(rt, a[1].s) : a[1].s;
    return qn_tv_of_ts(qn_ts_replace(rt, self.s, a[0].s, with, max));
}

enum find_mode {
    FIND,
    RFIND,
    INDEX,
    RINDEX,
    COUNT
};

static struct qn_tv find(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args,
                         enum find_mode mode)
{
    static const char *const names[] = {"find", "rfind", "index", "rindex", "count"};
    const char *what = names[mode];
    struct qn_tv a[3];
    size_t from = 0, end = 0;
    if (!qn_targs_bind(rt, what, args, (const char *const[]){"sub", "start", "end"}, 3, 1, a) ||
        !want_str(rt, what, a[0]) || !qn_trt_step(rt, self.s->n / 16)) {
        return qn_tv_undef();
    }
    bool ok = span(rt, what, self.s, a[1], a[2], &from, &end);
    const struct qn_ts *s = ok ? qn_ts_sub(rt, self.s, from, end - from) : qn_ts_empty();
    if (mode == COUNT) {
        int64_t n = 0;
        if (ok && a[0].s->n == 0) {
            n = (int64_t)s->n_cp + 1;
        } else if (ok) {
            for (size_t at = 0; (at = qn_ts_find(s, a[0].s, at)) != SIZE_MAX; at += a[0].s->n) {
                n++;
            }
        }
        return qn_tv_int(n);
    }
    size_t hit = !ok                             ? SIZE_MAX
                 : mode == FIND || mode == INDEX ? qn_ts_find(s, a[0].s, 0)
                                                 : qn_ts_rfind(s, a[0].s, s->n);
    if (hit != SIZE_MAX) {
        return qn_tv_int((int64_t)qn_tcp_count(self.s->p, from + hit));
    }
    if (mode == INDEX || mode == RINDEX) {
        return qn_trt_fail(rt, QN_E_INVALID, "%s: the text is not in the string", what);
    }
    return qn_tv_int(-1);
}

#define FIND_METHOD(fn, mode)                                                                      \
    static struct qn_tv fn(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)      \
    {                                                                                              \
        return find(rt, self, args, mode);                                                         \
    }
FIND_METHOD(m_find, FIND)
FIND_METHOD(m_rfind, RFIND)
FIND_METHOD(m_index, INDEX)
FIND_METHOD(m_rindex, RINDEX)
FIND_METHOD(m_count, COUNT)

static struct qn_tv m_join(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    struct qn_tv items, x;
    struct qn_titer it;
    if (!qn_targs_bind(rt, "join", args, (const char *const[]){"iterable"}, 1, 1, &items) ||
        !qn_titer_init(rt, &it, items)) {
        return qn_tv_undef();
    }
    struct qn_tsbuf *b = qn_tsbuf_new(rt, 0);
    for (size_t i = 0; qn_titer_next(rt, &it, &x); i++) {
        if (!want_str(rt, "join", x)) {
            return qn_tv_undef();
        }
        if (i > 0) {
            qn_tsbuf_add_ts(rt, b, self.s);
        }
        qn_tsbuf_add_ts(rt, b, self.s->markup ? qn_ts_escape(rt, x.s) : x.s);
    }
    return qn_tv_of_ts(qn_ts_with_markup(rt, qn_tsbuf_ts(rt, b), self.s->markup));
}

static struct qn_tv partition(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args,
                              bool from_right)
{
    const char *what = from_right ? "rpartition" : "partition";
    struct qn_tv sep;
    if (!qn_targs_bind(rt, what, args, (const char *const[]){"sep"}, 1, 1, &sep) ||
        !want_str(rt, what, sep)) {
        return qn_tv_undef();
    }
    if (sep.s->n == 0) {
        return qn_trt_fail(rt, QN_E_INVALID, "%s: empty separator", what);
    }
    const struct qn_ts *s = self.s;
    size_t hit = from_right ? qn_ts_rfind(s, sep.s, s->n) : qn_ts_find(s, sep.s, 0);
    struct qn_tlist *list = qn_tlist_new(rt, 3);
    if (hit == SIZE_MAX) {
        const struct qn_ts *none = qn_ts_empty();
        qn_tlist_add(rt, list, qn_tv_of_ts(from_right ? none : s));
        qn_tlist_add(rt, list, qn_tv_of_ts(none));
        qn_tlist_add(rt, list, qn_tv_of_ts(from_right ? s : none));
    } else {
        add_piece(rt, list, s, 0, hit);
        add_piece(rt, list, s, hit, hit + sep.s->n);
        add_piece(rt, list, s, hit + sep.s->n, s->n);
    }
    return qn_tv_of_list(QN_TV_TUPLE, list);
}

static struct qn_tv m_partition(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    return partition(rt, self, args, false);
}

static struct qn_tv m_rpartition(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    return partition(rt, self, args, true);
}

static struct qn_tv remove_affix(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args,
                                 bool at_end)
{
    const char *what = at_end ? "removesuffix" : "removeprefix";
    struct qn_tv fix;
    if (!qn_targs_bind(rt, what, args, (const char *const[]){"affix"}, 1, 1, &fix) ||
        !want_str(rt, what, fix)) {
        return qn_tv_undef();
    }
    if (!affix_is(self.s, fix.s, at_end)) {
        return self;
    }
    return qn_tv_of_ts(qn_ts_sub(rt, self.s, at_end ? 0 : fix.s->n, self.s->n - fix.s->n));
}

static struct qn_tv m_removeprefix(struct qn_trt *rt, struct qn_tv self,
                                   const struct qn_targs *args)
{
    return remove_affix(rt, self, args, false);
}

static struct qn_tv m_removesuffix(struct qn_trt *rt, struct qn_tv self,
                                   const struct qn_targs *args)
{
    return remove_affix(rt, self, args, true);
}

static struct qn_tv pad(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args,
                        const char *what, char side)
{
    struct qn_tv a[2];
    int64_t width = 0;
    if (!qn_targs_bind(rt, what, args, (const char *const[]){"width", "fillchar"}, 2, 1, a) ||
        !want_int(rt, what, a[0], &width)) {
        return qn_tv_undef();
    }
    const struct qn_ts *fill = qn_ts_lit(rt, side == 'z' ? "0" : " ");
    if (qn_tv_is_given(a[1])) {
        if (!want_str(rt, what, a[1])) {
            return qn_tv_undef();
        }
        if (a[1].s->n_cp != 1) {
            return qn_trt_fail(rt, QN_E_INVALID, "%s: expected one fill character", what);
        }
        fill = a[1].s;
    }
    int64_t missing = width - (int64_t)self.s->n_cp;
    if (missing <= 0) {
        return self;
    }
    int64_t left = side == 'l' ? 0 : side == 'c' ? missing / 2 + (missing & width & 1) : missing;
    struct qn_tsbuf *b = qn_tsbuf_new(rt, 0);
    size_t sign = 0;
    if (side == 'z' && self.s->n > 0 && (self.s->p[0] == '-' || self.s->p[0] == '+')) {
        sign = 1;
        qn_tsbuf_add_sub(rt, b, self.s, 0, 1);
    }
    for (int64_t i = 0; i < missing && rt->status == QN_OK; i++) {
        if (i == left) {
            qn_tsbuf_add_sub(rt, b, self.s, sign, self.s->n - sign);
        }
        qn_tsbuf_add_ts(rt, b, fill);
    }
    if (left == missing) {
        qn_tsbuf_add_sub(rt, b, self.s, sign, self.s->n - sign);
    }
    return qn_tv_of_ts(qn_tsbuf_ts(rt, b));
}

#define PAD_METHOD(fn, name, side)                                                                 \
    static struct qn_tv fn(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)      \
    {                                                                                              \
        return pad(rt, self, args, name, side);                                                    \
    }
PAD_METHOD(m_ljust, "ljust", 'l')
PAD_METHOD(m_rjust, "rjust", 'r')
PAD_METHOD(m_center, "center", 'c')
PAD_METHOD(m_zfill, "zfill", 'z')

// 'd' digits, 'a' letters, 'n' both, 's' space, 'u' upper, 'l' lower
static bool all_are(const struct qn_ts *s, char what)
{
    bool any = false;
    for (size_t at = 0; at < s->n;) {
        size_t len;
        uint32_t cp = qn_tcp_get(s->p + at, s->n - at, &len);
        utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)cp);
        bool letter = c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL ||
                      c == UTF8PROC_CATEGORY_LT || c == UTF8PROC_CATEGORY_LM ||
                      c == UTF8PROC_CATEGORY_LO;
        bool digit = c == UTF8PROC_CATEGORY_ND;
        at += len;
        if (what == 'u' || what == 'l') {
            bool lower = c == UTF8PROC_CATEGORY_LL, upper = c == UTF8PROC_CATEGORY_LU;
            if ((what == 'u' ? lower : upper) || c == UTF8PROC_CATEGORY_LT) {
                return false;
            }
            any |= what == 'u' ? upper : lower;
            continue;
        }
        bool ok = what == 'd'   ? digit
                  : what == 'a' ? letter
                  : what == 'n' ? letter || digit
                                : qn_cp_is_space(cp);
        if (!ok) {
            return false;
        }
        any = true;
    }
    return any;
}

#define CLASS_METHOD(fn, name, what)                                                               \
    static struct qn_tv fn(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)      \
    {                                                                                              \
        return no_args(rt, name, args) && qn_trt_step(rt, self.s->n / 16)                          \
                   ? qn_tv_bool(all_are(self.s, what))                                             \
                   : qn_tv_undef();                                                                \
    }
CLASS_METHOD(m_isdigit, "isdigit", 'd')
CLASS_METHOD(m_isalpha, "isalpha", 'a')
CLASS_METHOD(m_isalnum, "isalnum", 'n')
CLASS_METHOD(m_isspace, "isspace", 's')
CLASS_METHOD(m_isupper, "isupper", 'u')
CLASS_METHOD(m_islower, "islower", 'l')

static struct qn_tv m_format(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    return qn_tv_format(rt, self.s, args);
}

// Python has these too; using one is an error that says so, not an undefined value.
static struct qn_tv m_unsupported(struct qn_trt *rt, struct qn_tv self, const struct qn_targs *args)
{
    (void)self;
    (void)args;
    return qn_trt_fail(rt, QN_E_UNSUPPORTED, "a string method that is not supported");
}

const struct qn_tmethoddef qn_tmethods_str[] = {{"strip", m_strip},
                                                {"split", m_split},
                                                {"startswith", m_startswith},
                                                {"endswith", m_endswith},
                                                {"replace", m_replace},
                                                {"lstrip", m_lstrip},
                                                {"rstrip", m_rstrip},
                                                {"upper", m_upper},
                                                {"lower", m_lower},
                                                {"title", m_title},
                                                {"capitalize", m_capitalize},
                                                {"swapcase", m_swapcase},
                                                {"rsplit", m_rsplit},
                                                {"splitlines", m_splitlines},
                                                {"find", m_find},
                                                {"rfind", m_rfind},
                                                {"index", m_index},
                                                {"rindex", m_rindex},
                                                {"count", m_count},
                                                {"join", m_join},
                                                {"partition", m_partition},
                                                {"rpartition", m_rpartition},
                                                {"removeprefix", m_removeprefix},
                                                {"removesuffix", m_removesuffix},
                                                {"ljust", m_ljust},
                                                {"rjust", m_rjust},
                                                {"center", m_center},
                                                {"zfill", m_zfill},
                                                {"isdigit", m_isdigit},
                                                {"isdecimal", m_isdigit},
                                                {"isnumeric", m_isdigit},
                                                {"isalpha", m_isalpha},
                                                {"isalnum", m_isalnum},
                                                {"isspace", m_isspace},
                                                {"isupper", m_isupper},
                                                {"islower", m_islower},
                                                {"format", m_format},
                                                {"format_map", m_unsupported},
                                                {"casefold", m_unsupported},
                                                {"encode", m_unsupported},
                                                {"expandtabs", m_unsupported},
                                                {"isascii", m_unsupported},
                                                {"isidentifier", m_unsupported},
                                                {"isprintable", m_unsupported},
                                                {"istitle", m_unsupported},
                                                {"maketrans", m_unsupported},
                                                {"translate", m_unsupported},
                                                {NULL, NULL}};
