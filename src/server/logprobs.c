#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "server/gen.h"
#include "server/jsonw.h"

// The bytes of a token, appended to `out`.
static void token_bytes(const struct qn_gen *g, int32_t id, struct qn_buf *out)
{
    const struct quern_model *model = g->call->server->model;
    if (!qn_buf_reserve(out, 256)) {
        return;
    }
    size_t n = quern_token_bytes(model, id, out->data + out->len, 256);
    if (n > 256) {
        if (!qn_buf_reserve(out, n)) {
            return;
        }
        n = quern_token_bytes(model, id, out->data + out->len, n);
    }
    out->len += n;
    out->data[out->len] = '\0';
}

static void token_string(const struct qn_gen *g, int32_t id, struct qn_buf *scratch,
                         struct qn_buf *out)
{
    if (g->p.tokens_as_ids) {
        qn_buf_printf(out, "\"token_id:%d\"", (int)id);
        return;
    }
    qn_buf_clear(scratch);
    token_bytes(g, id, scratch);
    qn_jw_str(out, scratch->data != NULL ? scratch->data : "", scratch->len);
}

static void chat_entry(const struct qn_gen *g, const struct quern_logprob *lp,
                       struct qn_buf *scratch, struct qn_buf *out)
{
    qn_buf_puts(out, "{\"token\":");
    token_string(g, lp->id, scratch, out);
    qn_buf_puts(out, ",\"logprob\":");
    qn_jw_float(out, lp->logprob);
    qn_buf_puts(out, ",\"bytes\":[");
    qn_buf_clear(scratch);
    token_bytes(g, lp->id, scratch);
    for (size_t i = 0; i < scratch->len; i++) {
        qn_buf_printf(out, i > 0 ? ",%u" : "%u", (unsigned)(unsigned char)scratch->data[i]);
    }
    qn_buf_putc(out, ']');
}

void qn_logprobs_chat(const struct qn_gen *g, const struct qn_gen_choice *c, struct qn_buf *out)
{
    size_t k = (size_t)g->p.sampling.logprobs;
    struct qn_buf scratch = {0};
    qn_buf_puts(out, "{\"content\":[");
    for (size_t i = 0; i < c->n_ids; i++) {
        const struct quern_logprob *row = c->rows + i * (1 + k);
        qn_buf_puts(out, i > 0 ? "," : "");
        chat_entry(g, row, &scratch, out);
        qn_buf_puts(out, ",\"top_logprobs\":[");
        for (size_t j = 1; j <= k && row[j].id >= 0; j++) {
            qn_buf_puts(out, j > 1 ? "," : "");
            chat_entry(g, &row[j], &scratch, out);
            qn_buf_putc(out, '}');
        }
        qn_buf_puts(out, "]}");
    }
    qn_buf_puts(out, "],\"refusal\":null}");
    out->failed = out->failed || scratch.failed;
    qn_buf_done(&scratch);
}

// The map of one token: itself and the k likeliest. Two ids may spell the same (parts of a
// character all show as U+FFFD): a key appears once, with the larger of the values.
static void top_map(const struct qn_gen *g, const struct quern_logprob *row, size_t k,
                    struct qn_buf *out)
{
    struct qn_buf keys = {0};
    size_t *at = malloc((k + 2) * sizeof *at);
    float *best = malloc((k + 1) * sizeof *best);
    struct qn_buf scratch = {0};
    struct qn_strmap seen;
    qn_strmap_init(&seen);
    size_t n = 0;
    if (at == NULL || best == NULL) {
        out->failed = true;
        k = 0;
    }
    for (size_t j = 0; at != NULL && best != NULL && j <= k && (j == 0 || row[j].id >= 0); j++) {
        at[j] = keys.len;
        token_string(g, row[j].id, &scratch, &keys);
        qn_buf_putc(&keys, '\0');
        n = j + 1;
    }
    // keys is complete now, so that the map may borrow from it
    out->failed = out->failed || keys.failed || scratch.failed;
    if (!out->failed) {
        at[n] = keys.len;
        for (size_t j = 0; j < n; j++) {
            const char *key = keys.data + at[j];
            uint32_t first = (uint32_t)j;
            bool exists = false;
            best[j] = row[j].logprob;
            if (!qn_strmap_put(&seen, key, strlen(key), first, &exists)) {
                if (!exists || !qn_strmap_get(&seen, key, strlen(key), &first)) {
                    out->failed = true;
                    break;
                }
                best[first] = best[first] > row[j].logprob ? best[first] : row[j].logprob;
                at[j] = SIZE_MAX;
            }
        }
    }
    qn_buf_putc(out, '{');
    for (size_t j = 0; !out->failed && j < n; j++) {
        if (at[j] != SIZE_MAX) {
            qn_buf_puts(out, j > 0 ? "," : "");
            qn_buf_puts(out, keys.data + at[j]);
            qn_buf_putc(out, ':');
            qn_jw_float(out, best[j]);
        }
    }
    qn_buf_putc(out, '}');
    qn_strmap_done(&seen);
    qn_buf_done(&scratch);
    qn_buf_done(&keys);
    free(at);
    free(best);
}

// Where each prompt token starts in the echoed text, in characters. Tokens that are not in it (a
// BOS that was added, a blank that the tokenizer put in front) take no room.
static void prompt_offsets(const struct qn_gen *g, const struct qn_gen_prompt *p, size_t *out)
{
    struct qn_buf scratch = {0};
    size_t at = 0, chars = 0, counted = 0;
    for (size_t i = 0; i < p->n_ids; i++) {
        chars += qn_utf8_count(p->text + counted, at - counted);
        counted = at;
        out[i] = chars;
        qn_buf_clear(&scratch);
        token_bytes(g, p->ids[i], &scratch);
        const char *s = scratch.data != NULL ? scratch.data : "";
        size_t n = scratch.len;
        if (n > 0 && s[0] == ' ' && (at >= p->n_text || p->text[at] != ' ')) {
            s++;
            n--;
        }
        if (n <= p->n_text - at && memcmp(p->text + at, s, n) == 0) {
            at += n;
        }
    }
    qn_buf_done(&scratch);
}

struct token_row {
    int32_t id;
    size_t offset;
    const struct quern_logprob *row; // NULL: unknown
};

static size_t output_rows(const struct qn_gen_choice *c, size_t base_chars, size_t k,
                          struct token_row *rows)
{
    size_t prev = c->last_end, counted = c->told_bytes, chars = base_chars + c->told_chars;
    for (size_t i = 0; i < c->n_ids; i++) {
        // text that is still held back for a stop string counts a character a byte
        size_t have = c->told_bytes + c->text.len;
        size_t seen = prev < have ? prev : have;
        if (seen > counted) {
            chars += qn_utf8_count(c->text.data + (counted - c->told_bytes), seen - counted);
            counted = seen;
        }
        rows[i] = (struct token_row){
            .id = c->ids[i],
            .offset = chars + (prev > seen ? prev - seen : 0),
            .row = c->rows + i * (1 + k),
        };
        prev = c->ends[i];
    }
    return c->n_ids;
}

void qn_logprobs_completions(const struct qn_gen *g, const struct qn_gen_prompt *p,
                             const struct qn_gen_choice *c, bool with_prompt, struct qn_buf *out)
{
    size_t k = (size_t)g->p.sampling.logprobs, n = 0;
    size_t n_prompt = with_prompt ? p->n_ids : 0;
    struct token_row *rows = calloc(n_prompt + c->n_ids + 1, sizeof *rows);
    size_t *offsets = calloc(n_prompt + 1, sizeof *offsets);
    const struct quern_logprob *known = quern_request_prompt_logprobs(p->request);
    size_t stride = 1 + (size_t)(g->prompt_k > 0 ? g->prompt_k : 0);
    if (rows == NULL || offsets == NULL) {
        out->failed = true;
    } else {
        if (with_prompt) {
            prompt_offsets(g, p, offsets);
        }
        for (size_t i = 0; i < n_prompt; i++) {
            rows[n++] = (struct token_row){
                .id = p->ids[i],
                .offset = offsets[i],
                .row = i > 0 && known != NULL ? known + i * stride : NULL,
            };
        }
        size_t base = g->p.echo ? qn_utf8_count(p->text, p->n_text) : 0;
        n += output_rows(c, base, k, rows + n);
    }
    struct qn_buf scratch = {0};
    qn_buf_puts(out, "{\"text_offset\":[");
    for (size_t i = 0; i < n; i++) {
        qn_buf_printf(out, i > 0 ? ",%zu" : "%zu", rows[i].offset);
    }
    qn_buf_puts(out, "],\"token_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        qn_buf_puts(out, i > 0 ? "," : "");
        if (rows[i].row != NULL) {
            qn_jw_float(out, rows[i].row[0].logprob);
        } else {
            qn_buf_puts(out, "null");
        }
    }
    qn_buf_puts(out, "],\"tokens\":[");
    for (size_t i = 0; i < n; i++) {
        qn_buf_puts(out, i > 0 ? "," : "");
        token_string(g, rows[i].id, &scratch, out);
    }
    qn_buf_puts(out, "],\"top_logprobs\":[");
    for (size_t i = 0; i < n; i++) {
        qn_buf_puts(out, i > 0 ? "," : "");
        if (rows[i].row != NULL) {
            top_map(g, rows[i].row, k, out);
        } else {
            qn_buf_puts(out, "null");
        }
    }
    qn_buf_puts(out, "]}");
    out->failed = out->failed || scratch.failed;
    qn_buf_done(&scratch);
    free(rows);
    free(offsets);
}

void qn_logprobs_prompt(const struct qn_gen *g, const struct qn_gen_prompt *p, struct qn_buf *out)
{
    const struct quern_logprob *known = quern_request_prompt_logprobs(p->request);
    if (g->p.sampling.prompt_logprobs < 0 || known == NULL) {
        qn_buf_puts(out, "null");
        return;
    }
    size_t k = (size_t)g->p.sampling.prompt_logprobs;
    struct qn_buf scratch = {0};
    qn_buf_puts(out, "[null");
    for (size_t i = 1; i < p->n_ids; i++) {
        const struct quern_logprob *row = known + i * (1 + (size_t)g->prompt_k);
        qn_buf_puts(out, ",{");
        for (size_t j = 0; j <= k; j++) {
            if (j > 0 && (row[j].id == row[0].id || row[j].id < 0)) {
                continue;
            }
            qn_buf_printf(out,
                          j > 0 ? ",\"%d\":{\"logprob\":" : "\"%d\":{\"logprob\":", (int)row[j].id);
            qn_jw_float(out, row[j].logprob);
            qn_buf_printf(out, ",\"rank\":%d,\"decoded_token\":", (int)row[j].rank);
            token_string(g, row[j].id, &scratch, out);
            qn_buf_putc(out, '}');
        }
        qn_buf_putc(out, '}');
    }
    qn_buf_putc(out, ']');
    out->failed = out->failed || scratch.failed;
    qn_buf_done(&scratch);
}
