#include <stdlib.h>
#include <string.h>

#include "server/gen.h"

// With echo, the last message is repeated in front of the answer when it has the answer's role.
static bool prepare_echo(struct qn_gen *g, const json_t *body, bool add_generation,
                         struct qn_api_error *err)
{
    const json_t *list = json_object_get(body, "messages");
    const json_t *last = json_array_get(list, json_array_size(list) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    const json_t *content = json_object_get(last, "content");
    const char *answer = g->call->server->opt->response_role;
    g->role = add_generation ? (answer != NULL ? answer : "assistant") : role;
    if (!g->p.echo || strcmp(g->role, role) != 0 || !json_is_string(content)) {
        return true;
    }
    g->n_echo = json_string_length(content);
    g->echo = malloc(g->n_echo + 1);
    if (g->echo == NULL) {
        return qn_api_fail(err, 503, NULL, NULL, "could not allocate the echo");
    }
    memcpy(g->echo, json_string_value(content), g->n_echo + 1);
    return true;
}

// add_special_tokens in chat: templates write their BOS themselves, so it is off unless asked for.
static bool add_special(struct qn_gen *g, struct qn_api_error *err)
{
    struct qn_gen_prompt *p = &g->prompts[0];
    int32_t *special = NULL;
    size_t n = 0;
    if (!g->p.add_special ||
        !qn_text_tokenize(g->call->server, "", 0, QUERN_TOK_ADD_SPECIAL, &special, &n, err)) {
        return !g->p.add_special;
    }
    int32_t *joined = malloc((p->n_ids + 1) * sizeof *joined);
    if (joined == NULL) {
        free(special);
        return qn_api_fail(err, 503, NULL, NULL, "could not allocate the prompt");
    }
    size_t bos = n > 0 ? 1 : 0; // what follows it would belong behind the text
    if (bos == 1) {
        joined[0] = special[0];
    }
    memcpy(joined + bos, p->ids, p->n_ids * sizeof *joined);
    free(special);
    free(p->ids);
    p->ids = joined;
    p->n_ids += bos;
    return true;
}

void qn_chat_prepare(struct qn_call *call)
{
    const struct qn_server *s = call->server;
    struct qn_api_error *err = &call->err;
    struct qn_params p;
    bool include_reasoning = true, parallel = true;
    if (!qn_body_parse(call)) {
        return;
    }
    bool ok = qn_params_parse(call->root, true, &s->rules, &p, err) &&
              qn_check_model(s, p.model, p.n_model, err) &&
              qn_field_bool(call->root, "include_reasoning", &include_reasoning, err) &&
              qn_field_bool(call->root, "parallel_tool_calls", &parallel, err);
    if (!ok) {
        qn_params_done(&p);
        return;
    }
    struct qn_gen *g = qn_gen_new(call, true, &p, 1);
    if (g == NULL) {
        return;
    }
    struct qn_gen_prompt *prompt = &g->prompts[0];
    bool add_generation = true;
    if (qn_chat_render(s, call->root, g->p.has_max_tokens ? g->p.max_tokens : -1, &prompt->ids,
                       &prompt->n_ids, &add_generation, err) &&
        add_special(g, err) && prepare_echo(g, call->root, add_generation, err) &&
        qn_gen_fit(g, prompt, "messages", err)) {
        call->gen = g;
        return;
    }
    qn_gen_free(g);
}
