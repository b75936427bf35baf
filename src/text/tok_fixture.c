#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok.h"
#include "text/tok_fixture.h"

#define BLANK_AB                                                                                   \
    "\xE2\x96\x81"                                                                                 \
    "ab"

static void put(json_t *vocab, const char *text, int id)
{
    assert_int_equal(json_object_set_new(vocab, text, json_integer(id)), 0);
}

static json_t *added_token(int id, const char *content)
{
    return json_pack("{s:i s:s s:b s:b s:b s:b s:b}", "id", id, "content", content, "single_word",
                     0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
}

json_t *qn_fixture_tb(void)
{
    static const char *const more[] = {"he", "ll",  "hell", "hello",           "\xC4\xA0w",
                                       "12", "123", "1234", "\xC4\xA0\xC4\xA0"};
    json_t *vocab = json_object();
    for (int b = 0; b < 256; b++) {
        char letter[3] = {0};
        qn_tok_byte_letter((unsigned char)b, letter);
        put(vocab, letter, b);
    }
    for (int i = 0; i < 9; i++) {
        put(vocab, more[i], 256 + i);
    }
    json_t *root = json_pack("{s:[] s:n s:n s:{s:s s:b s:o s:[s s s s s s s s]}}", "added_tokens",
                             "normalizer", "post_processor", "model", "type", "BPE",
                             "ignore_merges", 1, "vocab", vocab, "merges", "h e", "l l", "he ll",
                             "\xC4\xA0 w", "1 2", "12 3", "123 4", "\xC4\xA0 \xC4\xA0");
    assert_non_null(root);
    json_object_set_new(root, "pre_tokenizer",
                        json_pack("{s:s s:[{s:s s:{s:s} s:s s:b} {s:s s:b s:b s:b}]}", "type",
                                  "Sequence", "pretokenizers", "type", "Split", "pattern", "Regex",
                                  qn_tok_scan_pattern(1), "behavior", "Isolated", "invert", 0,
                                  "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 0,
                                  "use_regex", 0));
    json_object_set_new(root, "decoder", json_pack("{s:s}", "type", "ByteLevel"));
    return root;
}

void qn_fixture_tb_specials(json_t *root)
{
    json_t *list = json_object_get(root, "added_tokens");
    json_t *m = added_token(267, "<m>"), *n = added_token(268, "<n>");
    json_object_set_new(m, "lstrip", json_true());
    json_object_set_new(n, "rstrip", json_true());
    json_array_append_new(list, added_token(265, "<|s|>"));
    json_array_append_new(list, added_token(266, "<|e|>"));
    json_array_append_new(list, m);
    json_array_append_new(list, n);
    json_array_append_new(list, added_token(270, "<|e|>x"));
}

void qn_fixture_tb_pattern(json_t *root, const char *pattern)
{
    json_t *steps = json_object_get(json_object_get(root, "pre_tokenizer"), "pretokenizers");
    json_t *p = json_object_get(json_array_get(steps, 0), "pattern");
    assert_int_equal(json_object_set_new(p, "Regex", json_string(pattern)), 0);
}

json_t *qn_fixture_ts(void)
{
    static const char *const first[] = {"<pad>", "<eos>", "<bos>", "<unk>"};
    static const char *const last[] = {
        "\xE2\x96\x81", "a", "b", "c", "ab", BLANK_AB, "\n", "\xE2\x96\x81\xE2\x96\x81", "e"};
    json_t *vocab = json_object(), *added = json_array();
    for (int i = 0; i < 4; i++) {
        put(vocab, first[i], i);
        json_array_append_new(added, added_token(i, first[i]));
    }
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        put(vocab, name, 4 + b);
    }
    for (int i = 0; i < 9; i++) {
        put(vocab, last[i], 260 + i);
    }
    json_t *root = json_pack("{s:o s:n s:{s:s s:s s:b s:b s:o s:[s s s]}}", "added_tokens", added,
                             "pre_tokenizer", "model", "type", "BPE", "unk_token", "<unk>",
                             "byte_fallback", 1, "fuse_unk", 1, "vocab", vocab, "merges", "a b",
                             "\xE2\x96\x81 ab", "\xE2\x96\x81 \xE2\x96\x81");
    assert_non_null(root);
    json_object_set_new(root, "normalizer",
                        json_pack("{s:s s:{s:s} s:s}", "type", "Replace", "pattern", "String", " ",
                                  "content", "\xE2\x96\x81"));
    json_object_set_new(
        root, "post_processor",
        json_pack("{s:s s:[{s:{s:s s:i}} {s:{s:s s:i}}] s:[] s:{s:{s:s s:[i] s:[s]}}}", "type",
                  "TemplateProcessing", "single", "SpecialToken", "id", "<bos>", "type_id", 0,
                  "Sequence", "id", "A", "type_id", 0, "pair", "special_tokens", "<bos>", "id",
                  "<bos>", "ids", 2, "tokens", "<bos>"));
    json_object_set_new(root, "decoder",
                        json_pack("{s:s s:[{s:s s:{s:s} s:s} {s:s} {s:s}]}", "type", "Sequence",
                                  "decoders", "type", "Replace", "pattern", "String",
                                  "\xE2\x96\x81", "content", " ", "type", "ByteFallback", "type",
                                  "Fuse"));
    return root;
}

void qn_fixture_ts_prepend(json_t *root)
{
    json_t *replace = json_incref(json_object_get(root, "normalizer"));
    json_object_set_new(root, "normalizer",
                        json_pack("{s:s s:[{s:s s:s} o]}", "type", "Sequence", "normalizers",
                                  "type", "Prepend", "prepend", "\xE2\x96\x81", replace));
    json_array_append_new(
        json_object_get(json_object_get(root, "decoder"), "decoders"),
        json_pack("{s:s s:s s:i s:i}", "type", "Strip", "content", " ", "start", 1, "stop", 0));
}

struct qn_tok *qn_fixture_load(json_t *root)
{
    struct qn_tok *t = NULL;
    struct qn_err err = {0};
    char *text = json_dumps(root, 0);
    assert_non_null(text);
    enum qn_status rc = qn_tok_from_json(text, strlen(text), NULL, &t, &err);
    if (rc != QN_OK) {
        fail_msg("fixture: %s", err.msg);
    }
    free(text);
    json_decref(root);
    return t;
}
