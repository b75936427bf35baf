#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "engine/fixture.h"

static enum qn_status plan(struct qn_plan_opts o, struct qn_plan *out, struct qn_err *err)
{
    struct qn_toy toy = {0};
    struct qn_backend b = qn_toy_backend(&toy);
    enum qn_status rc = qn_plan_make(&b, &o, out, err);
    b.ops->free(b.ctx);
    return rc;
}

static struct qn_plan_opts options(void)
{
    return (struct qn_plan_opts){.max_num_seqs = 4,
                                 .max_num_batched_tokens = 64,
                                 .block_tokens = 16,
                                 .max_model_len = 1000,
                                 .n_threads = 2,
                                 .available_bytes = (uint64_t)1 << 30};
}

static void test_enough_memory_gives_what_is_needed(void **state)
{
    (void)state;
    struct qn_plan p;
    struct qn_err err = {0};
    assert_int_equal(plan(options(), &p, &err), QN_OK);
    assert_int_equal(p.n_groups, 2);
    assert_int_equal(p.n_blocks[0], 4 * 63); // 63 blocks hold 1000 tokens
    assert_int_equal(p.n_blocks[1], 4 * (2 + 2) + 4);
    assert_int_equal(p.max_seq_tokens, 1000);
    assert_int_equal(p.kv_bytes, (p.n_blocks[0] + p.n_blocks[1]) * 16 * 4);
    assert_int_equal(p.total_bytes,
                     p.kv_bytes + p.run_bytes + p.logits_bytes + p.sampler_bytes + p.table_bytes);
    assert_true(p.max_out_rows > 4);
}

static void test_the_cache_takes_its_share(void **state)
{
    (void)state;
    struct qn_plan p, whole;
    struct qn_err err = {0};
    struct qn_plan_opts o = options();
    assert_int_equal(plan(o, &whole, &err), QN_OK);
    o.available_bytes = whole.total_bytes - whole.kv_bytes + 20000;
    assert_int_equal(plan(o, &p, &err), QN_OK);
    assert_true(p.kv_bytes <= 20000 * QN_PLAN_KV_PERCENT / 100);
    assert_true(p.kv_bytes > 20000 * QN_PLAN_KV_PERCENT / 100 - 2 * 64);
    assert_int_equal(p.max_seq_tokens, p.n_blocks[0] * 16 < 1000 ? p.n_blocks[0] * 16 : 1000);
    o.kv_cache_bytes = 6400; // said: exactly that
    assert_int_equal(plan(o, &p, &err), QN_OK);
    assert_int_equal(p.n_blocks[0], 80);
    assert_int_equal(p.n_blocks[1], 20);
}

static void test_too_much_asked_is_an_error_with_figures(void **state)
{
    (void)state;
    struct qn_plan p;
    struct qn_err err = {0};
    struct qn_plan_opts o = options();
    o.kv_cache_bytes = (uint64_t)2 << 30;
    assert_int_equal(plan(o, &p, &err), QN_E_LIMIT);
    assert_non_null(strstr(err.msg, "KV cache: needs 2147483648 bytes, available 10"));
    o = options();
    o.available_bytes = 1000;
    assert_int_equal(plan(o, &p, &err), QN_E_LIMIT);
    assert_non_null(strstr(err.msg, "available 1000"));
    o = options();
    o.kv_cache_bytes = 100;
    assert_int_equal(plan(o, &p, &err), QN_E_LIMIT);
    assert_non_null(strstr(err.msg, "one block of 16 tokens needs 128 bytes, available 100"));
}

static void test_engine_options_are_checked(void **state)
{
    (void)state;
    static const struct {
        struct quern_engine_options o;
        const char *message;
    } bad[] = {
        {{.max_num_seqs = 5000}, "max_num_seqs: found 5000, expected 1 to 4096"},
        {{.max_num_seqs = 32, .max_num_batched_tokens = 16},
         "max_num_batched_tokens: found 16, expected 32 (max_num_seqs) to 65536"},
        {{.block_tokens = 24}, "block_tokens: found 24, expected a power of two from 16 to 256"},
        {{.kv_cache_bytes = (uint64_t)1 << 40}, "KV cache: needs 1099511627776 bytes"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct qn_toy toy = {0};
        const struct qn_engine_setup setup = {
            .backend = qn_toy_backend(&toy),
            .env = {.vocab_size = QN_TOY_VOCAB, .max_model_len = 100},
            .n_threads = 1,
            .available_bytes = (uint64_t)1 << 30,
            .options = bad[i].o};
        struct quern_engine *e = NULL;
        struct qn_err err = {0};
        assert_int_not_equal(qn_engine_start(&setup, &e, &err), QN_OK);
        assert_non_null(strstr(err.msg, bad[i].message));
        assert_null(e);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_enough_memory_gives_what_is_needed),
        cmocka_unit_test(test_the_cache_takes_its_share),
        cmocka_unit_test(test_too_much_asked_is_an_error_with_figures),
        cmocka_unit_test(test_engine_options_are_checked),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
