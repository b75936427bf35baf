#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <string.h>

#include "base/json.h"
#include "text/tmpl_fixture.h"

static json_t *parse(const char *text)
{
    json_t *j = NULL;
    assert_int_equal(qn_json_parse(text, strlen(text), 512, &j, NULL), QN_OK);
    return j;
}

static struct rendered run(const char *source, const char *context, const char *trusted,
                           const struct qn_tmpl_limits *limits)
{
    struct rendered r = {0};
    struct qn_tmpl *t = NULL;
    json_t *c = parse(context != NULL ? context : "{}");
    json_t *tr = trusted != NULL ? parse(trusted) : NULL;
    r.rc = qn_tmpl_compile(source, strlen(source), &t, &r.err);
    if (r.rc == QN_OK) {
        r.rc = qn_tmpl_render(t, c, tr, 1764540005, limits, &r.text, &r.plain, &r.err);
        assert_true(qn_buf_reserve(&r.text, 1) && qn_buf_reserve(&r.plain, 1));
    }
    qn_tmpl_free(t);
    json_decref(c);
    json_decref(tr);
    return r;
}

struct rendered render(const char *source, const char *context, const char *trusted)
{
    return run(source, context, trusted, NULL);
}

struct rendered render_limited(const char *source, const char *context,
                               const struct qn_tmpl_limits *limits)
{
    return run(source, context, NULL, limits);
}

void rendered_done(struct rendered *r)
{
    qn_buf_done(&r->text);
    qn_buf_done(&r->plain);
}

void check_text(const char *source, const char *context, const char *want)
{
    struct rendered r = render(source, context, NULL);
    if (r.rc != QN_OK) {
        fail_msg("%s: %s", source, r.err.msg);
    }
    assert_int_equal(r.text.len, strlen(want));
    assert_memory_equal(r.text.data, want, r.text.len);
    assert_int_equal(r.plain.len, r.text.len);
    rendered_done(&r);
}

void check_fails(const char *source, const char *context, enum qn_status rc, const char *part)
{
    struct rendered r = render(source, context, NULL);
    if (r.rc != rc || strstr(r.err.msg, part) == NULL) {
        fail_msg("%s: found %s \"%s\", expected %s \"%s\"", source, qn_status_name(r.rc), r.err.msg,
                 qn_status_name(rc), part);
    }
    rendered_done(&r);
}

void check_plain(const char *source, const char *context, const char *trusted, const char *text,
                 const char *marks)
{
    struct rendered r = render(source, context, trusted);
    if (r.rc != QN_OK) {
        fail_msg("%s: %s", source, r.err.msg);
    }
    assert_int_equal(r.text.len, strlen(text));
    assert_memory_equal(r.text.data, text, r.text.len);
    assert_int_equal(r.plain.len, strlen(marks));
    for (size_t i = 0; i < r.plain.len; i++) {
        if (r.plain.data[i] != marks[i] - '0') {
            fail_msg("%s: byte %zu of \"%s\" is marked %d", source, i, text, r.plain.data[i]);
        }
    }
    rendered_done(&r);
}
