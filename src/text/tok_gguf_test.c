#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/tok.h"

// Tokenizers from GGUF arrays, small ones.

#define IDS(...) ((const int32_t[]){__VA_ARGS__}), sizeof((const int32_t[]){__VA_ARGS__}) / 4
#define N(a) (sizeof(a) / sizeof *(a))

struct item {
    const char *text;
    int type;
    float score;
};

struct arrays {
    const struct item *items;
    const char *const *merges;
};

static bool token(void *ctx, size_t i, const char **out, size_t *out_len)
{
    *out = ((struct arrays *)ctx)->items[i].text;
    *out_len = *out == NULL ? 0 : strlen(*out);
    return *out != NULL;
}

static bool merge(void *ctx, size_t i, const char **out, size_t *out_len)
{
    *out = ((struct arrays *)ctx)->merges[i];
    *out_len = strlen(*out);
    return true;
}

static bool score(void *ctx, size_t i, float *out)
{
    *out = ((struct arrays *)ctx)->items[i].score;
    return true;
}

static bool token_type(void *ctx, size_t i, int *out)
{
    *out = ((struct arrays *)ctx)->items[i].type;
    return true;
}

static struct qn_tok_gguf source(struct arrays *a, const char *model, size_t n, size_t n_merges)
{
    return (struct qn_tok_gguf){.ctx = a,
                                .model = model,
                                .n_tokens = n,
                                .n_merges = n_merges,
                                .token = token,
                                .merge = merge,
                                .score = score,
                                .token_type = token_type,
                                .bos = -1,
                                .eos = -1,
                                .unk = -1,
                                .pad = -1,
                                .add_bos = -1,
                                .add_eos = -1,
                                .add_space_prefix = -1};
}

static struct qn_tok *load(const struct qn_tok_gguf *src)
{
    struct qn_tok *t = NULL;
    struct qn_err err = {0};
    if (qn_tok_from_gguf(src, &t, &err) != QN_OK) {
        fail_msg("%s", err.msg);
    }
    return t;
}

static void refused(const struct qn_tok_gguf *src, enum qn_status want, const char *part)
{
    struct qn_tok *t = NULL;
    struct qn_err err = {0};
    assert_int_equal(qn_tok_from_gguf(src, &t, &err), want);
    assert_null(t);
    if (strstr(err.msg, part) == NULL) {
        fail_msg("message \"%s\" lacks \"%s\"", err.msg, part);
    }
}

static void encodes(const struct qn_tok *t, const char *text, unsigned flags, const int32_t *want,
                    size_t n)
{
    struct qn_ids ids = {0};
    assert_int_equal(qn_tok_encode(t, text, strlen(text), NULL, flags, &ids, NULL), QN_OK);
    if (ids.n != n || memcmp(ids.v, want, n * sizeof *want) != 0) {
        for (size_t i = 0; i < ids.n; i++) {
            print_error("%d ", ids.v[i]);
        }
        fail_msg("ids of \"%s\"", text);
    }
    qn_ids_done(&ids);
}

static void decodes(const struct qn_tok *t, const int32_t *ids, size_t n, bool skip,
                    const char *want)
{
    struct qn_buf out = {0};
    assert_int_equal(qn_tok_decode(t, ids, n, skip, &out, NULL), QN_OK);
    assert_string_equal(out.data, want);
    qn_buf_done(&out);
}

#define B "\xE2\x96\x81"
static const struct item scored[] = {
    {"<unk>", 2, 0},  {"<s>", 3, 0},      {"</s>", 3, 0},   {B, 1, -10},     {"a", 1, -11},
    {"b", 1, -12},    {B "a", 1, -2},     {"ab", 1, -1},    {B "ab", 1, -3}, {"<0xC3>", 6, 0},
    {"<0xA9>", 6, 0}, {"x\u00e9", 1, -4}, {"x", 1, -13},    {"[T]", 4, 0},   {"<", 1, -14},
    {"/s>", 1, -15},  {"aa", 1, -5},      {"<0x62>", 6, 0}, {"old", 5, 0},   {"/s", 1, -16},
};

static void test_scored_family(void **state)
{
    (void)state;
    struct arrays a = {.items = scored};
    struct qn_tok_gguf src = source(&a, "llama", N(scored), 0);
    src.bos = 1;
    src.eos = 2;
    src.unk = 0;
    src.add_eos = 1;
    struct qn_tok *t = load(&src);
    encodes(t, "ab", 0, IDS(8));          // ▁ab: the best score first (ab), then ▁ab
    encodes(t, "aaa", 0, IDS(6, 16));     // ▁a before aa by score
    encodes(t, "x\u00e9", 0, IDS(3, 11)); // é is no token, but takes part in one
    encodes(t, "\u00e9", 0, IDS(3, 9, 10));
    encodes(t, "c", 0, IDS(3, 0)); // no byte token for it
    encodes(t, "ab", QN_TOK_ADD_SPECIAL, IDS(1, 8, 2));
    encodes(t, "a<s>a", QN_TOK_PARSE_SPECIAL, IDS(6, 1, 6)); // a blank after each
    encodes(t, "a[T]", 0, IDS(6, 13));                       // user-defined ones always match
    encodes(t, "</s>", 0, IDS(3, 14, 15));                   // text never makes a control token
    encodes(t, "</s>", QN_TOK_PARSE_SPECIAL, IDS(2));
    decodes(t, IDS(8, 8), true, "ab ab"); // one leading blank goes
    decodes(t, IDS(1, 6, 9, 10), false, "<s> a\u00e9");
    decodes(t, IDS(1, 6, 9, 10, 2), true, "a\u00e9");
    assert_true(qn_tok_adds_bos(t));
    assert_true(qn_tok_is_special(t, 1));
    assert_false(qn_tok_is_special(t, 13));
    qn_tok_free(t);
    src.add_space_prefix = 0;
    src.add_bos = 0;
    t = load(&src);
    encodes(t, "ab", QN_TOK_ADD_SPECIAL, IDS(7, 2));
    decodes(t, IDS(8), true, " ab");
    qn_tok_free(t);
}

static const struct item blank_items[] = {
    {"<pad>", 3, 0}, {"<eos>", 3, 0}, {"<bos>", 3, 0}, {"<unk>", 3, 0},
    {B, 1, 0},       {"a", 1, 0},     {"b", 1, 0},     {"ab", 1, 0},
    {B "ab", 1, 0},  {"\n", 1, 0},    {"\n\n", 1, 0},  {"<call>", 4, 0},
};

static void test_gemma4_family(void **state)
{
    (void)state;
    static const char *const merges[] = {"a b", B " ab", "\n \n"};
    struct arrays a = {.items = blank_items, .merges = merges};
    struct qn_tok_gguf src = source(&a, "gemma4", N(blank_items), N(merges));
    const int64_t more[] = {11, -1, 1};
    src.bos = 2;
    src.eos = 1;
    src.unk = 3;
    src.more_eos = more;
    src.n_more_eos = N(more);
    struct qn_tok *t = load(&src);
    encodes(t, "ab ab\n\nab", QN_TOK_ADD_SPECIAL, IDS(2, 7, 8, 10, 7));
    encodes(t, "zz", 0, IDS(3)); // unknown characters fuse
    const int32_t *stops;
    assert_int_equal(qn_tok_stops(t, &stops), 2);
    assert_int_equal(stops[0], 1);
    assert_int_equal(stops[1], 11);
    decodes(t, IDS(2, 8, 11), true, " ab<call>");
    qn_tok_free(t);
}

/// All byte letters, then "he", "Ġh" and a control token.
static struct item *byte_items(char (*letters)[4])
{
    struct item *items = calloc(260, sizeof *items);
    assert_non_null(items);
    for (int b = 0; b < 256; b++) {
        size_t n = qn_tok_byte_letter((unsigned char)b, letters[b]);
        letters[b][n] = '\0';
        items[b] = (struct item){letters[b], 1, 0};
    }
    items[256] = (struct item){"he", 1, 0};
    items[257] = (struct item){"\xC4\xA0h", 1, 0};
    items[258] = (struct item){"<|e|>", 3, 0};
    items[259] = (struct item){"12", 1, 0};
    return items;
}

static void test_byte_level_family_by_pre(void **state)
{
    (void)state;
    static const char *const merges[] = {"h e", "\xC4\xA0 h", "1 2"};
    char letters[256][4];
    struct arrays a = {.items = byte_items(letters), .merges = merges};
    struct qn_tok_gguf src = source(&a, "gpt2", 260, N(merges));
    static const char *const names[] = {"default", "llama-bpe", "qwen2", "smollm",
                                        "gpt-4o",  "tekken",    "gpt-2"};
    src.bos = 258;
    for (size_t i = 0; i < N(names); i++) {
        src.pre = names[i];
        struct qn_tok *t = load(&src);
        bool by_one = strcmp(names[i], "qwen2") == 0 || strcmp(names[i], "smollm") == 0 ||
                      strcmp(names[i], "tekken") == 0;
        bool bos = strcmp(names[i], "llama-bpe") == 0 || strcmp(names[i], "tekken") == 0;
        encodes(t, "he he<|e|>", QN_TOK_PARSE_SPECIAL, IDS(256, 32, 256, 258));
        if (by_one) {
            encodes(t, "12", 0, IDS('1', '2'));
        } else {
            encodes(t, "12", 0, IDS(259));
        }
        assert_int_equal(qn_tok_adds_bos(t), bos);
        decodes(t, IDS(256, 257, 258), false, "he h<|e|>");
        qn_tok_free(t);
    }
    src.pre = "no-such";
    refused(&src, QN_E_UNSUPPORTED, "\"no-such\"");
    src.pre = NULL;
    refused(&src, QN_E_UNSUPPORTED, "tokenizer.ggml.pre");
    src.pre = "qwen2";
    src.eos = 260;
    refused(&src, QN_E_FORMAT, "eos_token_id");
    src.eos = -1;
    src.n_merges = 0;
    refused(&src, QN_E_FORMAT, "merges");
    static const char *const broken[] = {"h e", "q  ", "he"};
    a.merges = broken;
    src.n_merges = 2;
    refused(&src, QN_E_FORMAT, "merges[1]");
    src.model = "bert";
    refused(&src, QN_E_UNSUPPORTED, "\"bert\"");
    free((void *)(uintptr_t)a.items);
}

static void test_broken_arrays(void **state)
{
    (void)state;
    struct item items[N(scored)];
    memcpy(items, scored, sizeof items);
    struct arrays a = {.items = items};
    struct qn_tok_gguf src = source(&a, "llama", N(items), 0);
    items[4].score = NAN;
    refused(&src, QN_E_FORMAT, "score of token 4");
    items[4].score = 0;
    items[5].type = 9;
    refused(&src, QN_E_FORMAT, "token_type[5]");
    items[5].type = 1;
    items[6].text = "\xff";
    refused(&src, QN_E_FORMAT, "tokens[6]");
    items[6].text = NULL;
    refused(&src, QN_E_FORMAT, "tokens[6]");
    src.n_tokens = 0;
    refused(&src, QN_E_FORMAT, "tokens");
    src = source(&a, "llama", 2, 0);
    src.score = NULL;
    refused(&src, QN_E_FORMAT, "scores");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scored_family),
        cmocka_unit_test(test_gemma4_family),
        cmocka_unit_test(test_byte_level_family_by_pre),
        cmocka_unit_test(test_broken_arrays),
    };
    return cmocka_run_group_tests_name("tok_gguf", tests, NULL, NULL);
}
