// Driver for tools/golden/tokenizer_diff.py. Argument: a tokenizer.json or GGUF file. Requests on
// standard input, all numbers little-endian uint32:
//   'E' flags n text[n]   -> n_ids ids[n_ids]     encode, flags of qn_tok_encode
//   'D' skip n ids[n]     -> n text[n]            decode; also checked to equal the pieces of an
//                                                 incremental decode
//   'T' repeats n text[n] -> n_ids nanoseconds    best time of encoding
// It ends with 0 at the end of input and with 1 on anything wrong.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "text/tok_open.h"

static bool get(void *p, size_t n)
{
    return fread(p, 1, n, stdin) == n;
}

static void put(uint32_t v)
{
    fwrite(&v, sizeof v, 1, stdout);
}

static bool encode(const struct qn_tok *t, uint32_t flags, const char *text, size_t n, bool timed)
{
    struct qn_err err = {0};
    struct qn_ids ids = {0};
    uint64_t best = UINT64_MAX;
    uint32_t repeats = timed ? flags : 1;
    for (uint32_t i = 0; i < repeats; i++) {
        ids.n = 0;
        uint64_t start = qn_clock_ns();
        if (qn_tok_encode(t, text, n, NULL, timed ? 0 : flags, &ids, &err) != QN_OK) {
            fprintf(stderr, "encode: %s\n", err.msg);
            return false;
        }
        uint64_t took = qn_clock_ns() - start;
        best = took < best ? took : best;
    }
    put((uint32_t)ids.n);
    if (timed) {
        put((uint32_t)best);
    } else {
        fwrite(ids.v, sizeof *ids.v, ids.n, stdout);
    }
    qn_ids_done(&ids);
    return true;
}

static bool decode(const struct qn_tok *t, bool skip, const int32_t *ids, size_t n)
{
    struct qn_err err = {0};
    struct qn_buf whole = {0}, pieces = {0};
    struct qn_detok d;
    char *out = malloc(qn_detok_max_out(t));
    bool ok = out != NULL && qn_tok_decode(t, ids, n, skip, &whole, &err) == QN_OK;
    qn_detok_init(&d, t, skip);
    for (size_t i = 0; ok && i <= n; i++) {
        size_t k = i < n ? qn_detok_push(&d, ids[i], out) : qn_detok_finish(&d, out);
        ok = qn_buf_add(&pieces, out, k);
    }
    ok = ok && pieces.len == whole.len &&
         (whole.len == 0 || memcmp(pieces.data, whole.data, whole.len) == 0);
    if (ok) {
        put((uint32_t)whole.len);
        fwrite(whole.data, 1, whole.len, stdout);
    } else {
        fprintf(stderr, "decode: %s\n", err.msg[0] ? err.msg : "pieces differ from the whole");
    }
    free(out);
    qn_buf_done(&whole);
    qn_buf_done(&pieces);
    return ok;
}

int main(int argc, char **argv)
{
    struct qn_err err = {0};
    struct qn_tok *t = NULL;
    uint64_t start = qn_clock_ns();
    if (argc != 2 || qn_test_tok_open(argv[1], &t, &err) != QN_OK) {
        fprintf(stderr, "tok_tool: %s\n", argc == 2 ? err.msg : "expected one file");
        return 1;
    }
    fprintf(stderr, "loaded in %.0f ms\n", (double)(qn_clock_ns() - start) / 1e6);
    bool ok = true;
    char op;
    while (ok && get(&op, 1)) {
        uint32_t flags, n;
        ok = get(&flags, 4) && get(&n, 4) && n < 1u << 30;
        size_t bytes = op == 'D' ? (size_t)n * 4 : n;
        char *data = ok ? malloc(bytes + 1) : NULL;
        ok = data != NULL && get(data, bytes);
        if (ok) {
            ok = op == 'D' ? decode(t, flags != 0, (const int32_t *)(void *)data, n)
                           : encode(t, flags, data, n, op == 'T');
        }
        free(data);
        fflush(stdout);
    }
    qn_tok_free(t);
    return ok ? 0 : 1;
}
