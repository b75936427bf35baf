#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "text/tok_split.h"
#include "text/uclass.h"
#include "text/utf8.h"

// The hand-written matchers against PCRE2 running the same pattern, on generated text.

static uint64_t rng_state;

static uint32_t rng(uint32_t n)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

struct cut {
    struct qn_buf at; // ends of pieces as size_t
    const char *text;
};

static enum qn_status note(void *arg, const char *text, size_t n, struct qn_err *err)
{
    (void)err;
    struct cut *c = arg;
    size_t end = (size_t)(text - c->text) + n;
    assert_true(n > 0);
    assert_true(qn_buf_add(&c->at, &end, sizeof end));
    return QN_OK;
}

static void cut(const struct qn_tok_split *s, const uint8_t *uclass, const char *text, size_t n,
                struct cut *out)
{
    struct qn_tok_split_run r = {.uclass = uclass, .emit = note, .arg = out};
    struct qn_err err = {0};
    qn_buf_clear(&out->at);
    out->text = text;
    if (qn_tok_split_text(s, &r, text, n, true, &err) != QN_OK) {
        fail_msg("split: %s", err.msg);
    }
    qn_tok_split_run_done(&r);
}

/// Characters of every class and the places where patterns turn. Old ones alone: PCRE2 may know
/// fewer letters than uclass.
static size_t random_text(char *p, size_t most)
{
    static const uint32_t picks[] = {
        ' ',     ' ',     '\n',    '\r',   '\t',   0xA0,  0x2003, 0x3000, 0x180E,  0x85,
        '\'',    '\'',    's',     'S',    't',    'r',   'e',    'V',    'm',     'l',
        'L',     'd',     0x17F,   'x',    'A',    'B',   '1',    '2',    '9',     0xBD,
        0x0663,  0x2167,  '/',     '.',    '!',    '_',   0x301,  0x0903, 0x20DD,  0xAA,
        0x1C5,   0x2B0,   0x4E2D,  0x5D0,  0x0E01, 0xDF,  0xC9,   0x3A3,  0x1F999, 0x200D,
        0x10400, 0x1D7D8, 0xE0101, 0x2028, 0x0B,   0x41F, 0x43F};
    size_t n = 0;
    while (n + 4 < most) {
        uint32_t cp = picks[rng(sizeof picks / sizeof *picks)];
        uint32_t times = rng(6) == 0 ? rng(5) : 1;
        for (uint32_t i = 0; i < times && n + 4 < most; i++) {
            n += qn_utf8_put(cp, p + n);
        }
        if (rng(24) == 0) {
            break;
        }
    }
    return n;
}

static void test_matchers_equal_pcre2(void **state)
{
    (void)state;
    uint8_t *uclass = malloc(QN_UC_FLAT);
    assert_non_null(uclass);
    qn_uclass_fill(uclass);
    for (size_t i = 0; qn_tok_scan_pattern(i) != NULL; i++) {
        const char *pattern = qn_tok_scan_pattern(i);
        struct qn_tok_split hand = {0}, regex = {0};
        size_t len = strlen(pattern);
        assert_int_equal(
            qn_tok_split_add_regex(&hand, QN_SPLIT_ISOLATED, false, pattern, len, NULL), QN_OK);
        assert_int_equal(hand.steps[0].kind, QN_STEP_SCAN);
        assert_int_equal(
            qn_tok_split_add_pcre(&regex, QN_SPLIT_ISOLATED, false, pattern, len, NULL), QN_OK);
        assert_int_equal(regex.steps[0].kind, QN_STEP_REGEX);
        struct cut a = {0}, b = {0};
        rng_state = 20260101 + i;
        for (int k = 0; k < 20000; k++) {
            char text[160];
            size_t n = random_text(text, sizeof text);
            cut(&hand, uclass, text, n, &a);
            cut(&regex, uclass, text, n, &b);
            if (a.at.len != b.at.len ||
                (a.at.len > 0 && memcmp(a.at.data, b.at.data, a.at.len) != 0)) {
                fail_msg("pattern %zu, round %d: pieces of \"%.*s\" differ", i, k, (int)n, text);
            }
        }
        qn_buf_done(&a.at);
        qn_buf_done(&b.at);
        qn_tok_split_done(&hand);
        qn_tok_split_done(&regex);
    }
    free(uclass);
}

static void pieces_are(enum qn_tok_behavior behavior, bool invert, bool regex, const char *pattern,
                       const char *text, const char *want)
{
    uint8_t *uclass = malloc(QN_UC_FLAT);
    assert_non_null(uclass);
    qn_uclass_fill(uclass);
    struct qn_tok_split s = {0};
    struct cut c = {0};
    size_t len = strlen(pattern);
    assert_int_equal(
        regex ? qn_tok_split_add_regex(&s, behavior, invert, pattern, len, NULL)
              : qn_tok_split_add(&s, QN_STEP_STRING, behavior, invert, pattern, len, NULL),
        QN_OK);
    cut(&s, uclass, text, strlen(text), &c);
    struct qn_buf got = {0};
    size_t n_pieces = c.at.len / sizeof(size_t), end;
    for (size_t i = 0, from = 0; i < n_pieces; i++) {
        memcpy(&end, c.at.data + i * sizeof end, sizeof end);
        while (behavior == QN_SPLIT_REMOVED && (text[from] == '-') != invert) {
            from++;
        }
        qn_buf_printf(&got, "%s%.*s", i > 0 ? "|" : "", (int)(end - from), text + from);
        from = end;
    }
    assert_string_equal(got.data, want);
    qn_buf_done(&got);
    qn_buf_done(&c.at);
    qn_tok_split_done(&s);
    free(uclass);
}

static void test_behaviours(void **state)
{
    (void)state;
    const char *text = "the-final--countdown-"; // outcomes as the reference library's
    pieces_are(QN_SPLIT_REMOVED, false, false, "-", text, "the|final|countdown");
    pieces_are(QN_SPLIT_ISOLATED, false, false, "-", text, "the|-|final|-|-|countdown|-");
    pieces_are(QN_SPLIT_WITH_PREVIOUS, false, false, "-", text, "the-|final-|-|countdown-");
    pieces_are(QN_SPLIT_WITH_NEXT, false, false, "-", text, "the|-final|-|-countdown|-");
    pieces_are(QN_SPLIT_CONTIGUOUS, false, false, "-", text, "the|-|final|--|countdown|-");
    pieces_are(QN_SPLIT_ISOLATED, false, true, "-+", text, "the|-|final|--|countdown|-");
    pieces_are(QN_SPLIT_WITH_PREVIOUS, true, true, "[a-z]+", text, "the-|final--|countdown-");
    pieces_are(QN_SPLIT_ISOLATED, false, true, "\\S+",
               "a \xE1\xA0\x8E"
               "b",
               "a| |\xE1\xA0\x8E"
               "b");
    pieces_are(QN_SPLIT_ISOLATED, false, true, "x*", "ab", "a|b");
}

static void test_foreign_patterns_refused(void **state)
{
    (void)state;
    static const char *const patterns[] = {"\\h",   "^a",    "a$",    "[a&&b]", "[a[b]]",
                                           "[\\S]", "(?m)a", "a{,2}", "\\Ka"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        struct qn_tok_split s = {0};
        struct qn_err err = {0};
        assert_int_equal(qn_tok_split_add_regex(&s, QN_SPLIT_ISOLATED, false, patterns[i],
                                                strlen(patterns[i]), &err),
                         QN_E_UNSUPPORTED);
        assert_non_null(strstr(err.msg, patterns[i]));
        qn_tok_split_done(&s);
    }
}

static void test_matching_is_bounded(void **state)
{
    (void)state;
    uint8_t *uclass = malloc(QN_UC_FLAT);
    char *text = malloc(4097);
    assert_non_null(uclass);
    assert_non_null(text);
    qn_uclass_fill(uclass);
    memset(text, 'a', 4096);
    text[4096] = '\0';
    struct qn_tok_split s = {0};
    struct cut c = {.text = text};
    struct qn_err err = {0};
    assert_int_equal(qn_tok_split_add_regex(&s, QN_SPLIT_ISOLATED, false, "(a+a+)+[bc]", 11, NULL),
                     QN_OK);
    struct qn_tok_split_run r = {.uclass = uclass, .emit = note, .arg = &c};
    assert_int_equal(qn_tok_split_text(&s, &r, text, 4096, true, &err), QN_E_LIMIT);
    assert_non_null(strstr(err.msg, "(a+a+)+[bc]"));
    qn_tok_split_run_done(&r);
    qn_buf_done(&c.at);
    qn_tok_split_done(&s);
    free(text);
    free(uclass);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matchers_equal_pcre2),
        cmocka_unit_test(test_behaviours),
        cmocka_unit_test(test_foreign_patterns_refused),
        cmocka_unit_test(test_matching_is_bounded),
    };
    return cmocka_run_group_tests_name("tok_scan", tests, NULL, NULL);
}
