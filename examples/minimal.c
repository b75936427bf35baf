// One complete program against quern.h: load a model, put a question, stream the answer.
//
//     minimal MODEL [PROMPT]
#include <quern/quern.h>

#include <stdio.h>
#include <string.h>

// Token ids of the prompt: through the chat template where the model has one, else as plain text.
static enum quern_status make_prompt(struct quern_model *model, const char *text, int32_t **out_ids,
                                     size_t *out_n, struct quern_error *err)
{
    const struct quern_model_info *info = quern_model_get_info(model);
    if (!info->has_chat_template || info->chat_template_error != NULL) {
        return quern_tokenize(model, text, strlen(text), QUERN_TOK_ADD_SPECIAL, out_ids, out_n,
                              err);
    }
    // A program that has a JSON library uses it; here the few escapes are written by hand.
    static const char head[] = "{\"messages\": [{\"role\": \"user\", \"content\": \"";
    static const char tail[] = "\"}]}";
    char json[4096];
    size_t n = sizeof head - 1;
    memcpy(json, head, n);
    for (const char *p = text; *p != '\0'; p++) {
        unsigned char c = (unsigned char)*p;
        if (n + 7 + sizeof tail > sizeof json) {
            err->code = QUERN_E_LIMIT;
            snprintf(err->message, sizeof err->message, "the prompt is too long for this example");
            return err->code;
        }
        if (c < 0x20 || c == '"' || c == '\\') {
            n += (size_t)snprintf(json + n, 7, "\\u%04x", c);
        } else {
            json[n++] = *p;
        }
    }
    memcpy(json + n, tail, sizeof tail - 1);
    return quern_chat_prompt(model, json, n + sizeof tail - 1, NULL, out_ids, out_n, err);
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s MODEL [PROMPT]\n", argv[0]);
        return 2;
    }
    const char *text = argc == 3 ? argv[2] : "Why is the sky blue? Answer in one sentence.";
    struct quern_model *model = NULL;
    struct quern_engine *engine = NULL;
    struct quern_request *request = NULL;
    struct quern_error err = {0};
    int32_t *prompt = NULL;
    size_t n_prompt = 0;
    int rc = 1;

    const struct quern_model_options model_options = {.path = argv[1]};
    if (quern_model_load(&model_options, &model, &err) != QUERN_OK ||
        quern_engine_new(model, NULL, &engine, &err) != QUERN_OK ||
        make_prompt(model, text, &prompt, &n_prompt, &err) != QUERN_OK) {
        goto done;
    }
    struct quern_request_params params = {.prompt = prompt, .n_prompt = n_prompt, .n = 1};
    quern_sampling_init(&params.sampling);
    params.sampling.temperature = 0; // greedy: the same answer every time
    params.sampling.max_tokens = 64;
    if (quern_engine_submit(engine, &params, &request, &err) != QUERN_OK) {
        goto done;
    }
    rc = 0;
    while (!quern_request_finished(request)) {
        (void)quern_engine_wait(engine, -1); // until there is something to read
        struct quern_delta delta;
        while (quern_request_read(request, &delta)) {
            fwrite(delta.text, 1, delta.n_text, stdout);
            fflush(stdout);
            if (delta.finish == QUERN_FINISH_ERROR) {
                snprintf(err.message, sizeof err.message, "%s", delta.error);
                rc = 1;
            }
        }
    }
    putchar('\n');
done:
    if (rc != 0) {
        fprintf(stderr, "error: %s\n", err.message);
    }
    quern_request_free(engine, request); // each takes NULL
    quern_engine_free(engine);
    quern_free(prompt);
    quern_model_free(model);
    return rc;
}
