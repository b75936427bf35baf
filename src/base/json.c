#include "base/json.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

// jansson's lexer ignores a failed allocation of its buffer and then reads past it. While it
// parses, such a failure therefore jumps out of it, and what it had allocated is released from this
// set: open addressing, at most half full, as a parse that fails frees every value one by one.
struct watch {
    void **slots;
    size_t n, cap; // cap is 0 or a power of two
    jmp_buf env;
};

static _Thread_local struct watch *t_watch;

static size_t home(const struct watch *w, const void *p)
{
    return (size_t)(((uint64_t)(uintptr_t)p * 0x9e3779b97f4a7c15u) >> 20) & (w->cap - 1);
}

static void watch_add(struct watch *w, void *p)
{
    size_t i = home(w, p);
    while (w->slots[i] != NULL) {
        i = (i + 1) & (w->cap - 1);
    }
    w->slots[i] = p;
}

static bool watch_grow(struct watch *w)
{
    struct watch bigger = {.n = w->n, .cap = w->cap == 0 ? 128 : w->cap * 2};
    bigger.slots = calloc(bigger.cap, sizeof *bigger.slots);
    if (bigger.slots == NULL) {
        return false;
    }
    for (size_t i = 0; i < w->cap; i++) {
        if (w->slots[i] != NULL) {
            watch_add(&bigger, w->slots[i]);
        }
    }
    free(w->slots);
    w->slots = bigger.slots;
    w->cap = bigger.cap;
    return true;
}

static void watch_remove(struct watch *w, const void *p)
{
    if (w->cap == 0) {
        return;
    }
    size_t mask = w->cap - 1, i = home(w, p);
    while (w->slots[i] != p) {
        if (w->slots[i] == NULL) {
            return; // from before this parse
        }
        i = (i + 1) & mask;
    }
    // close the gap, so that no search ends early at it
    for (size_t j = (i + 1) & mask; w->slots[j] != NULL; j = (j + 1) & mask) {
        if (((j - home(w, w->slots[j])) & mask) >= ((j - i) & mask)) {
            w->slots[i] = w->slots[j];
            i = j;
        }
    }
    w->slots[i] = NULL;
    w->n--;
}

static void *json_alloc(size_t n_bytes)
{
    struct watch *w = t_watch;
    if (w == NULL) {
        return malloc(n_bytes);
    }
    if (w->n >= w->cap / 2 && !watch_grow(w)) {
        longjmp(w->env, 1);
    }
    void *p = malloc(n_bytes);
    if (p == NULL) {
        longjmp(w->env, 1);
    }
    watch_add(w, p);
    w->n++;
    return p;
}

static void json_release(void *p)
{
    if (t_watch != NULL && p != NULL) {
        watch_remove(t_watch, p);
    }
    free(p);
}

__attribute__((constructor)) static void hook_allocations(void) // before there are threads
{
    json_set_alloc_funcs(json_alloc, json_release);
}

// NULL with *out_no_memory set, or NULL with je, or the value.
static json_t *load_watched(const char *text, size_t n, json_error_t *je, bool *out_no_memory)
{
    struct watch w = {0};
    json_t *volatile v = NULL;
    *out_no_memory = false;
    t_watch = &w;
    if (setjmp(w.env) == 0) {
        v = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, je);
    } else {
        for (size_t i = 0; i < w.cap; i++) {
            free(w.slots[i]);
        }
        *out_no_memory = true;
    }
    t_watch = NULL;
    free(w.slots);
    return v;
}

// jansson's own depth limit is a compile-time constant; check ours before parsing, in linear time.
static bool depth_ok(const char *text, size_t n, unsigned max_depth)
{
    unsigned depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') {
                i++;
            } else if (c == '"') {
                in_string = false;
            }
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            if (++depth > max_depth) {
                return false;
            }
        } else if ((c == ']' || c == '}') && depth > 0) {
            depth--;
        }
    }
    return true;
}

// Length of the integer at p if it is one that 64 bits cannot hold, else 0. Files have them:
// "model_max_length" is often 10^30.
static size_t big_int_len(const char *p, const char *end)
{
    const char *digits = p < end && *p == '-' ? p + 1 : p;
    const char *q = digits;
    while (q < end && *q >= '0' && *q <= '9') {
        q++;
    }
    size_t n = (size_t)(q - digits);
    if (n < 19 || *digits == '0' || (q < end && (*q == '.' || *q == 'e' || *q == 'E'))) {
        return 0;
    }
    const char *max = digits == p ? "9223372036854775807" : "9223372036854775808";
    return n > 19 || memcmp(digits, max, 19) > 0 ? (size_t)(q - p) : 0;
}

// Writes the text with ".0" behind every such integer, so that it is read as a real number.
// Returns how many there were; out may be NULL to count.
static size_t widen_ints(const char *text, size_t n, char *out)
{
    const char *end = text + n;
    bool in_string = false;
    size_t count = 0;
    for (const char *p = text; p < end;) {
        size_t len = 1;
        bool big = false;
        if (in_string) {
            len = *p == '\\' && end - p > 1 ? 2 : 1;
            in_string = *p != '"';
        } else if (*p == '"') {
            in_string = true;
        } else if (*p == '-' || (*p >= '0' && *p <= '9')) {
            len = big_int_len(p, end);
            big = len > 0;
            if (!big) {
                for (len = 1; p + len < end && p[len] >= '0' && p[len] <= '9'; len++) {
                }
            }
        }
        if (out != NULL) {
            memcpy(out, p, len);
            out += len;
            if (big) {
                memcpy(out, ".0", 2);
                out += 2;
            }
        }
        count += big;
        p += len;
    }
    return count;
}

enum qn_status qn_json_parse(const char *text, size_t n, unsigned max_depth, json_t **out,
                             struct qn_err *err)
{
    if (!depth_ok(text, n, max_depth)) {
        return qn_fail(err, QN_E_LIMIT, "JSON nested deeper than %u levels", max_depth);
    }
    char *wide = NULL;
    size_t n_big = widen_ints(text, n, NULL);
    if (n_big > 0) {
        wide = malloc(n + 2 * n_big);
        if (wide == NULL) {
            return qn_fail(err, QN_E_NOMEM, "could not allocate %zu bytes", n + 2 * n_big);
        }
        widen_ints(text, n, wide);
        text = wide;
        n += 2 * n_big;
    }
    json_error_t je;
    bool no_memory;
    json_t *v = load_watched(text, n, &je, &no_memory);
    free(wide);
    if (v == NULL) {
        if (no_memory) {
            return qn_fail(err, QN_E_NOMEM, "could not allocate memory for JSON");
        }
        return qn_fail(err, QN_E_FORMAT, "invalid JSON at line %d column %d: %s", je.line,
                       je.column, je.text);
    }
    *out = v;
    return QN_OK;
}

enum qn_status qn_json_read(const char *path, size_t limit, unsigned max_depth, json_t **out,
                            struct qn_err *err)
{
    char *data = NULL;
    size_t n = 0;
    enum qn_status rc = qn_file_read(path, limit, &data, &n, err);
    if (rc == QN_OK) {
        rc = qn_json_parse(data, n, max_depth, out, err);
        free(data);
    }
    if (rc != QN_OK) {
        return qn_err_context(err, rc, "file \"%s\"", path);
    }
    return QN_OK;
}

const char *qn_json_type_name(const json_t *v)
{
    if (v == NULL) {
        return "nothing";
    }
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "nothing";
}

static const json_t *member(const json_t *obj, const char *key, bool *out_found)
{
    const json_t *v = json_object_get(obj, key);
    bool found = v != NULL && !json_is_null(v);
    if (out_found != NULL) {
        *out_found = found;
    }
    return found ? v : NULL;
}

static enum qn_status wrong_type(const json_t *v, const char *key, const char *want,
                                 struct qn_err *err)
{
    return qn_fail(err, QN_E_FORMAT, "key \"%s\": found %s, expected %s", key, qn_json_type_name(v),
                   want);
}

enum qn_status qn_json_get_int(const json_t *obj, const char *key, int64_t min, int64_t max,
                               int64_t *out, bool *out_found, struct qn_err *err)
{
    const json_t *v = member(obj, key, out_found);
    if (v == NULL) {
        return QN_OK;
    }
    if (!json_is_integer(v)) {
        return wrong_type(v, key, "an integer", err);
    }
    int64_t i = json_integer_value(v);
    if (i < min || i > max) {
        return qn_fail(err, QN_E_FORMAT, "key \"%s\": found %lld, expected %lld to %lld", key,
                       (long long)i, (long long)min, (long long)max);
    }
    *out = i;
    return QN_OK;
}

enum qn_status qn_json_get_num(const json_t *obj, const char *key, double *out, bool *out_found,
                               struct qn_err *err)
{
    const json_t *v = member(obj, key, out_found);
    if (v == NULL) {
        return QN_OK;
    }
    if (!json_is_number(v)) {
        return wrong_type(v, key, "a number", err);
    }
    *out = json_number_value(v);
    return QN_OK;
}

enum qn_status qn_json_get_bool(const json_t *obj, const char *key, bool *out, bool *out_found,
                                struct qn_err *err)
{
    const json_t *v = member(obj, key, out_found);
    if (v == NULL) {
        return QN_OK;
    }
    if (!json_is_boolean(v)) {
        return wrong_type(v, key, "true or false", err);
    }
    *out = json_is_true(v);
    return QN_OK;
}

enum qn_status qn_json_get_str(const json_t *obj, const char *key, const char **out,
                               bool *out_found, struct qn_err *err)
{
    const json_t *v = member(obj, key, out_found);
    if (v == NULL) {
        return QN_OK;
    }
    if (!json_is_string(v)) {
        return wrong_type(v, key, "a string", err);
    }
    *out = json_string_value(v);
    return QN_OK;
}
