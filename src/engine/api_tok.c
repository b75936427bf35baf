#include "engine/api.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "formats/gguf.h"

enum {
    TOKENIZER_FILE_LIMIT = 256 << 20
};

static bool get_token(void *ctx, size_t i, const char **out, size_t *out_len)
{
    return qn_gguf_arr_str(ctx, "tokenizer.ggml.tokens", i, out, out_len);
}

static bool get_merge(void *ctx, size_t i, const char **out, size_t *out_len)
{
    return qn_gguf_arr_str(ctx, "tokenizer.ggml.merges", i, out, out_len);
}

static bool get_score(void *ctx, size_t i, float *out)
{
    double v;
    bool ok = qn_gguf_arr_float(ctx, "tokenizer.ggml.scores", i, &v);
    *out = ok ? (float)v : 0;
    return ok;
}

static bool get_type(void *ctx, size_t i, int *out)
{
    int64_t v;
    bool ok = qn_gguf_arr_int(ctx, "tokenizer.ggml.token_type", i, &v) && v >= 0 && v <= 255;
    *out = ok ? (int)v : 0;
    return ok;
}

static int64_t id_or_none(const struct qn_gguf *g, const char *key)
{
    int64_t id = -1;
    return qn_gguf_int(g, key, &id) ? id : -1;
}

static int flag_or_none(const struct qn_gguf *g, const char *key)
{
    bool v;
    return qn_gguf_bool(g, key, &v) ? v : -1;
}

// NUL-terminated copy of a metadata string, NULL when the key is absent.
static char *copy_str(const struct qn_gguf *g, const char *key)
{
    const char *s;
    size_t n;
    return qn_gguf_str(g, key, &s, &n) ? strndup(s, n) : NULL;
}

static enum qn_status from_gguf(const struct qn_gguf *g, struct qn_tok **out_tok,
                                struct qn_err *err)
{
    char *model = copy_str(g, "tokenizer.ggml.model"), *pre = copy_str(g, "tokenizer.ggml.pre");
    enum qn_gguf_type type;
    // The container is only read; the callbacks' context is not const because others may write.
    struct qn_tok_gguf src = {.ctx = (void *)(uintptr_t)g, .model = model, .pre = pre};
    enum qn_status rc = QN_OK;
    if (model != NULL && qn_gguf_arr(g, "tokenizer.ggml.tokens", &type, &src.n_tokens)) {
        size_t n;
        (void)qn_gguf_arr(g, "tokenizer.ggml.merges", &type, &src.n_merges);
        src.token = get_token;
        src.merge = get_merge;
        src.score = qn_gguf_arr(g, "tokenizer.ggml.scores", &type, &n) ? get_score : NULL;
        src.token_type = qn_gguf_arr(g, "tokenizer.ggml.token_type", &type, &n) ? get_type : NULL;
        src.bos = id_or_none(g, "tokenizer.ggml.bos_token_id");
        src.eos = id_or_none(g, "tokenizer.ggml.eos_token_id");
        src.unk = id_or_none(g, "tokenizer.ggml.unknown_token_id");
        src.pad = id_or_none(g, "tokenizer.ggml.padding_token_id");
        int64_t more[2];
        static const char *const keys[] = {"tokenizer.ggml.eot_token_id",
                                           "tokenizer.ggml.eom_token_id"};
        for (size_t i = 0; i < 2; i++) {
            more[src.n_more_eos] = id_or_none(g, keys[i]);
            src.n_more_eos += more[src.n_more_eos] >= 0;
        }
        src.more_eos = more;
        src.add_bos = flag_or_none(g, "tokenizer.ggml.add_bos_token");
        src.add_eos = flag_or_none(g, "tokenizer.ggml.add_eos_token");
        src.add_space_prefix = flag_or_none(g, "tokenizer.ggml.add_space_prefix");
        rc = qn_tok_from_gguf(&src, out_tok, err);
    }
    free(model);
    free(pre);
    return rc;
}

enum qn_status qn_api_load_tok(const struct qn_ckpt *ckpt, struct qn_tok **out_tok,
                               struct qn_err *err)
{
    const char *path = qn_ckpt_tokenizer_path(ckpt);
    if (path == NULL) {
        const struct qn_gguf *g = qn_ckpt_gguf(ckpt);
        return g != NULL ? from_gguf(g, out_tok, err) : QN_OK;
    }
    char *text = NULL;
    size_t n = 0;
    enum qn_status rc = qn_file_read(path, TOKENIZER_FILE_LIMIT, &text, &n, err);
    if (rc == QN_OK) {
        rc = qn_tok_from_json(text, n, qn_ckpt_tokenizer_config(ckpt), out_tok, err);
        free(text);
    }
    return rc == QN_OK ? QN_OK : qn_err_context(err, rc, "tokenizer \"%s\"", path);
}
