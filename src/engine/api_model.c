#include "engine/api.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "engine/params.h"
#include "formats/ckpt.h"
#include "kernels/cpu.h"

enum {
    TEMPLATE_FILE_LIMIT = 4 << 20
};

_Static_assert((int)QUERN_E_INTERNAL == (int)QN_E_INTERNAL, "the two status lists are one");
_Static_assert((int)QUERN_E_CONTEXT == (int)QN_E_CONTEXT, "the two status lists are one");

const char *quern_version(void)
{
    return QN_VERSION;
}

void quern_free(void *p)
{
    free(p);
}

/* ---- configuration ---- */

// "llama-3" of "/models/llama-3/" and of "llama-3.gguf".
static char *name_of(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') {
        n--;
    }
    const char *slash = memrchr(path, '/', n > 1 ? n : 0);
    const char *name = slash != NULL && slash + 1 < path + n ? slash + 1 : path;
    n -= (size_t)(name - path);
    static const char suffix[] = ".gguf";
    size_t n_suffix = sizeof suffix - 1;
    if (n > n_suffix && memcmp(name + n - n_suffix, suffix, n_suffix) == 0) {
        n -= n_suffix;
    }
    return strndup(name, n);
}

static enum qn_status read_defaults(struct quern_model *m, struct qn_err *err)
{
    struct quern_model_info *i = &m->info;
    i->temperature = i->top_p = i->min_p = i->repetition_penalty = NAN;
    i->top_k = i->max_new_tokens = -1;
    const json_t *g = qn_ckpt_generation_config(m->ckpt);
    if (g == NULL) {
        return QN_OK;
    }
    const struct {
        const char *key;
        double *out;
    } numbers[] = {{"temperature", &i->temperature},
                   {"top_p", &i->top_p},
                   {"min_p", &i->min_p},
                   {"repetition_penalty", &i->repetition_penalty}};
    enum qn_status rc = QN_OK;
    for (size_t k = 0; k < sizeof numbers / sizeof numbers[0] && rc == QN_OK; k++) {
        rc = qn_json_get_num(g, numbers[k].key, numbers[k].out, NULL, err);
    }
    if (rc == QN_OK) {
        rc = qn_json_get_int(g, "top_k", -1, INT32_MAX, &i->top_k, NULL, err);
    }
    if (rc == QN_OK) {
        rc = qn_json_get_int(g, "max_new_tokens", 0, INT32_MAX, &i->max_new_tokens, NULL, err);
    }
    return rc == QN_OK ? QN_OK : qn_err_context(err, rc, "generation_config.json");
}

static void add_eos(struct quern_model *m, json_int_t id)
{
    if (id < 0 || (uint64_t)id >= m->info.vocab_size) {
        return; // cannot be sampled
    }
    for (size_t i = 0; i < m->info.n_eos_ids; i++) {
        if (m->eos_ids[i] == id) {
            return;
        }
    }
    m->eos_ids[m->info.n_eos_ids++] = (int32_t)id;
}

// A number or a list of numbers under "eos_token_id".
static void add_eos_key(struct quern_model *m, const json_t *object)
{
    const json_t *v = json_object_get(object, "eos_token_id");
    if (json_is_integer(v)) {
        add_eos(m, json_integer_value(v));
    }
    for (size_t i = 0; i < json_array_size(v); i++) {
        add_eos(m, json_integer_value(json_array_get(v, i)));
    }
}

// Whatever ends a generation: every id of generation_config.json, config.json and the tokenizer.
static enum qn_status read_eos(struct quern_model *m, struct qn_err *err)
{
    const json_t *config = qn_ckpt_config(m->ckpt), *text = json_object_get(config, "text_config");
    const json_t *generation = qn_ckpt_generation_config(m->ckpt);
    const json_t *objects[] = {generation, config, text};
    const int32_t *stops = NULL;
    size_t n_stops = m->tok != NULL ? qn_tok_stops(m->tok, &stops) : 0, most = n_stops;
    for (size_t i = 0; i < 3; i++) {
        most += 1 + json_array_size(json_object_get(objects[i], "eos_token_id"));
    }
    m->eos_ids = calloc(most, sizeof *m->eos_ids);
    if (m->eos_ids == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the list of end tokens");
    }
    for (size_t i = 0; i < 3; i++) {
        add_eos_key(m, objects[i]);
    }
    for (size_t i = 0; i < n_stops; i++) {
        add_eos(m, stops[i]);
    }
    m->info.eos_ids = m->eos_ids;
    return QN_OK;
}

static size_t config_size(const json_t *config, const char *key)
{
    const json_t *text = json_object_get(config, "text_config");
    const json_t *v = json_object_get(config, key);
    v = v != NULL ? v : json_object_get(text, key);
    json_int_t n = json_integer_value(v);
    return n > 0 && n <= INT32_MAX ? (size_t)n : 0;
}

/* ---- chat template ---- */

// tokenizer_config.json's entry, a string or an object with "content"; else the tokenizer's own.
static void add_trusted(struct quern_model *m, const char *key, int32_t id)
{
    const json_t *v = json_object_get(qn_ckpt_tokenizer_config(m->ckpt), key);
    v = json_is_object(v) ? json_object_get(v, "content") : v;
    if (json_is_string(v)) {
        json_object_set_new(m->trusted, key,
                            json_stringn(json_string_value(v), json_string_length(v)));
        return;
    }
    size_t n = 0;
    const char *piece = id >= 0 && m->tok != NULL ? qn_tok_piece(m->tok, id, &n) : NULL;
    if (piece != NULL) {
        json_object_set_new(m->trusted, key, json_stringn(piece, n));
    }
}

static enum qn_status load_template(struct quern_model *m, const char *path, struct qn_err *err)
{
    m->trusted = json_object();
    if (m->trusted == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate the chat template");
    }
    add_trusted(m, "bos_token", m->tok != NULL ? qn_tok_bos(m->tok) : -1);
    add_trusted(m, "eos_token", m->tok != NULL ? qn_tok_eos(m->tok) : -1);
    add_trusted(m, "pad_token", m->tok != NULL ? qn_tok_pad(m->tok) : -1);
    add_trusted(m, "unk_token", -1);
    if (path == NULL) {
        const char *text = qn_ckpt_chat_template(m->ckpt);
        m->info.has_chat_template = text != NULL;
        struct qn_err why = {0};
        if (text != NULL && qn_tmpl_compile(text, strlen(text), &m->tmpl, &why) != QN_OK) {
            // Everything but chat works without it; chat says why it does not.
            m->template_error = strdup(why.msg);
            m->info.chat_template_error = m->template_error;
            return m->template_error != NULL
                       ? QN_OK
                       : qn_fail(err, QN_E_NOMEM, "could not allocate the chat template's error");
        }
        return QN_OK;
    }
    char *text = NULL;
    size_t n = 0;
    enum qn_status rc = qn_file_read(path, TEMPLATE_FILE_LIMIT, &text, &n, err);
    if (rc == QN_OK) {
        rc = qn_tmpl_compile(text, n, &m->tmpl, err);
        free(text);
    }
    m->info.has_chat_template = rc == QN_OK;
    return rc == QN_OK ? QN_OK : qn_err_context(err, rc, "chat template \"%s\"", path);
}

/* ---- load ---- */

static const char *act_name(enum qn_act act)
{
    static const char *const names[] = {"f32", "bf16", "int8"};
    return names[act];
}

const int *qn_api_cpus(const struct quern_model *m)
{
    return m->info.n_threads >= m->topo.n_cores ? m->topo.cpus : NULL;
}

enum qn_status qn_api_team(const struct quern_model *m, struct qn_team **out_team,
                           struct qn_err *err)
{
    return qn_team_new(m->info.n_threads, qn_api_cpus(m), m->topo.n_cpus, out_team, NULL, err);
}

static enum qn_status load_weights(struct quern_model *m, const struct quern_model_options *o,
                                   struct qn_err *err)
{
    struct qn_team *team = NULL;
    enum qn_status rc = qn_api_team(m, &team, err);
    if (rc != QN_OK) {
        return rc;
    }
    enum qn_act act = o->activations == QUERN_ACT_F32    ? QN_ACT_F32
                      : o->activations == QUERN_ACT_BF16 ? QN_ACT_BF16
                                                         : QN_ACT_I8;
    const struct qn_model_opts opts = {.activations = act,
                                       .activations_auto = o->activations == QUERN_ACT_DEFAULT,
                                       .kv_type = act == QN_ACT_F32 ? QN_KV_F32 : QN_KV_BF16,
                                       .max_model_len = o->max_model_len,
                                       .team = team,
                                       .progress = o->progress,
                                       .progress_user = o->user,
                                       .note = o->note,
                                       .note_user = o->user};
    rc = qn_model_load(m->ckpt, &opts, &m->model, err);
    qn_team_free(team);
    if (rc != QN_OK) {
        return rc;
    }
    const struct qn_model_info *i = qn_model_info(m->model);
    m->info.architecture = i->arch;
    m->info.activations = act_name(i->activations);
    m->info.vocab_size = i->vocab_size;
    m->info.n_layers = i->n_layers;
    m->info.d_model = i->d_model;
    m->info.max_model_len = i->max_model_len;
    m->info.n_params = i->n_params;
    m->info.weight_bytes = i->weight_bytes;
    return QN_OK;
}

// Without weights the figures are what config.json says.
static void read_config(struct quern_model *m, const struct quern_model_options *o)
{
    const json_t *config = qn_ckpt_config(m->ckpt);
    const json_t *arch = json_array_get(json_object_get(config, "architectures"), 0);
    m->info.architecture = json_is_string(arch) ? json_string_value(arch) : "unknown";
    m->info.activations = "none";
    m->info.n_layers = config_size(config, "num_hidden_layers");
    m->info.d_model = config_size(config, "hidden_size");
    m->info.vocab_size = config_size(config, "vocab_size");
    if (m->info.vocab_size == 0 && m->tok != NULL) {
        m->info.vocab_size = qn_tok_n_tokens(m->tok);
    }
    size_t len = config_size(config, "max_position_embeddings");
    m->info.max_model_len = o->max_model_len != 0 ? o->max_model_len : len;
}

static void note(const struct quern_model_options *o, const char *text)
{
    if (o->note != NULL) {
        o->note(o->user, text);
    }
}

static void read_resources(struct quern_model *m, const struct quern_model_options *o)
{
    qn_topo_read(&m->topo, NULL);
    qn_topo_describe(&m->topo, m->resources, sizeof m->resources);
    m->info.resources = m->resources;
    m->info.n_threads = o->n_threads != 0 ? o->n_threads : m->topo.n_default_threads;
    if (m->info.n_threads > m->topo.n_cpus) {
        char text[128];
        snprintf(text, sizeof text, "threads: %zu asked for, %zu CPUs to run them on",
                 m->info.n_threads, m->topo.n_cpus);
        note(o, text);
    }
}

static enum qn_status load(struct quern_model *m, const struct quern_model_options *o,
                           struct qn_err *err)
{
    enum qn_status rc = qn_cpu_init(getenv("QUERN_ISA"), err);
    if (rc != QN_OK) {
        return rc;
    }
    read_resources(m, o);
    m->parse_special_tokens = o->parse_special_tokens;
    m->path = strdup(o->path);
    m->name = name_of(o->path);
    if (m->path == NULL || m->name == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate a model");
    }
    m->info.path = m->path;
    m->info.name = m->name;
    m->info.isa = qn_isa_name(qn_cpu_isa());
    rc = o->no_weights ? qn_ckpt_open_text(o->path, &m->ckpt, err)
                       : qn_ckpt_open(o->path, &m->ckpt, err);
    if (rc != QN_OK) {
        return rc;
    }
    for (size_t i = 0; qn_ckpt_note(m->ckpt, i) != NULL; i++) {
        note(o, qn_ckpt_note(m->ckpt, i));
    }
    m->info.format = qn_ckpt_format(m->ckpt);
    rc = qn_api_load_tok(m->ckpt, &m->tok, err);
    m->info.has_tokenizer = m->tok != NULL;
    if (rc == QN_OK) {
        rc = load_template(m, o->chat_template_path, err);
    }
    if (rc == QN_OK) {
        rc = read_defaults(m, err);
    }
    if (rc == QN_OK && o->no_weights) {
        read_config(m, o);
    } else if (rc == QN_OK) {
        rc = load_weights(m, o, err);
    }
    return rc == QN_OK ? read_eos(m, err) : rc;
}

enum quern_status quern_model_load(const struct quern_model_options *options,
                                   struct quern_model **out_model, struct quern_error *err)
{
    struct qn_err e = {0};
    if (options->path == NULL || options->path[0] == '\0') {
        return qn_params_fail(err, QUERN_E_INVALID, "path", "model path is missing");
    }
    struct quern_model *m = calloc(1, sizeof *m);
    if (m == NULL) {
        return qn_params_fail(err, QUERN_E_NOMEM, "", "could not allocate a model");
    }
    enum qn_status rc = load(m, options, &e);
    if (rc != QN_OK) {
        if (m->ckpt != NULL) { // an error of opening it names the path already
            (void)qn_err_context(&e, rc, "model \"%s\"", options->path);
        }
        quern_model_free(m);
        return qn_params_err(err, &e);
    }
    *out_model = m;
    return QUERN_OK;
}

void quern_model_free(struct quern_model *m)
{
    if (m == NULL) {
        return;
    }
    qn_model_free(m->model);
    qn_tmpl_free(m->tmpl);
    qn_tok_free(m->tok);
    json_decref(m->trusted);
    qn_ckpt_close(m->ckpt);
    free(m->path);
    free(m->name);
    free(m->template_error);
    free(m->eos_ids);
    free(m);
}

const struct quern_model_info *quern_model_get_info(const struct quern_model *m)
{
    return &m->info;
}
