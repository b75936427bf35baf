// Rotary frequencies from config.json, old style (rope_theta, rope_scaling) and new
// (rope_parameters, flat or by layer type). Formulas: Hugging Face modeling_rope_utils.
#include "model/desc.h"

#include <math.h>
#include <string.h>

#include "base/json.h"

static const char *const layer_types[] = {"full_attention", "sliding_attention"};

// rope_scaling if it is an object, else rope_parameters, else NULL.
static const json_t *rope_object(const struct qn_config *c)
{
    const json_t *o = json_object_get(c->text, "rope_scaling");
    if (!json_is_object(o)) {
        o = json_object_get(c->text, "rope_parameters");
    }
    return json_is_object(o) ? o : NULL;
}

// Anything but an object, null or nothing is a mistake that would pass for "no scaling".
static enum qn_status check_objects(const struct qn_config *c, struct qn_err *err)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *o = json_object_get(c->text, keys[i]);
        if (o != NULL && !json_is_object(o) && !json_is_null(o)) {
            return qn_fail(err, QN_E_FORMAT, "key \"%s\": found %s, expected an object or null",
                           keys[i], qn_json_type_name(o));
        }
    }
    return QN_OK;
}

bool qn_rope_is_per_type(const struct qn_config *c)
{
    const json_t *o = rope_object(c);
    for (size_t i = 0; i < 2; i++) {
        if (json_is_object(json_object_get(o, layer_types[i]))) {
            return true;
        }
    }
    return false;
}

struct params {
    const json_t *o; ///< the selected object or NULL
    const struct qn_config *c;
    const char *type;
    double theta;
    size_t r; ///< rotary dims
    size_t max_position;
};

static enum qn_status need(const struct params *p, const char *key, double *out, struct qn_err *err)
{
    bool found = false;
    enum qn_status rc = qn_json_get_num(p->o, key, out, &found, err);
    if (rc == QN_OK && !found) {
        return qn_fail(err, QN_E_FORMAT, "rope type \"%s\" needs \"%s\", found none", p->type, key);
    }
    if (rc == QN_OK && !(*out > 0 && isfinite(*out))) {
        return qn_fail(err, QN_E_FORMAT, "rope \"%s\": found %g, expected more than 0", key, *out);
    }
    return rc;
}

// original_max_position_embeddings: top level, else in the object, else the model's limit.
static enum qn_status original_length(const struct params *p, double *out, struct qn_err *err)
{
    *out = (double)p->max_position;
    bool found = false;
    enum qn_status rc =
        qn_json_get_num(p->c->text, "original_max_position_embeddings", out, &found, err);
    if (rc == QN_OK && !found) {
        rc = qn_json_get_num(p->o, "original_max_position_embeddings", out, NULL, err);
    }
    if (rc == QN_OK && !(*out >= 1)) {
        rc = qn_fail(err, QN_E_FORMAT,
                     "original_max_position_embeddings: found %g, expected 1 or more", *out);
    }
    return rc;
}

static void plain(const struct params *p, float *w)
{
    for (size_t i = 0; i < p->r / 2; i++) {
        w[i] = (float)(1.0 / pow(p->theta, (double)(2 * i) / (double)p->r));
    }
}

static enum qn_status linear(const struct params *p, float *w, struct qn_err *err)
{
    double factor = 1;
    enum qn_status rc = need(p, "factor", &factor, err);
    for (size_t i = 0; rc == QN_OK && i < p->r / 2; i++) {
        w[i] = (float)(w[i] / factor);
    }
    return rc;
}

static enum qn_status llama3(const struct params *p, float *w, struct qn_err *err)
{
    double factor = 1, low = 1, high = 4, length = 0;
    enum qn_status rc = need(p, "factor", &factor, err);
    rc = rc == QN_OK ? need(p, "low_freq_factor", &low, err) : rc;
    rc = rc == QN_OK ? need(p, "high_freq_factor", &high, err) : rc;
    rc = rc == QN_OK ? original_length(p, &length, err) : rc;
    if (rc == QN_OK && !(high > low)) {
        rc = qn_fail(err, QN_E_FORMAT,
                     "rope high_freq_factor: found %g, expected more than "
                     "low_freq_factor %g",
                     high, low);
    }
    for (size_t i = 0; rc == QN_OK && i < p->r / 2; i++) {
        double f = 1.0 / pow(p->theta, (double)(2 * i) / (double)p->r);
        double lambda = 2 * M_PI / f;
        if (lambda > length / low) {
            f /= factor;
        } else if (lambda >= length / high) {
            double s = (length / lambda - low) / (high - low);
            f = (1 - s) * f / factor + s * f;
        }
        w[i] = (float)f;
    }
    return rc;
}

static double yarn_magnitude(double factor, double scale)
{
    return factor <= 1 ? 1.0 : 0.1 * scale * log(factor) + 1.0;
}

// Pair whose wavelength makes n turns over the original length.
static double yarn_pair(const struct params *p, double n, double length)
{
    return (double)p->r * log(length / (2 * M_PI * n)) / (2 * log(p->theta));
}

static enum qn_status yarn(const struct params *p, float *w, float *m, struct qn_err *err)
{
    double factor = 0, fast = 32, slow = 1, length = 0, given = 0, mscale = 0, mscale_all = 0;
    bool truncate = true, has_factor = false, has_attention = false;
    enum qn_status rc = original_length(p, &length, err);
    const struct {
        const char *key;
        double *out;
        bool *found;
    } keys[] = {{"factor", &factor, &has_factor}, {"beta_fast", &fast, NULL},
                {"beta_slow", &slow, NULL},       {"attention_factor", &given, &has_attention},
                {"mscale", &mscale, NULL},        {"mscale_all_dim", &mscale_all, NULL}};
    for (size_t i = 0; rc == QN_OK && i < sizeof keys / sizeof keys[0]; i++) {
        rc = qn_json_get_num(p->o, keys[i].key, keys[i].out, keys[i].found, err);
    }
    if (rc == QN_OK) {
        rc = qn_json_get_bool(p->o, "truncate", &truncate, NULL, err);
    }
    if (rc != QN_OK) {
        return rc;
    }
    if (!has_factor && json_object_get(p->o, "factor") == NULL) {
        return qn_fail(err, QN_E_FORMAT, "rope type \"yarn\" needs \"factor\", found none");
    }
    if (!has_factor) { // null: how far the limit was stretched
        factor = (double)p->max_position / length;
    }
    if (!(factor > 0) || !(fast > 0) || !(slow > 0)) {
        return qn_fail(
            err, QN_E_FORMAT,
            "rope type \"yarn\": found factor %g, beta_fast %g, beta_slow %g, expected more "
            "than 0",
            factor, fast, slow);
    }
    double lo = yarn_pair(p, fast, length), hi = yarn_pair(p, slow, length);
    if (truncate) {
        lo = floor(lo);
        hi = ceil(hi);
    }
    lo = lo < 0 ? 0 : lo;
    hi = hi > (double)p->r - 1 ? (double)p->r - 1 : hi;
    hi = hi == lo ? hi + 0.001 : hi;
    for (size_t i = 0; i < p->r / 2; i++) {
        double f = 1.0 / pow(p->theta, (double)(2 * i) / (double)p->r);
        double t = ((double)i - lo) / (hi - lo);
        t = t < 0 ? 0 : (t > 1 ? 1 : t);
        w[i] = (float)(f / factor * t + f * (1 - t));
    }
    if (has_attention) {
        *m = (float)given;
    } else if (mscale != 0 && mscale_all != 0) {
        *m = (float)(yarn_magnitude(factor, mscale) / yarn_magnitude(factor, mscale_all));
    } else {
        *m = (float)yarn_magnitude(factor, 1);
    }
    return QN_OK;
}

// GGUF keeps Llama 3's scaling as divisors of the frequencies, one a pair.
static enum qn_status freq_factors(const struct params *p, float *w, struct qn_err *err)
{
    const struct qn_tensor *t = qn_ckpt_find(p->c->ckpt, "rope_freqs.weight");
    size_t n = p->r / 2;
    if (t == NULL || t->rank != 1 || t->shape[0] != n) {
        return qn_fail(err, QN_E_FORMAT, "tensor \"rope_freqs.weight\": %s, expected shape [%zu]",
                       t == NULL ? "missing" : "another shape", n);
    }
    float *factors = qn_arena_array(p->c->arena, n, sizeof *factors);
    if (factors == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate %zu frequencies", n);
    }
    enum qn_status rc = qn_tensor_read_f32(t, 0, 0, n, factors, err);
    for (size_t i = 0; rc == QN_OK && i < n; i++) {
        if (!(factors[i] > 0)) {
            return qn_fail(err, QN_E_FORMAT,
                           "tensor \"rope_freqs.weight\": value %zu is %g, expected more than 0", i,
                           (double)factors[i]);
        }
        w[i] /= factors[i];
    }
    return rc;
}

static enum qn_status compute(struct params *p, struct qn_rope_set *set, struct qn_err *err)
{
    plain(p, set->w);
    set->m = 1.0f;
    if (strcmp(p->type, "default") == 0 || strcmp(p->type, "none") == 0) {
        return QN_OK;
    }
    if (strcmp(p->type, "linear") == 0) {
        return linear(p, set->w, err);
    }
    if (strcmp(p->type, "llama3") == 0) {
        return llama3(p, set->w, err);
    }
    if (strcmp(p->type, "yarn") == 0) {
        return yarn(p, set->w, &set->m, err);
    }
    if (strcmp(p->type, "freq_factors") == 0) {
        return freq_factors(p, set->w, err);
    }
    if (strcmp(p->type, "dynamic") == 0) {
        // Equal to default up to max_position_embeddings, and a context never exceeds that here:
        // beyond it the table would depend on the length and contradict cached keys.
        return QN_OK;
    }
    return qn_fail(
        err, QN_E_UNSUPPORTED,
        "rope type \"%s\" is not supported, expected default, linear, dynamic, llama3 or yarn",
        p->type);
}

enum qn_status qn_rope_add(const struct qn_config *c, const char *layer_type, double theta,
                           bool only_default, size_t head_dim, struct qn_desc *d, int *out_set,
                           struct qn_err *err)
{
    struct params p = {.c = c, .type = "default", .theta = theta, .max_position = d->max_position};
    double partial = 1;
    bool interleaved = false, inside = false;
    enum qn_status rc = check_objects(c, err);
    if (rc != QN_OK) {
        return rc;
    }
    p.o = only_default ? NULL : rope_object(c);
    if (p.o != NULL && layer_type != NULL) {
        p.o = json_object_get(p.o, layer_type);
        if (!json_is_object(p.o)) {
            return qn_fail(err, QN_E_FORMAT, "rope_parameters: found none for \"%s\"", layer_type);
        }
    }
    rc = qn_json_get_str(p.o, "type", &p.type, NULL, err);
    rc = rc == QN_OK ? qn_json_get_str(p.o, "rope_type", &p.type, NULL, err) : rc;
    if (!only_default) {
        rc = rc == QN_OK ? qn_json_get_num(p.o, "rope_theta", &p.theta, &inside, err) : rc;
        if (rc == QN_OK && !inside) {
            rc = qn_json_get_num(c->text, "rope_theta", &p.theta, NULL, err);
        }
    }
    inside = false;
    rc = rc == QN_OK ? qn_json_get_num(p.o, "partial_rotary_factor", &partial, &inside, err) : rc;
    if (rc == QN_OK && !inside) {
        rc = qn_json_get_num(c->text, "partial_rotary_factor", &partial, NULL, err);
    }
    rc = rc == QN_OK ? qn_json_get_bool(c->text, "rope_interleaved", &interleaved, NULL, err) : rc;
    if (rc != QN_OK) {
        return rc;
    }
    if (interleaved) {
        return qn_fail(err, QN_E_UNSUPPORTED, "rope_interleaved: found true, expected false");
    }
    if (!(p.theta > 0) || !isfinite(p.theta)) {
        return qn_fail(err, QN_E_FORMAT, "rope_theta: found %g, expected more than 0", p.theta);
    }
    if (!(partial > 0 && partial <= 1)) {
        return qn_fail(err, QN_E_FORMAT, "partial_rotary_factor: found %g, expected 0 to 1",
                       partial);
    }
    QN_ASSERT(d->n_rope_sets < QN_MAX_ROPE_SETS);
    struct qn_rope_set *set = &d->rope[d->n_rope_sets];
    p.r = (size_t)floor((double)head_dim * partial);
    if (p.r < 2 || p.r % 2 != 0) {
        return qn_fail(err, QN_E_UNSUPPORTED,
                       "%zu rotary dims of a head of %zu, expected an even number", p.r, head_dim);
    }
    set->n_pairs = p.r / 2;
    set->pair_distance = p.r / 2;
    set->w = qn_arena_array(c->arena, set->n_pairs, sizeof *set->w);
    if (set->w == NULL) {
        return qn_fail(err, QN_E_NOMEM, "could not allocate %zu frequencies", set->n_pairs);
    }
    rc = compute(&p, set, err);
    if (rc == QN_OK) {
        *out_set = (int)d->n_rope_sets++;
    }
    return rc;
}
