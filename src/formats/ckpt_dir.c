#include "formats/ckpt_priv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum {
    MAX_CONFIG_BYTES = 16 << 20,
    MAX_TOKENIZER_CONFIG_BYTES = 64 << 20,
    MAX_INDEX_BYTES = 256 << 20,
    MAX_TEMPLATE_BYTES = 1 << 20,
    MAX_JSON_DEPTH = 64
};

static enum qn_status no_memory(struct qn_err *err, const char *what)
{
    return qn_fail(err, QN_E_NOMEM, "could not allocate %s", what);
}

// Whether DIR/NAME is a file; *out_path, when given, is the caller's to free.
static enum qn_status look(const char *dir, const char *name, bool *out_found, char **out_path,
                           struct qn_err *err)
{
    char *path = qn_path_join(dir, name);
    *out_found = false;
    if (path == NULL) {
        return no_memory(err, "a path");
    }
    *out_found = qn_file_exists(path);
    if (out_path != NULL && *out_found) {
        *out_path = path;
    } else {
        free(path);
    }
    return QN_OK;
}

// A JSON object from DIR/NAME; *out stays NULL when the file is absent.
static enum qn_status read_object(const char *dir, const char *name, size_t limit, json_t **out,
                                  struct qn_err *err)
{
    char *path = NULL;
    bool found;
    enum qn_status rc = look(dir, name, &found, &path, err);
    if (rc != QN_OK || !found) {
        return rc;
    }
    json_t *v = NULL;
    rc = qn_json_read(path, limit, MAX_JSON_DEPTH, &v, err);
    free(path);
    if (rc == QN_OK && !json_is_object(v)) {
        rc = qn_fail(err, QN_E_FORMAT, "file \"%s\": found %s, expected an object", name,
                     qn_json_type_name(v));
        json_decref(v);
        return rc;
    }
    if (rc == QN_OK) {
        *out = v;
    }
    return rc;
}

bool qn_ckpt_normal_name(const char *stored, char out[QN_CKPT_NAME_MAX])
{
    static const char *const k_skip[] = {"vision_tower.",          "audio_tower.",
                                         "embed_vision.",          "embed_audio.",
                                         "multi_modal_projector.", "rotary_emb.inv_freq"};
    if (strncmp(stored, "mtp.", 4) == 0) {
        return false;
    }
    for (size_t i = 0; i < sizeof k_skip / sizeof k_skip[0]; i++) {
        if (strstr(stored, k_skip[i]) != NULL) {
            return false;
        }
    }
    // Multimodal files put the decoder under one of several towers of "model." and
    // "language_model.", in any order.
    static const char k_lm[] = "language_model.", k_model[] = "model.";
    const char *p = stored;
    bool nested = false;
    for (;;) {
        if (strncmp(p, k_lm, sizeof k_lm - 1) == 0) {
            p += sizeof k_lm - 1;
            nested = true;
        } else if (strncmp(p, k_model, sizeof k_model - 1) == 0) {
            p += sizeof k_model - 1;
        } else {
            break;
        }
    }
    if (!nested) {
        snprintf(out, QN_CKPT_NAME_MAX, "%s", stored);
    } else {
        const char *prefix = strncmp(p, "lm_head.", 8) == 0 ? "" : k_model;
        snprintf(out, QN_CKPT_NAME_MAX, "%s%s", prefix, p);
    }
    return true;
}

static enum qn_status add_normal(struct qn_ckpt *c, const struct qn_tensor *t, size_t *n_skipped,
                                 struct qn_err *err)
{
    char name[QN_CKPT_NAME_MAX];
    if (!qn_ckpt_normal_name(t->name, name)) {
        (*n_skipped)++;
        return QN_OK;
    }
    return qn_ckpt_add(c, t, name, err);
}

static void note_skipped(struct qn_ckpt *c, size_t n_skipped)
{
    if (n_skipped > 0) {
        qn_ckpt_add_note(c, "%zu tensors that a text decoder does not use are ignored", n_skipped);
    }
}

static enum qn_status open_shard(struct qn_ckpt *c, const char *dir, const char *name,
                                 struct qn_err *err)
{
    struct qn_st **shards = realloc(c->shards, (c->n_shards + 1) * sizeof(struct qn_st *));
    if (shards == NULL) {
        return no_memory(err, "the table of files");
    }
    c->shards = shards;
    char *path = qn_path_join(dir, name);
    if (path == NULL) {
        return no_memory(err, "a path");
    }
    enum qn_status rc = qn_st_open(path, &c->shards[c->n_shards], err);
    free(path);
    if (rc == QN_OK) {
        c->n_shards++;
    }
    return rc;
}

static enum qn_status open_single(struct qn_ckpt *c, const char *dir, struct qn_err *err)
{
    size_t n_skipped = 0;
    enum qn_status rc = open_shard(c, dir, "model.safetensors", err);
    for (size_t i = 0; rc == QN_OK && i < qn_st_n_tensors(c->shards[0]); i++) {
        rc = add_normal(c, qn_st_tensor(c->shards[0], i), &n_skipped, err);
    }
    note_skipped(c, n_skipped);
    return rc;
}

// Index files come from outside: a shard is a plain file name next to its index.
static enum qn_status check_shard_name(const json_t *value, const char *tensor, struct qn_err *err)
{
    const char *s = json_string_value(value);
    if (s == NULL) {
        return qn_fail(err, QN_E_FORMAT, "tensor \"%.200s\": found %s, expected a file name",
                       tensor, qn_json_type_name(value));
    }
    size_t n = json_string_length(value);
    bool ok = n > 0 && n <= 255 && strlen(s) == n && s[0] != '.' && strpbrk(s, "/\\") == NULL &&
              strstr(s, "..") == NULL;
    for (size_t i = 0; i < n; i++) {
        ok = ok && (unsigned char)s[i] >= 0x20 && s[i] != 0x7f;
    }
    return ok ? QN_OK
              : qn_fail(err, QN_E_FORMAT,
                        "tensor \"%.200s\": found file \"%.200s\", expected a plain file name",
                        tensor, s);
}

struct index {
    json_t *root;
    json_t *map;           // "weight_map"
    struct qn_strmap file; // file name -> place in names
    const char **names;
    size_t n;
};

static void index_done(struct index *x)
{
    json_decref(x->root);
    qn_strmap_done(&x->file);
    free(x->names);
}

static enum qn_status read_index(struct index *x, const char *dir, struct qn_err *err)
{
    static const char k_name[] = "model.safetensors.index.json";
    enum qn_status rc = read_object(dir, k_name, MAX_INDEX_BYTES, &x->root, err);
    if (rc != QN_OK || x->root == NULL) {
        return rc;
    }
    x->map = json_object_get(x->root, "weight_map");
    if (!json_is_object(x->map)) {
        return qn_fail(err, QN_E_FORMAT,
                       "file \"%s\": key \"weight_map\": found %s, expected an "
                       "object",
                       k_name, qn_json_type_name(x->map));
    }
    const char *tensor;
    json_t *value;
    json_object_foreach(x->map, tensor, value)
    {
        rc = check_shard_name(value, tensor, err);
        if (rc != QN_OK) {
            return qn_err_context(err, rc, "file \"%s\"", k_name);
        }
        const char *s = json_string_value(value);
        bool existing = false;
        if (!qn_strmap_put(&x->file, s, strlen(s), (uint32_t)x->n, &existing)) {
            if (existing) {
                continue;
            }
            return no_memory(err, "the table of files");
        }
        if (x->n == QN_CKPT_MAX_FILES) {
            return qn_fail(err, QN_E_LIMIT, "file \"%s\": more than %d files", k_name,
                           QN_CKPT_MAX_FILES);
        }
        const char **names = realloc(x->names, (x->n + 1) * sizeof *names);
        if (names == NULL) {
            return no_memory(err, "the table of files");
        }
        x->names = names;
        x->names[x->n++] = s;
    }
    return QN_OK;
}

// First file of the index that does not exist, NULL when all do.
static enum qn_status missing_shard(const struct index *x, const char *dir, const char **out,
                                    struct qn_err *err)
{
    *out = NULL;
    for (size_t i = 0; i < x->n && *out == NULL; i++) {
        bool found;
        enum qn_status rc = look(dir, x->names[i], &found, NULL, err);
        if (rc != QN_OK) {
            return rc;
        }
        *out = found ? NULL : x->names[i];
    }
    return QN_OK;
}

// Every tensor of the index must be in its file.
static enum qn_status check_listed(const struct qn_ckpt *c, const struct index *x,
                                   struct qn_err *err)
{
    const char *tensor;
    json_t *value;
    json_object_foreach(x->map, tensor, value)
    {
        const char *file = json_string_value(value);
        uint32_t i = 0;
        if (!qn_strmap_get(&x->file, file, strlen(file), &i) ||
            qn_st_find(c->shards[i], tensor) == NULL) {
            return qn_fail(
                err, QN_E_FORMAT,
                "tensor \"%.200s\": listed in model.safetensors.index.json, not found in "
                "file \"%.200s\"",
                tensor, file);
        }
    }
    return QN_OK;
}

static enum qn_status add_listed(struct qn_ckpt *c, const struct index *x, struct qn_err *err)
{
    uint64_t total = 0;
    size_t n_skipped = 0;
    for (size_t s = 0; s < c->n_shards; s++) {
        for (size_t i = 0; i < qn_st_n_tensors(c->shards[s]); i++) {
            const struct qn_tensor *t = qn_st_tensor(c->shards[s], i);
            const char *file = json_string_value(json_object_get(x->map, t->name));
            if (file == NULL) {
                qn_ckpt_add_note(c,
                                 "file \"%s\": tensor \"%.200s\" is not in "
                                 "model.safetensors.index.json and is ignored",
                                 t->file, t->name);
                continue;
            }
            if (strcmp(file, x->names[s]) != 0) {
                return qn_fail(err, QN_E_FORMAT,
                               "tensor \"%.200s\": found in file \"%s\" and in file \"%s\"",
                               t->name, file, x->names[s]);
            }
            total += t->n_bytes;
            enum qn_status rc = add_normal(c, t, &n_skipped, err);
            if (rc != QN_OK) {
                return rc;
            }
        }
    }
    note_skipped(c, n_skipped);
    const json_t *said = json_object_get(json_object_get(x->root, "metadata"), "total_size");
    if (json_is_integer(said) && (uint64_t)json_integer_value(said) != total) {
        qn_ckpt_add_note(c,
                         "model.safetensors.index.json: total_size says %lld, the tensors have "
                         "%llu bytes",
                         (long long)json_integer_value(said), (unsigned long long)total);
    }
    return QN_OK;
}

static enum qn_status open_weights(struct qn_ckpt *c, const char *dir, struct qn_err *err)
{
    struct index x = {0};
    const char *missing = NULL;
    bool single = false;
    qn_strmap_init(&x.file);
    enum qn_status rc = look(dir, "model.safetensors", &single, NULL, err);
    rc = rc == QN_OK ? read_index(&x, dir, err) : rc;
    rc = rc == QN_OK ? missing_shard(&x, dir, &missing, err) : rc;
    if (rc != QN_OK) {
        goto done;
    }
    if (x.root != NULL && missing == NULL) {
        for (size_t i = 0; i < x.n && rc == QN_OK; i++) {
            rc = open_shard(c, dir, x.names[i], err);
        }
        rc = rc == QN_OK ? check_listed(c, &x, err) : rc;
        rc = rc == QN_OK ? add_listed(c, &x, err) : rc;
    } else if (single) {
        if (missing != NULL) {
            qn_ckpt_add_note(c,
                             "model.safetensors.index.json names file \"%s\", which is missing: "
                             "model.safetensors is used",
                             missing);
        }
        rc = open_single(c, dir, err);
    } else if (missing != NULL) {
        rc = qn_fail(err, QN_E_NOT_FOUND,
                     "file \"%s\": named in model.safetensors.index.json, not found", missing);
    } else {
        rc = qn_fail(err, QN_E_NOT_FOUND,
                     "found neither model.safetensors nor model.safetensors.index.json");
    }
done:
    index_done(&x);
    return rc;
}

// tokenizer_config.json: a string, or a list of {"name", "template"} of which "default" counts.
static const json_t *config_template(const json_t *config)
{
    const json_t *v = json_object_get(config, "chat_template");
    if (!json_is_array(v)) {
        return v;
    }
    size_t i;
    json_t *e;
    json_array_foreach(v, i, e)
    {
        const char *name = json_string_value(json_object_get(e, "name"));
        if (name != NULL && strcmp(name, "default") == 0) {
            return json_object_get(e, "template");
        }
    }
    return NULL;
}

static enum qn_status read_template(struct qn_ckpt *c, const char *dir, struct qn_err *err)
{
    static const char k_name[] = "chat_template.jinja";
    char *path = NULL;
    bool found;
    enum qn_status rc = look(dir, k_name, &found, &path, err);
    if (rc != QN_OK) {
        return rc;
    }
    if (found) {
        size_t n = 0;
        rc = qn_file_read(path, MAX_TEMPLATE_BYTES, &c->chat_template, &n, err);
        free(path);
        if (rc == QN_OK && strlen(c->chat_template) != n) {
            rc = qn_fail(err, QN_E_FORMAT, "found a NUL byte at %zu", strlen(c->chat_template));
        }
        return rc == QN_OK ? QN_OK : qn_err_context(err, rc, "file \"%s\"", k_name);
    }
    const json_t *v = config_template(c->tokenizer_config);
    if (v == NULL || json_is_null(v)) {
        return QN_OK;
    }
    const char *s = json_string_value(v);
    if (s == NULL || strlen(s) != json_string_length(v) ||
        json_string_length(v) > MAX_TEMPLATE_BYTES) {
        return qn_fail(
            err, QN_E_FORMAT,
            "file \"tokenizer_config.json\": key \"chat_template\": found %s, expected a "
            "string of at most %d bytes without NUL",
            qn_json_type_name(v), MAX_TEMPLATE_BYTES);
    }
    c->chat_template = strdup(s);
    return c->chat_template != NULL ? QN_OK : no_memory(err, "the chat template");
}

enum qn_status qn_ckpt_open_dir(struct qn_ckpt *c, const char *path, struct qn_err *err)
{
    bool found;
    c->format = "safetensors";
    enum qn_status rc = read_object(path, "config.json", MAX_CONFIG_BYTES, &c->config, err);
    rc = rc == QN_OK ? look(path, "tokenizer.json", &found, &c->tokenizer_path, err) : rc;
    if (rc == QN_OK && c->config == NULL && c->text_only && c->tokenizer_path != NULL) {
        c->config = json_object();
        rc = c->config != NULL ? QN_OK : no_memory(err, "a configuration");
    }
    if (rc == QN_OK && c->config == NULL) {
        rc = qn_fail(err, QN_E_NOT_FOUND,
                     "file \"config.json\" not found in the directory (for a GGUF model name the "
                     "file itself)");
    }
    rc = rc == QN_OK
             ? read_object(path, "generation_config.json", MAX_CONFIG_BYTES, &c->generation, err)
             : rc;
    rc = rc == QN_OK ? read_object(path, "tokenizer_config.json", MAX_TOKENIZER_CONFIG_BYTES,
                                   &c->tokenizer_config, err)
                     : rc;
    rc = rc == QN_OK ? read_template(c, path, err) : rc;
    return rc == QN_OK && !c->text_only ? open_weights(c, path, err) : rc;
}
