#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/test_files.h"
#include "model/fixture.h"
#include "model/st_edit.h"

// Loading: tied and untied heads, tensors that are missing, misshapen, of another kind or not
// finite, what the loader says about them.

#define MODELS "tests/golden/models/"

enum {
    N_TOKENS = 12
};

static float *logits_of(const struct fx_model *f)
{
    int32_t tokens[N_TOKENS];
    uint64_t seed = 5;
    for (size_t i = 0; i < N_TOKENS; i++) {
        tokens[i] = (int32_t)(fx_random(&seed) % f->vocab);
    }
    float *out = fx_floats(N_TOKENS * f->vocab);
    struct fx_run *r = fx_run_new(f->model, 1, N_TOKENS, 1, N_TOKENS, 16);
    fx_feed(r, 0, tokens, N_TOKENS, N_TOKENS, out);
    fx_run_free(r);
    return out;
}

// Whether the edited directory gives the bits of the one it came from; *notes says what was noted.
static bool same_logits(struct st_edit *e, const char *origin, char notes[1024])
{
    char dir[256];
    struct fx_model a, b;
    st_edit_write(e, dir);
    fx_open(&a, origin, QN_ACT_F32);
    fx_open(&b, dir, QN_ACT_F32);
    assert_int_equal(a.vocab, b.vocab);
    float *la = logits_of(&a), *lb = logits_of(&b);
    bool same = memcmp(la, lb, N_TOKENS * a.vocab * sizeof(float)) == 0;
    memcpy(notes, b.notes, sizeof b.notes);
    free(la);
    free(lb);
    fx_close(&a);
    fx_close(&b);
    qn_tf_rmdir(dir);
    return same;
}

static void refuse(struct st_edit *e, enum qn_act act, enum qn_status want, const char *words)
{
    char dir[256], list[256];
    struct qn_err err = {0};
    struct fx_model f;
    st_edit_write(e, dir);
    enum qn_status rc = fx_try(&f, dir, act, &err);
    qn_tf_rmdir(dir);
    if (rc != want) {
        fail_msg("found %s (%s), expected %s", qn_status_name(rc), err.msg, qn_status_name(want));
    }
    snprintf(list, sizeof list, "%s", words);
    for (char *w = list, *end; w != NULL; w = end) {
        end = strchr(w, '|');
        if (end != NULL) {
            *end++ = '\0';
        }
        if (strstr(err.msg, w) == NULL) {
            fail_msg("message \"%s\" lacks \"%s\"", err.msg, w);
        }
    }
}

static size_t count_lines(const char *s)
{
    size_t n = 0;
    for (; *s != '\0'; s++) {
        n += *s == '\n';
    }
    return n;
}

static void test_LOD_06_extra_head_of_a_tied_model(void **state)
{
    (void)state;
    struct st_edit e;
    char notes[1024];
    // A head with a scale of its own is a quantised copy: ignored, and said once.
    st_edit_open(&e, MODELS "llama_bf16");
    st_edit_add(&e, "lm_head.weight", "I8", 151, 48, NULL, 151 * 48);
    st_edit_add(&e, "lm_head.weight_scale", "F32", 0, 151, NULL, 151 * 4);
    assert_true(same_logits(&e, MODELS "llama_bf16", notes));
    assert_int_equal(count_lines(notes), 1);
    assert_non_null(strstr(notes, "lm_head"));
    st_edit_open(&e, MODELS "llama_bf16");
    st_edit_add(&e, "lm_head.weight", "BF16", 151, 48, NULL, 151 * 48 * 2);
    st_edit_add(&e, "lm_head.weight_scale", "F32", 0, 151, NULL, 151 * 4);
    assert_true(same_logits(&e, MODELS "llama_bf16", notes));
    assert_int_equal(count_lines(notes), 1);
    // A copy of the embedding is the embedding.
    size_t n;
    st_edit_open(&e, MODELS "llama_bf16");
    unsigned char *embed = malloc(151 * 48 * 2);
    assert_non_null(embed);
    memcpy(embed, st_edit_bytes(&e, "model.embed_tokens.weight", &n), 151 * 48 * 2);
    assert_int_equal(n, 151 * 48 * 2);
    st_edit_add(&e, "lm_head.weight", "BF16", 151, 48, embed, n);
    assert_true(same_logits(&e, MODELS "llama_bf16", notes));
    assert_string_equal(notes, "");
    // Only the head was saved: it is both.
    st_edit_open(&e, MODELS "llama_bf16");
    st_edit_drop(&e, "model.embed_tokens.weight");
    st_edit_add(&e, "lm_head.weight", "BF16", 151, 48, embed, n);
    assert_true(same_logits(&e, MODELS "llama_bf16", notes));
    free(embed);
}

static void test_head_of_its_own_is_noted(void **state)
{
    (void)state;
    struct fx_model f;
    fx_open(&f, MODELS "llama_own_head", QN_ACT_F32);
    assert_int_equal(count_lines(f.notes), 1);
    assert_non_null(strstr(f.notes, "lm_head.weight differs"));
    fx_close(&f);
}

static void test_LOD_07_untied_without_head(void **state)
{
    (void)state;
    struct st_edit e;
    st_edit_open(&e, MODELS "llama_plain");
    st_edit_drop(&e, "lm_head.weight");
    refuse(&e, QN_ACT_F32, QN_E_FORMAT, "\"lm_head.weight\"|missing|tie_word_embeddings|[151, 54]");
}

static void test_LOD_01_missing_tensors(void **state)
{
    (void)state;
    static const char *const names[] = {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.1.input_layernorm.weight",
    };
    struct st_edit e;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char words[128];
        snprintf(words, sizeof words, "\"%s\"|missing", names[i]);
        st_edit_open(&e, MODELS "llama_plain");
        st_edit_drop(&e, names[i]);
        refuse(&e, QN_ACT_F32, QN_E_FORMAT, words);
    }
    st_edit_open(&e, MODELS "llama_linear");
    st_edit_drop(&e, "model.layers.1.self_attn.v_proj.bias");
    refuse(&e, QN_ACT_F32, QN_E_FORMAT, "\"model.layers.1.self_attn.v_proj.bias\"|missing|[32]");
    st_edit_open(&e, MODELS "qwen3");
    st_edit_drop(&e, "model.layers.0.self_attn.q_norm.weight");
    refuse(&e, QN_ACT_F32, QN_E_FORMAT, "q_norm.weight\"|missing|[16]");
}

static void test_shapes(void **state)
{
    (void)state;
    struct st_edit e;
    st_edit_open(&e, MODELS "llama_plain");
    json_object_set_new(e.config, "intermediate_size", json_integer(78));
    refuse(&e, QN_ACT_F32, QN_E_FORMAT, "gate_proj.weight\"|[77, 54]|[78, 54]");
    st_edit_open(&e, MODELS "llama_plain");
    json_object_set_new(e.config, "vocab_size", json_integer(150));
    refuse(&e, QN_ACT_F32, QN_E_FORMAT, "embed_tokens.weight\"|[151, 54]|[150, 54]");
    st_edit_open(&e, MODELS "llama_plain");
    st_edit_drop(&e, "model.norm.weight");
    st_edit_add(&e, "model.norm.weight", "F32", 2, 27, NULL, 54 * 4);
    refuse(&e, QN_ACT_F32, QN_E_FORMAT, "model.norm.weight\"|[2, 27]|[54]");
}

static void set_f32(struct st_edit *e, const char *name, size_t i, float v)
{
    size_t n;
    unsigned char *p = st_edit_bytes(e, name, &n);
    assert_true((i + 1) * 4 <= n);
    memcpy(p + 4 * i, &v, 4);
}

static void test_values_that_are_not_finite(void **state)
{
    (void)state;
    static const char *const names[] = {
        "model.layers.1.self_attn.o_proj.weight", // packed
        "model.layers.0.mlp.up_proj.weight",      // packed in a pair
        "model.layers.1.post_attention_layernorm.weight",
        "model.embed_tokens.weight", // gathered by row, not packed: the model is untied
        "lm_head.weight",
    };
    const float values[] = {NAN, INFINITY, -INFINITY};
    struct st_edit e;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (size_t v = 0; v < 3; v++) {
            st_edit_open(&e, MODELS "llama_plain");
            set_f32(&e, names[i], 53, values[v]);
            refuse(&e, QN_ACT_F32, QN_E_FORMAT, names[i]);
        }
    }
    // In bf16: an exponent of all ones.
    size_t n;
    st_edit_open(&e, MODELS "qwen2");
    unsigned char *p = st_edit_bytes(&e, "model.layers.0.self_attn.q_proj.bias", &n);
    p[2] = 0x80;
    p[3] = 0x7f;
    refuse(&e, QN_ACT_BF16, QN_E_FORMAT, "model.layers.0.self_attn.q_proj.bias|finite");
}

static void test_kinds(void **state)
{
    (void)state;
    struct st_edit e;
    st_edit_open(&e, MODELS "llama_plain");
    st_edit_dtype(&e, "model.layers.0.self_attn.q_proj.weight", "I32");
    refuse(&e, QN_ACT_F32, QN_E_UNSUPPORTED, "model.layers.0.self_attn.q_proj.weight|I32");
}

// int8 activations need integer weights; float weights fall back, and that is said once.
static void test_int8_on_float_weights(void **state)
{
    (void)state;
    struct fx_model a, b;
    fx_open(&a, MODELS "llama_plain", QN_ACT_I8);
    assert_int_equal(count_lines(a.notes), 1);
    assert_non_null(strstr(a.notes, "int8"));
    fx_open(&b, MODELS "gguf_mixed/model.gguf", QN_ACT_I8);
    assert_string_equal(b.notes, "");
    fx_close(&a);
    fx_close(&b);
}

static void test_max_model_len(void **state)
{
    (void)state;
    struct qn_ckpt *ckpt;
    struct qn_model *m = NULL;
    struct qn_err err = {0};
    assert_int_equal(qn_ckpt_open(MODELS "llama_plain", &ckpt, &err), QN_OK);
    struct qn_model_opts o = {.activations = QN_ACT_F32, .kv_type = QN_KV_F32};
    o.max_model_len = 2049;
    assert_int_equal(qn_model_load(ckpt, &o, &m, &err), QN_E_INVALID);
    assert_non_null(strstr(err.msg, "2049"));
    assert_non_null(strstr(err.msg, "2048"));
    o.max_model_len = 100;
    assert_int_equal(qn_model_load(ckpt, &o, &m, &err), QN_OK);
    assert_int_equal(qn_model_info(m)->max_model_len, 100);
    assert_int_equal(qn_model_info(m)->max_position, 2048);
    qn_model_free(m);
    qn_ckpt_close(ckpt);
}

struct seen {
    uint64_t done, total;
    size_t calls;
    bool bad;
};

static void take_progress(void *user, uint64_t done, uint64_t total)
{
    struct seen *s = user;
    s->bad = s->bad || done < s->done || done > total || (s->calls > 0 && total != s->total);
    s->done = done;
    s->total = total;
    s->calls++;
}

// A team packs the same bytes as one thread, counts up to the end, and fails as one.
static void test_packing_by_a_team(void **state)
{
    (void)state;
    struct qn_ckpt *ckpt;
    struct qn_team *team;
    struct qn_model *m;
    struct qn_err err = {0};
    struct seen seen = {0};
    assert_int_equal(qn_team_new(3, NULL, 0, &team, NULL, &err), QN_OK);
    assert_int_equal(qn_ckpt_open(MODELS "gemma3_old", &ckpt, &err), QN_OK);
    const struct qn_model_opts o = {.activations = QN_ACT_F32,
                                    .kv_type = QN_KV_F32,
                                    .team = team,
                                    .progress = take_progress,
                                    .progress_user = &seen};
    assert_int_equal(qn_model_load(ckpt, &o, &m, &err), QN_OK);
    assert_false(seen.bad);
    assert_int_equal(seen.done, seen.total);
    assert_int_equal(seen.total, qn_model_info(m)->weight_bytes);
    struct fx_model alone, shared = {.model = m, .vocab = qn_model_info(m)->vocab_size};
    fx_open(&alone, MODELS "gemma3_old", QN_ACT_F32);
    float *a = logits_of(&alone), *b = logits_of(&shared);
    assert_memory_equal(a, b, N_TOKENS * alone.vocab * sizeof(float));
    free(a);
    free(b);
    fx_close(&alone);
    qn_model_free(m);
    qn_ckpt_close(ckpt);

    struct st_edit e;
    char dir[256];
    st_edit_open(&e, MODELS "llama_plain");
    set_f32(&e, "model.layers.1.mlp.down_proj.weight", 1000, NAN);
    st_edit_write(&e, dir);
    assert_int_equal(qn_ckpt_open(dir, &ckpt, &err), QN_OK);
    assert_int_equal(qn_model_load(ckpt, &o, &m, &err), QN_E_FORMAT);
    assert_non_null(strstr(err.msg, "model.layers.1.mlp.down_proj.weight"));
    qn_ckpt_close(ckpt);
    qn_tf_rmdir(dir);
    qn_team_free(team);
}

// Parameters of a model, counted as its authors do: a tied head once.
static void test_parameter_count(void **state)
{
    (void)state;
    const uint64_t h = 40, q = 64, kv = 32, ff = 76;
    const uint64_t layer = q * h + 2 * kv * h + h * q + 3 * ff * h + 2 * h + 2 * 16;
    struct fx_model f;
    fx_open(&f, MODELS "qwen3", QN_ACT_F32);
    assert_int_equal(qn_model_info(f.model)->n_params, 151 * h + 2 * layer + h);
    fx_close(&f);
    const uint64_t bias = q + 2 * kv + h + 2 * ff + h;
    fx_open(&f, MODELS "llama_linear", QN_ACT_F32);
    assert_int_equal(qn_model_info(f.model)->n_params, 151 * h + 2 * (layer - 2 * 16 + bias) + h);
    fx_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_LOD_06_extra_head_of_a_tied_model),
        cmocka_unit_test(test_head_of_its_own_is_noted),
        cmocka_unit_test(test_LOD_07_untied_without_head),
        cmocka_unit_test(test_LOD_01_missing_tensors),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_values_that_are_not_finite),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_int8_on_float_weights),
        cmocka_unit_test(test_max_model_len),
        cmocka_unit_test(test_packing_by_a_team),
        cmocka_unit_test(test_parameter_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
