#include "engine/sched.h"

#include <stdlib.h>
#include <string.h>

enum qn_status qn_sched_init(struct qn_sched *s, const struct qn_sched_opts *o, struct qn_err *err)
{
    QN_ASSERT(o->max_rows >= o->max_num_seqs && o->max_out_rows > o->max_num_seqs);
    *s = (struct qn_sched){.o = *o};
    s->running = calloc(o->max_num_seqs, sizeof *s->running);
    s->free_slots = calloc(o->max_num_seqs, sizeof *s->free_slots);
    s->tokens = calloc(o->max_rows, sizeof *s->tokens);
    s->batch_seqs = calloc(o->max_num_seqs, sizeof *s->batch_seqs);
    s->stepped = calloc(o->max_num_seqs, sizeof *s->stepped);
    s->out_rows = calloc(o->max_out_rows, sizeof *s->out_rows);
    s->out_positions = calloc(o->max_out_rows, sizeof *s->out_positions);
    s->outs = calloc(o->max_out_rows, sizeof *s->outs);
    if (s->running == NULL || s->free_slots == NULL || s->tokens == NULL || s->batch_seqs == NULL ||
        s->stepped == NULL || s->out_rows == NULL || s->out_positions == NULL || s->outs == NULL) {
        qn_sched_done(s);
        return qn_fail(err, QN_E_NOMEM, "could not allocate the scheduler for %zu sequences",
                       o->max_num_seqs);
    }
    for (size_t i = 0; i < o->max_num_seqs; i++) {
        s->free_slots[i] = o->max_num_seqs - 1 - i;
    }
    s->n_free_slots = o->max_num_seqs;
    return QN_OK;
}

void qn_sched_done(struct qn_sched *s)
{
    free(s->running);
    free(s->free_slots);
    free(s->tokens);
    free(s->batch_seqs);
    free(s->stepped);
    free(s->out_rows);
    free(s->out_positions);
    free(s->outs);
    *s = (struct qn_sched){0};
}

/* ---- lists ---- */

// By arrival; nearly always at an end.
static void waiting_insert(struct qn_sched *s, struct qn_seq *q)
{
    struct qn_seq *after = s->waiting_tail;
    if (s->waiting_head != NULL && q->order < s->waiting_head->order) {
        after = NULL;
    }
    while (after != NULL && after->order > q->order) {
        after = after->prev;
    }
    q->prev = after;
    q->next = after != NULL ? after->next : s->waiting_head;
    *(q->prev != NULL ? &q->prev->next : &s->waiting_head) = q;
    *(q->next != NULL ? &q->next->prev : &s->waiting_tail) = q;
    s->n_waiting++;
}

static void waiting_remove(struct qn_sched *s, struct qn_seq *q)
{
    *(q->prev != NULL ? &q->prev->next : &s->waiting_head) = q->next;
    *(q->next != NULL ? &q->next->prev : &s->waiting_tail) = q->prev;
    q->prev = q->next = NULL;
    s->n_waiting--;
}

static void start_running(struct qn_sched *s, struct qn_seq *q)
{
    waiting_remove(s, q);
    q->slot = s->free_slots[--s->n_free_slots];
    q->state = QN_SEQ_RUNNING;
    q->n_rows = 0;
    size_t at = s->n_running++;
    for (; at > 0 && s->running[at - 1]->order > q->order; at--) {
        s->running[at] = s->running[at - 1];
    }
    s->running[at] = q;
}

static void stop_running(struct qn_sched *s, struct qn_seq *q)
{
    qn_kv_release(s->o.kv, q->slot);
    s->free_slots[s->n_free_slots++] = q->slot;
    size_t at = 0;
    while (s->running[at] != q) {
        at++;
    }
    memmove(&s->running[at], &s->running[at + 1], (--s->n_running - at) * sizeof *s->running);
}

void qn_sched_add(struct qn_sched *s, struct qn_seq *q)
{
    q->order = s->next_order++;
    waiting_insert(s, q);
}

void qn_sched_remove(struct qn_sched *s, struct qn_seq *q)
{
    if (q->state == QN_SEQ_RUNNING) {
        stop_running(s, q);
    } else if (q->state != QN_SEQ_DONE) {
        waiting_remove(s, q);
    }
    q->state = QN_SEQ_DONE;
}

static void preempt(struct qn_sched *s, struct qn_seq *q)
{
    stop_running(s, q);
    q->state = QN_SEQ_WAITING;
    q->n_computed = 0;
    waiting_insert(s, q);
    s->n_preemptions++;
}

/* ---- the step ---- */

struct budget {
    size_t rows;        // left for prompts
    size_t prompt_rows; // left for logits of prompt rows
    bool short_of_blocks;
};

static bool wants_prompt_rows(const struct qn_seq *q)
{
    return q->choice == 0 && q->request->prompt_logprobs != NULL &&
           !atomic_load_explicit(&q->request->prompt_done, memory_order_relaxed);
}

// Rows of [first, first + n) that give prompt logprobs: each predicts the next prompt token.
static size_t prompt_rows(const struct qn_seq *q, size_t first, size_t n)
{
    size_t end = q->request->n_prompt - 1;
    if (!wants_prompt_rows(q) || first >= end) {
        return 0;
    }
    return n < end - first ? n : end - first;
}

// Rows for a sequence, with blocks to hold them. A decoding one's row is not in the budget: those
// were set aside before.
static void give_rows(struct qn_sched *s, struct qn_seq *q, struct budget *b)
{
    size_t remaining = q->n_tokens - q->n_computed;
    size_t want = remaining;
    if (remaining > 1) {
        want = want < b->rows ? want : b->rows;
        if (prompt_rows(q, q->n_computed, want) > b->prompt_rows) {
            want = b->prompt_rows;
        }
    }
    while (want > 0 && !qn_kv_extend(s->o.kv, q->slot, q->n_computed + want)) {
        b->short_of_blocks = true;
        struct qn_seq *youngest = s->running[s->n_running - 1];
        if (youngest != q) {
            preempt(s, youngest);
            continue;
        }
        // Nobody younger: take what there is, or wait a step. Older ones always go on, so blocks
        // will come free.
        size_t can = qn_kv_extendable(s->o.kv, q->slot) - q->n_computed;
        want = can < want ? can : want - 1;
    }
    q->n_rows = want;
    if (remaining > 1) {
        b->rows -= want;
        b->prompt_rows -= prompt_rows(q, q->n_computed, want);
    }
}

static size_t div_up(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

// Blocks of a group that a sequence holds once its present tokens and the next are computed.
static size_t blocks_at_rest(const struct qn_sched *s, const struct qn_seq *q, size_t group)
{
    size_t n = div_up(q->n_tokens + 1, s->o.block_tokens);
    size_t window = qn_kv_window(s->o.kv, group);
    // A window may begin and end inside a block.
    size_t most = window > 0 ? div_up(window, s->o.block_tokens) + 2 : n;
    return n < most ? n : most;
}

// Room for all of a waiting sequence beside what the running ones have and still have to get.
// Checked for the whole prompt, not for its first chunk: otherwise two long prompts would evict
// each other.
static bool has_room(const struct qn_sched *s, const struct qn_seq *q)
{
    for (size_t g = 0; g < qn_kv_n_groups(s->o.kv); g++) {
        size_t need = blocks_at_rest(s, q, g);
        for (size_t i = 0; i < s->n_running; i++) {
            size_t all = blocks_at_rest(s, s->running[i], g);
            size_t have = qn_kv_slot_blocks(s->o.kv, s->running[i]->slot, g);
            need += all > have ? all - have : 0;
        }
        if (qn_kv_window(s->o.kv, g) > 0) { // and the chunk that is ahead of the window
            size_t all = div_up(q->n_tokens + 1, s->o.block_tokens);
            size_t chunk = div_up(s->o.max_rows, s->o.block_tokens);
            need += all < chunk ? all : chunk;
        }
        if (need > qn_kv_n_free(s->o.kv, g)) {
            return false;
        }
    }
    return true;
}

static void admit(struct qn_sched *s, struct budget *b)
{
    struct qn_seq *next;
    for (struct qn_seq *q = s->waiting_head; q != NULL; q = next) {
        next = q->next;
        if (s->n_free_slots == 0 || b->rows == 0) {
            return;
        }
        if (q->state == QN_SEQ_FORK) {
            continue;
        }
        if (s->n_running > 0 && !has_room(s, q)) {
            return; // first come, first served: nobody overtakes
        }
        start_running(s, q);
        b->rows -= q->n_tokens == 1; // give_rows takes a single row as set aside
        give_rows(s, q, b);
    }
}

static void add_to_batch(struct qn_sched *s, struct qn_seq *q, struct qn_batch *b)
{
    struct qn_batch_seq *e = &s->batch_seqs[b->n_seqs];
    s->stepped[b->n_seqs++] = q;
    *e = (struct qn_batch_seq){.row0 = b->n_rows,
                               .n_rows = q->n_rows,
                               .pos0 = q->n_computed,
                               .blocks = qn_kv_tables(s->o.kv, q->slot)};
    size_t end = q->n_computed + q->n_rows;
    size_t n_prompt_rows = prompt_rows(q, q->n_computed, q->n_rows);
    for (size_t i = 0; i < q->n_rows; i++) {
        size_t position = q->n_computed + i;
        s->tokens[b->n_rows + i] = qn_seq_token(q, position);
        bool is_last = position + 1 == q->n_tokens;
        if (i >= n_prompt_rows && !is_last) {
            continue;
        }
        s->outs[b->n_out] =
            (struct qn_sched_out){.seq = q, .position = position, .is_prompt = !is_last};
        s->out_positions[b->n_out] = q->n_tokens - q->request->n_prompt;
        s->out_rows[b->n_out++] = (int32_t)(b->n_rows + i);
    }
    QN_ASSERT(end <= q->n_tokens);
    b->n_rows += q->n_rows;
}

void qn_sched_make(struct qn_sched *s, struct qn_backend_step *out)
{
    struct budget b = {.rows = s->o.max_rows, .prompt_rows = s->o.max_out_rows - s->o.max_num_seqs};
    for (size_t i = 0; i < s->n_running; i++) {
        s->running[i]->n_rows = 0;
        b.rows -= s->running[i]->n_tokens - s->running[i]->n_computed == 1;
    }
    // Oldest first. Preempting takes from the end, so what was given rows before stays.
    for (size_t i = 0; i < s->n_running; i++) {
        give_rows(s, s->running[i], &b);
    }
    if (!b.short_of_blocks) {
        admit(s, &b);
    }
    struct qn_batch *batch = &out->batch;
    *batch = (struct qn_batch){.tokens = s->tokens, .seqs = s->batch_seqs, .out_rows = s->out_rows};
    out->out_positions = s->out_positions;
    for (int prefill = 0; prefill < 2; prefill++) {
        for (size_t i = 0; i < s->n_running; i++) {
            struct qn_seq *q = s->running[i];
            if (q->n_rows > 0 && (q->n_tokens - q->n_computed > 1) == (prefill == 1)) {
                add_to_batch(s, q, batch);
            }
        }
    }
    QN_ASSERT(batch->n_rows > 0 || s->n_running == 0);
}

void qn_sched_computed(struct qn_sched *s, const struct qn_backend_step *step)
{
    for (size_t i = 0; i < step->batch.n_seqs; i++) {
        struct qn_seq *q = s->stepped[i];
        q->n_computed += q->n_rows;
        qn_kv_trim(s->o.kv, q->slot, q->n_computed);
    }
}

bool qn_sched_fork(struct qn_sched *s, struct qn_seq *q, const struct qn_seq *from,
                   const struct qn_backend *backend)
{
    QN_ASSERT(q->state == QN_SEQ_FORK && q->n_tokens == from->n_computed);
    q->state = QN_SEQ_WAITING;
    if (s->n_free_slots == 0) {
        return false;
    }
    size_t slot = s->free_slots[s->n_free_slots - 1];
    int32_t dst[QN_KV_MAX_GROUPS], src[QN_KV_MAX_GROUPS];
    if (!qn_kv_fork(s->o.kv, slot, from->slot, q->n_tokens, dst, src)) {
        return false;
    }
    start_running(s, q);
    q->n_computed = q->n_tokens;
    for (size_t g = 0; g < qn_kv_n_groups(s->o.kv); g++) {
        if (dst[g] >= 0) {
            backend->ops->copy_block(backend->ctx, g, dst[g], src[g]);
        }
    }
    return true;
}
