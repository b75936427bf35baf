#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

// Load any bytes as a tokenizer.json; what loads must encode and decode without trouble, and the
// pieces of an incremental decode must join to the whole.

static void round_trip(const struct qn_tok *t, const char *text, const uint8_t *plain,
                       unsigned flags)
{
    struct qn_ids ids = {0};
    struct qn_buf whole = {0}, pieces = {0};
    struct qn_detok d;
    size_t n = strlen(text);
    char *out = malloc(qn_detok_max_out(t));
    if (out != NULL && qn_tok_encode(t, text, n, plain, flags, &ids, NULL) == QN_OK) {
        bool skip = (flags & 1) != 0;
        for (int32_t id = -1; id < 24; id++) { // any order of tokens
            qn_detok_init(&d, t, skip);
            qn_detok_push(&d, id, out);
            qn_detok_finish(&d, out);
        }
        if (qn_tok_decode(t, ids.v, ids.n, skip, &whole, NULL) == QN_OK) {
            qn_detok_init(&d, t, skip);
            for (size_t i = 0; i < ids.n; i++) {
                qn_buf_add(&pieces, out, qn_detok_push(&d, ids.v[i], out));
            }
            qn_buf_add(&pieces, out, qn_detok_finish(&d, out));
            if (pieces.len != whole.len ||
                (whole.len > 0 && memcmp(pieces.data, whole.data, whole.len) != 0)) {
                abort();
            }
        }
    }
    free(out);
    qn_ids_done(&ids);
    qn_buf_done(&whole);
    qn_buf_done(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char text[] =
        "he\xCC\x81llo  <|s|> 12345's\n\nab \xE2\x96\x81\xF0\x9F\xA6\x99 <m> x";
    uint8_t plain[sizeof text];
    struct qn_tok *t = NULL;
    struct qn_err err;
    if (qn_tok_from_json((const char *)data, size, NULL, &t, &err) != QN_OK) {
        return 0;
    }
    for (size_t i = 0; i < sizeof text; i++) {
        plain[i] = i % 7 == 0;
    }
    round_trip(t, text, NULL, QN_TOK_ADD_SPECIAL | QN_TOK_PARSE_SPECIAL);
    round_trip(t, text, plain, QN_TOK_PARSE_SPECIAL);
    round_trip(t, text, NULL, 0);
    round_trip(t, "", NULL, QN_TOK_ADD_SPECIAL);
    qn_tok_free(t);
    return 0;
}
