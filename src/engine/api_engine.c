#include "engine/api.h"

#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/params.h"

enum {
    LOGITS_ROWS = 64,
    LOGITS_BLOCK_TOKENS = 16
};

/// Assumed where neither /proc nor the cgroup tells.
#define UNKNOWN_MEMORY_BYTES ((uint64_t)8 << 30)

static enum quern_status no_weights(struct quern_error *err)
{
    return qn_params_fail(err, QUERN_E_UNSUPPORTED, "", "this model was loaded without weights");
}

static uint64_t available_bytes(void)
{
    struct qn_topo now; // as it is after the weights were packed
    qn_topo_read(&now, NULL);
    return now.memory_available_bytes == UINT64_MAX ? UNKNOWN_MEMORY_BYTES
                                                    : now.memory_available_bytes;
}

static enum qn_status make_backend(const struct quern_model *m, struct qn_backend *out,
                                   struct qn_err *err)
{
#if QN_DEBUG
    const char *script = getenv("QUERN_TEST_SCRIPT");
    if (script != NULL) {
        return qn_backend_script_new(script, m->info.vocab_size, out, err);
    }
#endif
    return qn_backend_model_new(m->model, out, err);
}

static bool can_run(const struct quern_model *m)
{
#if QN_DEBUG
    if (getenv("QUERN_TEST_SCRIPT") != NULL && m->info.vocab_size > 0) {
        return true;
    }
#endif
    return m->model != NULL;
}

enum quern_status quern_engine_new(struct quern_model *m,
                                   const struct quern_engine_options *options,
                                   struct quern_engine **out_engine, struct quern_error *err)
{
    if (!can_run(m)) {
        return no_weights(err);
    }
    struct qn_engine_setup setup = {.env = {.vocab_size = m->info.vocab_size,
                                            .max_model_len = m->info.max_model_len,
                                            .tok = m->tok,
                                            .eos_ids = m->info.eos_ids,
                                            .n_eos_ids = m->info.n_eos_ids},
                                    .n_threads = m->info.n_threads,
                                    .cpus = qn_api_cpus(m),
                                    .n_cpus = m->topo.n_cpus,
                                    .available_bytes = available_bytes()};
    if (options != NULL) {
        setup.options = *options;
    }
    if (m->model != NULL) {
        const struct qn_model_info *i = qn_model_info(m->model);
        setup.suppress_ids = i->suppress_ids;
        setup.n_suppress_ids = i->n_suppress_ids;
    }
    struct qn_err e = {0};
    if (make_backend(m, &setup.backend, &e) != QN_OK ||
        qn_engine_start(&setup, out_engine, &e) != QN_OK) {
        return qn_params_err(err, &e);
    }
    return QUERN_OK;
}

/* ---- evaluation ---- */

static enum qn_status make_run(const struct quern_model *m, size_t n, struct qn_team *team,
                               struct qn_run **out_run, struct qn_err *err)
{
    size_t n_blocks[QN_KV_MAX_GROUPS];
    size_t n_groups = qn_model_n_kv_groups(m->model, LOGITS_BLOCK_TOKENS);
    QN_ASSERT(n_groups <= QN_KV_MAX_GROUPS);
    for (size_t g = 0; g < n_groups; g++) {
        n_blocks[g] = (n + LOGITS_BLOCK_TOKENS - 1) / LOGITS_BLOCK_TOKENS;
    }
    const struct qn_run_opts o = {.max_rows = LOGITS_ROWS,
                                  .max_seqs = 1,
                                  .max_out_rows = LOGITS_ROWS,
                                  .block_tokens = LOGITS_BLOCK_TOKENS,
                                  .n_blocks = n_blocks,
                                  .team = team};
    return qn_run_new(m->model, &o, out_run, err);
}

// All groups use the same table: block i holds the i-th positions.
static void run_rows(const struct quern_model *m, struct qn_run *run, const int32_t *tokens,
                     size_t n, const int32_t *table, float *out)
{
    const int32_t *blocks[QN_KV_MAX_GROUPS];
    int32_t out_rows[LOGITS_ROWS];
    for (size_t g = 0; g < QN_KV_MAX_GROUPS; g++) {
        blocks[g] = table;
    }
    for (size_t i = 0; i < LOGITS_ROWS; i++) {
        out_rows[i] = (int32_t)i;
    }
    for (size_t at = 0; at < n; at += LOGITS_ROWS) {
        size_t rows = n - at < LOGITS_ROWS ? n - at : LOGITS_ROWS;
        const struct qn_batch_seq seq = {.n_rows = rows, .pos0 = at, .blocks = blocks};
        const struct qn_batch batch = {.n_rows = rows,
                                       .n_seqs = 1,
                                       .n_out = rows,
                                       .tokens = tokens + at,
                                       .seqs = &seq,
                                       .out_rows = out_rows,
                                       .logits = out + at * m->info.vocab_size};
        qn_run_step(run, &batch);
    }
}

enum quern_status quern_logits(struct quern_model *m, const int32_t *tokens, size_t n, float *out,
                               struct quern_error *err)
{
    if (m->model == NULL) {
        return no_weights(err);
    }
    if (n == 0 || n > m->info.max_model_len) {
        return qn_params_fail(err, n == 0 ? QUERN_E_INVALID : QUERN_E_CONTEXT, "tokens",
                              "tokens: found %zu, expected 1 to %zu (the context length)", n,
                              m->info.max_model_len);
    }
    for (size_t i = 0; i < n; i++) {
        if (tokens[i] < 0 || (size_t)tokens[i] >= m->info.vocab_size) {
            return qn_params_fail(err, QUERN_E_INVALID, "tokens",
                                  "tokens[%zu]: found id %d, expected 0 to %zu", i, tokens[i],
                                  m->info.vocab_size - 1);
        }
    }
    struct qn_err e = {0};
    struct qn_team *team = NULL;
    struct qn_run *run = NULL;
    size_t n_blocks = (n + LOGITS_BLOCK_TOKENS - 1) / LOGITS_BLOCK_TOKENS;
    int32_t *table = calloc(n_blocks, sizeof *table);
    enum qn_status rc =
        table != NULL ? QN_OK : qn_fail(&e, QN_E_NOMEM, "could not allocate %zu blocks", n_blocks);
    if (rc == QN_OK) {
        rc = qn_api_team(m, &team, &e);
    }
    if (rc == QN_OK) {
        rc = make_run(m, n, team, &run, &e);
    }
    if (rc == QN_OK) {
        for (size_t i = 0; i < n_blocks; i++) {
            table[i] = (int32_t)i;
        }
        run_rows(m, run, tokens, n, table, out);
    }
    qn_run_free(run);
    qn_team_free(team);
    free(table);
    return rc == QN_OK ? QUERN_OK : qn_params_err(err, &e);
}
