#include "engine/backend.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct script {
    size_t vocab_size;
    int32_t *ids;
    size_t n_ids;
    unsigned step_ms;
};

static void shape(void *ctx, size_t block_tokens, struct qn_backend_shape *out)
{
    const struct script *s = ctx;
    *out = (struct qn_backend_shape){.vocab_size = s->vocab_size, .n_groups = 1};
    out->block_bytes[0] = 64 * block_tokens;
}

static uint64_t bytes(void *ctx, const struct qn_run_opts *o)
{
    (void)ctx;
    (void)o;
    return 0;
}

static enum qn_status start(void *ctx, const struct qn_run_opts *o, struct qn_err *err)
{
    (void)ctx;
    (void)o;
    (void)err;
    return QN_OK;
}

// The wanted id stands 50 above a slope that makes every other logit distinct: any temperature
// draws it, and logprobs have a definite order.
static void step(void *ctx, const struct qn_backend_step *st)
{
    const struct script *s = ctx;
    const struct qn_batch *b = &st->batch;
    for (size_t i = 0; i < b->n_out; i++) {
        float *row = b->logits + i * s->vocab_size;
        for (size_t j = 0; j < s->vocab_size; j++) {
            row[j] = -(float)j / (float)s->vocab_size;
        }
        row[s->ids[st->out_positions[i] % s->n_ids]] = 50.0f;
    }
    if (s->step_ms > 0) {
        nanosleep(&(struct timespec){.tv_sec = s->step_ms / 1000,
                                     .tv_nsec = (long)(s->step_ms % 1000) * 1000000},
                  NULL);
    }
}

static void copy_block(void *ctx, size_t group, int32_t dst, int32_t src)
{
    (void)ctx;
    (void)group;
    (void)dst;
    (void)src;
}

static void free_ctx(void *ctx)
{
    struct script *s = ctx;
    free(s->ids);
    free(s);
}

static enum qn_status parse(struct script *s, const char *text, struct qn_err *err)
{
    const char *p = text;
    for (;;) {
        char *end;
        errno = 0;
        unsigned long id = strtoul(p, &end, 10);
        if (end == p || errno != 0 || id >= s->vocab_size) {
            return qn_fail(err, QN_E_INVALID,
                           "QUERN_TEST_SCRIPT: found \"%.20s\", expected an id below %zu", p,
                           s->vocab_size);
        }
        s->ids[s->n_ids++] = (int32_t)id;
        p = end;
        if (*p != ',') {
            break;
        }
        p++;
    }
    if (*p == '@') {
        char *end;
        unsigned long ms = strtoul(p + 1, &end, 10);
        s->step_ms = ms < 60000 ? (unsigned)ms : 60000;
        p = end;
    }
    if (*p != '\0') {
        return qn_fail(err, QN_E_INVALID,
                       "QUERN_TEST_SCRIPT: found \"%.20s\", expected a comma or @MILLISECONDS", p);
    }
    return QN_OK;
}

enum qn_status qn_backend_script_new(const char *text, size_t vocab_size, struct qn_backend *out,
                                     struct qn_err *err)
{
    static const struct qn_backend_ops ops = {.shape = shape,
                                              .bytes = bytes,
                                              .start = start,
                                              .step = step,
                                              .copy_block = copy_block,
                                              .free = free_ctx};
    struct script *s = calloc(1, sizeof *s);
    int32_t *ids = calloc(strlen(text) / 2 + 1, sizeof *ids);
    if (s == NULL || ids == NULL) {
        free(s);
        free(ids);
        return qn_fail(err, QN_E_NOMEM, "could not allocate the test script");
    }
    *s = (struct script){.vocab_size = vocab_size, .ids = ids};
    enum qn_status rc = parse(s, text, err);
    if (rc != QN_OK) {
        free_ctx(s);
        return rc;
    }
    *out = (struct qn_backend){.ops = &ops, .ctx = s};
    return QN_OK;
}
