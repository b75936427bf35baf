#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/test_files.h"
#include "model/desc.h"

// Descriptors from configurations: what is in a key, what a missing one means, what is refused.

struct desc {
    struct qn_ckpt *ckpt;
    struct qn_arena *arena;
    struct qn_desc d;
    struct qn_err err;
    enum qn_status rc;
};

// A checkpoint directory of this config.json and one small tensor.
static void open_config(struct desc *t, const char *config)
{
    char dir[256];
    struct qn_buf st = {0};
    *t = (struct desc){0};
    qn_tf_mkdir(dir);
    qn_tf_puts(dir, "config.json", config);
    qn_tf_st(&st, "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    qn_tf_write(dir, "model.safetensors", st.data, st.len);
    qn_buf_done(&st);
    t->rc = qn_ckpt_open(dir, &t->ckpt, &t->err);
    qn_tf_rmdir(dir);
    assert_int_equal(t->rc, QN_OK);
    assert_int_equal(qn_arena_new(QN_MEM_OTHER, 0, &t->arena, NULL), QN_OK);
    t->rc = qn_desc_from_ckpt(t->ckpt, t->arena, &t->d, &t->err);
}

static void close_config(struct desc *t)
{
    qn_arena_free(t->arena);
    qn_ckpt_close(t->ckpt);
}

#define LLAMA                                                                                      \
    "\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"vocab_size\":100,"        \
    "\"hidden_size\":512,\"intermediate_size\":64,\"num_hidden_layers\":4,"                        \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"max_position_embeddings\":131072"

static void accept(struct desc *t, const char *config)
{
    open_config(t, config);
    if (t->rc != QN_OK) {
        fail_msg("%s", t->err.msg);
    }
}

// The configuration is refused, and the message has each of the words ("|" between them).
static void refuse(const char *config, const char *words)
{
    struct desc t;
    open_config(&t, config);
    if (t.rc == QN_OK) {
        fail_msg("not refused: %s", config);
    }
    char list[256];
    snprintf(list, sizeof list, "%s", words);
    for (char *w = list, *end; w != NULL; w = end) {
        end = strchr(w, '|');
        if (end != NULL) {
            *end++ = '\0';
        }
        if (strstr(t.err.msg, w) == NULL) {
            fail_msg("message \"%s\" lacks \"%s\"", t.err.msg, w);
        }
    }
    close_config(&t);
}

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * fabs(want))) {
        fail_msg("found %.9g, expected %.9g", got, want);
    }
}

struct point {
    size_t pair;
    double w;
};

static void hold_rope(const char *config, const struct point *points, size_t n, double m)
{
    struct desc t;
    accept(&t, config);
    for (size_t i = 0; i < n; i++) {
        assert_true(points[i].pair < t.d.rope[0].n_pairs);
        near((double)t.d.rope[0].w[points[i].pair], points[i].w);
    }
    near((double)t.d.rope[0].m, m);
    close_config(&t);
}

#define LLAMA3(type, rest)                                                                         \
    "{\"" type "\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4,"          \
    "\"original_max_position_embeddings\":8192" rest "}"

static void test_LOD_08_llama3_rope(void **state)
{
    (void)state;
    static const struct point points[] = {
        {0, 1},
        {1, .814617234},
        {28, .00321144599},
        {29, .00216657076},
        {31, .000856751413},
        {32, .000524846161},
        {34, 1.785078e-04},
        {35, 9.55621235e-5},
        {63, 3.06892599e-7},
    };
    static const char *const configs[] = {
        "{" LLAMA ",\"rope_theta\":500000,\"rope_scaling\":" LLAMA3("rope_type", "") "}",
        "{" LLAMA ",\"rope_theta\":500000,\"rope_scaling\":" LLAMA3("type", "") "}",
        "{" LLAMA ",\"rope_scaling\":null,\"rope_parameters\":" LLAMA3(
            "rope_type", ",\"rope_theta\":500000") "}",
        // Top-level length wins over the one inside.
        "{" LLAMA ",\"original_max_position_embeddings\":8192,\"rope_theta\":500000,"
        "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,"
        "\"high_freq_factor\":4,\"original_max_position_embeddings\":77}}",
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        hold_rope(configs[i], points, sizeof points / sizeof points[0], 1);
    }
    // Llama 3.2 1B: heads of 64, factor 32.
    static const struct point small[] = {
        {14, .00321144599}, {15, .00129054793}, {17, 9.7082878e-5}, {18, 1.94616382e-5}};
    hold_rope("{" LLAMA ",\"head_dim\":64,\"rope_theta\":500000,\"rope_scaling\":{\"rope_type\":"
              "\"llama3\",\"factor\":32,\"low_freq_factor\":1,\"high_freq_factor\":4,"
              "\"original_max_position_embeddings\":8192}}",
              small, 4, 1);
}

#define YARN(rest)                                                                                 \
    "{" LLAMA ",\"head_dim\":64,\"rope_theta\":150000,\"rope_scaling\":{\"rope_type\":\"yarn\","   \
    "\"beta_fast\":32,\"beta_slow\":1,\"original_max_position_embeddings\":4096" rest "}}"

static void test_yarn(void **state)
{
    (void)state;
    const double m = 1.3465735902799727;
    static const struct point exact[] = {{8, .0508132748},    {9, .0317056962},
                                         {12, .00679495949},  {15, .0010526021},
                                         {17, .000129318701}, {18, 3.83088124e-5}};
    static const struct point rounded[] = {{17, .000227947796}};
    hold_rope(YARN(",\"factor\":32,\"truncate\":false"), exact, 6, m);
    hold_rope(YARN(",\"factor\":32"), rounded, 1, m);
    hold_rope(YARN(",\"factor\":null"), rounded, 1, m); // 131072 / 4096
    hold_rope(YARN(",\"factor\":32,\"attention_factor\":1.5"), rounded, 1, 1.5);
    hold_rope(YARN(",\"factor\":32,\"mscale\":2,\"mscale_all_dim\":1"), rounded, 1,
              (0.2 * log(32) + 1) / m);
}

static void test_other_ropes(void **state)
{
    (void)state;
    static const struct point plain[] = {{0, 1}, {1, 0.865964323}, {63, 1.15478199e-4}};
    static const struct point quarter[] = {{0, .25}, {1, 0.216491081}};
    static const struct point partial[] = {{0, 1}, {1, 0.749894209}};
    hold_rope("{" LLAMA "}", plain, 3, 1);
    hold_rope("{" LLAMA ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":4}}", plain, 3, 1);
    hold_rope("{" LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":4}}", quarter, 2, 1);
    hold_rope("{" LLAMA ",\"partial_rotary_factor\":0.5}", partial, 2, 1);
    struct desc t;
    accept(&t, "{" LLAMA ",\"partial_rotary_factor\":0.5}");
    assert_int_equal(t.d.rope[0].n_pairs, 32);
    assert_int_equal(t.d.rope[0].pair_distance, 32);
    close_config(&t);
}

static void test_LOD_09_rope_types_refused(void **state)
{
    (void)state;
    refuse("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"longrope\",\"factor\":4}}",
           "\"longrope\"|supported|yarn");
    refuse("{" LLAMA ",\"rope_scaling\":{\"type\":\"foo\"}}", "\"foo\"|supported");
    refuse("{" LLAMA ",\"rope_parameters\":{\"rope_type\":\"proportional\",\"rope_theta\":1e4}}",
           "\"proportional\"");
    refuse("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"yarn\"}}", "yarn|\"factor\"");
    refuse("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\"}}", "linear|\"factor\"");
    refuse("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
           "\"low_freq_factor\":1}}",
           "llama3|\"high_freq_factor\"");
    refuse("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
           "\"low_freq_factor\":4,\"high_freq_factor\":4}}",
           "high_freq_factor|low_freq_factor");
    refuse("{" LLAMA ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":-1}}", "factor|-1");
    refuse("{" LLAMA ",\"rope_interleaved\":true}", "rope_interleaved");
    refuse("{" LLAMA ",\"rope_theta\":0}", "rope_theta");
    refuse("{" LLAMA ",\"rope_scaling\":\"linear\"}", "rope_scaling");
}

static void test_common_refusals(void **state)
{
    (void)state;
    refuse("{\"architectures\":[\"FooForCausalLM\"]}",
           "\"FooForCausalLM\"|LlamaForCausalLM|Gemma3ForCausalLM");
    refuse("{\"model_type\":\"rwkv\"}", "\"rwkv\"");
    refuse("{}", "architectures|model_type");
    refuse("{" LLAMA ",\"hidden_act\":\"relu\"}", "\"relu\"|silu");
    refuse("{" LLAMA ",\"head_dim\":0}", "head_dim");
    refuse("{" LLAMA ",\"rms_norm_eps\":0}", "rms_norm_eps");
    refuse("{" LLAMA ",\"eos_token_id\":\"x\"}", "eos_token_id");
    refuse("{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":30,"
           "\"num_attention_heads\":4}",
           "hidden_size 30|num_attention_heads 4");
    refuse("{\"architectures\":[\"LlamaForCausalLM\"],\"num_attention_heads\":4,"
           "\"num_key_value_heads\":3}",
           "num_attention_heads 4|num_key_value_heads 3");
    refuse("{\"architectures\":[\"LlamaForCausalLM\"],\"num_hidden_layers\":1000000}",
           "num_hidden_layers|1000000");
}

static void test_defaults(void **state)
{
    (void)state;
    struct desc t;
    accept(&t, "{\"model_type\":\"llama\"}");
    assert_int_equal(t.d.vocab_size, 32000);
    assert_int_equal(t.d.layers[0].n_kv_heads, 32);
    assert_int_equal(t.d.layers[0].head_dim, 128);
    assert_false(t.d.tied);
    close_config(&t);
    // Null means off or derived, never the class default.
    accept(&t, "{\"model_type\":\"mistral\",\"num_key_value_heads\":null,\"head_dim\":null,"
               "\"sliding_window\":null}");
    assert_int_equal(t.d.layers[0].n_kv_heads, 32);
    assert_int_equal(t.d.layers[0].window, 0);
    close_config(&t);
    accept(&t, "{\"model_type\":\"mistral\"}");
    assert_int_equal(t.d.layers[0].n_kv_heads, 8);
    assert_int_equal(t.d.layers[31].window, 4096);
    close_config(&t);
    accept(&t, "{\"model_type\":\"qwen2\",\"sliding_window\":100}");
    assert_int_equal(t.d.layers[31].window, 0);
    assert_int_equal(t.d.layers[0].bias, QN_BIAS_Q | QN_BIAS_K | QN_BIAS_V);
    close_config(&t);
    accept(&t, "{\"model_type\":\"qwen3\",\"use_sliding_window\":true}");
    assert_int_equal(t.d.layers[27].window, 0);
    assert_int_equal(t.d.layers[28].window, 4096);
    assert_int_equal(t.d.layers[0].head_dim, 128);
    assert_true(t.d.layers[0].qk_norm);
    close_config(&t);
    accept(&t, "{\"model_type\":\"smollm3\"}");
    assert_true(t.d.tied);
    assert_int_equal(t.d.layers[2].rope_set, 0);
    assert_int_equal(t.d.layers[3].rope_set, -1);
    close_config(&t);
    refuse("{\"model_type\":\"smollm3\",\"no_rope_layers\":[1,0]}", "no_rope_layers|36");
    refuse("{\"model_type\":\"smollm3\",\"num_hidden_layers\":2,\"no_rope_layers\":[1,2]}",
           "no_rope_layers[1]");
}

#define GEMMA3                                                                                     \
    "\"architectures\":[\"Gemma3ForCausalLM\"],\"model_type\":\"gemma3_text\",\"hidden_size\":"    \
    "640,"                                                                                         \
    "\"num_hidden_layers\":8,\"sliding_window\":512"

static void test_gemma3(void **state)
{
    (void)state;
    struct desc t;
    accept(&t, "{" GEMMA3 ",\"eos_token_id\":[1,106]}");
    assert_true(t.d.tied);
    assert_true(t.d.norm_plus_one);
    assert_int_equal(t.d.glu, QN_GLU_GELU_TANH);
    near((double)t.d.embed_scale, sqrt(640.0));
    assert_true(t.d.embed_scale_bf16);
    assert_int_equal(t.d.n_eos_ids, 2);
    for (size_t i = 0; i < 8; i++) { // every sixth is full, the last may slide
        assert_int_equal(t.d.layers[i].window, i == 5 ? 0 : 512);
        near((double)t.d.layers[i].attn_scale, 1.0 / 16);
    }
    const struct qn_rope_set *full = &t.d.rope[t.d.layers[5].rope_set];
    const struct qn_rope_set *sliding = &t.d.rope[t.d.layers[7].rope_set];
    near((double)sliding->w[1], .930572041);
    near((double)sliding->w[127], .000107460783);
    near((double)full->w[1], 0.897687174);
    close_config(&t);
    // Old style: the scaling is the full layers' alone.
    accept(&t, "{" GEMMA3 ",\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}}");
    near((double)t.d.rope[t.d.layers[5].rope_set].w[0], 1.0 / 8);
    near((double)t.d.rope[t.d.layers[7].rope_set].w[0], 1.0);
    close_config(&t);
    refuse("{" GEMMA3 ",\"use_bidirectional_attention\":true}", "use_bidirectional_attention");
    refuse("{" GEMMA3 ",\"layer_types\":[\"full_attention\"]}", "layer_types|8");
    refuse("{\"model_type\":\"gemma3_text\",\"num_hidden_layers\":1,"
           "\"layer_types\":[\"chunked_attention\"]}",
           "chunked_attention");
    refuse("{" GEMMA3 ",\"layer_types\":3}", "layer_types|list");
    refuse("{" GEMMA3 ",\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}}",
           "rope_parameters|sliding_attention");
    refuse("{" GEMMA3 ",\"query_pre_attn_scalar\":0}", "query_pre_attn_scalar");
}

// Multimodal: the decoder is in text_config; flags and ids may be outside it.
static void test_LOD_05_tied_outside_text_config(void **state)
{
    (void)state;
    struct desc t;
    accept(&t, "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"eos_token_id\":[1,106],"
               "\"tie_word_embeddings\":false,\"text_config\":{\"model_type\":\"gemma3_text\","
               "\"hidden_size\":640,\"num_hidden_layers\":2,\"eos_token_id\":1}}");
    assert_false(t.d.tied);
    assert_int_equal(t.d.d_model, 640);
    assert_int_equal(t.d.n_eos_ids, 2);
    close_config(&t);
    accept(&t, "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],"
               "\"tie_word_embeddings\":false,\"text_config\":{\"tie_word_embeddings\":true}}");
    assert_true(t.d.tied);
    close_config(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_LOD_08_llama3_rope),
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_other_ropes),
        cmocka_unit_test(test_LOD_09_rope_types_refused),
        cmocka_unit_test(test_common_refusals),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_gemma3),
        cmocka_unit_test(test_LOD_05_tied_outside_text_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
