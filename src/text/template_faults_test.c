#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/chat.h"
#include "text/template.h"

// Compiling, normalising and rendering once for each allocation made to fail. The linker sends
// this program's allocations here (--wrap).

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);

static long until_failure = -1; // allocations that still succeed; < 0: all do

static bool fails(void)
{
    return until_failure >= 0 && until_failure-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(align, n);
}

static const char source[] =
    "{% macro f(a, b=[1, 2]) %}{{ a|tojson(indent=2) }}{{ b }}{{ varargs }}{% endmacro %}"
    "{% set ns = namespace(s='') %}{% for m in messages %}{% set ns.s = ns.s ~ m.role|upper %}"
    "{{ f(m, x|default('q')) }}{% endfor %}{{ ns.s * 20000 }}"
    "{{ messages|map(attribute='role')|join(',') }}{{ '%s' % ns.s }}"
    "{% filter title %}a b{% endfilter %}";

static enum qn_status use(const json_t *context)
{
    struct qn_tmpl *t = NULL;
    struct qn_buf text = {0}, plain = {0};
    struct qn_err err = {0};
    json_t *messages = NULL;
    enum qn_status rc = qn_tmpl_compile(source, sizeof source - 1, &t, &err);
    if (rc == QN_OK) {
        rc = qn_chat_normalise(json_object_get(context, "messages"), qn_tmpl_wants_parts(t),
                               &messages, &err);
    }
    if (rc == QN_OK) {
        rc = qn_chat_mark_final(messages, &err);
    }
    if (rc == QN_OK) {
        rc = qn_tmpl_render(t, context, NULL, 0, NULL, &text, &plain, &err);
    }
    if (rc != QN_OK && rc != QN_E_NOMEM && rc != QN_E_LIMIT) {
        fail_msg("found %s \"%s\"", qn_status_name(rc), err.msg);
    }
    json_decref(messages);
    qn_buf_done(&text);
    qn_buf_done(&plain);
    qn_tmpl_free(t);
    return rc;
}

static void test_every_allocation_may_fail(void **state)
{
    static const char text[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": "
        "\"a\"}]},"
        "{\"role\": \"assistant\", \"content\": \"b\", \"reasoning\": \"r\", \"tool_calls\": "
        "[{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"x\\\": 1}\"}}]}]}";
    json_t *context = NULL;
    (void)state;
    assert_int_equal(qn_json_parse(text, sizeof text - 1, 32, &context, NULL), QN_OK);
    long n = 0;
    for (;; n++) {
        until_failure = n;
        enum qn_status rc = use(context);
        bool reached = until_failure < 0;
        until_failure = -1;
        if (!reached) {
            assert_int_equal(rc, QN_OK);
            break;
        }
        assert_int_not_equal(rc, QN_OK);
    }
    assert_true(n > 20);
    json_decref(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
