// Bytes of a client: the first selects a parser, the rest is its input. A body goes through the
// JSON reader and the field checks, as chat and completions have them; a head and a chunked body
// through the HTTP parser, whole and in pieces, which must agree.

#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/http_parse.h"
#include "server/params.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void quern_sampling_init(struct quern_sampling *s)
{
    *s = (struct quern_sampling){.temperature = 1, .top_p = 1, .repetition_penalty = 1};
}

static void fuzz_body(const char *p, size_t n)
{
    struct qn_rules rules;
    struct qn_err err = {0};
    json_t *body = NULL;
    qn_rules_init(&rules);
    rules.vocab_size = 300;
    rules.max_model_len = 4096;
    if (qn_json_parse(p, n, 64, &body, &err) != QN_OK) {
        return;
    }
    for (int chat = 0; chat < 2 && json_is_object(body); chat++) {
        struct qn_params params;
        struct qn_api_error api = {0};
        bool ok = qn_params_parse(body, chat == 1, &rules, &params, &api);
        if (ok != (api.status == 0)) {
            abort();
        }
        if (ok && (params.n < 1 || params.best_of < params.n || params.best_of > 128 ||
                   !(params.sampling.temperature >= 0 && params.sampling.temperature <= 2) ||
                   params.sampling.logprobs > 20)) {
            abort();
        }
        struct qn_buf out = {0};
        if (!ok) {
            qn_api_error_write(&api, &out);
            json_t *back = json_loadb(out.data, out.len, 0, NULL);
            if (back == NULL || out.len > 16384) {
                abort();
            }
            json_decref(back);
        }
        qn_buf_done(&out);
        qn_params_done(&params);
    }
    json_decref(body);
}

static void fuzz_head(const char *p, size_t n)
{
    static struct qn_http_head head;
    const char *why = NULL;
    size_t scan = 0, slow = 0, whole_scan = 0;
    size_t end = qn_http_head_end(p, n, &whole_scan);
    for (size_t i = 1; i <= n && slow == 0; i++) {
        slow = qn_http_head_end(p, i, &scan);
    }
    if (slow != end) {
        abort();
    }
    if (end == 0) {
        return;
    }
    int status = qn_http_head_parse(p, end, 64, &head, &why);
    if ((status == 0) != (why == NULL) || head.n_headers > 64) {
        abort();
    }
    if (status == 0) {
        char *path = malloc(head.path.n + 1);
        if (path != NULL) {
            size_t len = qn_http_percent_decode(head.path.p, head.path.n, path);
            if (len != SIZE_MAX && len > head.path.n) {
                abort();
            }
        }
        free(path);
    }
}

static int run_chunks(const char *p, size_t n, size_t piece, char *out, size_t *out_n)
{
    struct qn_http_chunks c = {0};
    size_t at = 0;
    *out_n = 0;
    while (at < n) {
        size_t take = n - at < piece ? n - at : piece, used = 0;
        struct qn_slice data = {0};
        enum qn_http_chunk_result r = qn_http_chunks_next(&c, p + at, take, &used, &data);
        if (used == 0 || used > take) {
            abort();
        }
        at += used;
        if (r == QN_HTTP_CHUNK_DATA) {
            memcpy(out + *out_n, data.p, data.n);
            *out_n += data.n;
        } else if (r != QN_HTTP_CHUNK_MORE) {
            return (int)r;
        }
    }
    return -1;
}

static void fuzz_chunks(const char *p, size_t n)
{
    char *a = malloc(n + 1), *b = malloc(n + 1);
    size_t n_a = 0, n_b = 0;
    if (a != NULL && b != NULL) {
        int whole = run_chunks(p, n, n, a, &n_a), pieces = run_chunks(p, n, 1, b, &n_b);
        if (whole != pieces || n_a != n_b || memcmp(a, b, n_a) != 0) {
            abort();
        }
    }
    free(a);
    free(b);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    // an exact copy: a read past the end must be seen
    size_t n = size - 1;
    char *copy = malloc(n > 0 ? n : 1);
    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, data + 1, n);
    switch (data[0] % 3) {
    case 0:
        fuzz_body(copy, n);
        break;
    case 1:
        fuzz_head(copy, n);
        break;
    default:
        fuzz_chunks(copy, n);
        break;
    }
    free(copy);
    return 0;
}
