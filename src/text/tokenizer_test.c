#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "text/tok_fixture.h"
#include "text/tok_scan.h"

#define IDS(...) ((const int32_t[]){__VA_ARGS__}), sizeof((const int32_t[]){__VA_ARGS__}) / 4
#define BLANK "\xE2\x96\x81"

static void encodes_marked(const struct qn_tok *t, const char *text, const uint8_t *plain,
                           unsigned flags, const int32_t *want, size_t n)
{
    struct qn_ids ids = {0};
    struct qn_err err = {0};
    assert_int_equal(qn_tok_encode(t, text, strlen(text), plain, flags, &ids, &err), QN_OK);
    if (ids.n != n || memcmp(ids.v, want, n * sizeof *want) != 0) {
        for (size_t i = 0; i < ids.n; i++) {
            print_error("%d ", ids.v[i]);
        }
        fail_msg("ids of \"%s\" (%zu, expected %zu)", text, ids.n, n);
    }
    qn_ids_done(&ids);
}

static void encodes(const struct qn_tok *t, const char *text, const int32_t *want, size_t n)
{
    encodes_marked(t, text, NULL, QN_TOK_PARSE_SPECIAL, want, n);
}

static void decodes(const struct qn_tok *t, const int32_t *ids, size_t n, const char *want)
{
    struct qn_buf whole = {0}, pieces = {0};
    struct qn_detok d;
    char *out = malloc(qn_detok_max_out(t));
    assert_non_null(out);
    assert_int_equal(qn_tok_decode(t, ids, n, true, &whole, NULL), QN_OK);
    qn_detok_init(&d, t, true);
    for (size_t i = 0; i < n; i++) {
        qn_buf_add(&pieces, out, qn_detok_push(&d, ids[i], out));
    }
    qn_buf_add(&pieces, out, qn_detok_finish(&d, out));
    assert_string_equal(whole.data, want);
    assert_string_equal(pieces.data, want);
    free(out);
    qn_buf_done(&whole);
    qn_buf_done(&pieces);
}

static void test_TOK_01_ignore_merges(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_tb());
    encodes(t, "hello", IDS(259));
    qn_tok_free(t);
    json_t *root = qn_fixture_tb();
    json_object_set_new(json_object_get(root, "model"), "ignore_merges", json_false());
    t = qn_fixture_load(root);
    for (int i = 0; i < 3; i++) { // what the first call learnt of a word serves the next
        encodes(t, "hello", IDS(258, 111));
        encodes(t, "hell", IDS(258));
    }
    qn_tok_free(t);
}

static void test_TOK_02_pattern_of_the_file(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_tb());
    encodes(t, "12345", IDS(262, 52, 53));
    qn_tok_free(t);
    json_t *root = qn_fixture_tb();
    qn_fixture_tb_pattern(root, qn_tok_scan_pattern(2));
    t = qn_fixture_load(root);
    encodes(t, "12345", IDS(49, 50, 51, 52, 53));
    qn_tok_free(t);
    root = qn_fixture_tb();
    qn_fixture_tb_pattern(root, "\\p{N}{1,4}|\\s"); // through PCRE2
    t = qn_fixture_load(root);
    encodes(t, "12345", IDS(263, 53));
    encodes(t, "  hell", IDS(32, 32, 258));
    qn_tok_free(t);
}

static void test_TOK_03_byte_fallback(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_ts());
    encodes(t, "\U0001F999", IDS(244, 163, 170, 157));
    decodes(t, IDS(244, 163, 170, 157), "\U0001F999");
    encodes(t, "a\u00e9", IDS(261, 199, 173));
    decodes(t, IDS(261, 199, 173), "a\u00e9");
    qn_tok_free(t);
}

static void refused(json_t *root, enum qn_status want, const char *part)
{
    struct qn_tok *t = NULL;
    struct qn_err err = {0};
    char *text = json_dumps(root, 0);
    assert_int_equal(qn_tok_from_json(text, strlen(text), NULL, &t, &err), want);
    assert_null(t);
    if (strstr(err.msg, part) == NULL) {
        fail_msg("message \"%s\" lacks \"%s\"", err.msg, part);
    }
    free(text);
    json_decref(root);
}

static json_t *with(json_t *root, const char *key, json_t *value)
{
    json_object_set_new(root, key, value);
    return root;
}

static void test_TOK_04_unknown_kinds_refused(void **state)
{
    (void)state;
    static const char *const types[] = {"Unigram", "WordPiece", "WordLevel"};
    for (size_t i = 0; i < 3; i++) {
        json_t *root = qn_fixture_tb();
        json_object_set_new(json_object_get(root, "model"), "type", json_string(types[i]));
        struct qn_tok *t = NULL;
        struct qn_err err = {0};
        char *text = json_dumps(root, 0);
        assert_int_equal(qn_tok_from_json(text, strlen(text), NULL, &t, &err), QN_E_UNSUPPORTED);
        assert_non_null(strstr(err.msg, types[i]));
        assert_non_null(strstr(err.msg, "BPE"));
        free(text);
        json_decref(root);
    }
    static const char *const parts[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    for (size_t i = 0; i < 4; i++) {
        refused(with(qn_fixture_tb(), parts[i], json_pack("{s:s}", "type", "Nmt")),
                QN_E_UNSUPPORTED, "\"Nmt\"");
    }
    refused(with(qn_fixture_tb(), "decoder", json_null()), QN_E_UNSUPPORTED, "decoder");
}

static void test_broken_files_are_named(void **state)
{
    (void)state;
    json_t *root = qn_fixture_tb();
    json_object_set_new(json_object_get(json_object_get(root, "model"), "vocab"), "he",
                        json_integer(104));
    refused(root, QN_E_FORMAT, "token id 104");
    root = qn_fixture_tb();
    json_object_set_new(json_object_get(json_object_get(root, "model"), "vocab"), "he",
                        json_integer(1 << 30));
    refused(root, QN_E_FORMAT, "\"he\": id 1073741824");
    root = qn_fixture_tb();
    json_array_append_new(json_object_get(json_object_get(root, "model"), "merges"),
                          json_string("q q"));
    refused(root, QN_E_FORMAT, "merges[8]");
    root = qn_fixture_tb();
    json_array_append_new(json_object_get(json_object_get(root, "model"), "merges"),
                          json_string("qq"));
    refused(root, QN_E_FORMAT, "merges[8]");
    root = qn_fixture_tb();
    qn_fixture_tb_pattern(root, "(");
    refused(root, QN_E_FORMAT, "pattern \"(\"");
    root = qn_fixture_tb();
    qn_fixture_tb_pattern(root, "\\bx");
    refused(root, QN_E_UNSUPPORTED, "escape \\b");
    refused(json_array(), QN_E_FORMAT, "expected an object");
    struct qn_tok *t = NULL;
    assert_int_equal(qn_tok_from_json("{\"model\":", 9, NULL, &t, NULL), QN_E_FORMAT);
}

static void test_empty_vocabularies(void **state)
{
    (void)state;
    static const char *const files[] = {
        "{\"model\":{\"vocab\":{},\"merges\":[]},\"decoder\":{\"type\":\"Fuse\"}}",
        "{\"model\":{\"vocab\":{\"\":0},\"merges\":[]},\"decoder\":{\"type\":\"Fuse\"}}"};
    for (size_t i = 0; i < 2; i++) {
        struct qn_tok *t = NULL;
        struct qn_err err = {0};
        if (qn_tok_from_json(files[i], strlen(files[i]), NULL, &t, &err) != QN_OK) {
            fail_msg("%s", err.msg);
        }
        struct qn_ids ids = {0};
        assert_int_equal(qn_tok_encode(t, "ab", 2, NULL, 3, &ids, NULL), QN_OK);
        assert_int_equal(ids.n, 0); // what has no token and no stand-in is dropped
        assert_int_equal(qn_tok_n_tokens(t), i);
        qn_ids_done(&ids);
        qn_tok_free(t);
    }
}

static void test_TOK_05_content_matches_no_special_token(void **state)
{
    (void)state;
    json_t *root = qn_fixture_tb();
    qn_fixture_tb_specials(root);
    struct qn_tok *t = qn_fixture_load(root);
    static const uint8_t plain[] = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0};
    const char *text = "<|s|><|s|><|e|>";
    encodes_marked(t, text, plain, QN_TOK_PARSE_SPECIAL, IDS(265, 60, 124, 115, 124, 62, 266));
    encodes_marked(t, text, NULL, QN_TOK_PARSE_SPECIAL, IDS(265, 265, 266));
    encodes_marked(t, "<|s|>", NULL, 0, IDS(60, 124, 115, 124, 62));
    // Content right behind markup neither lengthens its token nor is taken as its whitespace.
    static const uint8_t tail[] = {0, 0, 0, 0, 0, 1};
    encodes_marked(t, "<|e|>x", tail, QN_TOK_PARSE_SPECIAL, IDS(266, 120));
    static const uint8_t blank[] = {0, 0, 0, 1, 1};
    encodes_marked(t, "<n>\n\n", blank, QN_TOK_PARSE_SPECIAL, IDS(268, 10, 10));
    static const uint8_t front[] = {1, 0, 0, 0};
    encodes_marked(t, " <m>", front, QN_TOK_PARSE_SPECIAL, IDS(32, 267));
    // A token half of which is content.
    static const uint8_t half[] = {0, 0, 1, 1, 1};
    encodes_marked(t, "<|s|>", half, QN_TOK_PARSE_SPECIAL, IDS(60, 124, 115, 124, 62));
    qn_tok_free(t);
}

static void test_marks_go_through_the_normalizer(void **state)
{
    (void)state;
    json_t *root = qn_fixture_ts();
    qn_fixture_ts_prepend(root);
    json_t *bos = json_array_get(json_object_get(root, "added_tokens"), 2);
    json_object_set_new(bos, "normalized", json_true());
    json_object_set_new(bos, "content", json_string("<bos>"));
    struct qn_tok *t = qn_fixture_load(root); // found as ▁<bos>
    encodes(t, "<bos>ab", IDS(2, 264));
    static const uint8_t plain[] = {1, 1, 1, 1, 1, 0, 0};
    struct qn_ids ids = {0};
    assert_int_equal(qn_tok_encode(t, "<bos>ab", 7, plain, QN_TOK_PARSE_SPECIAL, &ids, NULL),
                     QN_OK);
    for (size_t i = 0; i < ids.n; i++) {
        assert_int_not_equal(ids.v[i], 2);
    }
    qn_ids_done(&ids);
    static const uint8_t behind[] = {0, 0, 0, 0, 0, 1, 1};
    encodes_marked(t, "<bos>ab", behind, QN_TOK_PARSE_SPECIAL, IDS(2, 264));
    qn_tok_free(t);
}

static char *repeat(const char *s, size_t n)
{
    size_t len = strlen(s);
    char *p = malloc(n * len + 1);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++) {
        memcpy(p + i * len, s, len);
    }
    p[n * len] = '\0';
    return p;
}

/// Seconds of this thread's own time, so that a busy machine does not count.
static double thread_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double time_encode(const struct qn_tok *t, const char *text, size_t *out_n)
{
    struct qn_ids ids = {0};
    double start = thread_seconds();
    assert_int_equal(qn_tok_encode(t, text, strlen(text), NULL, 0, &ids, NULL), QN_OK);
    double took = thread_seconds() - start;
    *out_n = ids.n;
    qn_ids_done(&ids);
    return took;
}

/// s n times takes less than factor times as long as s n / times; returns the seconds of the
/// longer.
static double grows(const struct qn_tok *t, const char *s, size_t n, size_t times, double factor,
                    size_t want_ids)
{
    char *one = repeat(s, n / times), *all = repeat(s, n);
    double a = 1e9, b = 1e9, took;
    size_t n_ids;
    for (int i = 0; i < 8 && (i < 2 || b >= factor * a); i++) { // caches and page faults settle
        took = time_encode(t, one, &n_ids);
        a = took < a ? took : a;
        took = time_encode(t, all, &n_ids);
        b = took < b ? took : b;
        assert_int_equal(n_ids, want_ids);
    }
    free(one);
    free(all);
    if (b >= factor * a) {
        fail_msg("\"%s\" times %zu: %.4f s, a part of %zu: %.4f s", s, n, b, times, a);
    }
    return b;
}

static void test_TOK_06_long_piece_is_linear(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_tb());
    assert_true(grows(t, "x", 524288, 2, 3.0, 524288) < 2.0);
    grows(t, "hell", 262144, 2, 3.5, 262144); // with merges
    qn_tok_free(t);
    json_t *root = with(qn_fixture_tb(), "normalizer", json_pack("{s:s}", "type", "NFC"));
    t = qn_fixture_load(root);
    grows(t, "\u0301\u0323", 120000, 2, 3.5, 480000); // marks that a normaliser has to sort
    qn_tok_free(t);
}

static void test_TOK_07_no_pre_tokenizer_is_linear(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_ts());
    grows(t, "ab ", 200000, 10, 15.0, 200001); // ab, then ▁ab, and ▁
    qn_tok_free(t);
    json_t *root = qn_fixture_ts(); // the same as one piece: a token that spans the start of words
    json_object_set_new(json_object_get(json_object_get(root, "model"), "vocab"), "b" BLANK "a",
                        json_integer(269));
    t = qn_fixture_load(root);
    grows(t, "ab ", 200000, 10, 30.0, 200001); // its memory outgrows the caches; 100 if quadratic
    qn_tok_free(t);
}

static void test_TOK_08_strip_takes_whitespace(void **state)
{
    (void)state;
    json_t *root = qn_fixture_tb();
    qn_fixture_tb_specials(root);
    struct qn_tok *t = qn_fixture_load(root);
    encodes(t, "a  <m> b", IDS(97, 267, 32, 98));
    encodes(t, "a <n>  b", IDS(97, 32, 268, 98));
    encodes(t, "a\n\n<m>b", IDS(97, 267, 98));
    encodes(t, "<n> \n <m>b", IDS(268, 267, 98)); // the blanks go to the first one
    qn_tok_free(t);
}

static void test_TOK_09_longest_added_token(void **state)
{
    (void)state;
    json_t *root = qn_fixture_tb();
    qn_fixture_tb_specials(root);
    struct qn_tok *t = qn_fixture_load(root);
    encodes(t, "<|s|><|s|>", IDS(265, 265));
    encodes(t, "<|e|>x<|e|>y", IDS(270, 266, 121));
    encodes(t, "<|S|>", IDS(60, 124, 83, 124, 62));
    qn_tok_free(t);
}

static void test_single_word_tokens(void **state)
{
    (void)state;
    json_t *root = qn_fixture_tb();
    qn_fixture_tb_specials(root);
    json_object_set_new(json_array_get(json_object_get(root, "added_tokens"), 0), "single_word",
                        json_true());
    struct qn_tok *t = qn_fixture_load(root);
    encodes(t, "a <|s|>.", IDS(97, 32, 265, 46));
    encodes(t, "<|s|>b", IDS(60, 124, 115, 124, 62, 98));
    encodes(t, "\u00e9<|s|>", IDS(195, 169, 60, 124, 115, 124, 62));
    qn_tok_free(t);
}

static void test_TOK_10_normalizer_before_split(void **state)
{
    (void)state;
    json_t *root = with(qn_fixture_tb(), "normalizer", json_pack("{s:s}", "type", "NFC"));
    struct qn_tok *t = qn_fixture_load(root);
    encodes(t, "e\u0301", IDS(195, 169));
    encodes(t, "\u2126", IDS(206, 169));
    encodes(t, "\u1100\u1161\u11a8", IDS(234, 176, 129)); // Hangul
    encodes(t, "a\u0323\u0301", IDS(225, 186, 161, 204, 129));
    encodes(t, "a\u0301\u0323", IDS(225, 186, 161, 204, 129));
    qn_tok_free(t);
    t = qn_fixture_load(qn_fixture_tb());
    encodes(t, "e\u0301", IDS(101, 204, 129));
    qn_tok_free(t);
}

static void test_TOK_11_template_text_gets_no_bos(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_ts());
    static const uint8_t plain[] = {0, 0, 0, 0, 0, 1, 1};
    encodes_marked(t, "<bos>ab", plain, QN_TOK_PARSE_SPECIAL, IDS(2, 264));
    encodes_marked(t, "ab", NULL, QN_TOK_ADD_SPECIAL, IDS(2, 264));
    encodes_marked(t, "", NULL, QN_TOK_ADD_SPECIAL, IDS(2));
    assert_true(qn_tok_adds_bos(t));
    assert_int_equal(qn_tok_bos(t), 2);
    qn_tok_free(t);
}

static void test_TOK_12_ids_past_the_vocabulary(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_ts());
    assert_int_equal(qn_tok_n_tokens(t), 269);
    decodes(t, IDS(265, 319, 265), " ab ab");
    decodes(t, IDS(265, -1, INT32_MAX, 265), " ab ab");
    qn_tok_free(t);
    json_t *root = qn_fixture_tb();
    qn_fixture_tb_specials(root);
    t = qn_fixture_load(root);
    decodes(t, IDS(104, 269, 105), "hi"); // a hole among the ids
    qn_tok_free(t);
}

static void test_TOK_13_leading_blank(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_ts());
    decodes(t, IDS(265), " ab");
    qn_tok_free(t);
    json_t *root = qn_fixture_ts();
    qn_fixture_ts_prepend(root);
    t = qn_fixture_load(root);
    decodes(t, IDS(260, 265), " ab");
    decodes(t, IDS(265, 265), "ab ab");
    decodes(t, IDS(2, 265), "ab");
    encodes(t, "ab ab", IDS(265, 265));
    qn_tok_free(t);
}

static void test_TOK_14_no_clean_up_of_spaces(void **state)
{
    (void)state;
    json_t *root = qn_fixture_tb(), *config = json_pack("{s:b}", "clean_up_tokenization_spaces", 1);
    struct qn_tok *t = NULL;
    char *text = json_dumps(root, 0);
    assert_int_equal(qn_tok_from_json(text, strlen(text), config, &t, NULL), QN_OK);
    decodes(t, IDS(97, 32, 44, 98), "a ,b");
    qn_tok_free(t);
    free(text);
    json_decref(root);
    json_decref(config);
}

static void test_config_tokens(void **state)
{
    (void)state;
    json_t *root = qn_fixture_ts();
    char *text = json_dumps(root, 0);
    struct qn_tok *t = NULL;
    struct qn_err err = {0};
    json_t *config = json_pack("{s:s s:{s:s} s:s s:b}", "bos_token", "<bos>", "eos_token",
                               "content", "<eos>", "pad_token", "<pad>", "add_bos_token", 0);
    assert_int_equal(qn_tok_from_json(text, strlen(text), config, &t, NULL), QN_OK);
    const int32_t *stops;
    assert_int_equal(qn_tok_stops(t, &stops), 1);
    assert_int_equal(stops[0], 1);
    assert_int_equal(qn_tok_eos(t), 1);
    assert_int_equal(qn_tok_pad(t), 0);
    assert_false(qn_tok_adds_bos(t));
    encodes_marked(t, "ab", NULL, QN_TOK_ADD_SPECIAL, IDS(264));
    assert_true(qn_tok_is_special(t, 1));
    assert_false(qn_tok_is_special(t, 261));
    assert_int_equal(qn_tok_find(t, "<eos>", 5), 1);
    assert_int_equal(qn_tok_find(t, "nope", 4), -1);
    qn_tok_free(t);
    json_object_set_new(config, "eos_token", json_string("<nope>"));
    assert_int_equal(qn_tok_from_json(text, strlen(text), config, &t, &err), QN_E_FORMAT);
    assert_non_null(strstr(err.msg, "<nope>"));
    free(text);
    json_decref(root);
    json_decref(config);
}

static void test_token_bytes(void **state)
{
    (void)state;
    char buf[64];
    size_t n;
    struct qn_tok *t = qn_fixture_load(qn_fixture_ts());
    assert_true(qn_tok_max_bytes(t) <= sizeof buf);
    assert_int_equal(qn_tok_bytes(t, 244, buf), 1);
    assert_int_equal((unsigned char)buf[0], 0xF0);
    assert_int_equal(qn_tok_bytes(t, 265, buf), 3);
    assert_memory_equal(buf, " ab", 3);
    assert_memory_equal(qn_tok_piece(t, 265, &n), BLANK "ab", 5);
    assert_int_equal(n, 5);
    assert_null(qn_tok_piece(t, 400, &n));
    qn_tok_free(t);
    t = qn_fixture_load(qn_fixture_tb());
    for (int b = 0; b < 256; b++) {
        assert_int_equal(qn_tok_bytes(t, b, buf), 1);
        assert_int_equal((unsigned char)buf[0], b);
    }
    qn_tok_free(t);
}

static void test_STR_01_unfinished_character_is_held(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_tb());
    struct qn_detok d;
    char out[4096];
    assert_true(qn_detok_max_out(t) <= sizeof out);
    qn_detok_init(&d, t, true);
    assert_int_equal(qn_detok_push(&d, 240, out), 0);
    assert_int_equal(qn_detok_push(&d, 159, out), 0);
    assert_int_equal(qn_detok_push(&d, 166, out), 0);
    assert_int_equal(qn_detok_push(&d, 153, out), 4);
    assert_memory_equal(out, "\U0001F999", 4);
    assert_int_equal(qn_detok_finish(&d, out), 0);
    decodes(t, IDS(240, 159, 166, 153), "\U0001F999");
    qn_tok_free(t);
}

static void test_STR_02_end_inside_a_character(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_tb());
    decodes(t, IDS(97, 240, 159, 166), "a\uFFFD");
    decodes(t, IDS(240, 159, 97),
            "\uFFFD"
            "a");
    decodes(t, IDS(0xED, 0xA0, 0x80), "\uFFFD\uFFFD\uFFFD"); // a surrogate
    decodes(t, IDS(0xF0, 0x9F, 0xF0, 0x9F, 0xA6, 0x99), "\uFFFD\U0001F999");
    decodes(t, IDS(0xC0, 0x80, 0xFF, 0xE2, 0x82), "\uFFFD\uFFFD\uFFFD\uFFFD");
    qn_tok_free(t);
    t = qn_fixture_load(qn_fixture_ts());
    decodes(t, IDS(199, 173, 244, 163), "\uFFFD\uFFFD\uFFFD\uFFFD"); // a run is whole or none of it
    decodes(t, IDS(199, 173, 261, 244, 163),
            "\u00e9"
            "a\uFFFD\uFFFD");
    decodes(t, IDS(132, 199, 173, 261),
            "\uFFFD\uFFFD\uFFFD"
            "a");
    qn_tok_free(t);
}

static void test_long_run_of_byte_tokens(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_ts());
    int32_t ids[1001];
    struct qn_buf want = {0};
    for (int i = 0; i < 500; i++) { // more than a decoder holds
        ids[2 * i] = 199;
        ids[2 * i + 1] = 173;
        qn_buf_puts(&want, "\u00e9");
    }
    decodes(t, ids, 1000, want.data);
    qn_buf_done(&want);
    qn_tok_free(t);
}

static void test_text_must_be_utf8(void **state)
{
    (void)state;
    struct qn_tok *t = qn_fixture_load(qn_fixture_tb());
    struct qn_ids ids = {0};
    struct qn_err err = {0};
    assert_int_equal(qn_tok_encode(t, "ab\xff", 3, NULL, 0, &ids, &err), QN_E_INVALID);
    assert_non_null(strstr(err.msg, "byte 2 is 0xff"));
    assert_int_equal(ids.n, 0);
    assert_int_equal(qn_tok_encode(t, "a\0b", 3, NULL, 0, &ids, &err), QN_OK);
    assert_int_equal(ids.n, 3);
    assert_int_equal(ids.v[1], 0);
    qn_ids_done(&ids);
    qn_tok_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_TOK_01_ignore_merges),
        cmocka_unit_test(test_TOK_02_pattern_of_the_file),
        cmocka_unit_test(test_TOK_03_byte_fallback),
        cmocka_unit_test(test_TOK_04_unknown_kinds_refused),
        cmocka_unit_test(test_broken_files_are_named),
        cmocka_unit_test(test_empty_vocabularies),
        cmocka_unit_test(test_TOK_05_content_matches_no_special_token),
        cmocka_unit_test(test_marks_go_through_the_normalizer),
        cmocka_unit_test(test_TOK_06_long_piece_is_linear),
        cmocka_unit_test(test_TOK_07_no_pre_tokenizer_is_linear),
        cmocka_unit_test(test_TOK_08_strip_takes_whitespace),
        cmocka_unit_test(test_TOK_09_longest_added_token),
        cmocka_unit_test(test_single_word_tokens),
        cmocka_unit_test(test_TOK_10_normalizer_before_split),
        cmocka_unit_test(test_TOK_11_template_text_gets_no_bos),
        cmocka_unit_test(test_TOK_12_ids_past_the_vocabulary),
        cmocka_unit_test(test_TOK_13_leading_blank),
        cmocka_unit_test(test_TOK_14_no_clean_up_of_spaces),
        cmocka_unit_test(test_config_tokens),
        cmocka_unit_test(test_token_bytes),
        cmocka_unit_test(test_STR_01_unfinished_character_is_held),
        cmocka_unit_test(test_STR_02_end_inside_a_character),
        cmocka_unit_test(test_long_run_of_byte_tokens),
        cmocka_unit_test(test_text_must_be_utf8),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
