#ifndef QN_ENGINE_SAMPLER_H
#define QN_ENGINE_SAMPLER_H

#include <quern/quern.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Turns a row of logits into a token. What is drawn depends on the row, the request's parameters
/// and (seed, choice, position) alone: neither on the batch nor on the thread.
///
/// Order: allowed ids, suppressed ids, min_tokens (EOS and stop ids), bias; repetition, frequency
/// and presence penalty; temperature; min_p; top_k; top_p; draw. The likeliest token survives every
/// filter; ties go to the lower id.

/// Occurrences of the distinct tokens of a prompt and its answer, for penalties. Memory is the
/// caller's, sized by qn_seen_bytes for the most tokens that can come.
struct qn_seen {
    size_t n_slots, n_distinct; // n_slots: a power of two
    uint32_t *slots;            // [n_slots] index + 1 into entries, 0: empty
    struct qn_seen_entry {
        int32_t id;
        uint32_t n_output;
    } * entries;
};
size_t qn_seen_bytes(size_t n_tokens);
/// `memory` is zeroed and aligned to 8 bytes.
void qn_seen_init(struct qn_seen *s, void *memory, size_t n_tokens);
void qn_seen_add(struct qn_seen *s, int32_t id, bool is_output);

/// Everything that a draw depends on besides the logits.
struct qn_sample_params {
    const struct quern_sampling *sampling;
    uint64_t seed;
    const struct qn_seen *seen;  ///< NULL when no penalty is on
    const int32_t *suppress_ids; ///< never sampled
    size_t n_suppress_ids;
    const int32_t *eos_ids;
    size_t n_eos_ids;
    size_t choice, position; ///< position: tokens of the answer so far
};

/// Working memory of one thread for a vocabulary; a multiple of 64.
size_t qn_sampler_scratch_bytes(size_t vocab_size);

/// Sample from logits[vocab_size]. -1 when every token is excluded. Allocates nothing.
int32_t qn_sample(const float *logits, size_t vocab_size, const struct qn_sample_params *p,
                  void *scratch);

/// All finite.
bool qn_logits_finite(const float *logits, size_t n);

enum {
    QN_MAX_LOGPROBS = 128
};
/// Log-softmax of a raw row: out[0] is `id`, out[1 … k] are the k <= QN_MAX_LOGPROBS likeliest,
/// best first (id -1 past the vocabulary). Ranks count from 1; equal values share the better one.
void qn_logprobs(const float *logits, size_t vocab_size, int32_t id, size_t k,
                 struct quern_logprob *out);

/// Uniform in [0, 1) from a counter: the same for the same arguments, for ever.
double qn_draw(uint64_t seed, uint64_t choice, uint64_t position);

/// Whether the parameters mean the likeliest token.
bool qn_sampling_is_greedy(const struct quern_sampling *s);
/// Whether a penalty needs counts.
bool qn_sampling_has_penalty(const struct quern_sampling *s);

#endif
