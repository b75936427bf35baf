#ifndef QN_ENGINE_ENGINE_H
#define QN_ENGINE_ENGINE_H

#include <quern/quern.h>

#include "engine/backend.h"
#include "engine/plan.h"
#include "engine/request.h"

/// What an engine is made of. Pointers are borrowed and outlive the engine, but for the backend,
/// which it owns (also when starting fails).
struct qn_engine_setup {
    struct qn_backend backend;
    struct qn_request_env env; ///< max_seq_tokens is filled in by the plan
    const int32_t *suppress_ids;
    size_t n_suppress_ids;
    size_t n_threads;
    const int *cpus; ///< [n_cpus] to pin to; NULL: no pinning
    size_t n_cpus;
    uint64_t available_bytes;
    struct quern_engine_options options;
};

/// Plan, reserve, start the engine's thread. quern.h's quern_engine_new fills the setup from a
/// model; tests fill it with a double.
enum qn_status qn_engine_start(const struct qn_engine_setup *setup,
                               struct quern_engine **out_engine, struct qn_err *err);
const struct qn_plan *qn_engine_plan(const struct quern_engine *e);

#endif
