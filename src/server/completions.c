#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "server/gen.h"

static bool keep_text(struct qn_gen_prompt *p, const char *text, size_t n, struct qn_api_error *err)
{
    p->text = malloc(n + 1);
    if (p->text == NULL) {
        return qn_api_fail(err, 503, NULL, NULL, "could not allocate the echo");
    }
    memcpy(p->text, text, n);
    p->text[n] = '\0';
    p->n_text = n;
    return true;
}

static bool text_prompt(struct qn_gen *g, struct qn_gen_prompt *p, const json_t *v,
                        const char *param, struct qn_api_error *err)
{
    const struct qn_server *s = g->call->server;
    const char *text = json_string_value(v);
    size_t n = json_string_length(v);
    bool special = !g->p.has_add_special || g->p.add_special;
    if (n == 0 && !(special && s->adds_bos)) {
        return qn_api_fail(err, 400, NULL, param,
                           "%s: found an empty string, expected text or token ids", param);
    }
    unsigned flags = QUERN_TOK_PARSE_SPECIAL | (special ? QUERN_TOK_ADD_SPECIAL : 0u);
    if (!g->p.has_truncate &&
        !qn_text_check(s, n, g->p.has_max_tokens ? g->p.max_tokens : -1, err)) {
        return false;
    }
    return qn_text_tokenize(s, text, n, flags, &p->ids, &p->n_ids, err) &&
           (!g->p.echo || keep_text(p, text, n, err));
}

static bool id_prompt(struct qn_gen *g, struct qn_gen_prompt *p, const json_t *v, const char *param,
                      struct qn_api_error *err)
{
    const struct qn_server *s = g->call->server;
    if (!qn_ids_parse(v, s->rules.vocab_size, param, &p->ids, &p->n_ids, err)) {
        return false;
    }
    if (!g->p.echo) {
        return true;
    }
    struct quern_error q = {0};
    char *text = NULL;
    size_t n = 0;
    if (quern_detokenize(s->model, p->ids, p->n_ids, g->p.sampling.skip_special_tokens, &text, &n,
                         &q) != QUERN_OK) {
        return qn_api_fail_quern(err, &q, param);
    }
    bool ok = keep_text(p, text, n, err);
    quern_free(text);
    return ok;
}

static bool prepare_prompts(struct qn_gen *g, const json_t *v, bool one, struct qn_api_error *err)
{
    for (size_t i = 0; i < g->n_prompts; i++) {
        const json_t *item = one ? v : json_array_get(v, i);
        char param[64] = "prompt", buf[64];
        if (!one) {
            snprintf(param, sizeof param, "prompt[%zu]", i);
        }
        struct qn_gen_prompt *p = &g->prompts[i];
        bool ok = false;
        if (json_is_string(item)) {
            ok = text_prompt(g, p, item, param, err);
        } else if (json_is_array(item)) {
            ok = id_prompt(g, p, item, param, err);
        } else {
            qn_api_fail(err, 400, NULL, param,
                        "%s: found %s, expected a string or a list of token ids", param,
                        qn_value_text(item, buf));
        }
        if (!ok || !qn_gen_fit(g, p, param, err)) {
            return false;
        }
    }
    return true;
}

// A string, ids, a list of strings, a list of lists of ids.
static bool count_prompts(const json_t *v, size_t n_choices, bool *out_one, size_t *out_n,
                          struct qn_api_error *err)
{
    char buf[64];
    if (!json_is_string(v) && !json_is_array(v)) {
        return qn_api_fail(err, 400, NULL, "prompt",
                           "prompt: found %s, expected a string, token ids or a list of them",
                           qn_value_text(v, buf));
    }
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    const json_t *first = json_array_get(v, 0);
    if (n == 0) {
        return qn_api_fail(err, 400, NULL, "prompt",
                           "prompt: found an empty list, expected at least one prompt");
    }
    *out_one = json_is_string(v) || json_is_number(first);
    *out_n = *out_one ? 1 : n;
    if (*out_n > QN_MAX_PROMPTS || *out_n * n_choices > QN_MAX_SEQS) {
        return qn_api_fail(err, 400, NULL, "prompt",
                           "prompt: found %zu prompts of %zu choices, expected at most %d prompts "
                           "and %d choices in all",
                           *out_n, n_choices, QN_MAX_PROMPTS, QN_MAX_SEQS);
    }
    return true;
}

void qn_completions_prepare(struct qn_call *call)
{
    const struct qn_server *s = call->server;
    struct qn_api_error *err = &call->err;
    struct qn_params p;
    if (!qn_body_parse(call)) {
        return;
    }
    const json_t *prompt = qn_field(call->root, "prompt");
    bool one = true;
    size_t n = 1;
    bool ok = qn_params_parse(call->root, false, &s->rules, &p, err) &&
              qn_check_model(s, p.model, p.n_model, err) &&
              count_prompts(prompt, p.best_of, &one, &n, err);
    if (ok && qn_field(call->root, "suffix") != NULL) {
        ok = qn_api_fail(err, 400, NULL, "suffix", "suffix: not currently supported");
    }
    if (!ok) {
        qn_params_done(&p);
        return;
    }
    struct qn_gen *g = qn_gen_new(call, false, &p, n);
    if (g == NULL) {
        return;
    }
    if (prepare_prompts(g, prompt, one, err)) {
        call->gen = g;
    } else {
        qn_gen_free(g);
    }
}
