#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/file.h"
#include "cli/args.h"
#include "cli/cli.h"

enum {
    INPUT_LIMIT = 1 << 30
};

static bool read_stream(FILE *f, struct qn_buf *out)
{
    char block[1 << 16];
    size_t n;
    while ((n = fread(block, 1, sizeof block, f)) > 0) {
        if (!qn_buf_add(out, block, n)) {
            return false;
        }
    }
    return ferror(f) == 0;
}

// TEXT, --file F, or standard input for "-".
static bool read_input(const char *text, const char *file, struct qn_buf *out)
{
    qn_buf_init(out, INPUT_LIMIT);
    if (file == NULL) {
        return qn_buf_puts(out, text);
    }
    if (strcmp(file, "-") == 0) {
        if (!read_stream(stdin, out)) {
            fprintf(stderr, "error: could not read standard input (limit %d bytes)\n", INPUT_LIMIT);
            return false;
        }
        return qn_buf_reserve(out, 0);
    }
    FILE *f = fopen(file, "rb");
    bool ok = f != NULL && read_stream(f, out) && qn_buf_reserve(out, 0);
    if (!ok) {
        fprintf(stderr, "error: file \"%s\": could not read: %s\n", file,
                out->failed ? "larger than 1 GiB" : strerror(errno));
    }
    if (f != NULL) {
        fclose(f);
    }
    return ok;
}

static void print_piece(const struct quern_model *model, int32_t id)
{
    char buf[1024];
    size_t n = quern_token_bytes(model, id, buf, sizeof buf);
    n = n > sizeof buf ? sizeof buf : n;
    if (n == 0) {
        size_t len = 0;
        const char *piece = quern_token_piece(model, id, &len);
        printf("%6d  %.*s\n", id, (int)len, piece != NULL ? piece : "");
        return;
    }
    printf("%6d  '", id);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)buf[i];
        if (c == '\n') {
            fputs("\\n", stdout);
        } else if (c < 0x20 || c == 0x7f) {
            printf("\\x%02x", c);
        } else {
            putchar(c);
        }
    }
    puts("'");
}

static int encode(const struct quern_model *model, const struct qn_buf *in, unsigned flags,
                  bool ids_only)
{
    int32_t *ids = NULL;
    size_t n = 0;
    struct quern_error err = {0};
    if (quern_tokenize(model, in->data, in->len, flags, &ids, &n, &err) != QUERN_OK) {
        return qn_cli_fail(&err);
    }
    if (ids_only) {
        putchar('[');
        for (size_t i = 0; i < n; i++) {
            printf("%s%d", i == 0 ? "" : ", ", ids[i]);
        }
        puts("]");
    } else {
        for (size_t i = 0; i < n; i++) {
            print_piece(model, ids[i]);
        }
        printf("%zu tokens\n", n);
    }
    quern_free(ids);
    return QN_EXIT_OK;
}

static int decode(const struct quern_model *model, const struct qn_buf *in, bool skip_special)
{
    int32_t *ids = NULL;
    size_t n = 0;
    if (!qn_cli_parse_ids(in->data, in->len, "token ids", &ids, &n)) {
        return QN_EXIT_USAGE;
    }
    // Ids that pad the vocabulary have no text; ids beyond it are a mistake.
    size_t vocab = quern_model_get_info(model)->vocab_size, n_piece = 0;
    for (size_t i = 0; i < n; i++) {
        if ((size_t)ids[i] >= vocab && quern_token_piece(model, ids[i], &n_piece) == NULL) {
            fprintf(stderr, "error: token ids: found %d, expected 0 to %zu\n", ids[i],
                    vocab > 0 ? vocab - 1 : 0);
            free(ids);
            return QN_EXIT_USAGE;
        }
    }
    char *text = NULL;
    size_t len = 0;
    struct quern_error err = {0};
    enum quern_status rc = quern_detokenize(model, ids, n, skip_special, &text, &len, &err);
    free(ids);
    if (rc != QUERN_OK) {
        return qn_cli_fail(&err);
    }
    fwrite(text, 1, len, stdout);
    putchar('\n');
    quern_free(text);
    return QN_EXIT_OK;
}

int qn_cmd_tokenize(int argc, char **argv)
{
    const char *pos[2] = {NULL, NULL};
    const char *file = NULL;
    bool ids_only = false, no_special = false, parse_special = false, want_decode = false;
    const struct qn_arg args[] = {
        {.name = "file",
         .letter = 'f',
         .kind = QN_ARG_STR,
         .out = &file,
         .arg = "F",
         .help = "read the text (or ids) from a file, - for standard input"},
        {.name = "ids",
         .kind = QN_ARG_FLAG,
         .out = &ids_only,
         .help = "print a JSON list of ids only"},
        {.name = "no-special",
         .kind = QN_ARG_FLAG,
         .out = &no_special,
         .help = "do not add BOS and the like; with --decode: leave special tokens out"},
        {.name = "parse-special-tokens",
         .kind = QN_ARG_FLAG,
         .out = &parse_special,
         .help = "match special tokens that are written in the text"},
        {.name = "decode",
         .letter = 'd',
         .kind = QN_ARG_FLAG,
         .out = &want_decode,
         .help = "the other way: ids such as 1,2,3 to text"},
    };
    const struct qn_arg_spec spec = {
        .usage = "quern tokenize MODEL [TEXT | --file F] [options]",
        .about = "Show how a model's tokenizer cuts a text. MODEL may be a vocabulary-only GGUF "
                 "file or a "
                 "directory that holds just tokenizer.json.",
        .examples = "  quern tokenize model.gguf 'Hello world'\n"
                    "  quern tokenize DIR --file book.txt --ids\n"
                    "  quern tokenize DIR --decode 1,2,3\n",
        .args = args,
        .n_args = sizeof args / sizeof args[0],
        .positional = pos,
        .min_positional = 1,
        .max_positional = 2,
    };
    switch (qn_args_parse(&spec, argc, argv)) {
    case QN_ARGS_HELP:
        return QN_EXIT_OK;
    case QN_ARGS_ERROR:
        return QN_EXIT_USAGE;
    case QN_ARGS_OK:
        break;
    }
    if ((pos[1] == NULL) == (file == NULL)) {
        fprintf(stderr, "error: give either TEXT or --file, %s\n",
                file == NULL ? "found neither" : "found both");
        return QN_EXIT_USAGE;
    }
    struct qn_buf in = {0};
    if (!read_input(pos[1], file, &in)) {
        qn_buf_done(&in);
        return QN_EXIT_FAILED;
    }
    int rc = QN_EXIT_FAILED;
    struct quern_model *model = qn_cli_load(pos[0], &(struct qn_load_args){.no_weights = true});
    if (model != NULL) {
        unsigned flags = (no_special ? 0u : QUERN_TOK_ADD_SPECIAL) |
                         (parse_special ? QUERN_TOK_PARSE_SPECIAL : 0u);
        rc = want_decode ? decode(model, &in, no_special) : encode(model, &in, flags, ids_only);
        quern_model_free(model);
    }
    qn_buf_done(&in);
    return rc;
}
