#include "fake_quern.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/hash.h"
#include "fail_alloc.h"
#include "quern/quern.h"

enum {
    EOS = 256,
    BOS = 257,
    HELLO = 259,
    VOCAB = 300,
    BLOCK = 16,
    N_BLOCKS = 4096
};

struct fake_config fake_config = {.step_us = 1000, .context = 4096};

struct quern_model {
    struct quern_model_info info;
};

struct choice {
    int32_t *ids;
    struct quern_logprob *rows;
    size_t *ends;
    size_t n_ids, read_ids;
    struct qn_buf raw;  // bytes of all tokens
    struct qn_buf text; // what may be shown
    size_t read_text;
    enum quern_finish finish;
    bool told_finish;
    const char *stop_string;
    int32_t stop_id;
    bool was_eos;
};

struct quern_request {
    struct quern_request *next;
    struct quern_engine *engine;
    struct quern_request_params p;
    char **stops;
    int32_t *prompt, *stop_ids, *script;
    size_t n_script;
    bool endless, nan, running, ended, listed;
    uint64_t key, submit_ns, first_ns;
    struct choice *choices;
    struct quern_logprob *prompt_rows;
    struct qn_buf told; // the text of the last delta
    size_t next_choice;
};

struct quern_engine {
    struct quern_model *model;
    struct quern_engine_options o;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stop;
    struct quern_request *all;    // in order of arrival
    struct quern_request **ready; // ring of those with news
    size_t n_ready;
    struct quern_stats stats;
};

static enum quern_status fail(struct quern_error *err, enum quern_status code, const char *param,
                              const char *fmt, ...) __attribute__((format(printf, 4, 5)));

static enum quern_status fail(struct quern_error *err, enum quern_status code, const char *param,
                              const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (err != NULL) {
        err->code = code;
        snprintf(err->param, sizeof err->param, "%s", param);
        vsnprintf(err->message, sizeof err->message, fmt, ap);
    }
    va_end(ap);
    return code;
}

const char *quern_version(void)
{
    return "0.0-fake";
}

void quern_free(void *p)
{
    free(p);
}

enum quern_status quern_model_load(const struct quern_model_options *o, struct quern_model **out,
                                   struct quern_error *err)
{
    FAIL_ALLOC_EXEMPT;
    static const int32_t eos[] = {EOS};
    struct timespec ts = {fake_config.load_ms / 1000, (long)(fake_config.load_ms % 1000) * 1000000};
    nanosleep(&ts, NULL);
    if (fake_config.fail_load) {
        return fail(err, QUERN_E_FORMAT, "", "model \"%s\": no such luck", o->path);
    }
    struct quern_model *m = calloc(1, sizeof *m);
    m->info = (struct quern_model_info){
        .name = "fake",
        .path = o->path,
        .format = "gguf",
        .architecture = "fake",
        .activations = "f32",
        .isa = "generic",
        .vocab_size = VOCAB,
        .max_model_len = fake_config.context,
        .n_threads = 1,
        .has_tokenizer = true,
        .has_chat_template = !fake_config.no_template,
        .resources = "",
        .eos_ids = eos,
        .n_eos_ids = 1,
        .temperature = NAN,
        .top_p = NAN,
        .min_p = NAN,
        .repetition_penalty = NAN,
        .top_k = -1,
        .max_new_tokens = -1,
    };
    *out = m;
    return QUERN_OK;
}

void quern_model_free(struct quern_model *m)
{
    free(m);
}

const struct quern_model_info *quern_model_get_info(const struct quern_model *m)
{
    return &m->info;
}

size_t quern_token_bytes(const struct quern_model *m, int32_t id, char *buf, size_t n_buf)
{
    (void)m;
    char text[16];
    size_t n = 1;
    if (id < 256) {
        text[0] = (char)id;
    } else {
        const char *s = id == EOS ? "<|e|>" : id == BOS ? "<|s|>" : id == HELLO ? "hello" : NULL;
        n = (size_t)(s != NULL ? snprintf(text, sizeof text, "%s", s)
                               : snprintf(text, sizeof text, "<t%d>", (int)id));
    }
    memcpy(buf, text, n < n_buf ? n : n_buf);
    return n;
}

const char *quern_token_piece(const struct quern_model *m, int32_t id, size_t *out_len)
{
    static _Thread_local char piece[16];
    *out_len = quern_token_bytes(m, id, piece, sizeof piece);
    return piece;
}

enum quern_status quern_tokenize(const struct quern_model *m, const char *text, size_t n,
                                 unsigned flags, int32_t **out_ids, size_t *out_n,
                                 struct quern_error *err)
{
    FAIL_ALLOC_EXEMPT;
    (void)m;
    (void)err;
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    size_t k = 0;
    if (fake_config.bos && (flags & QUERN_TOK_ADD_SPECIAL) != 0) {
        ids[k++] = BOS;
    }
    for (size_t i = 0; i < n; i++) {
        ids[k++] = (unsigned char)text[i];
    }
    *out_ids = ids;
    *out_n = k;
    return QUERN_OK;
}

enum quern_status quern_detokenize(const struct quern_model *m, const int32_t *ids, size_t n,
                                   bool skip_special, char **out_text, size_t *out_n,
                                   struct quern_error *err)
{
    FAIL_ALLOC_EXEMPT;
    (void)err;
    struct qn_buf b = {0};
    for (size_t i = 0; i < n; i++) {
        char buf[16];
        if (!(skip_special && (ids[i] == EOS || ids[i] == BOS))) {
            qn_buf_add(&b, buf, quern_token_bytes(m, ids[i], buf, sizeof buf));
        }
    }
    qn_buf_puts(&b, "");
    *out_n = b.len;
    *out_text = b.data;
    return QUERN_OK;
}

// "role: content" lines, with three traps: a system message that says "refuse" raises, unknown
// variables are not touched, and enable_thinking == false writes E.
enum quern_status quern_chat_prompt(const struct quern_model *m, const char *json, size_t n,
                                    char **out_text, int32_t **out_ids, size_t *out_n,
                                    struct quern_error *err)
{
    FAIL_ALLOC_EXEMPT;
    if (fake_config.no_template) {
        return fail(err, QUERN_E_UNSUPPORTED, "",
                    "the model has no chat template; give one with --chat-template FILE");
    }
    json_t *chat = json_loadb(json, n, JSON_ALLOW_NUL, NULL);
    const json_t *messages = json_object_get(chat, "messages");
    const json_t *kwargs = json_object_get(chat, "chat_template_kwargs");
    bool final = json_is_true(json_object_get(chat, "continue_final_message"));
    struct qn_buf b = {0};
    if (json_is_false(json_object_get(kwargs, "enable_thinking"))) {
        qn_buf_putc(&b, 'E');
    }
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *msg = json_array_get(messages, i);
        const json_t *content = json_object_get(msg, "content");
        const char *role = json_string_value(json_object_get(msg, "role"));
        if (strcmp(role, "system") == 0 && strcmp(json_string_value(content), "refuse") == 0) {
            json_decref(chat);
            qn_buf_done(&b);
            return fail(err, QUERN_E_INVALID, "messages", "System role not supported");
        }
        qn_buf_printf(&b, "%s: ", role);
        qn_buf_add(&b, json_string_value(content), json_string_length(content));
        qn_buf_puts(&b, final && i + 1 == json_array_size(messages) ? "" : "\n");
    }
    if (json_is_true(json_object_get(chat, "add_generation_prompt"))) {
        qn_buf_puts(&b, "assistant: ");
    }
    json_decref(chat);
    quern_tokenize(m, b.data, b.len, 0, out_ids, out_n, err);
    if (out_text != NULL) {
        *out_text = b.data;
    } else {
        qn_buf_done(&b);
    }
    return QUERN_OK;
}

void quern_sampling_init(struct quern_sampling *s)
{
    *s = (struct quern_sampling){.temperature = 1,
                                 .top_p = 1,
                                 .repetition_penalty = 1,
                                 .max_tokens = 16,
                                 .skip_special_tokens = true,
                                 .logprobs = -1,
                                 .prompt_logprobs = -1};
}

static void news(struct quern_engine *e, struct quern_request *r)
{
    if (!r->listed) {
        r->listed = true;
        e->ready = realloc(e->ready, (e->n_ready + 1) * sizeof *e->ready);
        e->ready[e->n_ready++] = r;
    }
    if (e->o.notify != NULL) {
        e->o.notify(e->o.user);
    }
}

static void end_request(struct quern_engine *e, struct quern_request *r)
{
    if (r->ended) {
        return;
    }
    bool all = true;
    enum quern_finish worst = QUERN_FINISH_NONE;
    for (size_t i = 0; i < r->p.n; i++) {
        all = all && r->choices[i].finish != QUERN_FINISH_NONE;
        worst = r->choices[i].finish > worst ? r->choices[i].finish : worst;
    }
    if (all) {
        r->ended = true;
        r->running = false;
        e->stats.finished_stop += worst == QUERN_FINISH_STOP;
        e->stats.finished_length += worst == QUERN_FINISH_LENGTH;
        e->stats.finished_abort += worst == QUERN_FINISH_ABORT;
        e->stats.finished_error += worst == QUERN_FINISH_ERROR;
    }
}

// Bytes of whole characters at the front of s.
static size_t whole(const char *s, size_t n)
{
    for (size_t back = 1; back <= 3 && back <= n; back++) {
        unsigned char c = (unsigned char)s[n - back];
        if (c >= 0xc0) {
            size_t need = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
            return need > back ? n - back : n;
        }
        if (c < 0x80) {
            break;
        }
    }
    return n;
}

static void set_text(const struct quern_request *r, struct choice *c)
{
    size_t n = whole(c->raw.data, c->raw.len), longest = 0;
    bool done = c->finish != QUERN_FINISH_NONE;
    for (size_t i = 0; i < r->p.sampling.n_stop; i++) {
        size_t len = strlen(r->stops[i]);
        longest = len > longest ? len : longest;
        const char *at = c->raw.data != NULL && c->n_ids > r->p.sampling.min_tokens
                             ? memmem(c->raw.data, n, r->stops[i], len)
                             : NULL;
        if (at != NULL) {
            c->finish = QUERN_FINISH_STOP;
            c->stop_string = r->stops[i];
            n = (size_t)(at - c->raw.data) + (r->p.sampling.include_stop ? len : 0);
            done = true;
            c->raw.len = n;
            break;
        }
    }
    size_t hold = done || longest == 0 ? 0 : longest - 1;
    n = n > hold ? n - hold : 0;
    if (n > c->text.len) {
        qn_buf_add(&c->text, c->raw.data + c->text.len, n - c->text.len);
    }
    if (done && whole(c->raw.data, c->raw.len) < c->raw.len) {
        qn_buf_puts(&c->text, "\xef\xbf\xbd");
    }
}

static void one_token(struct quern_request *r, size_t index)
{
    struct choice *c = &r->choices[index];
    const struct quern_sampling *s = &r->p.sampling;
    uint64_t h = s->temperature > 0 ? r->key + 77 * index : r->key;
    int32_t id = r->n_script == 0 ? 'a' + (int32_t)(qn_hash64(&c->n_ids, sizeof c->n_ids, h) % 26)
                 : c->n_ids < r->n_script ? r->script[c->n_ids]
                 : r->endless             ? r->script[c->n_ids % r->n_script]
                                          : EOS;
    size_t k = s->logprobs > 0 ? (size_t)s->logprobs : 0, at = c->n_ids++;
    c->ids[at] = id;
    if (s->logprobs >= 0) {
        c->rows[at * (1 + k)] = (struct quern_logprob){id, -0.1f - (float)(id % 7) * 0.3f, 1};
        for (size_t j = 1; j <= k; j++) {
            c->rows[at * (1 + k) + j] =
                (struct quern_logprob){(id + (int32_t)j - 1) % VOCAB,
                                       -0.1f - (float)(id % 7) * 0.3f - (float)(j - 1), (int32_t)j};
        }
    }
    bool is_stop = false;
    for (size_t i = 0; i < s->n_stop_ids; i++) {
        is_stop = is_stop || r->stop_ids[i] == id;
    }
    if (c->n_ids > s->min_tokens && ((id == EOS && !s->ignore_eos) || is_stop)) {
        c->finish = QUERN_FINISH_STOP;
        c->stop_id = id;
        c->was_eos = id == EOS;
    }
    if (c->finish == QUERN_FINISH_NONE || s->include_stop) {
        char buf[16];
        if (!(s->skip_special_tokens && (id == EOS || id == BOS))) {
            qn_buf_add(&c->raw, buf, quern_token_bytes(NULL, id, buf, sizeof buf));
        }
    }
    c->ends[at] = c->raw.len;
    if (c->finish == QUERN_FINISH_NONE && c->n_ids >= s->max_tokens) {
        c->finish = QUERN_FINISH_LENGTH;
    }
    set_text(r, c);
}

static void step_request(struct quern_engine *e, struct quern_request *r)
{
    if (r->first_ns == 0) {
        r->first_ns = qn_clock_ns();
        e->stats.prompt_tokens += r->p.n_prompt;
    }
    for (size_t i = 0; i < r->p.n; i++) {
        struct choice *c = &r->choices[i];
        if (c->finish != QUERN_FINISH_NONE) {
            continue;
        }
        if (r->nan && c->n_ids >= r->n_script) {
            c->finish = QUERN_FINISH_ERROR;
        } else if (r->p.sampling.max_tokens == 0) {
            c->finish = QUERN_FINISH_LENGTH;
        } else {
            one_token(r, i);
            e->stats.generation_tokens++;
        }
    }
    end_request(e, r);
    news(e, r);
}

static void *engine_main(void *arg)
{
    FAIL_ALLOC_EXEMPT;
    struct quern_engine *e = arg;
    pthread_mutex_lock(&e->lock);
    while (!e->stop) {
        size_t running = 0;
        for (struct quern_request *r = e->all; r != NULL; r = r->next) {
            if (!r->ended && !r->running && running < e->o.max_num_seqs) {
                r->running = true;
            }
            running += r->running;
        }
        if (running == 0) {
            pthread_cond_wait(&e->wake, &e->lock);
            continue;
        }
        pthread_mutex_unlock(&e->lock);
        struct timespec ts = {fake_config.step_us / 1000000,
                              (long)(fake_config.step_us % 1000000) * 1000};
        nanosleep(&ts, NULL);
        pthread_mutex_lock(&e->lock);
        e->stats.steps++;
        for (struct quern_request *r = e->all; r != NULL; r = r->next) {
            if (r->running) {
                step_request(e, r);
            }
        }
    }
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

enum quern_status quern_engine_new(struct quern_model *m, const struct quern_engine_options *o,
                                   struct quern_engine **out, struct quern_error *err)
{
    FAIL_ALLOC_EXEMPT;
    (void)err;
    struct quern_engine *e = calloc(1, sizeof *e);
    e->model = m;
    e->o = *o;
    e->o.max_num_seqs = o->max_num_seqs > 0 ? o->max_num_seqs : 32;
    e->o.max_waiting = o->max_waiting > 0 ? o->max_waiting : 1024;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->wake, NULL);
    pthread_create(&e->thread, NULL, engine_main, e);
    *out = e;
    return QUERN_OK;
}

void quern_engine_free(struct quern_engine *e)
{
    if (e == NULL) {
        return;
    }
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    pthread_join(e->thread, NULL);
    free(e->ready);
    free(e);
}

static void read_script(struct quern_request *r)
{
    char text[4096];
    size_t n = 0;
    for (size_t i = 0; i < r->p.n_prompt && n + 1 < sizeof text; i++) {
        if (r->prompt[i] < 256) {
            text[n++] = (char)r->prompt[i];
        }
    }
    text[n] = '\0';
    const char *p = strstr(text, "[[");
    r->nan = strstr(text, "nan]]") != NULL;
    if (p == NULL) {
        return;
    }
    r->script = calloc(n, sizeof *r->script);
    for (p += 2; *p != '\0' && *p != ']';) {
        char *end = NULL;
        long id = strtol(p, &end, 10);
        if (end == p) {
            p++;
            continue;
        }
        r->script[r->n_script++] = (int32_t)(id % VOCAB);
        p = end;
    }
    r->endless = strncmp(p, "]]*", 3) == 0;
}

enum quern_status quern_engine_submit(struct quern_engine *e, const struct quern_request_params *p,
                                      struct quern_request **out, struct quern_error *err)
{
    FAIL_ALLOC_EXEMPT;
    size_t waiting = 0;
    pthread_mutex_lock(&e->lock);
    for (const struct quern_request *r = e->all; r != NULL; r = r->next) {
        waiting += !r->ended && !r->running;
    }
    if (waiting >= e->o.max_waiting) {
        pthread_mutex_unlock(&e->lock);
        return fail(err, QUERN_E_BUSY, "", "the waiting queue is full (%zu requests)", waiting);
    }
    struct quern_request *r = calloc(1, sizeof *r);
    r->engine = e;
    r->p = *p;
    r->prompt = malloc(p->n_prompt * sizeof *r->prompt);
    memcpy(r->prompt, p->prompt, p->n_prompt * sizeof *r->prompt);
    r->stops = calloc(p->sampling.n_stop + 1, sizeof *r->stops);
    for (size_t i = 0; i < p->sampling.n_stop; i++) {
        r->stops[i] = strdup(p->sampling.stop[i]);
    }
    r->stop_ids = calloc(p->sampling.n_stop_ids + 1, sizeof *r->stop_ids);
    for (size_t i = 0; i < p->sampling.n_stop_ids; i++) {
        r->stop_ids[i] = p->sampling.stop_ids[i];
    }
    static uint64_t unseeded = 1000;
    uint64_t seed = p->sampling.has_seed ? p->sampling.seed : unseeded++;
    r->key = qn_hash64(r->prompt, p->n_prompt * sizeof *r->prompt,
                       p->sampling.temperature > 0 ? seed : 0);
    r->submit_ns = qn_clock_ns();
    read_script(r);
    r->choices = calloc(p->n, sizeof *r->choices);
    size_t cap = p->sampling.max_tokens + 1;
    for (size_t i = 0; i < p->n; i++) {
        struct choice *c = &r->choices[i];
        c->stop_id = -1;
        c->ids = calloc(cap, sizeof *c->ids);
        c->ends = calloc(cap, sizeof *c->ends);
        c->rows = calloc(cap * (size_t)(2 + p->sampling.logprobs), sizeof *c->rows);
    }
    if (p->sampling.prompt_logprobs >= 0) {
        size_t row = 1 + (size_t)p->sampling.prompt_logprobs;
        r->prompt_rows = calloc(p->n_prompt * row, sizeof *r->prompt_rows);
        for (size_t i = 0; i < p->n_prompt * row; i++) {
            int32_t id = (r->prompt[i / row] + (int32_t)(i % row > 1 ? i % row - 1 : 0)) % VOCAB;
            r->prompt_rows[i] = (struct quern_logprob){
                i < row ? -1 : id, -0.25f * (float)(1 + (i % row > 1 ? i % row - 1 : 0)), 1};
        }
    }
    struct quern_request **last = &e->all;
    while (*last != NULL) {
        last = &(*last)->next;
    }
    *last = r;
    pthread_cond_signal(&e->wake);
    pthread_mutex_unlock(&e->lock);
    *out = r;
    return QUERN_OK;
}

static void abort_locked(struct quern_engine *e, struct quern_request *r)
{
    for (size_t i = 0; !r->ended && i < r->p.n; i++) {
        if (r->choices[i].finish == QUERN_FINISH_NONE) {
            r->choices[i].finish = QUERN_FINISH_ABORT;
        }
    }
    end_request(e, r);
}

void quern_engine_abort(struct quern_engine *e, struct quern_request *r)
{
    FAIL_ALLOC_EXEMPT;
    pthread_mutex_lock(&e->lock);
    abort_locked(e, r);
    news(e, r);
    pthread_mutex_unlock(&e->lock);
}

struct quern_request *quern_engine_next(struct quern_engine *e)
{
    struct quern_request *r = NULL;
    pthread_mutex_lock(&e->lock);
    if (e->n_ready > 0) {
        r = e->ready[0];
        r->listed = false;
        memmove(e->ready, e->ready + 1, --e->n_ready * sizeof *e->ready);
    }
    pthread_mutex_unlock(&e->lock);
    return r;
}

bool quern_request_read(struct quern_request *r, struct quern_delta *out)
{
    FAIL_ALLOC_EXEMPT;
    bool found = false;
    pthread_mutex_lock(&r->engine->lock);
    for (size_t i = 0; i < r->p.n && !found; i++) {
        size_t index = (r->next_choice + i) % r->p.n;
        struct choice *c = &r->choices[index];
        bool ends = c->finish != QUERN_FINISH_NONE && !c->told_finish;
        if (c->read_text == c->text.len && c->read_ids == c->n_ids && !ends) {
            continue;
        }
        size_t k = r->p.sampling.logprobs > 0 ? (size_t)r->p.sampling.logprobs : 0;
        qn_buf_clear(&r->told); // the choice's own buffer may move while the delta is used
        if (c->text.len > c->read_text) {
            qn_buf_add(&r->told, c->text.data + c->read_text, c->text.len - c->read_text);
        }
        *out = (struct quern_delta){
            .choice = index,
            .text = r->told.data != NULL ? r->told.data : "",
            .n_text = c->text.len - c->read_text,
            .ids = c->ids + c->read_ids,
            .n_ids = c->n_ids - c->read_ids,
            .logprobs = r->p.sampling.logprobs >= 0 ? c->rows + c->read_ids * (1 + k) : NULL,
            .text_end = c->ends + c->read_ids,
            .finish = c->finish,
            .stop_string = c->stop_string,
            .stop_id = c->stop_id,
            .stop_was_eos = c->was_eos,
            .error = c->finish == QUERN_FINISH_ERROR ? "nonfinite logits" : NULL,
        };
        c->told_finish = ends || c->told_finish;
        c->read_text = c->text.len;
        c->read_ids = c->n_ids;
        r->next_choice = index + 1;
        found = true;
    }
    pthread_mutex_unlock(&r->engine->lock);
    return found;
}

void *quern_request_user(const struct quern_request *r)
{
    return r->p.user;
}

const struct quern_logprob *quern_request_prompt_logprobs(const struct quern_request *r)
{
    return r->prompt_rows;
}

void quern_request_usage(const struct quern_request *r, struct quern_usage *out)
{
    *out = (struct quern_usage){.prompt_tokens = r->p.n_prompt};
    pthread_mutex_lock(&r->engine->lock);
    for (size_t i = 0; i < r->p.n; i++) {
        out->completion_tokens += r->choices[i].n_ids;
    }
    pthread_mutex_unlock(&r->engine->lock);
}

void quern_request_free(struct quern_engine *e, struct quern_request *r)
{
    FAIL_ALLOC_EXEMPT;
    pthread_mutex_lock(&e->lock);
    abort_locked(e, r);
    struct quern_request **at = &e->all;
    while (*at != r) {
        at = &(*at)->next;
    }
    *at = r->next;
    for (size_t i = 0; i < e->n_ready; i++) {
        if (e->ready[i] == r) {
            memmove(e->ready + i, e->ready + i + 1, (--e->n_ready - i) * sizeof *e->ready);
            break;
        }
    }
    pthread_mutex_unlock(&e->lock);
    for (size_t i = 0; i < r->p.n; i++) {
        struct choice *c = &r->choices[i];
        qn_buf_done(&c->raw);
        qn_buf_done(&c->text);
        free(c->ids);
        free(c->rows);
        free(c->ends);
    }
    for (size_t i = 0; i < r->p.sampling.n_stop; i++) {
        free(r->stops[i]);
    }
    free(r->stops);
    free(r->stop_ids);
    free(r->choices);
    qn_buf_done(&r->told);
    free(r->prompt_rows);
    free(r->script);
    free(r->prompt);
    free(r);
}

void quern_engine_stats(struct quern_engine *e, struct quern_stats *out)
{
    pthread_mutex_lock(&e->lock);
    *out = e->stats;
    size_t used = 0;
    for (const struct quern_request *r = e->all; r != NULL; r = r->next) {
        out->running += r->running;
        out->waiting += !r->ended && !r->running;
        for (size_t i = 0; r->running && i < r->p.n; i++) {
            used += (r->p.n_prompt + r->choices[i].n_ids + BLOCK - 1) / BLOCK;
        }
    }
    pthread_mutex_unlock(&e->lock);
    out->block_tokens = BLOCK;
    out->kv_blocks_total = N_BLOCKS;
    out->kv_blocks_free = N_BLOCKS - used;
    out->kv_usage = (double)used / N_BLOCKS;
}
