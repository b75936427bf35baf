#include "cli/cli.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

const char *const qn_activation_choices[] = {"default", "f32", "bf16", "int8", NULL};

struct progress {
    bool shown;
    uint64_t t0_ns, last_ns;
};

enum {
    BAR_WIDTH = 32
};

// Redrawn in place at most 20 times a second; appears only for loads that take a moment.
static void draw(void *user, uint64_t done, uint64_t total)
{
    struct progress *p = user;
    uint64_t now = qn_clock_ns();
    bool last = done >= total;
    if (total == 0 || now - p->t0_ns < 200000000u || (!last && now - p->last_ns < 50000000u)) {
        return;
    }
    p->last_ns = now;
    p->shown = true;
    double share = (double)done / (double)total;
    double seconds = (double)(now - p->t0_ns) * 1e-9;
    int full = (int)(share * BAR_WIDTH);
    fprintf(stderr, "\rloading [");
    for (int i = 0; i < BAR_WIDTH; i++) {
        fputs(i < full ? "#" : ".", stderr);
    }
    fprintf(stderr, "] %3.0f %%  %.2f of %.2f GB  %.0f MB/s ", share * 100, (double)done * 1e-9,
            (double)total * 1e-9, (double)done * 1e-6 / seconds);
}

static void quiet(void *user, uint64_t done, uint64_t total)
{
    (void)user;
    (void)done;
    (void)total;
}

static void note(void *user, const char *text)
{
    struct progress *p = user;
    if (p->shown) {
        fprintf(stderr, "\r\033[K");
        p->shown = false;
    }
    qn_log(QN_LOG_INFO, "%s", text);
}

int qn_cli_fail(const struct quern_error *err)
{
    fprintf(stderr, "error: %s\n", err->message);
    return QN_EXIT_FAILED;
}

struct quern_model *qn_cli_load(const char *path, const struct qn_load_args *args)
{
    struct progress p = {.t0_ns = qn_clock_ns()};
    const struct quern_model_options options = {
        .path = path,
        .chat_template_path = args->chat_template,
        .activations = (enum quern_activations)args->activations,
        .max_model_len = (size_t)args->max_model_len,
        .n_threads = (size_t)args->threads,
        .parse_special_tokens = args->parse_special_tokens,
        .no_weights = args->no_weights,
        .progress = isatty(STDERR_FILENO) ? draw : quiet,
        .note = note,
        .user = &p,
    };
    struct quern_model *model = NULL;
    struct quern_error err = {0};
    enum quern_status rc = quern_model_load(&options, &model, &err);
    if (p.shown) {
        fprintf(stderr, "\r\033[K");
    }
    if (rc != QUERN_OK) {
        qn_cli_fail(&err);
        return NULL;
    }
    if (args->verbose) {
        const struct quern_model_info *i = quern_model_get_info(model);
        qn_log(QN_LOG_INFO,
               "%s: %s, %zu layers, %.1f M parameters, %.1f MB of weights, loaded in %.2f s",
               i->name, i->architecture, i->n_layers, (double)i->n_params * 1e-6,
               (double)i->weight_bytes * 1e-6, (double)(qn_clock_ns() - p.t0_ns) * 1e-9);
        qn_log(QN_LOG_INFO, "kernels %s, activations %s, %zu threads; %s", i->isa, i->activations,
               i->n_threads, i->resources);
    }
    return model;
}
