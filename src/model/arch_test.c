#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "formats/test_files.h"
#include "model/desc.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

// Sizes small enough to read, layers enough for every pattern.
#define SIZES                                                                                      \
    "\"vocab_size\":32,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":6,"       \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2"

// What each family's file makes of the keys that its configurations have.

struct fixture {
    char dir[256];
    struct qn_ckpt *ckpt;
    struct qn_arena *arena;
    struct qn_desc desc;
    struct qn_err err;
};

static int begin(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    struct qn_buf st = {0};
    qn_tf_mkdir(f.dir);
    qn_tf_st(&st, "{\"t\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    qn_tf_write(f.dir, "model.safetensors", st.data, st.len);
    qn_buf_done(&st);
    assert_int_equal(qn_arena_new(QN_MEM_OTHER, 0, &f.arena, NULL), QN_OK);
    *state = &f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    qn_ckpt_close(f->ckpt);
    qn_arena_free(f->arena);
    qn_tf_rmdir(f->dir);
    return 0;
}

static enum qn_status describe_text(struct fixture *f, const char *config)
{
    qn_ckpt_close(f->ckpt);
    f->ckpt = NULL;
    f->err = (struct qn_err){0};
    qn_tf_puts(f->dir, "config.json", config);
    if (qn_ckpt_open(f->dir, &f->ckpt, &f->err) != QN_OK) {
        fail_msg("%s", f->err.msg);
    }
    return qn_desc_from_ckpt(f->ckpt, f->arena, &f->desc, &f->err);
}

static enum qn_status describe(struct fixture *f, const char *arch, const char *more)
{
    char config[2048];
    snprintf(config, sizeof config, "{\"architectures\":[\"%s\"]%s%s}", arch,
             more[0] != '\0' ? "," : "", more);
    return describe_text(f, config);
}

static const struct qn_desc *good(struct fixture *f, const char *arch, const char *more)
{
    if (describe(f, arch, more) != QN_OK) {
        fail_msg("%s {%s}: %s", arch, more, f->err.msg);
    }
    return &f->desc;
}

static void refused(struct fixture *f, const char *arch, const char *more, enum qn_status want_rc,
                    const char *want)
{
    enum qn_status rc = describe(f, arch, more);
    if (rc != want_rc || strstr(f->err.msg, want) == NULL) {
        fail_msg("%s {%s}: found %s \"%s\", expected %s \"%s\"", arch, more, qn_status_name(rc),
                 f->err.msg, qn_status_name(want_rc), want);
    }
}

// The window of each layer, one after another.
static void windows(struct fixture *f, const char *arch, const char *more, const char *want)
{
    char config[1024], got[256] = "";
    snprintf(config, sizeof config, SIZES "%s%s", more[0] != '\0' ? "," : "", more);
    const struct qn_desc *d = good(f, arch, config);
    for (size_t i = 0; i < d->n_layers; i++) {
        size_t n = strlen(got);
        snprintf(got + n, sizeof got - n, "%s%zu", i > 0 ? " " : "", d->layers[i].window);
    }
    if (strcmp(got, want) != 0) {
        fail_msg("%s {%s}: windows %s, expected %s", arch, more, got, want);
    }
}

// What a config without the key means, by class.
static void test_class_defaults(void **state)
{
    static const struct {
        const char *arch;
        size_t vocab, d_model, ff, layers, heads, kv, head_dim, position;
        double eps, w1; ///< w1: turn of pair 1 of layer 0
        bool tied;
    } rows[] = {
        {"LlamaForCausalLM", 32000, 4096, 11008, 32, 32, 32, 128, 2048, 1e-6, .865964323, false},
        {"MistralForCausalLM", 32000, 4096, 14336, 32, 32, 8, 128, 131072, 1e-6, .865964323, false},
        {"Qwen2ForCausalLM", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e-6, .865964323, false},
        {"Qwen3ForCausalLM", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 1e-6, .865964323, false},
        {"Gemma3ForCausalLM", 262208, 2304, 9216, 26, 8, 4, 256, 131072, 1e-6, .930572041, true},
        {"SmolLM3ForCausalLM", 128256, 2048, 11008, 36, 16, 4, 128, 32768, 1e-6, .797161666, true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct qn_desc *d = good(*state, rows[i].arch, "");
        const struct qn_desc_layer *l = &d->layers[0];
        assert_string_equal(d->arch, rows[i].arch);
        assert_int_equal(d->vocab_size, rows[i].vocab);
        assert_int_equal(d->d_model, rows[i].d_model);
        assert_int_equal(l->d_ff, rows[i].ff);
        assert_int_equal(d->n_layers, rows[i].layers);
        assert_int_equal(l->n_heads, rows[i].heads);
        assert_int_equal(l->n_kv_heads, rows[i].kv);
        assert_int_equal(l->head_dim, rows[i].head_dim);
        assert_int_equal(d->max_position, rows[i].position);
        assert_float_equal(d->rms_eps, rows[i].eps, 1e-12);
        assert_float_equal(d->rope[l->rope_set].w[1], rows[i].w1, 5e-7);
        assert_int_equal(d->tied, rows[i].tied);
        assert_int_equal(d->bos_id, -1);
    }
}

static void test_llama_biases(void **state)
{
    const unsigned attn = QN_BIAS_Q | QN_BIAS_K | QN_BIAS_V | QN_BIAS_O,
                   mlp = QN_BIAS_GATE_UP | QN_BIAS_DOWN;
    const struct {
        const char *arch, *more;
        unsigned bias;
        bool qk_norm;
    } rows[] = {
        {"LlamaForCausalLM", SIZES, 0, false},
        {"LlamaForCausalLM", SIZES ",\"attention_bias\":true", attn, false},
        {"LlamaForCausalLM", SIZES ",\"mlp_bias\":true", mlp, false},
        {"MistralForCausalLM", SIZES ",\"attention_bias\":true", 0, false},
        {"Qwen2ForCausalLM", SIZES, QN_BIAS_Q | QN_BIAS_K | QN_BIAS_V, false},
        {"Qwen3ForCausalLM", SIZES, 0, true},
        {"Qwen3ForCausalLM", SIZES ",\"attention_bias\":true,\"mlp_bias\":true", attn, true},
        {"SmolLM3ForCausalLM", SIZES ",\"attention_bias\":true,\"mlp_bias\":true", attn | mlp,
         false},
        {"Gemma3ForCausalLM", SIZES ",\"attention_bias\":true", attn, true},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct qn_desc *d = good(*state, rows[i].arch, rows[i].more);
        for (size_t j = 0; j < d->n_layers; j++) {
            assert_int_equal(d->layers[j].bias, rows[i].bias);
            assert_int_equal(d->layers[j].qk_norm, rows[i].qk_norm);
        }
    }
}

static void test_LOD_10_head_counts_and_sizes(void **state)
{
    const struct qn_desc *d =
        good(*state, "LlamaForCausalLM",
             "\"hidden_size\":40,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
             "\"head_dim\":16");
    assert_int_equal(d->layers[0].head_dim, 16);
    assert_float_equal(d->layers[0].attn_scale, 0.25, 0);
    d = good(*state, "LlamaForCausalLM",
             "\"hidden_size\":40,\"num_attention_heads\":4,\"num_key_value_heads\":null,"
             "\"head_dim\":null");
    assert_int_equal(d->layers[0].head_dim, 10);
    assert_int_equal(d->layers[0].n_kv_heads, 4);
    d = good(*state, "MistralForCausalLM",
             "\"hidden_size\":40,\"num_attention_heads\":4,\"num_key_value_heads\":null");
    assert_int_equal(d->layers[0].n_kv_heads, 4); // null beats the class default
}

static void test_windows(void **state)
{
    struct fixture *f = *state;
    windows(f, "LlamaForCausalLM", "\"sliding_window\":9", "0 0 0 0 0 0");
    windows(f, "MistralForCausalLM", "", "4096 4096 4096 4096 4096 4096");
    windows(f, "MistralForCausalLM", "\"sliding_window\":null", "0 0 0 0 0 0");
    windows(f, "MistralForCausalLM", "\"sliding_window\":9", "9 9 9 9 9 9");
    windows(f, "Qwen2ForCausalLM", "\"sliding_window\":9", "0 0 0 0 0 0");
    windows(f, "Qwen2ForCausalLM", "\"sliding_window\":9,\"use_sliding_window\":true",
            "0 0 0 0 0 0");
    windows(f, "Qwen2ForCausalLM",
            "\"sliding_window\":9,\"use_sliding_window\":true,\"max_window_layers\":4",
            "0 0 0 0 9 9");
    windows(f, "Qwen3ForCausalLM",
            "\"sliding_window\":9,\"use_sliding_window\":true,\"max_window_layers\":0",
            "9 9 9 9 9 9");
    windows(f, "Qwen3ForCausalLM",
            "\"sliding_window\":9,\"use_sliding_window\":true,\"max_window_layers\":0,"
            "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
            "\"full_attention\",\"full_attention\",\"full_attention\"]",
            "0 9 0 0 0 0");
    windows(f, "SmolLM3ForCausalLM", "\"sliding_window\":9", "0 0 0 0 0 0");
    windows(f, "SmolLM3ForCausalLM", "\"sliding_window\":9,\"use_sliding_window\":true",
            "0 0 0 9 0 0");
    windows(f, "SmolLM3ForCausalLM",
            "\"sliding_window\":9,\"use_sliding_window\":true,"
            "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"full_attention\","
            "\"full_attention\",\"full_attention\",\"full_attention\"]",
            "0 9 0 0 0 0");
    windows(f, "Gemma3ForCausalLM", "", "4096 4096 4096 4096 4096 0");
    windows(f, "Gemma3ForCausalLM", "\"sliding_window\":9,\"sliding_window_pattern\":2",
            "9 0 9 0 9 0");
    windows(f, "Gemma3ForCausalLM", "\"sliding_window\":9,\"_sliding_window_pattern\":4",
            "9 9 9 0 9 9");
    windows(f, "Gemma3ForCausalLM",
            "\"sliding_window\":9,\"sliding_window_pattern\":2,"
            "\"layer_types\":[\"full_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"full_attention\",\"full_attention\",\"sliding_attention\"]",
            "0 9 9 0 0 9");
}

static void test_smollm3_layers_without_rotation(void **state)
{
    static const int third[] = {0, 0, -1, 0, 0, -1}, fourth[] = {0, 0, 0, -1, 0, 0},
                     listed[] = {-1, 0, 0, -1, 0, -1};
    const struct {
        const char *more;
        const int *want;
    } rows[] = {{SIZES, fourth},
                {SIZES ",\"no_rope_layer_interval\":3", third},
                {SIZES ",\"no_rope_layers\":[0,1,1,0,1,0],\"no_rope_layer_interval\":3", listed}};
    for (size_t i = 0; i < COUNT(rows); i++) {
        const struct qn_desc *d = good(*state, "SmolLM3ForCausalLM", rows[i].more);
        for (size_t j = 0; j < 6; j++) {
            assert_int_equal(d->layers[j].rope_set, rows[i].want[j]);
        }
    }
}

static void test_gemma3_scales(void **state)
{
    const struct qn_desc *d =
        good(*state, "Gemma3ForCausalLM",
             SIZES ",\"head_dim\":32,\"query_pre_attn_scalar\":64,\"final_logit_softcapping\":30,"
                   "\"attn_logit_softcapping\":null");
    assert_float_equal(d->layers[0].attn_scale, 0.125, 0); // not 32^-0.5
    assert_float_equal(d->embed_scale, 8, 0);
    assert_float_equal(d->final_softcap, 30, 0);
    assert_float_equal(d->layers[0].attn_softcap, 0, 0);
    assert_true(d->norm_plus_one && d->embed_scale_bf16);
    assert_int_equal(d->glu, QN_GLU_GELU_TANH);
    assert_string_equal(d->norms.post_ffn, "post_feedforward_layernorm");
    d = good(*state, "Gemma3ForCausalLM", SIZES);
    assert_float_equal(d->layers[0].attn_scale, 0.0625, 0);
    d = good(*state, "LlamaForCausalLM", SIZES);
    assert_float_equal(d->embed_scale, 1, 0);
    assert_true(!d->norm_plus_one && d->norms.post_ffn == NULL);
}

// hidden_activation goes before hidden_act.
static void test_activation_keys(void **state)
{
    assert_int_equal(good(*state, "LlamaForCausalLM", SIZES)->glu, QN_GLU_SILU);
    assert_int_equal(
        good(*state, "LlamaForCausalLM", SIZES ",\"hidden_act\":\"gelu_pytorch_tanh\"")->glu,
        QN_GLU_GELU_TANH);
    assert_int_equal(good(*state, "Gemma3ForCausalLM",
                          SIZES ",\"hidden_act\":\"gelu\",\"hidden_activation\":"
                                "\"gelu_pytorch_tanh\"")
                         ->glu,
                     QN_GLU_GELU_TANH);
}

static void test_stop_ids(void **state)
{
    struct fixture *f = *state;
    static const int32_t want[] = {7, 5, 11};
    qn_tf_puts(f->dir, "generation_config.json",
               "{\"eos_token_id\":[7,5,7],\"suppress_tokens\":[3,4]}");
    const struct qn_desc *d =
        good(f, "LlamaForCausalLM", SIZES ",\"bos_token_id\":4,\"eos_token_id\":[5,11]");
    assert_int_equal(d->n_eos_ids, 3);
    assert_memory_equal(d->eos_ids, want, sizeof want);
    assert_int_equal(d->n_suppress_ids, 2);
    assert_int_equal(d->bos_id, 4);
    refused(f, "LlamaForCausalLM", SIZES ",\"eos_token_id\":[5,-1]", QN_E_FORMAT,
            "key \"eos_token_id\"");
    refused(f, "LlamaForCausalLM", SIZES ",\"eos_token_id\":\"</s>\"", QN_E_FORMAT,
            "found a string, expected a token id or a list of ids");
    char many[1024] = SIZES ",\"eos_token_id\":[100";
    for (int i = 0; i < QN_MAX_STOP_IDS; i++) {
        size_t n = strlen(many);
        snprintf(many + n, sizeof many - n, ",%d", 101 + i);
    }
    const size_t n_many = strlen(many);
    snprintf(many + n_many, sizeof many - n_many, "]");
    refused(f, "LlamaForCausalLM", many, QN_E_LIMIT, "more than 64 ids");
}

static void test_refused(void **state)
{
    static const struct {
        const char *arch, *more;
        enum qn_status rc;
        const char *want;
    } cases[] = {
        {"Gemma3ForCausalLM", SIZES ",\"layer_types\":[\"full_attention\"]", QN_E_FORMAT,
         "layer_types: found 1 entries, expected 6"},
        {"Gemma3ForCausalLM",
         SIZES ",\"layer_types\":[\"full_attention\",\"linear_attention\",\"full_attention\","
               "\"full_attention\",\"full_attention\",\"full_attention\"]",
         QN_E_UNSUPPORTED, "layer_types[1]: found \"linear_attention\""},
        {"MistralForCausalLM",
         SIZES ",\"layer_types\":[\"full_attention\",3,\"full_attention\","
               "\"full_attention\",\"full_attention\",\"full_attention\"]",
         QN_E_UNSUPPORTED, "layer_types[1]: found \"no string\""},
        {"Gemma3ForCausalLM", SIZES ",\"use_bidirectional_attention\":\"all\"", QN_E_UNSUPPORTED,
         "use_bidirectional_attention"},
        {"LlamaForCausalLM", "\"num_hidden_layers\":513", QN_E_FORMAT, "num_hidden_layers"},
        {"LlamaForCausalLM", "\"vocab_size\":0", QN_E_FORMAT, "vocab_size"},
        {"LlamaForCausalLM", "\"hidden_size\":\"64\"", QN_E_FORMAT, "hidden_size"},
        {"LlamaForCausalLM", SIZES ",\"tie_word_embeddings\":1", QN_E_FORMAT,
         "tie_word_embeddings"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        refused(*state, cases[i].arch, cases[i].more, cases[i].rc, cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_class_defaults, begin, end),
        cmocka_unit_test_setup_teardown(test_llama_biases, begin, end),
        cmocka_unit_test_setup_teardown(test_LOD_10_head_counts_and_sizes, begin, end),
        cmocka_unit_test_setup_teardown(test_windows, begin, end),
        cmocka_unit_test_setup_teardown(test_smollm3_layers_without_rotation, begin, end),
        cmocka_unit_test_setup_teardown(test_gemma3_scales, begin, end),
        cmocka_unit_test_setup_teardown(test_activation_keys, begin, end),
        cmocka_unit_test_setup_teardown(test_stop_ids, begin, end),
        cmocka_unit_test_setup_teardown(test_refused, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
