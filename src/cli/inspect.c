#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "cli/args.h"
#include "cli/cli.h"
#include "formats/ckpt.h"
#include "formats/gguf.h"

static uint64_t n_elements(const struct qn_tensor *t)
{
    uint64_t n = 1;
    for (unsigned i = 0; i < t->rank; i++) {
        n *= t->shape[i];
    }
    return n;
}

// Totals a dtype: tensors, elements, bytes.
static void print_totals(const struct qn_ckpt *c)
{
    struct {
        uint64_t tensors, elements, bytes;
    } by_type[QN_N_DTYPES] = {0};
    uint64_t elements = 0, bytes = 0;
    for (size_t i = 0; i < qn_ckpt_n_tensors(c); i++) {
        const struct qn_tensor *t = qn_ckpt_tensor(c, i);
        by_type[t->dtype].tensors++;
        by_type[t->dtype].elements += n_elements(t);
        by_type[t->dtype].bytes += t->n_bytes;
        elements += n_elements(t);
        bytes += t->n_bytes;
    }
    printf("tensors      %zu, %.1f M values, %.1f MB\n", qn_ckpt_n_tensors(c),
           (double)elements * 1e-6, (double)bytes * 1e-6);
    for (int d = 0; d < QN_N_DTYPES; d++) {
        if (by_type[d].tensors > 0) {
            printf("  %-10s %5" PRIu64 " tensors %9.1f M values %9.1f MB %6.2f bits a value\n",
                   qn_dtype_name((enum qn_dtype)d), by_type[d].tensors,
                   (double)by_type[d].elements * 1e-6, (double)by_type[d].bytes * 1e-6,
                   by_type[d].elements > 0
                       ? (double)by_type[d].bytes * 8 / (double)by_type[d].elements
                       : 0.0);
        }
    }
}

static void print_tensors(const struct qn_ckpt *c)
{
    for (size_t i = 0; i < qn_ckpt_n_tensors(c); i++) {
        const struct qn_tensor *t = qn_ckpt_tensor(c, i);
        char shape[160];
        size_t n = 0;
        for (unsigned r = 0; r < t->rank; r++) {
            int w = snprintf(shape + n, sizeof shape - n, "%s%" PRIu64, r == 0 ? "" : ", ",
                             t->shape[r]);
            n += w > 0 && (size_t)w < sizeof shape - n ? (size_t)w : 0;
        }
        shape[n] = '\0';
        printf("  %-52s %-7s [%s]\n", t->name, qn_dtype_name(t->dtype), shape);
    }
}

static void print_keys(const struct qn_gguf *g)
{
    for (size_t i = 0; i < qn_gguf_n_keys(g); i++) {
        enum qn_gguf_type type;
        const char *key = qn_gguf_key(g, i, &type);
        int64_t v;
        double f;
        bool b;
        const char *s;
        size_t n;
        enum qn_gguf_type elem;
        printf("  %-44s ", key);
        if (type == QN_GGUF_BOOL && qn_gguf_bool(g, key, &b)) {
            printf("%s\n", b ? "true" : "false");
        } else if (qn_gguf_int(g, key, &v)) {
            printf("%" PRId64 "\n", v);
        } else if (qn_gguf_float(g, key, &f)) {
            printf("%g\n", f);
        } else if (qn_gguf_str(g, key, &s, &n)) {
            size_t shown = n < 60 ? n : 60;
            putchar('"');
            for (size_t j = 0; j < shown; j++) {
                unsigned char ch = (unsigned char)s[j];
                putchar(ch < 0x20 || ch == 0x7f ? ' ' : ch);
            }
            printf("\"%s\n", shown < n ? " …" : "");
        } else if (qn_gguf_arr(g, key, &elem, &n)) {
            printf("array of %zu\n", n);
        } else {
            printf("?\n");
        }
    }
}

static void print_config(const json_t *config)
{
    char *text = json_dumps(config, JSON_INDENT(2));
    if (text != NULL) {
        puts(text);
    }
    free(text);
}

int qn_cmd_inspect(int argc, char **argv)
{
    const char *path = NULL;
    bool tensors = false, config = false, keys = false, template = false;
    const struct qn_arg args[] = {
        {.name = "tensors",
         .kind = QN_ARG_FLAG,
         .out = &tensors,
         .help = "list every tensor: name, type, shape"},
        {.name = "config",
         .kind = QN_ARG_FLAG,
         .out = &config,
         .help = "print the configuration (for GGUF: as quern reads it)"},
        {.name = "keys", .kind = QN_ARG_FLAG, .out = &keys, .help = "list a GGUF file's metadata"},
        {.name = "chat-template",
         .kind = QN_ARG_FLAG,
         .out = &template,
         .help = "print the chat template"},
    };
    const struct qn_arg_spec spec = {
        .usage = "quern inspect MODEL [options]",
        .about = "Show what is in a checkpoint. Headers are validated, no weights are read.",
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
    struct qn_ckpt *c = NULL;
    struct qn_err err = {0};
    if (qn_ckpt_open(path, &c, &err) != QN_OK) {
        fprintf(stderr, "error: %s\n", err.msg);
        return QN_EXIT_FAILED;
    }
    const json_t *cfg = qn_ckpt_config(c);
    const json_t *arch = json_array_get(json_object_get(cfg, "architectures"), 0);
    const char *type = json_string_value(json_object_get(cfg, "model_type"));
    const char *chat = qn_ckpt_chat_template(c);
    printf("format       %s\n", qn_ckpt_format(c));
    printf("architecture %s (model_type %s)\n", arch != NULL ? json_string_value(arch) : "not said",
           type != NULL ? type : "not said");
    printf("template     %s\n", chat != NULL ? "yes" : "none");
    print_totals(c);
    if (config) {
        print_config(cfg);
    }
    if (tensors) {
        print_tensors(c);
    }
    if (keys && qn_ckpt_gguf(c) != NULL) {
        print_keys(qn_ckpt_gguf(c));
    }
    if (template && chat != NULL) {
        puts(chat);
    }
    qn_ckpt_close(c);
    return QN_EXIT_OK;
}
