#include "engine/stats.h"

#include <string.h>

// Dashboards and alerts depend on these edges: they are the published ones of the metrics that
// servers of this kind expose.
static const double ttft_edges[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,
                                    0.25,  0.5,   0.75, 1,    2.5,  5,    7.5,  10,
                                    20,    40,    80,   160,  640,  2560};
static const double token_edges[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5,
                                     0.75, 1,     2.5,  5,     7.5, 10,   20,  40,  80};
static const double latency_edges[] = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                       30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
static const double step_token_edges[] = {1,   8,    16,   32,   64,   128,  256,
                                          512, 1024, 2048, 4096, 8192, 16384};
// Our own, fine enough for small models.
static const double step_edges[] = {0.0005, 0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.025,
                                    0.03,   0.04,  0.05,  0.075, 0.1,  0.15,  0.2,  0.3,
                                    0.5,    0.75,  1,     2,     5,    10};

#define SET(hist, edges) set(hist, edges, sizeof(edges) / sizeof(edges)[0])

static void set(struct qn_hist *h, const double *edges, size_t n)
{
    h->n = n;
    memcpy(h->le, edges, n * sizeof *edges);
}

static void set_lengths(struct qn_hist *h, size_t max)
{
    static const double mantissa[] = {1, 2, 5};
    double power = 1;
    for (size_t i = 0; h->n < QUERN_HIST_MAX; i++) {
        double edge = mantissa[i % 3] * power;
        if (edge > (double)max) {
            return;
        }
        h->le[h->n++] = edge;
        power *= i % 3 == 2 ? 10 : 1;
    }
}

void qn_stats_init(struct qn_stats *s, size_t max_model_len)
{
    memset(s, 0, sizeof *s);
    SET(&s->ttft_s, ttft_edges);
    SET(&s->itl_s, token_edges);
    SET(&s->tpot_s, token_edges);
    SET(&s->e2e_s, latency_edges);
    SET(&s->queue_s, latency_edges);
    SET(&s->prefill_s, latency_edges);
    SET(&s->decode_s, latency_edges);
    SET(&s->inference_s, latency_edges);
    SET(&s->step_tokens, step_token_edges);
    SET(&s->step_s, step_edges);
    set_lengths(&s->prompt_len, max_model_len);
    set_lengths(&s->generation_len, max_model_len);
}

void qn_stats_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

void qn_hist_add(struct qn_hist *h, double value)
{
    size_t b = 0;
    while (b < h->n && value > h->le[b]) {
        b++;
    }
    qn_stats_count(&h->count[b], 1);
    // One writer: no read-modify-write needed.
    double sum = atomic_load_explicit(&h->sum, memory_order_relaxed);
    atomic_store_explicit(&h->sum, sum + value, memory_order_relaxed);
}

static void copy(const struct qn_hist *from, struct quern_hist *to)
{
    to->n = from->n;
    memcpy(to->le, from->le, from->n * sizeof *from->le);
    for (size_t i = 0; i <= from->n; i++) {
        to->count[i] = atomic_load_explicit(&from->count[i], memory_order_relaxed);
    }
    to->sum = atomic_load_explicit(&from->sum, memory_order_relaxed);
}

static uint64_t get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void qn_stats_read(const struct qn_stats *s, struct quern_stats *out)
{
    out->prompt_tokens = get(&s->prompt_tokens);
    out->generation_tokens = get(&s->generation_tokens);
    out->preemptions = get(&s->preemptions);
    out->steps = get(&s->steps);
    out->finished_stop = get(&s->finished[QUERN_FINISH_STOP]);
    out->finished_length = get(&s->finished[QUERN_FINISH_LENGTH]);
    out->finished_abort = get(&s->finished[QUERN_FINISH_ABORT]);
    out->finished_error = get(&s->finished[QUERN_FINISH_ERROR]);
    copy(&s->ttft_s, &out->ttft_s);
    copy(&s->itl_s, &out->itl_s);
    copy(&s->tpot_s, &out->tpot_s);
    copy(&s->e2e_s, &out->e2e_s);
    copy(&s->queue_s, &out->queue_s);
    copy(&s->prefill_s, &out->prefill_s);
    copy(&s->decode_s, &out->decode_s);
    copy(&s->inference_s, &out->inference_s);
    copy(&s->step_tokens, &out->step_tokens);
    copy(&s->step_s, &out->step_s);
    copy(&s->prompt_len, &out->prompt_len);
    copy(&s->generation_len, &out->generation_len);
}
