#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cli/args.h"

struct values {
    bool flag, other;
    const char *str;
    int64_t i;
    double num;
    uint64_t bytes;
    int choice;
    struct qn_arg_list list;
    const char *pos[2];
};

static enum qn_arg_result parse(struct values *v, int argc, char **argv)
{
    static const char *const choices[] = {"f32", "bf16", NULL};
    const struct qn_arg args[] = {
        {.name = "flag", .letter = 'f', .kind = QN_ARG_FLAG, .out = &v->flag, .help = "a flag"},
        {.name = "max-num-seqs",
         .kind = QN_ARG_INT,
         .out = &v->i,
         .arg = "N",
         .min = 1,
         .max = 5000},
        {.name = "temperature",
         .letter = 't',
         .kind = QN_ARG_NUM,
         .out = &v->num,
         .arg = "T",
         .min = 0,
         .max = 2},
        {.name = "size", .kind = QN_ARG_BYTES, .out = &v->bytes, .arg = "SIZE"},
        {.name = "act", .kind = QN_ARG_CHOICE, .out = &v->choice, .arg = "A", .choices = choices},
        {.name = "name", .kind = QN_ARG_LIST, .out = &v->list, .arg = "N"},
        {.name = "text", .letter = 'p', .kind = QN_ARG_STR, .out = &v->str, .arg = "TEXT"},
        {.name = "swap-space", .kind = QN_ARG_IGNORED, .arg = "N"},
    };
    const struct qn_arg_spec spec = {.usage = "prog A [B]",
                                     .about = "about",
                                     .args = args,
                                     .n_args = sizeof args / sizeof args[0],
                                     .positional = v->pos,
                                     .min_positional = 1,
                                     .max_positional = 2};
    return qn_args_parse(&spec, argc, argv);
}

#define PARSE(v, ...)                                                                              \
    parse(v, (int)(sizeof((char *[]){"prog", __VA_ARGS__}) / sizeof(char *)),                      \
          (char *[]){"prog", __VA_ARGS__})

static void test_values(void **state)
{
    (void)state;
    struct values v = {0};
    assert_int_equal(PARSE(&v, "model", "--flag", "--max_num_seqs=4k", "-t", "0.5", "--size",
                           "1.5GiB", "--act", "bf16", "-p", "-x", "--swap-space", "4", "b"),
                     QN_ARGS_OK);
    assert_true(v.flag);
    assert_int_equal(v.i, 4000);
    assert_true(v.num == 0.5);
    assert_int_equal(v.bytes, 1536ull << 20);
    assert_int_equal(v.choice, 1);
    assert_string_equal(v.str, "-x");
    assert_string_equal(v.pos[0], "model");
    assert_string_equal(v.pos[1], "b");
}

static void test_lists_and_negation(void **state)
{
    (void)state;
    struct values v = {.flag = true};
    assert_int_equal(PARSE(&v, "--name", "a", "b", "--no-flag", "--", "--model"), QN_ARGS_OK);
    assert_int_equal(v.list.n, 2);
    assert_false(v.flag);
    assert_string_equal(v.pos[0], "--model");
}

static void test_mistakes(void **state)
{
    (void)state;
    struct values v = {0};
    assert_int_equal(PARSE(&v, "m", "--max-num-seq", "3"), QN_ARGS_ERROR);
    assert_int_equal(PARSE(&v, "m", "--max-num-seqs", "0"), QN_ARGS_ERROR);
    assert_int_equal(PARSE(&v, "m", "--max-num-seqs", "1x"), QN_ARGS_ERROR);
    assert_int_equal(PARSE(&v, "m", "--max-num-seqs"), QN_ARGS_ERROR);
    assert_int_equal(PARSE(&v, "m", "--temperature", "nan"), QN_ARGS_ERROR);
    assert_int_equal(PARSE(&v, "m", "--flag=1"), QN_ARGS_ERROR);
    assert_int_equal(PARSE(&v, "m", "--act", "int4"), QN_ARGS_ERROR);
    assert_int_equal(PARSE(&v, "m", "--size", "4X"), QN_ARGS_ERROR);
    assert_int_equal(PARSE(&v, "a", "b", "c"), QN_ARGS_ERROR);
    assert_int_equal(PARSE(&v, "--flag"), QN_ARGS_ERROR);
}

static void test_nearest(void **state)
{
    (void)state;
    const char *const names[] = {"max-num-seqs", "max-model-len", "port"};
    assert_string_equal(qn_args_nearest("max-model-length", names, 3), "max-model-len");
    assert_string_equal(qn_args_nearest("prot", names, 3), "port");
    assert_null(qn_args_nearest("quantisation", names, 3));
}

static void test_bytes(void **state)
{
    (void)state;
    uint64_t b = 0;
    assert_true(qn_args_parse_bytes("4GB", &b));
    assert_int_equal(b, 4000000000u);
    assert_true(qn_args_parse_bytes("4G", &b));
    assert_int_equal(b, 4ull << 30);
    assert_true(qn_args_parse_bytes("100", &b));
    assert_int_equal(b, 100);
    assert_false(qn_args_parse_bytes("-1", &b));
    assert_false(qn_args_parse_bytes("", &b));
    assert_false(qn_args_parse_bytes("1e300G", &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),   cmocka_unit_test(test_lists_and_negation),
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
