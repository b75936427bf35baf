#ifndef QN_CLI_ARGS_H
#define QN_CLI_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Command-line options as a table: one row parses a flag and is its line of --help.

enum qn_arg_kind {
    QN_ARG_FLAG,   ///< bool: --name sets it, --no-name clears it
    QN_ARG_STR,    ///< const char *
    QN_ARG_LIST,   ///< struct qn_arg_list: --name A B C and repeated --name
    QN_ARG_INT,    ///< int64_t in [min, max]; accepts 4k, 2m
    QN_ARG_NUM,    ///< double in [min, max]
    QN_ARG_BYTES,  ///< uint64_t: 4GiB, 512M, plain bytes
    QN_ARG_CHOICE, ///< int: index into the NULL-terminated `choices`
    QN_ARG_IGNORED ///< a flag of another server that means nothing here: one warning. `arg` NULL:
                   ///< takes no value
};

enum {
    QN_ARG_LIST_MAX = 64
};
struct qn_arg_list {
    const char *v[QN_ARG_LIST_MAX];
    size_t n;
};

struct qn_arg {
    const char *name; ///< without dashes; '-' and '_' are the same on the command line
    char letter;      ///< one-letter form or 0
    enum qn_arg_kind kind;
    void *out;
    const char *arg;  ///< placeholder in --help; NULL for flags
    const char *help; ///< NULL: not listed
    double min, max;  ///< INT and NUM; both 0: unbounded
    const char *const *choices;
};

struct qn_arg_spec {
    const char *usage;    ///< "quern run MODEL [options]"
    const char *about;    ///< a few sentences
    const char *examples; ///< or NULL
    const struct qn_arg *args;
    size_t n_args;
    const char **positional; ///< [max_positional], filled in order; NULL where absent
    size_t min_positional, max_positional;
};

enum qn_arg_result {
    QN_ARGS_OK,
    QN_ARGS_HELP,
    QN_ARGS_ERROR
};

/// Parse argv[1 …]. --help prints the help to stdout and returns QN_ARGS_HELP; a mistake prints
/// one sentence to stderr (with the nearest flag's name where one is near) and returns
/// QN_ARGS_ERROR: exit 2.
enum qn_arg_result qn_args_parse(const struct qn_arg_spec *spec, int argc, char **argv);
void qn_args_help(const struct qn_arg_spec *spec);

/// "4GiB", "512M", "1.5g", plain bytes. False when it is none of these or does not fit.
bool qn_args_parse_bytes(const char *text, uint64_t *out);
/// The candidate nearest to `word` by edit distance, if near enough to be meant; else NULL.
const char *qn_args_nearest(const char *word, const char *const *candidates, size_t n);

#endif
