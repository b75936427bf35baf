#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "formats/ckpt.h"
#include "formats/test_files.h"

static char g_dir[256];

static int make_dir(void **state)
{
    (void)state;
    qn_tf_mkdir(g_dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    qn_tf_rmdir(g_dir);
    return 0;
}

static const char *file_path(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", g_dir, name);
    return path;
}

// Writes g to NAME and lets go of it.
static void put(struct qn_tf_gguf *g, const char *name)
{
    struct qn_buf out;
    qn_tf_finish(g, &out);
    qn_tf_write(g_dir, name, out.data, out.len);
    qn_buf_done(&out);
    qn_tf_done(g);
}

static struct qn_ckpt *open_good(const char *name)
{
    struct qn_ckpt *c = NULL;
    struct qn_err err;
    if (qn_ckpt_open(file_path(name), &c, &err) != QN_OK) {
        fail_msg("could not open: %s", err.msg);
    }
    return c;
}

static struct qn_ckpt *put_and_open(struct qn_tf_gguf *g)
{
    put(g, "m.gguf");
    return open_good("m.gguf");
}

static void open_bad(const char *name, enum qn_status want_rc, const char *want)
{
    struct qn_ckpt *c = NULL;
    struct qn_err err = {0};
    enum qn_status rc = qn_ckpt_open(file_path(name), &c, &err);
    if (rc == QN_OK) {
        qn_ckpt_close(c);
        fail_msg("opened, expected \"%s\"", want);
    }
    if (rc != want_rc || strstr(err.msg, want) == NULL) {
        fail_msg("found %s \"%s\", expected %s \"%s\"", qn_status_name(rc), err.msg,
                 qn_status_name(want_rc), want);
    }
}

static void put_bad(struct qn_tf_gguf *g, enum qn_status want_rc, const char *want)
{
    put(g, "m.gguf");
    open_bad("m.gguf", want_rc, want);
}

static const json_t *get(const struct qn_ckpt *c, const char *key)
{
    return json_object_get(qn_ckpt_config(c), key);
}

static long long int_of(const struct qn_ckpt *c, const char *key)
{
    assert_true(json_is_integer(get(c, key)));
    return json_integer_value(get(c, key));
}

static double real_of(const struct qn_ckpt *c, const char *key)
{
    assert_true(json_is_number(get(c, key)));
    return json_number_value(get(c, key));
}

static const char *str_of(const struct qn_ckpt *c, const char *key)
{
    assert_true(json_is_string(get(c, key)));
    return json_string_value(get(c, key));
}

static const char *arch_of(const struct qn_ckpt *c)
{
    return json_string_value(json_array_get(get(c, "architectures"), 0));
}

static void check_common(const struct qn_ckpt *c)
{
    assert_int_equal(int_of(c, "hidden_size"), 32);
    assert_int_equal(int_of(c, "intermediate_size"), 64);
    assert_int_equal(int_of(c, "num_hidden_layers"), 1);
    assert_int_equal(int_of(c, "num_attention_heads"), 2);
    assert_int_equal(int_of(c, "num_key_value_heads"), 1);
    assert_int_equal(int_of(c, "head_dim"), 16);
    assert_int_equal(int_of(c, "vocab_size"), 8);
    assert_int_equal(int_of(c, "max_position_embeddings"), 64);
    assert_true(real_of(c, "rms_norm_eps") == (double)1e-5f);
    assert_true(json_is_true(get(c, "tie_word_embeddings")));
    assert_string_equal(str_of(c, "dtype"), "float32");
    assert_string_equal(qn_ckpt_format(c), "gguf");
    assert_non_null(qn_ckpt_gguf(c));
}

static unsigned flags_of(const struct qn_ckpt *c, const char *name)
{
    const struct qn_tensor *t = qn_ckpt_find(c, name);
    if (t == NULL) {
        fail_msg("tensor \"%s\" is absent", name);
        return 0;
    }
    return t->flags;
}

static void test_llama(void **state)
{
    (void)state;
    struct qn_tf_gguf g;
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    struct qn_ckpt *c = put_and_open(&g);
    check_common(c);
    assert_string_equal(str_of(c, "model_type"), "llama");
    assert_string_equal(arch_of(c), "LlamaForCausalLM");
    assert_string_equal(str_of(c, "hidden_act"), "silu");
    assert_true(real_of(c, "rope_theta") == 10000);
    assert_null(get(c, "rope_scaling"));
    assert_true(json_is_false(get(c, "attention_bias")));
    assert_true(json_is_false(get(c, "mlp_bias")));
    assert_int_equal(qn_ckpt_n_tensors(c), 11);
    assert_int_equal(flags_of(c, "model.layers.0.self_attn.q_proj.weight"), QN_T_QK_INTERLEAVED);
    assert_int_equal(flags_of(c, "model.layers.0.self_attn.k_proj.weight"), QN_T_QK_INTERLEAVED);
    assert_int_equal(flags_of(c, "model.layers.0.self_attn.v_proj.weight"), 0);
    assert_int_equal(flags_of(c, "model.layers.0.self_attn.o_proj.weight"), 0);
    assert_int_equal(flags_of(c, "model.layers.0.input_layernorm.weight"), 0);
    assert_int_equal(flags_of(c, "model.layers.0.post_attention_layernorm.weight"), 0);
    assert_int_equal(flags_of(c, "model.layers.0.mlp.gate_proj.weight"), 0);
    assert_int_equal(flags_of(c, "model.layers.0.mlp.down_proj.weight"), 0);
    assert_int_equal(flags_of(c, "model.embed_tokens.weight"), 0);
    assert_int_equal(flags_of(c, "model.norm.weight"), 0);
    qn_ckpt_close(c);
}

static void test_llama_untied_with_divisors_and_biases(void **state)
{
    (void)state;
    struct qn_tf_gguf g;
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_f32(&g, "llama.rope.freq_base", 500000.0f);
    qn_tf_u32(&g, "llama.attention.key_length", 16);
    qn_tf_u32(&g, "llama.attention.value_length", 16);
    qn_tf_u32(&g, "llama.rope.dimension_count", 16);
    qn_tf_tensor(&g, "output.weight", 8, 32, 8);
    qn_tf_tensor(&g, "rope_freqs.weight", 0, 8, 0);
    qn_tf_tensor(&g, "blk.0.attn_q.bias", 0, 32, 0);
    struct qn_ckpt *c = put_and_open(&g);
    assert_true(real_of(c, "rope_theta") == 500000);
    assert_true(json_is_false(get(c, "tie_word_embeddings")));
    assert_true(json_is_true(get(c, "attention_bias")));
    assert_string_equal(json_string_value(json_object_get(get(c, "rope_scaling"), "rope_type")),
                        "freq_factors");
    assert_non_null(qn_ckpt_find(c, "rope_freqs.weight"));
    assert_int_equal(qn_ckpt_find(c, "lm_head.weight")->dtype, QN_DT_Q8_0);
    assert_int_equal(flags_of(c, "model.layers.0.self_attn.q_proj.bias"), QN_T_QK_INTERLEAVED);
    qn_ckpt_close(c);
}

static void test_llama_with_a_window_is_mistral(void **state)
{
    (void)state;
    struct qn_tf_gguf g;
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_u32(&g, "llama.attention.sliding_window", 48);
    struct qn_ckpt *c = put_and_open(&g);
    check_common(c);
    assert_string_equal(str_of(c, "model_type"), "mistral");
    assert_string_equal(arch_of(c), "MistralForCausalLM");
    assert_int_equal(int_of(c, "sliding_window"), 48);
    qn_ckpt_close(c);
}

static void test_qwen_and_smollm3(void **state)
{
    (void)state;
    static const struct {
        const char *arch, *model_type, *class;
        unsigned qk;
    } k_archs[] = {{"qwen2", "qwen2", "Qwen2ForCausalLM", 0},
                   {"qwen3", "qwen3", "Qwen3ForCausalLM", 0},
                   {"smollm3", "smollm3", "SmolLM3ForCausalLM", QN_T_QK_INTERLEAVED}};
    for (size_t i = 0; i < 3; i++) {
        struct qn_tf_gguf g;
        qn_tf_init(&g);
        qn_tf_model(&g, k_archs[i].arch);
        if (i == 1) {
            qn_tf_tensor(&g, "blk.0.attn_q_norm.weight", 0, 16, 0);
            qn_tf_tensor(&g, "blk.0.attn_k_norm.weight", 0, 16, 0);
        }
        struct qn_ckpt *c = put_and_open(&g);
        check_common(c);
        assert_string_equal(str_of(c, "model_type"), k_archs[i].model_type);
        assert_string_equal(arch_of(c), k_archs[i].class);
        assert_int_equal(flags_of(c, "model.layers.0.self_attn.q_proj.weight"), k_archs[i].qk);
        if (i == 1) {
            assert_int_equal(flags_of(c, "model.layers.0.self_attn.q_norm.weight"), 0);
            assert_int_equal(flags_of(c, "model.layers.0.self_attn.k_norm.weight"), 0);
        }
        if (i < 2) {
            assert_true(json_is_false(get(c, "use_sliding_window")));
        } else {
            assert_int_equal(int_of(c, "no_rope_layer_interval"), 4);
        }
        qn_ckpt_close(c);
    }
}

static void gemma3_model(struct qn_tf_gguf *g)
{
    qn_tf_init(g);
    qn_tf_model(g, "gemma3");
    qn_tf_f32(g, "gemma3.rope.freq_base", 1e6f);
    qn_tf_u32(g, "gemma3.attention.sliding_window", 512);
    qn_tf_tensor(g, "blk.0.attn_q_norm.weight", 0, 16, 0);
    qn_tf_tensor(g, "blk.0.attn_k_norm.weight", 0, 16, 0);
    qn_tf_tensor(g, "blk.0.post_attention_norm.weight", 0, 32, 0);
    qn_tf_tensor(g, "blk.0.post_ffw_norm.weight", 0, 32, 0);
}

static void test_gemma3(void **state)
{
    (void)state;
    struct qn_tf_gguf g;
    gemma3_model(&g);
    struct qn_ckpt *c = put_and_open(&g);
    check_common(c);
    assert_string_equal(str_of(c, "model_type"), "gemma3_text");
    assert_string_equal(arch_of(c), "Gemma3ForCausalLM");
    assert_string_equal(str_of(c, "hidden_activation"), "gelu_pytorch_tanh");
    assert_true(real_of(c, "rope_theta") == 1e6);
    assert_true(real_of(c, "rope_local_base_freq") == 1e4);
    assert_int_equal(int_of(c, "sliding_window"), 512);
    assert_int_equal(int_of(c, "sliding_window_pattern"), 6);
    assert_int_equal(int_of(c, "query_pre_attn_scalar"), 16);
    assert_null(get(c, "final_logit_softcapping"));
    static const char *const k_norms[] = {"model.norm.weight",
                                          "model.layers.0.input_layernorm.weight",
                                          "model.layers.0.post_attention_layernorm.weight",
                                          "model.layers.0.pre_feedforward_layernorm.weight",
                                          "model.layers.0.post_feedforward_layernorm.weight",
                                          "model.layers.0.self_attn.q_norm.weight",
                                          "model.layers.0.self_attn.k_norm.weight"};
    for (size_t i = 0; i < sizeof k_norms / sizeof k_norms[0]; i++) {
        assert_int_equal(flags_of(c, k_norms[i]), QN_T_NORM_FOLDED);
    }
    assert_int_equal(flags_of(c, "model.layers.0.self_attn.q_proj.weight"), 0);
    qn_ckpt_close(c);

    gemma3_model(&g);
    qn_tf_f32(&g, "gemma3.attention.scale", 0.125f);
    qn_tf_f32(&g, "gemma3.final_logit_softcapping", 30.0f);
    qn_tf_arr(&g, "gemma3.attention.sliding_window_pattern", QN_GGUF_BOOL, 1, "\1", 1);
    c = put_and_open(&g);
    assert_true(real_of(c, "query_pre_attn_scalar") == 64);
    assert_true(real_of(c, "final_logit_softcapping") == 30);
    assert_string_equal(json_string_value(json_array_get(get(c, "layer_types"), 0)),
                        "sliding_attention");
    qn_ckpt_close(c);

    gemma3_model(&g);
    qn_tf_arr(&g, "gemma3.attention.sliding_window_pattern", QN_GGUF_BOOL, 2, "\1\1", 2);
    put_bad(&g, QN_E_FORMAT, "one bool for each of 1 layers");
    qn_tf_init(&g);
    qn_tf_model(&g, "gemma3");
    put_bad(&g, QN_E_FORMAT, "key \"gemma3.rope.freq_base\" is missing");
}

static void test_rope_scaling(void **state)
{
    (void)state;
    struct qn_tf_gguf g;
    qn_tf_init(&g);
    qn_tf_model(&g, "qwen3");
    qn_tf_str(&g, "qwen3.rope.scaling.type", "yarn");
    qn_tf_f32(&g, "qwen3.rope.scaling.factor", 4.0f);
    qn_tf_u32(&g, "qwen3.rope.scaling.original_context_length", 32768);
    qn_tf_f32(&g, "qwen3.rope.scaling.yarn_beta_fast", 16.0f);
    qn_tf_f32(&g, "qwen3.rope.scaling.yarn_attn_factor", 0.5f);
    struct qn_ckpt *c = put_and_open(&g);
    const json_t *s = get(c, "rope_scaling");
    assert_string_equal(json_string_value(json_object_get(s, "rope_type")), "yarn");
    assert_true(json_number_value(json_object_get(s, "factor")) == 4);
    assert_int_equal(json_integer_value(json_object_get(s, "original_max_position_embeddings")),
                     32768);
    assert_true(json_number_value(json_object_get(s, "beta_fast")) == 16);
    assert_null(json_object_get(s, "beta_slow"));
    assert_true(fabs(json_number_value(json_object_get(s, "attention_factor")) -
                     0.5 * (1 + 0.1 * log(4.0))) < 1e-12);
    qn_ckpt_close(c);

    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_str(&g, "llama.rope.scaling.type", "linear");
    qn_tf_f32(&g, "llama.rope.scaling.factor", 2.0f);
    c = put_and_open(&g);
    s = get(c, "rope_scaling");
    assert_string_equal(json_string_value(json_object_get(s, "rope_type")), "linear");
    assert_true(json_number_value(json_object_get(s, "factor")) == 2);
    qn_ckpt_close(c);

    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_str(&g, "llama.rope.scaling.type", "none");
    c = put_and_open(&g);
    assert_null(get(c, "rope_scaling"));
    qn_ckpt_close(c);
}

static void test_LOD_09_other_rope_scaling_is_refused(void **state)
{
    (void)state;
    struct qn_tf_gguf g;
    static const char *const k_types[] = {"longrope", "foo", ""};
    for (size_t i = 0; i < sizeof k_types / sizeof k_types[0]; i++) {
        qn_tf_init(&g);
        qn_tf_model(&g, "llama");
        qn_tf_str(&g, "llama.rope.scaling.type", k_types[i]);
        char want[64];
        snprintf(want, sizeof want, "found \"%s\", expected none, linear or yarn", k_types[i]);
        put_bad(&g, QN_E_UNSUPPORTED, want);
    }
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_str(&g, "llama.rope.scaling.type", "yarn");
    put_bad(&g, QN_E_FORMAT, "expected a factor above 0");
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_str(&g, "llama.rope.scaling.type", "linear");
    qn_tf_f32(&g, "llama.rope.scaling.factor", NAN);
    put_bad(&g, QN_E_FORMAT, "expected a factor above 0");
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_str(&g, "llama.rope.scaling.type", "yarn");
    qn_tf_f32(&g, "llama.rope.scaling.factor", 2.0f);
    qn_tf_tensor(&g, "rope_freqs.weight", 0, 8, 0);
    put_bad(&g, QN_E_UNSUPPORTED, "beside tensor \"rope_freqs.weight\"");
}

static void test_unsupported_is_named(void **state)
{
    (void)state;
    struct qn_tf_gguf g;
    qn_tf_init(&g);
    qn_tf_model(&g, "mamba");
    put_bad(&g, QN_E_UNSUPPORTED, "architecture \"mamba\" is not supported");
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_tensor(&g, "blk.0.ssm_a.weight", 0, 8, 0);
    put_bad(&g, QN_E_UNSUPPORTED, "tensor \"blk.0.ssm_a.weight\"");
    qn_tf_init(&g); // a layer that the model does not have
    qn_tf_model(&g, "llama");
    qn_tf_tensor(&g, "blk.1.attn_norm.weight", 0, 32, 0);
    put_bad(&g, QN_E_UNSUPPORTED, "tensor \"blk.1.attn_norm.weight\"");
    qn_tf_init(&g); // another architecture's tensor
    qn_tf_model(&g, "llama");
    qn_tf_tensor(&g, "blk.0.attn_q_norm.weight", 0, 16, 0);
    put_bad(&g, QN_E_UNSUPPORTED, "tensor \"blk.0.attn_q_norm.weight\"");
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_u32(&g, "llama.expert_count", 8);
    put_bad(&g, QN_E_UNSUPPORTED, "key \"llama.expert_count\"");
    qn_tf_init(&g);
    qn_tf_model(&g, "qwen2");
    qn_tf_bool(&g, "qwen2.attention.causal", false);
    put_bad(&g, QN_E_UNSUPPORTED, "expected causal attention");
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_u32(&g, "llama.rope.dimension_count", 8);
    put_bad(&g, QN_E_UNSUPPORTED, "found 8, expected 16, the size of a head");
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_str(&g, "general.type", "mmproj");
    put_bad(&g, QN_E_UNSUPPORTED, "found \"mmproj\", expected \"model\"");
    static const char *const k_odd[] = {"", "a b", "caf\xc3\xa9"};
    for (size_t i = 0; i < sizeof k_odd / sizeof k_odd[0]; i++) {
        qn_tf_init(&g);
        qn_tf_str(&g, "general.architecture", k_odd[i]);
        put_bad(&g, QN_E_FORMAT, "general.architecture");
    }
}

// A model with one key replaced by another value, to see it refused.
static void replaced_key(const char *suffix, enum qn_gguf_type type, const void *v, size_t n,
                         enum qn_status rc, const char *want)
{
    static const struct {
        const char *suffix;
        uint32_t v;
    } k_keys[] = {{"block_count", 1},          {"context_length", 64},
                  {"embedding_length", 32},    {"feed_forward_length", 64},
                  {"attention.head_count", 2}, {"attention.head_count_kv", 1}};
    struct qn_tf_gguf g;
    char key[128];
    unsigned char raw[64];
    qn_tf_init(&g);
    qn_tf_str(&g, "general.architecture", "llama");
    qn_tf_f32(&g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    for (size_t i = 0; i < sizeof k_keys / sizeof k_keys[0]; i++) {
        if (strcmp(k_keys[i].suffix, suffix) != 0) {
            snprintf(key, sizeof key, "llama.%s", k_keys[i].suffix);
            qn_tf_u32(&g, key, k_keys[i].v);
        }
    }
    if (n > 0) {
        uint32_t t = type;
        memcpy(raw, &t, 4);
        memcpy(raw + 4, v, n);
        snprintf(key, sizeof key, "llama.%s", suffix);
        qn_tf_raw(&g, key, raw, 4 + n);
    }
    qn_tf_tensor(&g, "token_embd.weight", 0, 32, 8);
    put_bad(&g, rc, want);
}

static void test_keys_are_checked(void **state)
{
    (void)state;
    replaced_key("block_count", QN_GGUF_U32, NULL, 0, QN_E_FORMAT,
                 "key \"llama.block_count\" is missing");
    replaced_key("block_count", QN_GGUF_U32, &(uint32_t){0}, 4, QN_E_FORMAT,
                 "key \"llama.block_count\": found 0, expected 1 to 4096");
    replaced_key("block_count", QN_GGUF_U64, &(uint64_t){UINT64_MAX}, 8, QN_E_FORMAT,
                 "key \"llama.block_count\": found u64, expected an integer");
    replaced_key("block_count", QN_GGUF_I32, &(int32_t){-1}, 4, QN_E_FORMAT, "found -1");
    replaced_key("context_length", QN_GGUF_F32, &(float){1}, 4, QN_E_FORMAT,
                 "found f32, expected an integer");
    replaced_key("attention.head_count", QN_GGUF_U32, &(uint32_t){3}, 4, QN_E_FORMAT,
                 "3 heads do not divide 32");
    struct {
        uint32_t elem;
        uint64_t n;
        uint32_t v[2];
    } __attribute__((packed)) arr = {QN_GGUF_U32, 2, {64, 65}};
    replaced_key("feed_forward_length", QN_GGUF_ARR, &arr, sizeof arr, QN_E_UNSUPPORTED,
                 "layer 1 differs from layer 0");
    arr.n = 0;
    replaced_key("feed_forward_length", QN_GGUF_ARR, &arr, 12, QN_E_FORMAT,
                 "found array, expected an integer or an array of integers");
}

static void test_uniform_arrays_of_keys(void **state)
{
    (void)state;
    const uint32_t ff[2] = {64, 64};
    struct qn_tf_gguf g;
    qn_tf_init(&g);
    qn_tf_str(&g, "general.architecture", "llama");
    qn_tf_u32(&g, "llama.block_count", 2);
    qn_tf_u32(&g, "llama.context_length", 64);
    qn_tf_u32(&g, "llama.embedding_length", 32);
    qn_tf_arr(&g, "llama.feed_forward_length", QN_GGUF_U32, 2, ff, sizeof ff);
    qn_tf_u16(&g, "llama.attention.head_count", 2);
    qn_tf_f32(&g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    qn_tf_tensor(&g, "token_embd.weight", 30, 32, 8);
    struct qn_ckpt *c = put_and_open(&g);
    assert_int_equal(int_of(c, "intermediate_size"), 64);
    assert_int_equal(int_of(c, "num_key_value_heads"), 2); // as many as heads
    assert_string_equal(str_of(c, "dtype"), "bfloat16");
    qn_ckpt_close(c);
}

static void test_vocabulary_and_embedding_must_agree(void **state)
{
    (void)state;
    static const char *const k_tokens[9] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    struct qn_tf_gguf g;
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_strs(&g, "tokenizer.ggml.tokens", k_tokens, 9);
    put_bad(&g, QN_E_FORMAT, "found 8 rows, expected at least 9");
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_strs(&g, "tokenizer.ggml.tokens", k_tokens, 7); // padded rows are fine
    qn_ckpt_close(put_and_open(&g));
}

static void expect_eos(const struct qn_ckpt *c, const int *want, size_t n)
{
    const json_t *ids = json_object_get(qn_ckpt_generation_config(c), "eos_token_id");
    assert_int_equal(json_array_size(ids), n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(json_integer_value(json_array_get(ids, i)), want[i]);
    }
}

static void test_eos_ids_and_template(void **state)
{
    (void)state;
    static const char *const k_tokens[4] = {"</s>", "<|im_end|>", "<|im_end|>x", "<end_of_turn>"};
    const int32_t types[4] = {3, 3, 3, 1}; // the last is not a control token
    struct qn_tf_gguf g;
    for (int with_template = 0; with_template < 2; with_template++) {
        qn_tf_init(&g);
        qn_tf_model(&g, "llama");
        qn_tf_strs(&g, "tokenizer.ggml.tokens", k_tokens, 4);
        qn_tf_arr(&g, "tokenizer.ggml.token_type", QN_GGUF_I32, 4, types, sizeof types);
        qn_tf_u32(&g, "tokenizer.ggml.bos_token_id", 2);
        qn_tf_u32(&g, "tokenizer.ggml.eos_token_id", 0);
        qn_tf_u32(&g, "tokenizer.ggml.padding_token_id", 3);
        if (with_template) {
            qn_tf_str(&g, "tokenizer.chat_template", "{{ x }}");
        }
        struct qn_ckpt *c = put_and_open(&g);
        expect_eos(c, (const int[]){0, 1}, with_template ? 2 : 1);
        const json_t *gen = qn_ckpt_generation_config(c);
        assert_int_equal(json_integer_value(json_object_get(gen, "bos_token_id")), 2);
        assert_int_equal(json_integer_value(json_object_get(gen, "pad_token_id")), 3);
        if (with_template) {
            assert_string_equal(qn_ckpt_chat_template(c), "{{ x }}");
        } else {
            assert_null(qn_ckpt_chat_template(c));
        }
        qn_ckpt_close(c);
    }
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_u32(&g, "tokenizer.ggml.eos_token_id", 5);
    qn_tf_u32(&g, "tokenizer.ggml.eot_token_id", 6);
    qn_tf_u32(&g, "tokenizer.ggml.eom_token_id", 5); // the same again
    struct qn_ckpt *c = put_and_open(&g);
    expect_eos(c, (const int[]){5, 6}, 2);
    qn_ckpt_close(c);
    qn_tf_init(&g);
    qn_tf_model(&g, "llama");
    qn_tf_u32(&g, "tokenizer.chat_template", 1);
    put_bad(&g, QN_E_FORMAT, "tokenizer.chat_template");
}

static void test_fused_qkv_becomes_three(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t ne0, ne1;
    } k_tensors[] = {{"token_embd.weight", 32, 8}, {"blk.0.attn_qkv.weight", 32, 64}};
    struct qn_tf_gguf g;
    for (int extra = 0; extra < 2; extra++) {
        qn_tf_init(&g);
        qn_tf_str(&g, "general.architecture", "llama");
        qn_tf_u32(&g, "llama.block_count", 1);
        qn_tf_u32(&g, "llama.context_length", 64);
        qn_tf_u32(&g, "llama.embedding_length", 32);
        qn_tf_u32(&g, "llama.feed_forward_length", 64);
        qn_tf_u32(&g, "llama.attention.head_count", 2);
        qn_tf_u32(&g, "llama.attention.head_count_kv", 1);
        qn_tf_f32(&g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
        qn_tf_tensor(&g, k_tensors[0].name, 0, k_tensors[0].ne0, k_tensors[0].ne1);
        qn_tf_tensor(&g, k_tensors[1].name, 8, k_tensors[1].ne0,
                     k_tensors[1].ne1 + (uint64_t)extra);
        qn_tf_tensor(&g, "blk.0.attn_qkv.bias", 0, 64, 0);
        if (extra) {
            put_bad(&g, QN_E_FORMAT, "found 65 rows, expected 64");
            continue;
        }
        struct qn_ckpt *c = put_and_open(&g);
        assert_int_equal(qn_ckpt_n_tensors(c), 7);
        const struct qn_tensor *q = qn_ckpt_find(c, "model.layers.0.self_attn.q_proj.weight");
        const struct qn_tensor *k = qn_ckpt_find(c, "model.layers.0.self_attn.k_proj.weight");
        const struct qn_tensor *v = qn_ckpt_find(c, "model.layers.0.self_attn.v_proj.weight");
        assert_true(q->shape[0] == 32 && k->shape[0] == 16 && v->shape[0] == 16);
        assert_true(q->n_bytes == 32 * 34 && k->data == q->data + q->n_bytes);
        assert_true(v->data == k->data + k->n_bytes);
        assert_int_equal(q->flags, QN_T_QK_INTERLEAVED);
        assert_int_equal(k->flags, QN_T_QK_INTERLEAVED);
        assert_int_equal(v->flags, 0);
        assert_int_equal(qn_ckpt_find(c, "model.layers.0.self_attn.v_proj.bias")->n_bytes, 64);
        assert_true(json_is_true(get(c, "attention_bias")));
        qn_ckpt_close(c);
    }
}

// A model in three files, the first with metadata alone.
static void put_split(uint16_t count_in_second, uint32_t total, const char *second_tensor)
{
    struct qn_tf_gguf g, all;
    qn_tf_init(&all);
    qn_tf_model(&all, "llama");
    qn_tf_init(&g);
    qn_buf_add(&g.kv, all.kv.data, all.kv.len);
    g.n_kv = all.n_kv;
    qn_tf_u16(&g, "split.no", 0);
    qn_tf_u16(&g, "split.count", 3);
    qn_tf_u32(&g, "split.tensors.count", total);
    put(&g, "m-00001-of-00003.gguf");
    all.n_kv = 0;
    qn_buf_clear(&all.kv);
    qn_tf_u16(&all, "split.no", 1);
    qn_tf_u16(&all, "split.count", count_in_second);
    put(&all, "m-00002-of-00003.gguf");
    qn_tf_init(&g);
    qn_tf_u16(&g, "split.no", 2);
    qn_tf_u16(&g, "split.count", 3);
    qn_tf_tensor(&g, second_tensor, 0, 32, 8);
    put(&g, "m-00003-of-00003.gguf");
}

static void test_split_files(void **state)
{
    (void)state;
    put_split(3, 12, "output.weight");
    struct qn_ckpt *c = open_good("m-00001-of-00003.gguf");
    // the third file's head makes it untied
    assert_true(json_is_false(get(c, "tie_word_embeddings")));
    assert_int_equal(qn_ckpt_n_tensors(c), 12);
    assert_string_equal(qn_ckpt_find(c, "lm_head.weight")->file, "m-00003-of-00003.gguf");
    assert_string_equal(qn_ckpt_find(c, "model.norm.weight")->file, "m-00002-of-00003.gguf");
    qn_ckpt_close(c);
    open_bad("m-00002-of-00003.gguf", QN_E_INVALID, "found part 2 of a split model");
    put_split(4, 12, "output.weight");
    open_bad("m-00001-of-00003.gguf", QN_E_FORMAT, "split.no 1 of 4, expected 1 of 3");
    put_split(3, 13, "output.weight");
    open_bad("m-00001-of-00003.gguf", QN_E_FORMAT, "found 12 tensors in 3 files, expected 13");
    put_split(3, 12, "output_norm.weight");
    open_bad("m-00001-of-00003.gguf", QN_E_FORMAT, "\"model.norm.weight\": found in file");
    put_split(3, 12, "output.weight");
    char old[512];
    snprintf(old, sizeof old, "%s", file_path("m-00003-of-00003.gguf"));
    assert_int_equal(rename(old, file_path("elsewhere.gguf")), 0);
    open_bad("m-00001-of-00003.gguf", QN_E_NOT_FOUND, "m-00003-of-00003.gguf");
    snprintf(old, sizeof old, "%s", file_path("m-00001-of-00003.gguf"));
    assert_int_equal(rename(old, file_path("renamed.gguf")), 0);
    open_bad("renamed.gguf", QN_E_FORMAT, "expected a file name that ends in");
}

static void test_vocabulary_only_file(void **state)
{
    (void)state;
    static const char *const k_tokens[2] = {"a", "b"};
    struct qn_tf_gguf g;
    qn_tf_init(&g);
    qn_tf_str(&g, "general.architecture", "gemma4");
    qn_tf_strs(&g, "tokenizer.ggml.tokens", k_tokens, 2);
    struct qn_ckpt *c = put_and_open(&g);
    assert_int_equal(qn_ckpt_n_tensors(c), 0);
    assert_string_equal(str_of(c, "model_type"), "gemma4");
    size_t n = 0;
    enum qn_gguf_type type;
    assert_true(qn_gguf_arr(qn_ckpt_gguf(c), "tokenizer.ggml.tokens", &type, &n) && n == 2);
    qn_ckpt_close(c);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        T(test_llama),
        T(test_llama_untied_with_divisors_and_biases),
        T(test_llama_with_a_window_is_mistral),
        T(test_qwen_and_smollm3),
        T(test_gemma3),
        T(test_rope_scaling),
        T(test_LOD_09_other_rope_scaling_is_refused),
        T(test_unsupported_is_named),
        T(test_keys_are_checked),
        T(test_uniform_arrays_of_keys),
        T(test_vocabulary_and_embedding_must_agree),
        T(test_eos_ids_and_template),
        T(test_fused_qkv_becomes_three),
        T(test_split_files),
        T(test_vocabulary_only_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
