#include "text/tok_open.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "formats/gguf.h"

static bool token(void *ctx, size_t i, const char **out, size_t *out_len)
{
    return qn_gguf_arr_str(ctx, "tokenizer.ggml.tokens", i, out, out_len);
}

static bool merge(void *ctx, size_t i, const char **out, size_t *out_len)
{
    return qn_gguf_arr_str(ctx, "tokenizer.ggml.merges", i, out, out_len);
}

static bool score(void *ctx, size_t i, float *out)
{
    double v;
    bool ok = qn_gguf_arr_float(ctx, "tokenizer.ggml.scores", i, &v);
    *out = ok ? (float)v : 0;
    return ok;
}

static bool token_type(void *ctx, size_t i, int *out)
{
    int64_t v;
    bool ok = qn_gguf_arr_int(ctx, "tokenizer.ggml.token_type", i, &v);
    *out = ok ? (int)v : 0;
    return ok;
}

static int64_t id_of(const struct qn_gguf *g, const char *key)
{
    int64_t v = -1;
    return qn_gguf_int(g, key, &v) ? v : -1;
}

static int flag_of(const struct qn_gguf *g, const char *key)
{
    bool v;
    return qn_gguf_bool(g, key, &v) ? v : -1;
}

static char *text_of(const struct qn_gguf *g, const char *key)
{
    const char *s;
    size_t n;
    return qn_gguf_str(g, key, &s, &n) ? strndup(s, n) : NULL;
}

static enum qn_status from_gguf(const char *path, struct qn_tok **out_tok, struct qn_err *err)
{
    struct qn_gguf *g = NULL;
    enum qn_status rc = qn_gguf_open(path, &g, err);
    if (rc != QN_OK) {
        return rc;
    }
    enum qn_gguf_type type;
    size_t n;
    int64_t more[2] = {id_of(g, "tokenizer.ggml.eot_token_id"),
                       id_of(g, "tokenizer.ggml.eom_token_id")};
    char *model = text_of(g, "tokenizer.ggml.model"), *pre = text_of(g, "tokenizer.ggml.pre");
    struct qn_tok_gguf src = {
        .ctx = g,
        .model = model,
        .pre = pre,
        .token = token,
        .merge = merge,
        .score = qn_gguf_arr(g, "tokenizer.ggml.scores", &type, &n) ? score : NULL,
        .token_type = qn_gguf_arr(g, "tokenizer.ggml.token_type", &type, &n) ? token_type : NULL,
        .bos = id_of(g, "tokenizer.ggml.bos_token_id"),
        .eos = id_of(g, "tokenizer.ggml.eos_token_id"),
        .unk = id_of(g, "tokenizer.ggml.unknown_token_id"),
        .pad = id_of(g, "tokenizer.ggml.padding_token_id"),
        .more_eos = more,
        .n_more_eos = 2,
        .add_bos = flag_of(g, "tokenizer.ggml.add_bos_token"),
        .add_eos = flag_of(g, "tokenizer.ggml.add_eos_token"),
        .add_space_prefix = flag_of(g, "tokenizer.ggml.add_space_prefix"),
    };
    src.n_tokens = qn_gguf_arr(g, "tokenizer.ggml.tokens", &type, &n) ? n : 0;
    src.n_merges = qn_gguf_arr(g, "tokenizer.ggml.merges", &type, &n) ? n : 0;
    rc = qn_tok_from_gguf(&src, out_tok, err);
    free(model);
    free(pre);
    qn_gguf_close(g);
    return rc;
}

enum qn_status qn_test_tok_open(const char *path, struct qn_tok **out_tok, struct qn_err *err)
{
    size_t n = strlen(path);
    char *text;
    if (n > 5 && strcmp(path + n - 5, ".gguf") == 0) {
        return from_gguf(path, out_tok, err);
    }
    enum qn_status rc = qn_file_read(path, 1u << 28, &text, &n, err);
    if (rc == QN_OK) {
        rc = qn_tok_from_json(text, n, NULL, out_tok, err);
        free(text);
    }
    return rc;
}
