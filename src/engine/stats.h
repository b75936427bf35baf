#ifndef QN_ENGINE_STATS_H
#define QN_ENGINE_STATS_H

#include <quern/quern.h>

#include <stdatomic.h>

/// Histogram with one writer and any number of readers. Relaxed everywhere: a statistic orders
/// nothing, and a reader may see one observation half counted.
struct qn_hist {
    size_t n;
    double le[QUERN_HIST_MAX];
    _Atomic uint64_t count[QUERN_HIST_MAX + 1];
    _Atomic double sum;
};

/// What the engine thread counts.
struct qn_stats {
    _Atomic uint64_t prompt_tokens, generation_tokens, preemptions, steps;
    _Atomic uint64_t finished[QUERN_FINISH_ERROR + 1]; ///< by enum quern_finish
    struct qn_hist ttft_s, itl_s, tpot_s, e2e_s, queue_s, prefill_s, decode_s, inference_s,
        step_tokens, step_s, prompt_len, generation_len;
};

/// Set the bucket edges; lengths have 1, 2, 5 times powers of ten up to max_model_len.
void qn_stats_init(struct qn_stats *s, size_t max_model_len);
/// Writer only.
void qn_hist_add(struct qn_hist *h, double value);
void qn_stats_count(_Atomic uint64_t *counter, uint64_t n);
/// Any thread: the counters and histograms of `out`; its gauges are left alone.
void qn_stats_read(const struct qn_stats *s, struct quern_stats *out);

#endif
