#include "kernels/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_default_is_best(void **state)
{
    struct qn_err err;
    (void)state;

    assert_int_equal(qn_cpu_init(NULL, &err), QN_OK);
    assert_int_equal(qn_cpu_isa(), qn_cpu_best());
    assert_int_equal(qn_cpu_init("", &err), QN_OK);
    assert_int_equal(qn_cpu_isa(), qn_cpu_best());
    assert_true(qn_cpu_has(QN_ISA_GENERIC));
    assert_true(qn_cpu_has(qn_cpu_best()));
#if defined(__aarch64__)
    assert_true(qn_cpu_best() >= QN_ISA_NEON);
    assert_false(qn_cpu_has(QN_ISA_AVX2));
#else
    assert_true(qn_cpu_best() < QN_ISA_NEON);
    assert_false(qn_cpu_has(QN_ISA_NEON));
#endif
}

static void test_every_available_tier_can_be_forced(void **state)
{
    struct qn_err err;
    int n_ok = 0;
    (void)state;

    for (int i = 0; i < QN_N_ISAS; i++) {
        assert_int_equal(qn_cpu_init(NULL, &err), QN_OK);
        bool has = qn_cpu_has((enum qn_isa)i);
        enum qn_status rc = qn_cpu_init(qn_isa_name((enum qn_isa)i), &err);
        assert_int_equal(rc == QN_OK, has);
        if (has) {
            n_ok++;
            assert_int_equal(qn_cpu_isa(), i);
            for (int above = i + 1; above < QN_N_ISAS; above++) {
                assert_false(qn_cpu_has((enum qn_isa)above));
            }
        } else {
            assert_int_equal(rc, QN_E_UNSUPPORTED);
            assert_non_null(strstr(err.msg, "generic"));
            assert_int_equal(qn_cpu_isa(), qn_cpu_best()); // a refused name changes nothing
        }
    }
    assert_true(n_ok >= 1);
    assert_int_equal(qn_cpu_init(NULL, &err), QN_OK);
}

static void test_unknown_name_lists_what_there_is(void **state)
{
    struct qn_err err;
    (void)state;

    assert_int_equal(qn_cpu_init("avx3", &err), QN_E_INVALID);
    assert_non_null(strstr(err.msg, "\"avx3\""));
    assert_non_null(strstr(err.msg, "generic"));
    assert_non_null(strstr(err.msg, qn_isa_name(qn_cpu_best())));
    assert_int_equal(qn_cpu_init("Generic", NULL), QN_E_INVALID);
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < QN_N_ISAS; i++) {
        assert_non_null(qn_isa_name((enum qn_isa)i));
        for (int j = 0; j < i; j++) {
            assert_string_not_equal(qn_isa_name((enum qn_isa)i), qn_isa_name((enum qn_isa)j));
        }
    }
    assert_string_equal(qn_isa_name((enum qn_isa)99), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_default_is_best),
        cmocka_unit_test(test_every_available_tier_can_be_forced),
        cmocka_unit_test(test_unknown_name_lists_what_there_is),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
