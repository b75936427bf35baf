#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "text/tokenizer.h"

// Small tokenizers of each family, trained with the reference library, against its ids and texts
// (tools/golden/tokenizer_train.py writes both).

#define DIR "tests/data/tokenizers/"

struct fields {
    char *v[5];
};

/// Cut a line at its tabs; false unless there are five parts.
static bool cut_line(char *line, struct fields *f)
{
    for (int i = 0; i < 5; i++) {
        f->v[i] = line;
        line = strchr(line, '\t');
        if ((line == NULL) != (i == 4)) {
            return false;
        }
        if (line != NULL) {
            *line++ = '\0';
        }
    }
    return true;
}

static void check_text(const struct qn_tok *t, const struct qn_ids *ids, bool skip,
                       const char *json, size_t line)
{
    struct qn_buf got = {0};
    json_t *want = json_loads(json, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_true(json_is_string(want));
    assert_int_equal(qn_tok_decode(t, ids->v, ids->n, skip, &got, NULL), QN_OK);
    if (got.len != json_string_length(want) ||
        (got.len > 0 && memcmp(got.data, json_string_value(want), got.len) != 0)) {
        fail_msg("line %zu: text \"%s\", expected %s", line, got.data, json);
    }
    struct qn_detok d; // the pieces join to the same
    size_t n = 0;
    char *out = malloc(qn_detok_max_out(t));
    assert_non_null(out);
    qn_detok_init(&d, t, skip);
    for (size_t i = 0; i <= ids->n; i++) {
        size_t k = i < ids->n ? qn_detok_push(&d, ids->v[i], out) : qn_detok_finish(&d, out);
        assert_true(n + k <= got.len);
        if (k > 0) {
            assert_memory_equal(got.data + n, out, k);
        }
        n += k;
    }
    assert_int_equal(n, got.len);
    free(out);
    json_decref(want);
    qn_buf_done(&got);
}

static void check_line(const struct qn_tok *t, struct fields *f, size_t line)
{
    struct qn_ids ids = {0};
    struct qn_err err = {0};
    unsigned flags = (unsigned)strtoul(f->v[0], NULL, 10); // as in tokenizer.h
    json_t *text = json_loads(f->v[1], JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_true(json_is_string(text));
    if (qn_tok_encode(t, json_string_value(text), json_string_length(text), NULL, flags, &ids,
                      &err) != QN_OK) {
        fail_msg("line %zu: %s", line, err.msg);
    }
    char *p = f->v[2];
    for (size_t i = 0; i < ids.n; i++) {
        char *end;
        long want = strtol(p, &end, 10);
        if (end == p || want != ids.v[i]) {
            fail_msg("line %zu: id %zu of %s is %d, expected %ld", line, i, f->v[1], ids.v[i],
                     want);
        }
        p = end;
    }
    assert_int_equal(*p, '\0');
    check_text(t, &ids, false, f->v[3], line);
    check_text(t, &ids, true, f->v[4], line);
    qn_ids_done(&ids);
    json_decref(text);
}

static void check_family(void **state)
{
    const char *name = *state;
    char path[128];
    struct qn_err err = {0};
    struct qn_tok *t = NULL;
    char *json, *lines;
    size_t n;
    snprintf(path, sizeof path, DIR "%s.json", name);
    assert_int_equal(qn_file_read(path, 1u << 20, &json, &n, &err), QN_OK);
    if (qn_tok_from_json(json, n, NULL, &t, &err) != QN_OK) {
        fail_msg("%s", err.msg);
    }
    free(json);
    snprintf(path, sizeof path, DIR "%s.golden", name);
    assert_int_equal(qn_file_read(path, 1u << 20, &lines, &n, &err), QN_OK);
    size_t count = 0;
    for (char *line = lines; *line != '\0';) {
        char *end = strchr(line, '\n');
        struct fields f;
        assert_non_null(end);
        *end = '\0';
        assert_true(cut_line(line, &f));
        check_line(t, &f, ++count);
        line = end + 1;
    }
    assert_true(count >= 100);
    free(lines);
    qn_tok_free(t);
}

#define FAMILY(fam)                                                                                \
    {                                                                                              \
        .name = "golden_" fam, .test_func = check_family, .initial_state = (void *)(fam)           \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAMILY("llama3"), FAMILY("qwen"),  FAMILY("gptoss"),  FAMILY("tekken"),
        FAMILY("smollm"), FAMILY("gemma"), FAMILY("mistral"), FAMILY("metaspace"),
    };
    return cmocka_run_group_tests_name("tok_golden", tests, NULL, NULL);
}
