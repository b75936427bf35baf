#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine/kv.h"

enum {
    BLOCK = 16,
    N_FULL = 12,
    N_WINDOW = 8,
    WINDOW = 24
};

static struct qn_kv *open_kv(void)
{
    const struct qn_kv_opts o = {.n_groups = 2,
                                 .n_blocks = {N_FULL, N_WINDOW},
                                 .window = {0, WINDOW},
                                 .block_tokens = BLOCK,
                                 .n_slots = 3,
                                 .max_tokens = 160};
    struct qn_kv *kv = NULL;
    assert_int_equal(qn_kv_new(&o, &kv, NULL), QN_OK);
    return kv;
}

static void assert_at_rest(const struct qn_kv *kv)
{
    assert_int_equal(qn_kv_n_free(kv, 0), N_FULL);
    assert_int_equal(qn_kv_n_free(kv, 1), N_WINDOW);
    for (size_t g = 0; g < 2; g++) {
        for (size_t b = 0; b < qn_kv_n_blocks(kv, g); b++) {
            assert_int_equal(qn_kv_refs(kv, g, (int32_t)b), 0);
        }
    }
}

static void test_SCH_03_block_counts(void **state)
{
    (void)state;
    static const size_t lengths[] = {0, 1, 15, 16, 17, 32}, blocks[] = {0, 1, 1, 1, 2, 2};
    struct qn_kv *kv = open_kv();
    for (size_t i = 0; i < 6; i++) {
        assert_true(qn_kv_extend(kv, 0, lengths[i]));
        assert_int_equal(qn_kv_slot_blocks(kv, 0, 0), blocks[i]);
        assert_int_equal(qn_kv_n_free(kv, 0), N_FULL - blocks[i]);
        // Fill of the last block: the fork copies it exactly when it is partly filled.
        int32_t dst[2], src[2];
        assert_true(qn_kv_fork(kv, 1, 0, lengths[i], dst, src));
        assert_int_equal(dst[0] >= 0, lengths[i] % BLOCK != 0);
        qn_kv_release(kv, 1);
        qn_kv_release(kv, 0);
        assert_at_rest(kv);
    }
    qn_kv_free(kv);
}

static void test_blocks_are_given_all_or_nothing(void **state)
{
    (void)state;
    struct qn_kv *kv = open_kv();
    assert_true(qn_kv_extend(kv, 0, 6 * BLOCK));
    assert_false(qn_kv_extend(kv, 1, 3 * BLOCK)); // the windowed pool has two left
    assert_int_equal(qn_kv_n_free(kv, 0), N_FULL - 6);
    assert_int_equal(qn_kv_extendable(kv, 1), 2 * BLOCK);
    assert_int_equal(qn_kv_extendable(kv, 0), 8 * BLOCK);
    assert_true(qn_kv_extend(kv, 1, 2 * BLOCK));
    qn_kv_release(kv, 0);
    qn_kv_release(kv, 1);
    assert_at_rest(kv);
    qn_kv_free(kv);
}

static void test_blocks_behind_the_window_come_back(void **state)
{
    (void)state;
    struct qn_kv *kv = open_kv();
    const int32_t *const *tables = qn_kv_tables(kv, 0);
    for (size_t n = 1; n <= 100; n++) {
        assert_true(qn_kv_extend(kv, 0, n));
        qn_kv_trim(kv, 0, n);
        // The next query is at n and sees keys from n - WINDOW + 1.
        size_t first = n + 1 > WINDOW ? n + 1 - WINDOW : 0;
        for (size_t i = 0; i < (n + BLOCK - 1) / BLOCK; i++) {
            assert_true(tables[0][i] >= 0);
            assert_int_equal(tables[1][i] >= 0, (i + 1) * BLOCK > first);
        }
        assert_true(qn_kv_slot_blocks(kv, 0, 1) <= WINDOW / BLOCK + 2);
    }
    qn_kv_release(kv, 0);
    assert_at_rest(kv);
    qn_kv_free(kv);
}

static void test_forks_share_full_blocks(void **state)
{
    (void)state;
    struct qn_kv *kv = open_kv();
    int32_t dst[2], src[2];
    assert_true(qn_kv_extend(kv, 0, 70)); // 4 full blocks and 6 tokens
    qn_kv_trim(kv, 0, 70);                // positions 47 … are seen: blocks 0 and 1 are gone
    assert_true(qn_kv_fork(kv, 1, 0, 70, dst, src));
    const int32_t *const *a = qn_kv_tables(kv, 0), *const *b = qn_kv_tables(kv, 1);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(a[0][i], b[0][i]);
        assert_int_equal(qn_kv_refs(kv, 0, a[0][i]), 2);
        assert_int_equal(a[1][i], b[1][i]);
        assert_int_equal(b[1][i] >= 0, i >= 2);
    }
    for (size_t g = 0; g < 2; g++) {
        assert_int_equal(src[g], a[g][4]);
        assert_int_equal(dst[g], b[g][4]);
        assert_int_not_equal(src[g], dst[g]);
    }
    // Each goes its own way; a shared block stays until the last one lets go.
    qn_kv_release(kv, 0);
    assert_int_equal(qn_kv_refs(kv, 0, b[0][0]), 1);
    assert_int_equal(qn_kv_n_free(kv, 0), N_FULL - 5);
    qn_kv_trim(kv, 1, 90);
    qn_kv_release(kv, 1);
    assert_at_rest(kv);
    // No block for the copy: nothing is shared either.
    assert_true(qn_kv_extend(kv, 0, 8 * BLOCK - 1));
    assert_false(qn_kv_fork(kv, 1, 0, 8 * BLOCK - 1, dst, src));
    qn_kv_release(kv, 0);
    qn_kv_release(kv, 1);
    assert_at_rest(kv);
    qn_kv_free(kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_SCH_03_block_counts),
        cmocka_unit_test(test_blocks_are_given_all_or_nothing),
        cmocka_unit_test(test_blocks_behind_the_window_come_back),
        cmocka_unit_test(test_forks_share_full_blocks),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
