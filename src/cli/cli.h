#ifndef QN_CLI_CLI_H
#define QN_CLI_CLI_H

#include <quern/quern.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Exit codes of every command.
enum {
    QN_EXIT_OK = 0,
    QN_EXIT_FAILED = 1,
    QN_EXIT_USAGE = 2
};

/// A subcommand: argv[0] is its own name.
typedef int qn_cmd_fn(int argc, char **argv);
qn_cmd_fn qn_cmd_run, qn_cmd_serve, qn_cmd_inspect, qn_cmd_tokenize, qn_cmd_logits, qn_cmd_version;

/// Values of --activations, in the order of enum quern_activations.
extern const char *const qn_activation_choices[];

/// Options that every command which loads a model shares; fill from the command line.
struct qn_load_args {
    const char *chat_template;
    int activations; ///< index into qn_activation_choices
    int64_t max_model_len, threads;
    bool parse_special_tokens, verbose, no_weights;
};

/// Load with a progress bar when standard error is a terminal; notes and the error go to standard
/// error. NULL on failure.
struct quern_model *qn_cli_load(const char *path, const struct qn_load_args *args);
/// Ids in any of the forms that people paste: 1,2,3 or [1, 2, 3] or one a line. `text` ends with a
/// NUL at text[n_text]. A mistake prints one sentence that begins with `what`. The caller frees
/// *out_ids.
bool qn_cli_parse_ids(const char *text, size_t n_text, const char *what, int32_t **out_ids,
                      size_t *out_n);
/// "error: MESSAGE" on standard error; returns QN_EXIT_FAILED.
int qn_cli_fail(const struct quern_error *err);

#endif
