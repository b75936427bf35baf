#include "engine/sampler.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "base/status.h"

#define GREEDY_BELOW 1e-5
#define MIN_TEMPERATURE 0.01 // smaller ones are raised to it

enum {
    LANES = 16,      // partial results of a reduction, in a fixed order
    BLOCK = 256,     // candidates per partial mass
    HEAP_MAX_K = 512 // up to here a heap is cheaper than partitioning everything
};

/// A token that may be drawn: its logit, later its weight.
struct cand {
    float v;
    int32_t id;
};

/* ---- counts ---- */

static size_t seen_slots(size_t n_tokens)
{
    size_t n = 16;
    while (n < 2 * n_tokens) {
        n *= 2;
    }
    return n;
}

size_t qn_seen_bytes(size_t n_tokens)
{
    return n_tokens * sizeof(struct qn_seen_entry) + seen_slots(n_tokens) * sizeof(uint32_t);
}

void qn_seen_init(struct qn_seen *s, void *memory, size_t n_tokens)
{
    *s = (struct qn_seen){.n_slots = seen_slots(n_tokens), .entries = memory};
    s->slots = (uint32_t *)(void *)((char *)memory + n_tokens * sizeof(struct qn_seen_entry));
}

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u; // the finaliser of SplitMix64
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void qn_seen_add(struct qn_seen *s, int32_t id, bool is_output)
{
    size_t at = (size_t)mix((uint64_t)id) & (s->n_slots - 1);
    while (s->slots[at] != 0 && s->entries[s->slots[at] - 1].id != id) {
        at = (at + 1) & (s->n_slots - 1);
    }
    if (s->slots[at] == 0) {
        s->entries[s->n_distinct] = (struct qn_seen_entry){.id = id};
        s->slots[at] = (uint32_t)++s->n_distinct;
    }
    s->entries[s->slots[at] - 1].n_output += is_output;
}

/* ---- rows ---- */

bool qn_logits_finite(const float *logits, size_t n)
{
    uint32_t bad[LANES] = {0};
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            uint32_t magnitude = qn_f32_bits(logits[i + j]) & 0x7fffffffu;
            bad[j] |= 0x7f7fffffu - magnitude; // the top bit is set when it is above the largest
        }
    }
    uint32_t any = 0;
    for (size_t j = 0; j < LANES; j++) {
        any |= bad[j];
    }
    for (; i < n; i++) {
        any |= 0x7f7fffffu - (qn_f32_bits(logits[i]) & 0x7fffffffu);
    }
    return (any & 0x80000000u) == 0;
}

// The largest value (NaN never wins) and its lowest index.
static size_t argmax(const float *x, size_t n, float *out_max)
{
    float best[LANES];
    for (size_t j = 0; j < LANES; j++) {
        best[j] = -INFINITY;
    }
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (size_t j = 0; j < LANES; j++) {
            best[j] = x[i + j] > best[j] ? x[i + j] : best[j];
        }
    }
    float max = -INFINITY;
    for (size_t j = 0; j < LANES; j++) {
        max = best[j] > max ? best[j] : max;
    }
    for (; i < n; i++) {
        max = x[i] > max ? x[i] : max;
    }
    *out_max = max;
    for (i = 0; i < n; i++) {
        if (x[i] == max) {
            return i;
        }
    }
    return 0;
}

// exp(x) for x <= 0 within 2 ulp; 0 below -87. Ours, so that draws do not depend on the C library.
static inline float exp_neg(float x)
{
    const float round = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer
    // Masks, not branches: loops over this must stay vectorisable. Below the range: exp(0) and 0.
    uint32_t keep = 0u - (uint32_t)(x > -87.0f);
    float clipped = qn_f32_from_bits(qn_f32_bits(x) & keep);
    float n = (clipped * 1.44269504f + round) - round;
    float r = (clipped - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    float y = p * qn_f32_from_bits((uint32_t)((int32_t)n + 127) << 23);
    return qn_f32_from_bits(qn_f32_bits(y) & keep);
}

static bool better(struct cand a, struct cand b)
{
    return a.v > b.v || (a.v == b.v && a.id < b.id);
}

/* ---- selection ---- */

// Root of the heap is its worst element.
static void sift_down(struct cand *heap, size_t n, size_t at)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= n) {
            return;
        }
        if (child + 1 < n && better(heap[child], heap[child + 1])) {
            child++;
        }
        if (!better(heap[at], heap[child])) {
            return;
        }
        struct cand t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
        at = child;
    }
}

// The k best of x into heap (as a heap); -inf is no candidate. Returns how many there are.
static size_t heap_best(const float *x, size_t n, size_t k, struct cand *heap)
{
    size_t have = 0, i = 0;
    for (; i < n && have < k; i++) {
        if (x[i] > -INFINITY) {
            heap[have++] = (struct cand){x[i], (int32_t)i};
        }
    }
    for (size_t at = have / 2; at-- > 0;) {
        sift_down(heap, have, at);
    }
    for (; i < n; i++) {
        if (have > 0 && x[i] > heap[0].v) { // an equal one has a higher id: worse
            heap[0] = (struct cand){x[i], (int32_t)i};
            sift_down(heap, have, 0);
        }
    }
    return have;
}

// Best first.
static void heap_sort(struct cand *heap, size_t n)
{
    for (size_t end = n; end > 1; end--) {
        struct cand worst = heap[0];
        heap[0] = heap[end - 1];
        heap[end - 1] = worst;
        sift_down(heap, end - 1, 0);
    }
}

// Partition [lo, hi) around the median of three: better ones before the returned place of the
// pivot, worse ones after it.
static size_t partition(struct cand *c, size_t lo, size_t hi)
{
    size_t mid = lo + (hi - lo) / 2, last = hi - 1, pick = mid;
    if (better(c[lo], c[mid]) != better(c[lo], c[last])) {
        pick = lo;
    } else if (better(c[last], c[lo]) != better(c[last], c[mid])) {
        pick = last;
    }
    struct cand pivot = c[pick];
    c[pick] = c[last];
    size_t at = lo;
    for (size_t i = lo; i < last; i++) {
        if (better(c[i], pivot)) {
            struct cand t = c[i];
            c[i] = c[at];
            c[at++] = t;
        }
    }
    c[last] = c[at];
    c[at] = pivot;
    return at;
}

// Move the k best to the front.
static void select_best(struct cand *c, size_t n, size_t k)
{
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t at = partition(c, lo, hi);
        if (at == k) {
            return;
        }
        if (at > k) {
            hi = at;
        } else {
            lo = at + 1;
        }
    }
}

// Move the fewest best ones whose weights reach `mass` to the front; returns how many. No sort: the
// same partitioning, led by mass instead of by count.
static size_t select_mass(struct cand *c, size_t n, double mass)
{
    size_t lo = 0, hi = n;
    double before = 0; // weight of c[0 … lo)
    while (lo < hi) {
        size_t at = partition(c, lo, hi);
        double left = 0;
        for (size_t i = lo; i < at; i++) {
            left += (double)c[i].v;
        }
        if (before + left >= mass && at > lo) {
            hi = at;
        } else if (before + left + (double)c[at].v >= mass) {
            return at + 1;
        } else {
            before += left + (double)c[at].v;
            lo = at + 1;
        }
    }
    return lo > 0 ? lo : 1;
}

/* ---- sampling ---- */

size_t qn_sampler_scratch_bytes(size_t vocab_size)
{
    size_t n = vocab_size * (sizeof(float) + sizeof(struct cand)) +
               (vocab_size / BLOCK + 2) * sizeof(double);
    return (n + 63) / 64 * 64;
}

bool qn_sampling_is_greedy(const struct quern_sampling *s)
{
    return s->temperature <= GREEDY_BELOW || s->top_p == 0 || s->top_k == 1;
}

bool qn_sampling_has_penalty(const struct quern_sampling *s)
{
    return s->presence_penalty != 0 || s->frequency_penalty != 0 || s->repetition_penalty != 1;
}

double qn_draw(uint64_t seed, uint64_t choice, uint64_t position)
{
    uint64_t x = mix(seed + 0x9e3779b97f4a7c15u);
    x = mix(x ^ (choice * 0xd1342543de82ef95u + 1));
    x = mix(x + position * 0x9e3779b97f4a7c15u);
    return (double)(x >> 11) * 0x1p-53;
}

static void mask(float *x, size_t vocab_size, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (ids[i] >= 0 && (size_t)ids[i] < vocab_size) {
            x[ids[i]] = -INFINITY;
        }
    }
}

static bool changes_row(const struct qn_sample_params *p)
{
    const struct quern_sampling *s = p->sampling;
    return s->n_allowed > 0 || s->n_bias > 0 || p->n_suppress_ids > 0 || p->seen != NULL ||
           p->position < s->min_tokens;
}

static void change_row(float *x, const float *logits, size_t vocab_size,
                       const struct qn_sample_params *p)
{
    const struct quern_sampling *s = p->sampling;
    if (s->n_allowed > 0) {
        for (size_t i = 0; i < vocab_size; i++) {
            x[i] = -INFINITY;
        }
        for (size_t i = 0; i < s->n_allowed; i++) {
            x[s->allowed_ids[i]] = logits[s->allowed_ids[i]];
        }
    } else {
        memcpy(x, logits, vocab_size * sizeof *x);
    }
    mask(x, vocab_size, p->suppress_ids, p->n_suppress_ids);
    if (p->position < s->min_tokens) {
        mask(x, vocab_size, p->eos_ids, s->ignore_eos ? 0 : p->n_eos_ids);
        mask(x, vocab_size, s->stop_ids, s->n_stop_ids);
    }
    for (size_t i = 0; i < s->n_bias; i++) {
        x[s->bias_ids[i]] += s->bias[i];
    }
    if (p->seen != NULL) {
        float repetition = (float)s->repetition_penalty;
        for (size_t i = 0; i < p->seen->n_distinct; i++) {
            const struct qn_seen_entry *e = &p->seen->entries[i];
            float *v = &x[e->id];
            *v = *v > 0 ? *v / repetition : *v * repetition;
            if (e->n_output > 0) {
                *v -= (float)s->frequency_penalty * (float)e->n_output + (float)s->presence_penalty;
            }
        }
    }
}

// Sum of one block, at most BLOCK of n weights: four partial sums, so that additions overlap.
static double mass_of(const float *w, size_t stride, size_t n)
{
    double sum[4] = {0};
    size_t i = 0, end = n < BLOCK ? n : BLOCK;
    for (; i + 4 <= end; i += 4) {
        for (size_t j = 0; j < 4; j++) {
            sum[j] += (double)w[(i + j) * stride];
        }
    }
    for (; i < end; i++) {
        sum[0] += (double)w[i * stride];
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// Index of one of n weights, w[0], w[stride], …; sums run over blocks in a fixed order.
static size_t draw(const float *w, size_t stride, size_t n, double *block_mass, double u)
{
    double total = 0;
    size_t n_blocks = (n + BLOCK - 1) / BLOCK;
    for (size_t b = 0; b < n_blocks; b++) {
        block_mass[b] = mass_of(w + b * BLOCK * stride, stride, n - b * BLOCK);
        total += block_mass[b];
    }
    double target = u * total, sum = 0;
    size_t b = 0;
    while (b + 1 < n_blocks && sum + block_mass[b] <= target) {
        sum += block_mass[b++];
    }
    // Rounding may carry the target past the end: then the last one that has any weight.
    size_t last = n;
    for (size_t i = b * BLOCK; i < n && (last == n || sum <= target); i++) {
        if (w[i * stride] > 0) {
            sum += (double)w[i * stride];
            last = i;
        }
    }
    for (size_t i = b * BLOCK; last == n && i-- > 0;) {
        last = w[i * stride] > 0 ? i : n;
    }
    return last;
}

// w = exp((x - max) * inverse), 0 below min_weight. Fixed inner loops, for the vectoriser.
static void weigh(float *w, const float *x, size_t n, float max, float inverse, float min_weight)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        float v[LANES]; // x may be w
        memcpy(v, x + i, sizeof v);
        for (size_t j = 0; j < LANES; j++) {
            float e = exp_neg((v[j] - max) * inverse);
            v[j] = qn_f32_from_bits(qn_f32_bits(e) & (0u - (uint32_t)(e >= min_weight)));
        }
        memcpy(w + i, v, sizeof v);
    }
    for (; i < n; i++) {
        float v = exp_neg((x[i] - max) * inverse);
        w[i] = v >= min_weight ? v : 0;
    }
}

static size_t gather(const float *w, size_t n, uint32_t exp_from, uint32_t exp_to, struct cand *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t e = qn_f32_bits(w[i]) >> 23;
        c[kept] = (struct cand){w[i], (int32_t)i};
        kept += e >= exp_from && e < exp_to && w[i] > 0;
    }
    return kept;
}

// The fewest best tokens of a whole row whose weights reach the share top_p. Weights are at most 1:
// their mass per binary exponent says in which octave the border lies, and only that octave is
// partitioned.
static size_t nucleus(const float *w, size_t n, double top_p, struct cand *c)
{
    enum {
        N_EXP = 128 // of weights up to 1
    };
    double mass[N_EXP] = {0}, total = 0;
    for (size_t i = 0; i < n; i++) {
        mass[qn_f32_bits(w[i]) >> 23] += (double)w[i];
    }
    for (size_t e = N_EXP; e-- > 0;) {
        total += mass[e];
    }
    double target = top_p * total, before = 0;
    uint32_t border = N_EXP - 1;
    while (border > 0 && before + mass[border] < target) {
        before += mass[border--];
    }
    size_t sure = gather(w, n, border + 1, N_EXP, c);
    size_t open = gather(w, n, border, border + 1, c + sure);
    return sure + (open > 0 ? select_mass(c + sure, open, target - before) : 0);
}

// Candidates of a top_k below the vocabulary, as weights.
static size_t best_k(const float *x, size_t vocab_size, size_t k, float max, float inverse,
                     float min_weight, struct cand *c)
{
    size_t n = 0, kept = 0;
    if (k <= HEAP_MAX_K) {
        n = heap_best(x, vocab_size, k, c);
    } else {
        for (size_t i = 0; i < vocab_size; i++) {
            c[n] = (struct cand){x[i], (int32_t)i};
            n += x[i] > -INFINITY;
        }
        if (k < n) {
            select_best(c, n, k);
            n = k;
        }
    }
    for (size_t i = 0; i < n; i++) {
        float w = exp_neg((c[i].v - max) * inverse);
        c[kept] = (struct cand){w, c[i].id};
        kept += w >= min_weight && w > 0;
    }
    return kept;
}

int32_t qn_sample(const float *logits, size_t vocab_size, const struct qn_sample_params *p,
                  void *scratch)
{
    const struct quern_sampling *s = p->sampling;
    double *block_mass = scratch;
    struct cand *c = (struct cand *)(void *)(block_mass + vocab_size / BLOCK + 2);
    float *row = (float *)(void *)(c + vocab_size);
    const float *x = logits;
    if (changes_row(p)) {
        change_row(row, logits, vocab_size, p);
        x = row;
    }
    float max;
    size_t top = argmax(x, vocab_size, &max);
    if (max == -INFINITY) {
        return -1;
    }
    if (qn_sampling_is_greedy(s)) {
        return (int32_t)top;
    }
    double temperature = s->temperature < MIN_TEMPERATURE ? MIN_TEMPERATURE : s->temperature;
    float inverse = (float)(1 / temperature), min_weight = (float)s->min_p;
    size_t k = s->top_k > 0 && (uint64_t)s->top_k < vocab_size ? (size_t)s->top_k : vocab_size;
    double u = qn_draw(p->seed, p->choice, p->position);
    size_t n;
    if (k < vocab_size) {
        n = best_k(x, vocab_size, k, max, inverse, min_weight, c);
        if (s->top_p < 1) {
            double total = 0;
            for (size_t i = 0; i < n; i++) {
                total += (double)c[i].v;
            }
            n = select_mass(c, n, s->top_p * total);
        }
    } else {
        weigh(row, x, vocab_size, max, inverse, min_weight);
        if (s->top_p == 1) {
            return (int32_t)draw(row, 1, vocab_size, block_mass, u);
        }
        n = nucleus(row, vocab_size, s->top_p, c);
    }
    return c[draw(&c[0].v, sizeof *c / sizeof(float), n, block_mass, u)].id;
}

/* ---- logprobs ---- */

void qn_logprobs(const float *logits, size_t vocab_size, int32_t id, size_t k,
                 struct quern_logprob *out)
{
    float max;
    (void)argmax(logits, vocab_size, &max);
    double sum = 0;
    for (size_t i = 0; i < vocab_size; i += BLOCK) {
        float w[BLOCK];
        size_t n = vocab_size - i < BLOCK ? vocab_size - i : BLOCK;
        weigh(w, logits + i, n, max, 1, 0);
        sum += mass_of(w, 1, n);
    }
    double log_sum = log(sum);
    size_t above = 0;
    for (size_t i = 0; i < vocab_size; i++) {
        above += logits[i] > logits[id];
    }
    out[0] = (struct quern_logprob){.id = id,
                                    .logprob = (float)((double)logits[id] - (double)max - log_sum),
                                    .rank = (int32_t)above + 1};
    QN_ASSERT(k <= QN_MAX_LOGPROBS);
    struct cand best[QN_MAX_LOGPROBS];
    size_t n = heap_best(logits, vocab_size, k, best);
    heap_sort(best, n);
    for (size_t i = 0; i < k; i++) {
        struct quern_logprob *o = &out[1 + i];
        if (i >= n) {
            *o = (struct quern_logprob){.id = -1, .logprob = -INFINITY};
            continue;
        }
        bool tied = i > 0 && best[i].v == best[i - 1].v;
        *o = (struct quern_logprob){.id = best[i].id,
                                    .logprob = (float)((double)best[i].v - (double)max - log_sum),
                                    .rank = tied ? out[i].rank : (int32_t)i + 1};
    }
}
