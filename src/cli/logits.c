#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/args.h"
#include "cli/cli.h"
#include "cli/npy.h"

enum {
    TOKENS_FILE_LIMIT = 64 << 20
};

// "1,2,3" or "@FILE".
static bool parse_tokens(const char *arg, int32_t **out_ids, size_t *out_n)
{
    char *owned = NULL;
    size_t len = 0;
    struct qn_err err = {0};
    if (arg[0] == '@' && qn_file_read(arg + 1, TOKENS_FILE_LIMIT, &owned, &len, &err) != QN_OK) {
        fprintf(stderr, "error: file \"%s\": %s\n", arg + 1, err.msg);
        return false;
    }
    bool ok = owned != NULL ? qn_cli_parse_ids(owned, len, "option --tokens", out_ids, out_n)
                            : qn_cli_parse_ids(arg, strlen(arg), "option --tokens", out_ids, out_n);
    free(owned);
    if (ok && *out_n == 0) {
        fprintf(stderr, "error: option --tokens: found no id, expected ids such as 1,2,3\n");
        free(*out_ids);
        return false;
    }
    return ok;
}

static int compute(struct quern_model *model, const int32_t *ids, size_t n, const char *output)
{
    size_t vocab = quern_model_get_info(model)->vocab_size;
    size_t bytes;
    float *out = NULL;
    if (!__builtin_mul_overflow(n * sizeof *out, vocab, &bytes)) {
        out = malloc(bytes);
    }
    if (out == NULL) {
        fprintf(stderr, "error: could not allocate %zu x %zu logits; give fewer tokens\n", n,
                vocab);
        return QN_EXIT_FAILED;
    }
    struct quern_error err = {0};
    struct qn_err io = {0};
    int rc = QN_EXIT_OK;
    if (quern_logits(model, ids, n, out, &err) != QUERN_OK) {
        rc = qn_cli_fail(&err);
    } else if (qn_npy_write_f32(output, out, n, vocab, &io) != QN_OK) {
        fprintf(stderr, "error: %s\n", io.msg);
        rc = QN_EXIT_FAILED;
    }
    free(out);
    return rc;
}

int qn_cmd_logits(int argc, char **argv)
{
    const char *path = NULL, *tokens = NULL, *output = NULL;
    struct qn_load_args load = {0};
    const struct qn_arg args[] = {
        {.name = "tokens",
         .kind = QN_ARG_STR,
         .out = &tokens,
         .arg = "IDS",
         .help = "token ids: 1,2,3 or @FILE"},
        {.name = "output",
         .letter = 'o',
         .kind = QN_ARG_STR,
         .out = &output,
         .arg = "FILE.npy",
         .help = "where to write float32 [n_tokens, vocab_size]"},
        {.name = "activations",
         .kind = QN_ARG_CHOICE,
         .out = &load.activations,
         .arg = "A",
         .choices = qn_activation_choices,
         .help = "f32, bf16 or int8 at GEMM inputs; default int8 for integer weights, else bf16"},
        {.name = "max-model-len",
         .kind = QN_ARG_INT,
         .out = &load.max_model_len,
         .arg = "N",
         .min = 1,
         .max = 1 << 24,
         .help = "context length; default the model's own"},
        {.name = "threads",
         .letter = 't',
         .kind = QN_ARG_INT,
         .out = &load.threads,
         .arg = "N",
         .min = 1,
         .max = 1024,
         .help = "worker threads; default: the cores this process may use"},
        {.name = "verbose",
         .letter = 'v',
         .kind = QN_ARG_FLAG,
         .out = &load.verbose,
         .help = "say what was loaded and how"},
    };
    const struct qn_arg_spec spec = {
        .usage = "quern logits MODEL --tokens IDS --output FILE.npy [options]",
        .about =
            "Feed token ids through a model and write the logits at every position, so that quern "
            "can be held against another implementation. The model needs no tokenizer.",
        .examples = "  quern logits DIR --tokens 1,2,3 --output out.npy --activations f32\n",
        .args = args,
        .n_args = sizeof args / sizeof args[0],
        .positional = &path,
        .min_positional = 1,
        .max_positional = 1,
    };
    switch (qn_args_parse(&spec, argc, argv)) {
    case QN_ARGS_HELP:
        return QN_EXIT_OK;
    case QN_ARGS_ERROR:
        return QN_EXIT_USAGE;
    case QN_ARGS_OK:
        break;
    }
    if (tokens == NULL || output == NULL) {
        fprintf(stderr, "error: option --%s is missing\nusage: %s\n",
                tokens == NULL ? "tokens" : "output", spec.usage);
        return QN_EXIT_USAGE;
    }
    int32_t *ids = NULL;
    size_t n = 0;
    if (!parse_tokens(tokens, &ids, &n)) {
        return QN_EXIT_USAGE;
    }
    int rc = QN_EXIT_FAILED;
    struct quern_model *model = qn_cli_load(path, &load);
    if (model != NULL) {
        rc = compute(model, ids, n, output);
        quern_model_free(model);
    }
    free(ids);
    return rc;
}
