#include "cli/args.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAME_MAX_LEN = 64,
    HELP_COLUMN = 30,
    HELP_WIDTH = 96
};

static bool parse_int(const char *text, int64_t *out)
{
    char *end = NULL;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || errno != 0) {
        return false;
    }
    int64_t unit = 1;
    if (*end == 'k' || *end == 'K') {
        unit = *end == 'k' ? 1000 : 1024;
        end++;
    } else if (*end == 'm' || *end == 'M') {
        unit = *end == 'm' ? 1000000 : 1048576;
        end++;
    }
    return *end == '\0' && !__builtin_mul_overflow((int64_t)v, unit, out);
}

static bool parse_num(const char *text, double *out)
{
    char *end = NULL;
    double v = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(v)) {
        return false;
    }
    *out = v;
    return true;
}

bool qn_args_parse_bytes(const char *text, uint64_t *out)
{
    char *end = NULL;
    double v = strtod(text, &end);
    if (end == text || !isfinite(v) || v < 0) {
        return false;
    }
    static const char units[] = "kmgt";
    double unit = 1;
    if (*end != '\0' && tolower((unsigned char)*end) != 'b') {
        const char *u = strchr(units, tolower((unsigned char)*end));
        if (u == NULL) {
            return false;
        }
        end++;
        // GiB and G are binary, as memory is sold; GB is decimal.
        double base = 1024;
        if (end[0] == 'i') {
            end++;
        } else if (tolower((unsigned char)end[0]) == 'b') {
            base = 1000;
        }
        unit = pow(base, (double)(u - units + 1));
    }
    if (tolower((unsigned char)*end) == 'b') {
        end++;
    }
    if (*end != '\0' || v * unit >= 0x1p63) {
        return false;
    }
    *out = (uint64_t)(v * unit);
    return true;
}

static size_t edit_distance(const char *a, const char *b)
{
    size_t row[NAME_MAX_LEN + 1];
    size_t nb = strnlen(b, NAME_MAX_LEN);
    size_t na = strnlen(a, NAME_MAX_LEN);
    for (size_t j = 0; j <= nb; j++) {
        row[j] = j;
    }
    for (size_t i = 1; i <= na; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}

const char *qn_args_nearest(const char *word, const char *const *candidates, size_t n)
{
    const char *best = NULL;
    size_t best_d = strlen(word) / 3 + 2;
    for (size_t i = 0; i < n; i++) {
        size_t d = edit_distance(word, candidates[i]);
        if (d < best_d) {
            best_d = d;
            best = candidates[i];
        }
    }
    return best;
}

static bool same_name(const char *name, const char *typed, size_t n)
{
    if (strlen(name) != n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        char c = typed[i] == '_' ? '-' : typed[i];
        if (c != name[i]) {
            return false;
        }
    }
    return true;
}

static const struct qn_arg *find_long(const struct qn_arg_spec *spec, const char *name, size_t n)
{
    for (size_t i = 0; i < spec->n_args; i++) {
        if (same_name(spec->args[i].name, name, n)) {
            return &spec->args[i];
        }
    }
    return NULL;
}

static const struct qn_arg *find_letter(const struct qn_arg_spec *spec, char letter)
{
    for (size_t i = 0; i < spec->n_args; i++) {
        if (spec->args[i].letter == letter) {
            return &spec->args[i];
        }
    }
    return NULL;
}

static bool takes_value(const struct qn_arg *a)
{
    return a->kind != QN_ARG_FLAG && !(a->kind == QN_ARG_IGNORED && a->arg == NULL);
}

static enum qn_arg_result bad_value(const struct qn_arg *a, const char *value, const char *want)
{
    fprintf(stderr, "error: option --%s: found \"%s\", expected %s\n", a->name, value, want);
    return QN_ARGS_ERROR;
}

static bool in_range(const struct qn_arg *a, double v)
{
    return (a->min == 0 && a->max == 0) || (v >= a->min && v <= a->max);
}

static enum qn_arg_result set_value(const struct qn_arg *a, const char *value)
{
    char want[160];
    switch (a->kind) {
    case QN_ARG_FLAG:
        *(bool *)a->out = true;
        return QN_ARGS_OK;
    case QN_ARG_STR:
        *(const char **)a->out = value;
        return QN_ARGS_OK;
    case QN_ARG_LIST: {
        struct qn_arg_list *list = a->out;
        if (list->n == QN_ARG_LIST_MAX) {
            fprintf(stderr, "error: option --%s: more than %d values\n", a->name, QN_ARG_LIST_MAX);
            return QN_ARGS_ERROR;
        }
        list->v[list->n++] = value;
        return QN_ARGS_OK;
    }
    case QN_ARG_INT: {
        int64_t v;
        if (parse_int(value, &v) && in_range(a, (double)v)) {
            *(int64_t *)a->out = v;
            return QN_ARGS_OK;
        }
        if (a->min == 0 && a->max == 0) {
            return bad_value(a, value, "an integer");
        }
        snprintf(want, sizeof want, "an integer from %.0f to %.0f", a->min, a->max);
        return bad_value(a, value, want);
    }
    case QN_ARG_NUM: {
        double v;
        if (parse_num(value, &v) && in_range(a, v)) {
            *(double *)a->out = v;
            return QN_ARGS_OK;
        }
        if (a->min == 0 && a->max == 0) {
            return bad_value(a, value, "a number");
        }
        snprintf(want, sizeof want, "a number from %g to %g", a->min, a->max);
        return bad_value(a, value, want);
    }
    case QN_ARG_BYTES:
        if (qn_args_parse_bytes(value, a->out)) {
            return QN_ARGS_OK;
        }
        return bad_value(a, value, "a size such as 4GiB, 512M or a number of bytes");
    case QN_ARG_CHOICE: {
        size_t n = 0;
        for (size_t i = 0; a->choices[i] != NULL; i++) {
            if (strcmp(a->choices[i], value) == 0) {
                *(int *)a->out = (int)i;
                return QN_ARGS_OK;
            }
            int w = snprintf(want + n, sizeof want - n, "%s%s", i == 0 ? "one of " : ", ",
                             a->choices[i]);
            n += w > 0 && (size_t)w < sizeof want - n ? (size_t)w : 0;
        }
        return bad_value(a, value, want);
    }
    case QN_ARG_IGNORED:
        fprintf(stderr, "warning: option --%s has no meaning in quern and is ignored\n", a->name);
        return QN_ARGS_OK;
    }
    return QN_ARGS_ERROR;
}

static enum qn_arg_result unknown(const struct qn_arg_spec *spec, const char *typed)
{
    const char **names = calloc(spec->n_args + 1, sizeof *names);
    const char *near = NULL;
    if (names != NULL) {
        for (size_t i = 0; i < spec->n_args; i++) {
            names[i] = spec->args[i].name;
        }
        names[spec->n_args] = "help";
        char bare[NAME_MAX_LEN + 1];
        size_t n = 0;
        for (const char *p = typed; *p != '\0' && *p != '=' && n < NAME_MAX_LEN; p++) {
            if (*p != '-' || n > 0) {
                bare[n++] = *p == '_' ? '-' : *p;
            }
        }
        bare[n] = '\0';
        near = qn_args_nearest(bare, names, spec->n_args + 1);
    }
    fprintf(stderr, "error: unknown option \"%s\"", typed);
    if (near != NULL) {
        fprintf(stderr, ", did you mean --%s?", near);
    }
    fprintf(stderr, " (--help lists all)\n");
    free(names);
    return QN_ARGS_ERROR;
}

static enum qn_arg_result parse_option(const struct qn_arg_spec *spec, int argc, char **argv,
                                       int *i)
{
    const char *typed = argv[*i];
    const struct qn_arg *a = NULL;
    const char *value = NULL;
    if (typed[1] == '-') {
        const char *name = typed + 2;
        size_t n = strcspn(name, "=");
        value = name[n] == '=' ? name + n + 1 : NULL;
        a = find_long(spec, name, n);
        if (a == NULL && n > 3 && strncmp(name, "no-", 3) == 0) {
            a = find_long(spec, name + 3, n - 3);
            if (a != NULL && a->kind == QN_ARG_FLAG && value == NULL) {
                *(bool *)a->out = false;
                return QN_ARGS_OK;
            }
            a = NULL;
        }
    } else {
        a = find_letter(spec, typed[1]);
        value = typed[2] == '\0' ? NULL : typed + 2 + (typed[2] == '=');
    }
    if (a == NULL) {
        return unknown(spec, typed);
    }
    if (!takes_value(a)) {
        if (value != NULL) {
            fprintf(stderr, "error: option --%s takes no value, found \"%s\"\n", a->name, value);
            return QN_ARGS_ERROR;
        }
        return set_value(a, "");
    }
    if (value == NULL) {
        if (*i + 1 >= argc) {
            fprintf(stderr, "error: option --%s needs a value (%s)\n", a->name, a->arg);
            return QN_ARGS_ERROR;
        }
        value = argv[++*i];
    }
    enum qn_arg_result r = set_value(a, value);
    // A list takes the words that follow, up to the next option.
    while (r == QN_ARGS_OK && a->kind == QN_ARG_LIST && *i + 1 < argc && argv[*i + 1][0] != '-') {
        r = set_value(a, argv[++*i]);
    }
    return r;
}

enum qn_arg_result qn_args_parse(const struct qn_arg_spec *spec, int argc, char **argv)
{
    size_t n_pos = 0;
    bool only_positional = false;
    for (int i = 1; i < argc; i++) {
        const char *typed = argv[i];
        if (!only_positional && strcmp(typed, "--") == 0) {
            only_positional = true;
        } else if (!only_positional && (strcmp(typed, "--help") == 0 || strcmp(typed, "-h") == 0)) {
            qn_args_help(spec);
            return QN_ARGS_HELP;
        } else if (!only_positional && typed[0] == '-' && typed[1] != '\0') {
            enum qn_arg_result r = parse_option(spec, argc, argv, &i);
            if (r != QN_ARGS_OK) {
                return r;
            }
        } else {
            if (n_pos == spec->max_positional) {
                fprintf(stderr, "error: unexpected argument \"%s\"\nusage: %s\n", typed,
                        spec->usage);
                return QN_ARGS_ERROR;
            }
            spec->positional[n_pos++] = typed;
        }
    }
    if (n_pos < spec->min_positional) {
        fprintf(stderr, "error: an argument is missing\nusage: %s\n", spec->usage);
        return QN_ARGS_ERROR;
    }
    return QN_ARGS_OK;
}

// Print text wrapped to HELP_WIDTH with later lines indented to `indent`; no blank ends a line.
static void wrap(const char *text, size_t column, size_t indent)
{
    bool blank = false;
    while (*text != '\0') {
        size_t word = strcspn(text, " \n");
        if (word > 0) {
            if (column > indent && column + blank + word > HELP_WIDTH) {
                printf("\n%*s", (int)indent, "");
                column = indent;
            } else if (blank) {
                putchar(' ');
                column++;
            }
            printf("%.*s", (int)word, text);
            column += word;
            blank = false;
        }
        text += word;
        if (*text == '\n') {
            printf("\n%*s", (int)indent, "");
            column = indent;
            blank = false;
            text++;
        } else if (*text == ' ') {
            blank = true;
            text++;
        }
    }
    putchar('\n');
}

void qn_args_help(const struct qn_arg_spec *spec)
{
    printf("usage: %s\n\n", spec->usage);
    wrap(spec->about, 0, 0);
    printf("\noptions:\n");
    for (size_t i = 0; i < spec->n_args; i++) {
        const struct qn_arg *a = &spec->args[i];
        if (a->help == NULL) {
            continue;
        }
        char left[96];
        int n = a->letter != 0 ? snprintf(left, sizeof left, "  -%c, ", a->letter)
                               : snprintf(left, sizeof left, "      ");
        n += snprintf(left + n, sizeof left - (size_t)n, "--%s%s%s", a->name,
                      a->arg != NULL ? " " : "", a->arg != NULL ? a->arg : "");
        printf("%-*s", HELP_COLUMN, left);
        if (n >= HELP_COLUMN) {
            printf("\n%*s", HELP_COLUMN, "");
        }
        wrap(a->help, HELP_COLUMN, HELP_COLUMN);
    }
    printf("%-*sthis text\n", HELP_COLUMN, "  -h, --help");
    if (spec->examples != NULL) {
        printf("\nexamples:\n%s", spec->examples);
    }
}
