#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "formats/ckpt.h"
#include "formats/ckpt_priv.h"
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

// A shard with one-byte tensors of the given names.
static void put_shard(const char *file, const char *const *names, size_t n)
{
    struct qn_buf h, b;
    qn_buf_init(&h, 0);
    qn_buf_puts(&h, "{");
    for (size_t i = 0; i < n; i++) {
        qn_buf_printf(&h, "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%zu,%zu]}",
                      i > 0 ? "," : "", names[i], i, i + 1);
    }
    qn_buf_puts(&h, "}");
    qn_tf_st(&b, h.data, n);
    qn_tf_write(g_dir, file, b.data, b.len);
    qn_buf_done(&b);
    qn_buf_done(&h);
}

static void put_index(const char *map)
{
    struct qn_buf b;
    qn_buf_init(&b, 0);
    qn_buf_printf(&b, "{\"metadata\":{\"total_size\":2,\"x\":1},\"weight_map\":%s}", map);
    qn_tf_puts(g_dir, "model.safetensors.index.json", b.data);
    qn_buf_done(&b);
}

static struct qn_ckpt *open_good(void)
{
    struct qn_ckpt *c = NULL;
    struct qn_err err;
    if (qn_ckpt_open(g_dir, &c, &err) != QN_OK) {
        fail_msg("could not open: %s", err.msg);
    }
    return c;
}

static void open_bad(const char *path, enum qn_status want_rc, const char *want)
{
    struct qn_ckpt *c = NULL;
    struct qn_err err = {0};
    enum qn_status rc = qn_ckpt_open(path, &c, &err);
    if (rc == QN_OK) {
        qn_ckpt_close(c);
        fail_msg("opened, expected \"%s\"", want);
    }
    if (rc != want_rc || strstr(err.msg, want) == NULL) {
        fail_msg("found %s \"%s\", expected %s \"%s\"", qn_status_name(rc), err.msg,
                 qn_status_name(want_rc), want);
    }
}

static void test_LOD_01_missing_shard_is_named(void **state)
{
    (void)state;
    qn_tf_puts(g_dir, "config.json", "{}");
    put_shard("model-00001-of-00002.safetensors", (const char *const[]){"a"}, 1);
    put_index("{\"a\":\"model-00001-of-00002.safetensors\",\"b\":\"model-00002-of-00002."
              "safetensors\"}");
    open_bad(g_dir, QN_E_NOT_FOUND, "\"model-00002-of-00002.safetensors\"");
    // with both shards it opens
    put_shard("model-00002-of-00002.safetensors", (const char *const[]){"b"}, 1);
    struct qn_ckpt *c = open_good();
    assert_int_equal(qn_ckpt_n_tensors(c), 2);
    assert_string_equal(qn_ckpt_find(c, "b")->file, "model-00002-of-00002.safetensors");
    assert_null(qn_ckpt_note(c, 0));
    qn_ckpt_close(c);
}

static void test_LOD_01_missing_tensor_is_named(void **state)
{
    (void)state;
    qn_tf_puts(g_dir, "config.json", "{}");
    put_shard("s1.safetensors", (const char *const[]){"a"}, 1);
    put_shard("s2.safetensors", (const char *const[]){"b", "c"}, 2);
    put_index("{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\",\"lost\":\"s2.safetensors\"}");
    open_bad(g_dir, QN_E_FORMAT,
             "tensor \"lost\": listed in model.safetensors.index.json, not "
             "found in file \"s2.safetensors\"");
    // a tensor that is only in another shard than the index says
    put_index("{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\",\"c\":\"s2.safetensors\"}");
    open_bad(g_dir, QN_E_FORMAT, "tensor \"b\"");
}

static void test_tensor_in_two_shards_is_refused(void **state)
{
    (void)state;
    qn_tf_puts(g_dir, "config.json", "{}");
    put_shard("s1.safetensors", (const char *const[]){"a", "b"}, 2);
    put_shard("s2.safetensors", (const char *const[]){"b"}, 1);
    put_index("{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}");
    open_bad(g_dir, QN_E_FORMAT,
             "tensor \"b\": found in file \"s2.safetensors\" and in file \"s1.safetensors\"");
}

static void test_unlisted_tensor_and_wrong_total_are_noted(void **state)
{
    (void)state;
    qn_tf_puts(g_dir, "config.json", "{}");
    put_shard("s1.safetensors", (const char *const[]){"a", "extra"}, 2);
    put_index("{\"a\":\"s1.safetensors\"}");
    struct qn_ckpt *c = open_good();
    assert_int_equal(qn_ckpt_n_tensors(c), 1);
    assert_null(qn_ckpt_find(c, "extra"));
    assert_non_null(strstr(qn_ckpt_note(c, 0), "\"extra\""));
    assert_non_null(strstr(qn_ckpt_note(c, 1), "total_size says 2, the tensors have 1"));
    assert_null(qn_ckpt_note(c, 2));
    qn_ckpt_close(c);
}

static void test_index_wins_when_it_is_whole(void **state)
{
    (void)state;
    qn_tf_puts(g_dir, "config.json", "{}");
    put_shard("model.safetensors", (const char *const[]){"single"}, 1);
    put_index("{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\"}");
    struct qn_ckpt *c = open_good(); // s1 is missing: the single file
    assert_non_null(qn_ckpt_find(c, "single"));
    assert_non_null(strstr(qn_ckpt_note(c, 0), "s1.safetensors"));
    qn_ckpt_close(c);
    put_shard("s1.safetensors", (const char *const[]){"a", "b"}, 2);
    c = open_good();
    assert_non_null(qn_ckpt_find(c, "a"));
    assert_null(qn_ckpt_find(c, "single"));
    qn_ckpt_close(c);
}

static void test_shard_names_are_plain(void **state)
{
    (void)state;
    static const char *const k_bad[] = {
        "../s1.safetensors", "/etc/passwd", "a/b", "a\\\\b", ".hidden", "",
        "a\\u0000b",         "a\\nb",       "a..b"};
    qn_tf_puts(g_dir, "config.json", "{}");
    for (size_t i = 0; i < sizeof k_bad / sizeof k_bad[0]; i++) {
        struct qn_buf b;
        qn_buf_init(&b, 0);
        qn_buf_printf(&b, "{\"a\":\"%s\"}", k_bad[i]);
        put_index(b.data);
        qn_buf_done(&b);
        open_bad(g_dir, QN_E_FORMAT, "expected a plain file name");
    }
    put_index("{\"a\":1}");
    open_bad(g_dir, QN_E_FORMAT, "found an integer, expected a file name");
    put_index("[]");
    open_bad(g_dir, QN_E_FORMAT, "\"weight_map\": found an array");
    put_index("{\"a\":\"s\",\"a\":\"s\"}");
    open_bad(g_dir, QN_E_FORMAT, "duplicate");
}

static void test_directories_that_lack_something(void **state)
{
    (void)state;
    open_bad(g_dir, QN_E_NOT_FOUND, "config.json");
    qn_tf_puts(g_dir, "config.json", "{}");
    open_bad(g_dir, QN_E_NOT_FOUND, "model.safetensors");
    qn_tf_puts(g_dir, "config.json", "[]");
    open_bad(g_dir, QN_E_FORMAT, "found an array, expected an object");
    qn_tf_puts(g_dir, "config.json", "{\"a\":");
    open_bad(g_dir, QN_E_FORMAT, "invalid JSON");
    qn_tf_puts(g_dir, "config.json", "{}");
    qn_tf_puts(g_dir, "model.safetensors", "short");
    open_bad(g_dir, QN_E_FORMAT, "model.safetensors");
    char path[300];
    snprintf(path, sizeof path, "%s/model.safetensors", g_dir);
    open_bad(path, QN_E_INVALID, "expected the directory");
    snprintf(path, sizeof path, "%s/absent.gguf", g_dir);
    open_bad(path, QN_E_NOT_FOUND, "absent.gguf");
}

static void test_prefixes_and_foreign_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *stored, *name;
    } k_names[] = {
        {"model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"},
        {"lm_head.weight", "lm_head.weight"},
        {"model.language_model.norm.weight", "model.norm.weight"},
        {"language_model.model.norm.weight", "model.norm.weight"},
        {"model.language_model.model.norm.weight", "model.norm.weight"},
        {"language_model.model.model.norm.weight", "model.norm.weight"},
        {"language_model.lm_head.weight", "lm_head.weight"},
        {"model.language_model.lm_head.weight", "lm_head.weight"},
        {"vision_tower.encoder.x", NULL},
        {"model.vision_tower.encoder.x", NULL},
        {"model.audio_tower.x", NULL},
        {"model.embed_vision.x", NULL},
        {"model.embed_audio.x", NULL},
        {"multi_modal_projector.x", NULL},
        {"model.layers.0.self_attn.rotary_emb.inv_freq", NULL},
        {"mtp.layers.0.x", NULL},
    };
    for (size_t i = 0; i < sizeof k_names / sizeof k_names[0]; i++) {
        char name[QN_CKPT_NAME_MAX];
        bool kept = qn_ckpt_normal_name(k_names[i].stored, name);
        assert_int_equal(kept, k_names[i].name != NULL);
        if (kept) {
            assert_string_equal(name, k_names[i].name);
        }
    }
    qn_tf_puts(g_dir, "config.json", "{}");
    put_shard("model.safetensors",
              (const char *const[]){"language_model.model.norm.weight", "vision_tower.a", "mtp.b"},
              3);
    struct qn_ckpt *c = open_good();
    assert_int_equal(qn_ckpt_n_tensors(c), 1);
    assert_non_null(qn_ckpt_find(c, "model.norm.weight"));
    assert_non_null(strstr(qn_ckpt_note(c, 0), "2 tensors"));
    qn_ckpt_close(c);
    put_shard("model.safetensors",
              (const char *const[]){"language_model.model.norm.weight", "model.norm.weight"}, 2);
    open_bad(g_dir, QN_E_FORMAT, "tensor \"model.norm.weight\": found in file");
}

// Whether the head is tied is the model's decision: the view shows the flag where it stands and
// every head tensor there is.
static void test_LOD_05_LOD_06_tie_flag_and_heads_are_shown(void **state)
{
    (void)state;
    qn_tf_puts(g_dir, "config.json",
               "{\"tie_word_embeddings\":true,\"text_config\":{\"tie_word_embeddings\":false}}");
    put_shard("model.safetensors",
              (const char *const[]){"model.embed_tokens.weight", "lm_head.weight",
                                    "lm_head.weight_scale"},
              3);
    struct qn_ckpt *c = open_good();
    const json_t *config = qn_ckpt_config(c);
    assert_true(json_is_true(json_object_get(config, "tie_word_embeddings")));
    assert_true(json_is_false(
        json_object_get(json_object_get(config, "text_config"), "tie_word_embeddings")));
    assert_non_null(qn_ckpt_find(c, "lm_head.weight"));
    assert_non_null(qn_ckpt_find(c, "lm_head.weight_scale"));
    qn_ckpt_close(c);
}

static void test_LOD_11_mixed_dtypes_keep_theirs(void **state)
{
    (void)state;
    struct qn_buf b;
    qn_tf_puts(g_dir, "config.json", "{\"dtype\":\"bfloat16\"}");
    qn_tf_st(&b,
             "{\"x\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]},"
             "\"y\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[4,8]},"
             "\"z\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
             12);
    const uint16_t bf16 = 0x4974, f16 = 0x7bff; // 999424 and 65504
    const float f32 = 1e-30f;
    memcpy(b.data + b.len - 12, &bf16, 2);
    memcpy(b.data + b.len - 8, &f16, 2);
    memcpy(b.data + b.len - 4, &f32, 4);
    qn_tf_write(g_dir, "model.safetensors", b.data, b.len);
    qn_buf_done(&b);
    struct qn_ckpt *c = open_good();
    float x[2], y[2], z;
    assert_int_equal(qn_tensor_read_f32(qn_ckpt_find(c, "x"), 0, 0, 2, x, NULL), QN_OK);
    assert_int_equal(qn_tensor_read_f32(qn_ckpt_find(c, "y"), 0, 0, 2, y, NULL), QN_OK);
    assert_int_equal(qn_tensor_read_f32(qn_ckpt_find(c, "z"), 0, 0, 1, &z, NULL), QN_OK);
    assert_true(x[0] == 999424.0f && y[0] == 65504.0f && z == 1e-30f);
    qn_ckpt_close(c);
}

static void test_templates_and_side_files(void **state)
{
    (void)state;
    qn_tf_puts(g_dir, "config.json", "{}");
    put_shard("model.safetensors", (const char *const[]){"a"}, 1);
    struct qn_ckpt *c = open_good();
    assert_null(qn_ckpt_chat_template(c));
    assert_null(qn_ckpt_tokenizer_path(c));
    assert_null(qn_ckpt_tokenizer_config(c));
    assert_null(qn_ckpt_generation_config(c));
    assert_null(qn_ckpt_gguf(c));
    assert_string_equal(qn_ckpt_format(c), "safetensors");
    qn_ckpt_close(c);

    // an integer beyond 64 bits is common here
    qn_tf_puts(
        g_dir, "tokenizer_config.json",
        "{\"model_max_length\":1000000000000000019884624838656,\"x\":\"9999999999999999999\","
        "\"i\":9223372036854775807,\"j\":-9223372036854775808,\"k\":9223372036854775808,"
        "\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"T\"},"
        "{\"name\":\"default\",\"template\":\"D\"}]}");
    qn_tf_puts(g_dir, "generation_config.json", "{\"eos_token_id\":[1,2]}");
    qn_tf_puts(g_dir, "tokenizer.json", "{}");
    c = open_good();
    const json_t *tc = qn_ckpt_tokenizer_config(c);
    assert_string_equal(qn_ckpt_chat_template(c), "D");
    assert_true(json_real_value(json_object_get(tc, "model_max_length")) == 1e30);
    assert_string_equal(json_string_value(json_object_get(tc, "x")), "9999999999999999999");
    assert_true(json_integer_value(json_object_get(tc, "i")) == INT64_MAX);
    assert_true(json_integer_value(json_object_get(tc, "j")) == INT64_MIN);
    assert_true(json_real_value(json_object_get(tc, "k")) == 0x1p63);
    assert_int_equal(json_array_size(json_object_get(qn_ckpt_generation_config(c), "eos_token_id")),
                     2);
    assert_non_null(strstr(qn_ckpt_tokenizer_path(c), "/tokenizer.json"));
    qn_ckpt_close(c);

    qn_tf_puts(g_dir, "tokenizer_config.json", "{\"chat_template\":\"S\"}");
    c = open_good();
    assert_string_equal(qn_ckpt_chat_template(c), "S");
    qn_ckpt_close(c);
    qn_tf_puts(g_dir, "chat_template.jinja", "J");
    c = open_good();
    assert_string_equal(qn_ckpt_chat_template(c), "J");
    qn_ckpt_close(c);
    qn_tf_write(g_dir, "chat_template.jinja", "a\0b", 3);
    open_bad(g_dir, QN_E_FORMAT, "found a NUL byte at 1");
    qn_tf_puts(g_dir, "chat_template.jinja", "");
    qn_tf_puts(g_dir, "tokenizer_config.json", "[]");
    open_bad(g_dir, QN_E_FORMAT, "tokenizer_config.json");
}

static void test_text_alone(void **state)
{
    (void)state;
    struct qn_ckpt *c = NULL;
    struct qn_err err = {0};
    assert_int_equal(qn_ckpt_open_text(g_dir, &c, &err), QN_E_NOT_FOUND);
    assert_non_null(strstr(err.msg, "config.json"));

    qn_tf_puts(g_dir, "tokenizer.json", "{}");
    open_bad(g_dir, QN_E_NOT_FOUND, "config.json");
    assert_int_equal(qn_ckpt_open_text(g_dir, &c, &err), QN_OK);
    assert_int_equal(json_object_size(qn_ckpt_config(c)), 0);
    assert_non_null(strstr(qn_ckpt_tokenizer_path(c), "/tokenizer.json"));
    assert_int_equal(qn_ckpt_n_tensors(c), 0);
    qn_ckpt_close(c);

    qn_tf_puts(g_dir, "config.json", "{\"vocab_size\":8}");
    qn_tf_puts(g_dir, "model.safetensors", "not a weight file");
    open_bad(g_dir, QN_E_LIMIT, "model.safetensors");
    assert_int_equal(qn_ckpt_open_text(g_dir, &c, &err), QN_OK);
    assert_int_equal(json_object_size(qn_ckpt_config(c)), 1);
    qn_ckpt_close(c);
    qn_tf_puts(g_dir, "config.json", "[]");
    assert_int_equal(qn_ckpt_open_text(g_dir, &c, &err), QN_E_FORMAT);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        T(test_LOD_01_missing_shard_is_named),
        T(test_LOD_01_missing_tensor_is_named),
        T(test_tensor_in_two_shards_is_refused),
        T(test_unlisted_tensor_and_wrong_total_are_noted),
        T(test_index_wins_when_it_is_whole),
        T(test_shard_names_are_plain),
        T(test_directories_that_lack_something),
        T(test_prefixes_and_foreign_tensors),
        T(test_LOD_05_LOD_06_tie_flag_and_heads_are_shown),
        T(test_LOD_11_mixed_dtypes_keep_theirs),
        T(test_templates_and_side_files),
        T(test_text_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
