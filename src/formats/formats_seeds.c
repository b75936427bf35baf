// Writes small valid checkpoint files, to start the fuzz targets from: seeds DIR/safetensors
// DIR/gguf (both directories exist).

#include <stdio.h>

#include "formats/test_files.h"

static void put_gguf(const char *dir, const char *arch)
{
    static const char *const k_tokens[3] = {"a", "<|im_end|>", "xyz"};
    static const int32_t k_types[3] = {1, 3, 1};
    static const float k_scores[3] = {0, -1, -2};
    struct qn_tf_gguf g;
    struct qn_buf out;
    char key[64];
    qn_tf_init(&g);
    qn_tf_model(&g, arch);
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    qn_tf_f32(&g, key, 10000.0f);
    snprintf(key, sizeof key, "%s.attention.sliding_window", arch);
    qn_tf_u32(&g, key, 16);
    snprintf(key, sizeof key, "%s.rope.scaling.type", arch);
    qn_tf_str(&g, key, "yarn");
    snprintf(key, sizeof key, "%s.rope.scaling.factor", arch);
    qn_tf_f32(&g, key, 4.0f);
    qn_tf_str(&g, "tokenizer.chat_template", "{{ x }}");
    qn_tf_strs(&g, "tokenizer.ggml.tokens", k_tokens, 3);
    qn_tf_arr(&g, "tokenizer.ggml.token_type", QN_GGUF_I32, 3, k_types, sizeof k_types);
    qn_tf_arr(&g, "tokenizer.ggml.scores", QN_GGUF_F32, 3, k_scores, sizeof k_scores);
    qn_tf_finish(&g, &out);
    qn_tf_write(dir, arch, out.data, out.len);
    qn_buf_done(&out);
    qn_tf_done(&g);
}

static void put_types(const char *dir)
{
    static const unsigned k_ids[] = {0, 1, 2, 8, 12, 14, 16, 30};
    struct qn_tf_gguf g;
    struct qn_buf out;
    qn_tf_init(&g);
    qn_tf_u32(&g, "general.alignment", 32);
    for (size_t i = 0; i < sizeof k_ids / sizeof k_ids[0]; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%u.weight", k_ids[i]);
        qn_tf_tensor(&g, name, k_ids[i], 256, i % 2);
    }
    qn_tf_finish(&g, &out);
    qn_tf_write(dir, "types", out.data, out.len);
    qn_buf_done(&out);
    qn_tf_done(&g);
}

static void put_st(const char *dir, const char *name, const char *header, size_t n)
{
    struct qn_buf out;
    qn_tf_st(&out, header, n);
    qn_tf_write(dir, name, out.data, out.len);
    qn_buf_done(&out);
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: formats_seeds SAFETENSORS_DIR GGUF_DIR\n");
        return 2;
    }
    put_st(argv[1], "two",
           "{\"__metadata__\":{\"format\":\"pt\"},"
           "\"a\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
           "\"b\\u00e9\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[8,10]}}  ",
           10);
    put_st(argv[1], "empty", "{}", 0);
    put_st(argv[1], "zero", "{\"a\":{\"dtype\":\"I8\",\"shape\":[0,3],\"data_offsets\":[0,0]}}", 0);
    static const char *const k_archs[] = {"llama", "qwen2", "qwen3", "gemma3", "smollm3"};
    for (size_t i = 0; i < sizeof k_archs / sizeof k_archs[0]; i++) {
        put_gguf(argv[2], k_archs[i]);
    }
    put_types(argv[2]);
    return 0;
}
