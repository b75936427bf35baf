#include "model/fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(cond, ...)                                                                            \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

enum {
    MAX_GROUPS = 8
};

static void take_note(void *user, const char *text)
{
    struct fx_model *f = user;
    size_t at = strlen(f->notes);
    snprintf(f->notes + at, sizeof f->notes - at, "%s\n", text);
}

enum qn_status fx_try(struct fx_model *f, const char *path, enum qn_act act, struct qn_err *err)
{
    *f = (struct fx_model){0};
    const struct qn_model_opts opts = {.activations = act,
                                       .kv_type = act == QN_ACT_F32 ? QN_KV_F32 : QN_KV_BF16,
                                       .note = take_note,
                                       .note_user = f};
    enum qn_status rc = qn_ckpt_open(path, &f->ckpt, err);
    if (rc == QN_OK) {
        rc = qn_model_load(f->ckpt, &opts, &f->model, err);
    }
    if (rc != QN_OK) {
        qn_ckpt_close(f->ckpt);
        *f = (struct fx_model){0};
        return rc;
    }
    f->vocab = qn_model_info(f->model)->vocab_size;
    return rc;
}

void fx_open(struct fx_model *f, const char *path, enum qn_act act)
{
    struct qn_err err = {0};
    enum qn_status rc = fx_try(f, path, act, &err);
    MUST(rc == QN_OK, "%s: %s", path, err.msg);
}

void fx_close(struct fx_model *f)
{
    qn_model_free(f->model);
    qn_ckpt_close(f->ckpt);
    *f = (struct fx_model){0};
}

struct fx_run {
    const struct qn_model *m;
    struct qn_team *team;
    struct qn_run *run;
    size_t n_groups, max_seqs, max_rows, n_entries, block_tokens;
    size_t window[MAX_GROUPS];
    size_t n_blocks[MAX_GROUPS], n_free[MAX_GROUPS];
    int32_t *free_list[MAX_GROUPS];
    int32_t *entries;       // [seq][group][entry]
    const int32_t **tables; // [seq][group]
    size_t *pos;            // [seq]
    struct qn_batch_seq *seqs;
    int32_t *tokens, *out_rows;
};

uint64_t fx_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void *need(size_t n, size_t size)
{
    void *p = calloc(n > 0 ? n : 1, size);
    MUST(p != NULL, "no memory for %zu x %zu bytes", n, size);
    return p;
}

float *fx_floats(size_t n)
{
    return need(n, sizeof(float));
}

struct fx_run *fx_run_new(const struct qn_model *m, size_t n_threads, size_t max_rows,
                          size_t max_seqs, size_t max_len, size_t block_tokens)
{
    struct fx_run *r = need(1, sizeof *r);
    struct qn_err err = {0};
    uint64_t seed = 11;
    r->m = m;
    r->max_seqs = max_seqs;
    r->max_rows = max_rows;
    r->block_tokens = block_tokens;
    r->n_entries = (max_len + block_tokens - 1) / block_tokens;
    r->n_groups = qn_model_n_kv_groups(m, block_tokens);
    MUST(r->n_groups <= MAX_GROUPS, "%zu KV groups", r->n_groups);
    for (size_t g = 0; g < r->n_groups; g++) {
        struct qn_kv_group group;
        qn_model_kv_group(m, block_tokens, g, &group);
        r->window[g] = group.window;
        size_t per_seq = r->n_entries;
        if (group.window > 0) {
            size_t some = (group.window + max_rows) / block_tokens + 2;
            per_seq = some < per_seq ? some : per_seq;
        }
        r->n_blocks[g] = r->n_free[g] = per_seq * max_seqs;
        r->free_list[g] = need(r->n_blocks[g], sizeof(int32_t));
        for (size_t i = 0; i < r->n_blocks[g]; i++) {
            size_t j = fx_random(&seed) % (i + 1);
            r->free_list[g][i] = r->free_list[g][j];
            r->free_list[g][j] = (int32_t)i;
        }
    }
    r->entries = need(max_seqs * r->n_groups * r->n_entries, sizeof(int32_t));
    memset(r->entries, 0xff, max_seqs * r->n_groups * r->n_entries * sizeof(int32_t));
    r->tables = need(max_seqs * r->n_groups, sizeof *r->tables);
    for (size_t i = 0; i < max_seqs * r->n_groups; i++) {
        r->tables[i] = r->entries + i * r->n_entries;
    }
    r->pos = need(max_seqs, sizeof *r->pos);
    r->seqs = need(max_seqs, sizeof *r->seqs);
    r->tokens = need(max_rows, sizeof *r->tokens);
    r->out_rows = need(max_rows, sizeof *r->out_rows);
    MUST(qn_team_new(n_threads, NULL, 0, &r->team, NULL, &err) == QN_OK, "%s", err.msg);
    const struct qn_run_opts o = {.max_rows = max_rows,
                                  .max_seqs = max_seqs,
                                  .max_out_rows = max_rows,
                                  .block_tokens = block_tokens,
                                  .n_blocks = r->n_blocks,
                                  .team = r->team};
    MUST(qn_run_new(m, &o, &r->run, &err) == QN_OK, "%s", err.msg);
    return r;
}

void fx_run_free(struct fx_run *r)
{
    qn_run_free(r->run);
    qn_team_free(r->team);
    for (size_t g = 0; g < r->n_groups; g++) {
        free(r->free_list[g]);
    }
    free(r->entries);
    free(r->tables);
    free(r->pos);
    free(r->seqs);
    free(r->tokens);
    free(r->out_rows);
    free(r);
}

size_t fx_position(const struct fx_run *r, size_t seq)
{
    return r->pos[seq];
}

static int32_t *table(const struct fx_run *r, size_t seq, size_t g)
{
    return r->entries + (seq * r->n_groups + g) * r->n_entries;
}

// Blocks for positions up to `end` (exclusive).
static void provide(struct fx_run *r, size_t seq, size_t end)
{
    MUST(end <= r->n_entries * r->block_tokens, "sequence %zu: %zu positions", seq, end);
    for (size_t g = 0; g < r->n_groups; g++) {
        int32_t *t = table(r, seq, g);
        for (size_t i = r->pos[seq] / r->block_tokens; i * r->block_tokens < end; i++) {
            if (t[i] < 0) {
                MUST(r->n_free[g] > 0, "group %zu is out of blocks", g);
                t[i] = r->free_list[g][--r->n_free[g]];
            }
        }
    }
}

// Blocks that no later token sees.
static void recycle(struct fx_run *r, size_t seq, bool all)
{
    for (size_t g = 0; g < r->n_groups; g++) {
        int32_t *t = table(r, seq, g);
        for (size_t i = 0; i < r->n_entries; i++) {
            bool behind =
                r->window[g] > 0 && (i + 1) * r->block_tokens + r->window[g] <= r->pos[seq] + 1;
            if (t[i] >= 0 && (all || behind)) {
                r->free_list[g][r->n_free[g]++] = t[i];
                t[i] = -1;
            }
        }
    }
}

void fx_forget(struct fx_run *r, size_t seq)
{
    recycle(r, seq, true);
    r->pos[seq] = 0;
}

void fx_step(struct fx_run *r, const struct fx_part *parts, size_t n_parts, float *logits)
{
    size_t rows = 0, n_out = 0;
    MUST(n_parts <= r->max_seqs, "%zu parts", n_parts);
    for (size_t i = 0; i < n_parts; i++) {
        const struct fx_part *p = &parts[i];
        MUST(rows + p->n <= r->max_rows, "%zu rows", rows + p->n);
        provide(r, p->seq, r->pos[p->seq] + p->n);
        r->seqs[i] = (struct qn_batch_seq){.row0 = rows,
                                           .n_rows = p->n,
                                           .pos0 = r->pos[p->seq],
                                           .blocks = r->tables + p->seq * r->n_groups};
        for (size_t j = 0; j < p->n; j++, rows++) {
            r->tokens[rows] = p->tokens[j];
            if (j + p->n_out >= p->n) {
                r->out_rows[n_out++] = (int32_t)rows;
            }
        }
    }
    const struct qn_batch b = {.n_rows = rows,
                               .n_seqs = n_parts,
                               .n_out = n_out,
                               .tokens = r->tokens,
                               .seqs = r->seqs,
                               .out_rows = r->out_rows,
                               .logits = logits};
    qn_run_step(r->run, &b);
    for (size_t i = 0; i < n_parts; i++) {
        r->pos[parts[i].seq] += parts[i].n;
        recycle(r, parts[i].seq, false);
    }
}

void fx_feed(struct fx_run *r, size_t seq, const int32_t *tokens, size_t n, size_t chunk,
             float *logits)
{
    const size_t vocab = qn_model_info(r->m)->vocab_size;
    for (size_t at = 0; at < n; at += chunk) {
        const size_t some = n - at < chunk ? n - at : chunk;
        const struct fx_part part = {.seq = seq, .tokens = tokens + at, .n = some, .n_out = some};
        fx_step(r, &part, 1, logits + at * vocab);
    }
}

unsigned char *fx_read_file(const char *path, size_t *out_n)
{
    FILE *f = fopen(path, "rb");
    MUST(f != NULL, "cannot open %s", path);
    MUST(fseek(f, 0, SEEK_END) == 0, "cannot seek in %s", path);
    long n = ftell(f);
    MUST(n >= 0 && fseek(f, 0, SEEK_SET) == 0, "cannot seek in %s", path);
    unsigned char *p = need((size_t)n, 1);
    MUST(fread(p, 1, (size_t)n, f) == (size_t)n, "cannot read %s", path);
    fclose(f);
    *out_n = (size_t)n;
    return p;
}

void *fx_npy(const char *path, const char *descr, size_t *out_rows, size_t *out_cols)
{
    size_t n_bytes;
    unsigned char *file = fx_read_file(path, &n_bytes);
    MUST(n_bytes > 10 && memcmp(file, "\x93NUMPY\x01", 7) == 0, "%s: not a .npy file", path);
    size_t header = 10u + file[8] + 256u * file[9];
    MUST(header < n_bytes, "%s: truncated", path);
    char text[256];
    size_t n_text = header - 10 < sizeof text - 1 ? header - 10 : sizeof text - 1;
    memcpy(text, file + 10, n_text);
    text[n_text] = '\0';
    const char *shape = strstr(text, "'shape': (");
    unsigned long rows = 0, cols = 1;
    MUST(strstr(text, descr) != NULL && strstr(text, "False") != NULL && shape != NULL &&
             sscanf(shape, "'shape': (%lu, %lu)", &rows, &cols) >= 1,
         "%s: header %s", path, text);
    MUST(n_bytes - header == rows * cols * 4, "%s: %zu bytes of data", path, n_bytes - header);
    memmove(file, file + header, n_bytes - header);
    *out_rows = rows;
    *out_cols = cols;
    return file;
}
