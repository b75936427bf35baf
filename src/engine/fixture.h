#ifndef QN_ENGINE_FIXTURE_H
#define QN_ENGINE_FIXTURE_H

#include "engine/engine.h"

#include <stdint.h>

/// What engine tests share: a made-up model, an engine around a double, and answers collected
/// through quern.h.

enum {
    QN_TOY_VOCAB = 320,
    QN_TOY_WINDOW = 24
};

/// A double whose logits are a hash of every token that attention could see, read back through the
/// block tables: a wrong, stale or missing block changes the answer. Two KV groups, one of them
/// with a window of QN_TOY_WINDOW.
struct qn_toy {
    float scale;            ///< of logits; 0: 4
    int32_t bad_token;      ///< a sequence that holds it gets NaN logits; 0: none
    unsigned step_us;       ///< a step takes that long
    _Atomic size_t n_steps; ///< run so far
    _Atomic size_t max_rows_seen;
    _Atomic bool hold; ///< steps wait while it is set
};
/// A backend around the caller's toy, which must outlive the engine.
struct qn_backend qn_toy_backend(struct qn_toy *toy);

struct quern_engine *qn_fixture_engine(struct qn_backend backend, const struct qn_tok *tok,
                                       size_t vocab_size, const int32_t *eos, size_t n_eos,
                                       struct quern_engine_options options, size_t n_threads,
                                       size_t max_model_len);
/// The toy with byte tokens as text (tok may be NULL), context 4096.
struct quern_engine *qn_fixture_toy_engine(struct qn_toy *toy, const struct qn_tok *tok,
                                           struct quern_engine_options options, size_t n_threads);
/// A script of ids.
struct quern_engine *qn_fixture_script_engine(const char *script, const struct qn_tok *tok,
                                              size_t vocab_size, const int32_t *eos, size_t n_eos);

enum {
    QN_ANSWER_IDS = 4096,
    QN_ANSWER_TEXT = 1 << 15
};

/// One choice as a reader saw it.
struct qn_answer {
    int32_t ids[QN_ANSWER_IDS];
    size_t n_ids;
    char text[QN_ANSWER_TEXT];
    size_t n_text, n_deltas, n_text_deltas;
    size_t text_end[QN_ANSWER_IDS];
    enum quern_finish finish;
    char stop_string[64];
    int32_t stop_id;
    bool stop_was_eos;
    char error[128];
};

/// Take what the request has now; true when all of its choices have ended.
bool qn_fixture_read(struct quern_request *r, struct qn_answer *answers);
/// Read until it ends, at most half a minute.
void qn_fixture_collect(struct quern_engine *e, struct quern_request *r, struct qn_answer *answers);
/// Submit, collect, free.
void qn_fixture_ask(struct quern_engine *e, const struct quern_request_params *p,
                    struct qn_answer *answers);
struct quern_request *qn_fixture_submit(struct quern_engine *e,
                                        const struct quern_request_params *p);
/// Wait until nothing runs and every block is free again.
void qn_fixture_at_rest(struct quern_engine *e);
/// n ids from a seed, in [1, 250).
void qn_fixture_prompt(int32_t *ids, size_t n, uint64_t seed);
/// Parameters with sampling set up for a greedy answer of max_tokens without EOS.
struct quern_request_params qn_fixture_greedy(const int32_t *prompt, size_t n, size_t max_tokens);

#endif
