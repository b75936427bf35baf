#ifndef QN_ENGINE_REQUEST_H
#define QN_ENGINE_REQUEST_H

#include <quern/quern.h>

#include "base/buf.h"
#include "base/status.h"
#include "engine/sampler.h"
#include "engine/stop.h"
#include "text/tokenizer.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    QN_REQUEST_MAX_CHOICES = 128
};

/// What a request is checked against and made for.
struct qn_request_env {
    size_t vocab_size;
    size_t max_model_len;
    size_t max_seq_tokens;    ///< what the KV cache can hold of one sequence
    const struct qn_tok *tok; ///< NULL: no text
    const int32_t *eos_ids;
    size_t n_eos_ids;
};

enum qn_seq_state {
    QN_SEQ_FORK,    ///< waits for choice 0 to compute the prompt that they share
    QN_SEQ_WAITING, ///< waits for a slot; a preempted one too
    QN_SEQ_RUNNING,
    QN_SEQ_DONE
};

/// One choice: a sequence of the scheduler, its output log, and the reader's place in it.
struct qn_seq {
    struct quern_request *request;
    size_t choice;

    // Engine thread.
    enum qn_seq_state state;
    size_t order;      ///< arrival: lower is older
    size_t slot;       ///< when running
    size_t n_computed; ///< tokens whose KV is written
    size_t n_rows;     ///< rows in the step being made
    size_t n_tokens;   ///< prompt and output
    struct qn_seen seen;
    struct qn_stop stop;
    struct qn_detok detok;
    uint64_t first_ns, last_ns; ///< of tokens
    uint64_t scheduled_ns;
    struct qn_seq *prev, *next; ///< waiting list

    // Output log: written by the engine, read by one reader. One word publishes it: number of
    // tokens << 3 | enum quern_finish. The engine stores it (release) after everything that it
    // speaks of; the reader loads it first (acquire).
    int32_t *ids;                   ///< [max_tokens]
    struct quern_logprob *logprobs; ///< [max_tokens][1 + k] or NULL
    _Atomic uint64_t progress;
    _Atomic size_t released; ///< bytes of text that no stop string can take back
    size_t cut;              ///< length of the text; SIZE_MAX: whole
    size_t stop_index;       ///< of the stop string that ended it; SIZE_MAX: none
    int32_t stop_id;         ///< -1: none
    bool stop_was_eos;
    const char *error;

    // Reader.
    struct qn_detok reader_detok;
    struct qn_buf text;     ///< whole text so far
    struct qn_buf text_end; ///< of size_t, one per token read
    size_t n_decoded;       ///< tokens whose text is there
    size_t n_read, n_sent;  ///< tokens and bytes of text handed out
    bool finish_sent;
};

struct quern_request {
    // Set at submit, then read-only.
    struct quern_sampling sampling; ///< its arrays are in this mapping
    const int32_t *prompt;
    size_t n_prompt, n_choices;
    size_t max_tokens; ///< cut to what context and cache leave
    size_t *stop_lens;
    uint64_t seed;
    void *user;
    size_t n_bytes; ///< of the mapping that holds all of this
    const struct qn_tok *tok;
    struct qn_seq *seqs; ///< [n_choices]
    uint64_t arrival_ns;

    // Shared. Owners: the submitter, the engine while it runs, the ready list while it is on it.
    _Atomic unsigned refs;
    _Atomic bool abort, abandoned, ready;
    _Atomic size_t n_live;    ///< choices that have not finished
    _Atomic bool prompt_done; ///< prompt_logprobs are complete
    struct quern_logprob *prompt_logprobs;
    _Atomic uint64_t first_scheduled_ns, first_token_ns, last_token_ns, finished_ns;
    struct quern_request *submit_next; ///< submit queue
    struct quern_request *ready_next;  ///< ready list

    size_t cursor; ///< reader: choice to look at next
};

/// Check every value (err->param names the field) and copy everything into one mapping, whose
/// untouched pages cost nothing: an answer's arrays are reserved for its longest length.
enum quern_status qn_request_new(const struct qn_request_env *env,
                                 const struct quern_request_params *params, uint64_t default_seed,
                                 struct quern_request **out_request, struct quern_error *err);
/// Drop one owner; the last one frees.
void qn_request_unref(struct quern_request *r);

/// Token at position i of a sequence.
static inline int32_t qn_seq_token(const struct qn_seq *s, size_t i)
{
    return i < s->request->n_prompt ? s->request->prompt[i] : s->ids[i - s->request->n_prompt];
}

/// Bytes that qn_seq_append's scratch must have.
size_t qn_seq_piece_bytes(const struct qn_tok *tok);
/// Append a sampled token to the log (its logprobs are there already) and see whether the answer
/// ends with it. Publishes the token, unless it does: then qn_seq_finish publishes both.
enum quern_finish qn_seq_append(struct qn_seq *s, int32_t id, const int32_t *eos_ids,
                                size_t n_eos_ids, char *piece);
void qn_seq_finish(struct qn_seq *s, enum quern_finish finish, const char *error);

#endif
