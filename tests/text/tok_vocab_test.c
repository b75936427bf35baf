#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "text/tok_open.h"

// Real vocabularies, from the folder QUERN_TEST_DATA (default ../shared/data): the strings that
// come with GGUF vocabulary files, and the speed of a large tokenizer.json.

#define SEPARATOR "\n__ggml_vocab_test__\n"

static void data_path(char *out, size_t n, const char *name)
{
    const char *root = getenv("QUERN_TEST_DATA");
    snprintf(out, n, "%s/%s", root == NULL ? "../shared/data" : root, name);
    if (!qn_file_exists(out)) {
        print_message("skipped: no file %s (QUERN_TEST_DATA)\n", out);
        skip();
    }
}

static char *read_all(const char *path)
{
    char *text;
    size_t n;
    struct qn_err err = {0};
    if (qn_file_read(path, 1u << 28, &text, &n, &err) != QN_OK) {
        fail_msg("%s: %s", path, err.msg);
    }
    return text;
}

static struct qn_tok *open_tok(const char *path)
{
    struct qn_tok *t = NULL;
    struct qn_err err = {0};
    if (qn_test_tok_open(path, &t, &err) != QN_OK) {
        fail_msg("%s: %s", path, err.msg);
    }
    return t;
}

/// Ids on a line; returns the next line.
static char *check_ids(const struct qn_tok *t, const char *text, size_t n, char *line,
                       size_t number)
{
    struct qn_ids ids = {0};
    assert_int_equal(qn_tok_encode(t, text, n, NULL, QN_TOK_PARSE_SPECIAL, &ids, NULL), QN_OK);
    for (size_t i = 0; i < ids.n; i++) {
        char *end;
        long want = strtol(line, &end, 10);
        if (*line == '\n' || end == line || want != ids.v[i]) {
            fail_msg("string %zu \"%.*s\": id %zu is %d, expected %.16s", number, (int)n, text, i,
                     ids.v[i], line);
        }
        line = end;
    }
    qn_ids_done(&ids);
    line += strspn(line, " ");
    if (*line != '\n' && *line != '\0') {
        fail_msg("string %zu \"%.*s\": fewer ids than expected, next %.16s", number, (int)n, text,
                 line);
    }
    return *line == '\n' ? line + 1 : line;
}

static void test_vocab(void **state)
{
    char path[1024];
    const size_t most = sizeof path - 8;
    data_path(path, most, *state);
    struct qn_tok *t = open_tok(path);
    char *end = path + strlen(path);
    memcpy(end, ".inp", 5);
    char *input = read_all(path);
    memcpy(end, ".out", 5);
    char *output = read_all(path), *line = output;
    size_t number = 0;
    for (char *p = input; p != NULL; number++) {
        char *stop = strstr(p, SEPARATOR);
        size_t n = stop == NULL ? strlen(p) : (size_t)(stop - p);
        line = check_ids(t, p, n, line, number);
        p = stop == NULL ? NULL : stop + strlen(SEPARATOR);
    }
    assert_true(number > 40);
    assert_int_equal(*line, '\0'); // as many lines as strings
    free(input);
    free(output);
    qn_tok_free(t);
}

/// tokenizer.json with its tokenizer_config.json.
static void test_real_configs(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int32_t bos, eos, pad;
        bool adds_bos;
    } want[] = {{"llama3_1", 128000, 128009, -1, true},
                {"qwen3", -1, 151645, 151643, false},
                {"gptoss", 199998, 200002, 199999, false},
                {"gemma3", 2, 106, 0, true}};
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        char name[128], path[1024];
        size_t n;
        char *text;
        json_t *config = NULL;
        struct qn_tok *t = NULL;
        struct qn_err err = {0};
        snprintf(name, sizeof name, "tokenizers/%s/tokenizer_config.json", want[i].name);
        data_path(path, sizeof path, name);
        assert_int_equal(qn_json_read(path, 1u << 24, 64, &config, &err), QN_OK);
        snprintf(name, sizeof name, "tokenizers/%s/tokenizer.json", want[i].name);
        data_path(path, sizeof path, name);
        assert_int_equal(qn_file_read(path, 1u << 28, &text, &n, &err), QN_OK);
        uint64_t start = qn_clock_ns();
        if (qn_tok_from_json(text, n, config, &t, &err) != QN_OK) {
            fail_msg("%s: %s", want[i].name, err.msg);
        }
        print_message("%s: %.0f ms to load\n", want[i].name, (double)(qn_clock_ns() - start) / 1e6);
        assert_int_equal(qn_tok_bos(t), want[i].bos);
        assert_int_equal(qn_tok_eos(t), want[i].eos);
        assert_int_equal(qn_tok_pad(t), want[i].pad);
        assert_int_equal(qn_tok_adds_bos(t), want[i].adds_bos);
        qn_tok_free(t);
        json_decref(config);
        free(text);
    }
}

static void test_speed_on_english(void **state)
{
    (void)state;
    char path[1024];
    struct qn_buf text = {0};
    data_path(path, sizeof path, "tokenizers/llama3_1/tokenizer.json");
    struct qn_tok *t = open_tok(path);
    char *english = read_all("tests/data/english.txt");
    while (text.len < 2000000) {
        assert_true(qn_buf_puts(&text, english));
    }
    double best = 0;
    for (int i = 0; i < 5; i++) {
        struct qn_ids ids = {0};
        uint64_t start = qn_clock_ns();
        assert_int_equal(qn_tok_encode(t, text.data, text.len, NULL, 0, &ids, NULL), QN_OK);
        double rate = (double)text.len * 1e3 / (double)(qn_clock_ns() - start);
        best = rate > best ? rate : best;
        qn_ids_done(&ids);
    }
    print_message("%.1f MB/s\n", best);
    if (!QN_DEBUG && getenv("QEMU_CPU") == NULL) { // of an optimised build on real hardware
        assert_true(best >= 10.0);
    }
    free(english);
    qn_buf_done(&text);
    qn_tok_free(t);
}

#define VOCAB(file)                                                                                \
    {                                                                                              \
        .name = "vocab_" file, .test_func = test_vocab,                                            \
        .initial_state = (void *)("vocab-gguf/ggml-vocab-" file ".gguf")                           \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        VOCAB("llama-bpe"),
        VOCAB("llama-spm"),
        VOCAB("qwen2"),
        VOCAB("gemma-4"),
        cmocka_unit_test(test_real_configs),
        cmocka_unit_test(test_speed_on_english),
    };
    return cmocka_run_group_tests_name("tok_vocab", tests, NULL, NULL);
}
