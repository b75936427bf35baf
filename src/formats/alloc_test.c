#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/ckpt.h"
#include "formats/test_files.h"

// Opens checkpoints again and again, each time with the next allocation made to fail. The linker
// sends the library's calls here (--wrap), jansson's among them, which base/json.c redirects.

static size_t g_until; // allocations before the failing one; SIZE_MAX: none fails
static size_t g_seen;

static bool fails(void)
{
    return g_until != SIZE_MAX && g_seen++ == g_until;
}

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__real_aligned_alloc(size_t align, size_t n);
char *__real_strdup(const char *s);
char *__real_strndup(const char *s, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
void *__wrap_aligned_alloc(size_t align, size_t n);
char *__wrap_strdup(const char *s);
char *__wrap_strndup(const char *s, size_t n);
int __wrap_asprintf(char **out, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(align, n);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}

char *__wrap_strndup(const char *s, size_t n)
{
    return fails() ? NULL : __real_strndup(s, n);
}

int __wrap_asprintf(char **out, const char *fmt, ...)
{
    if (fails()) {
        return -1;
    }
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(out, fmt, ap);
    va_end(ap);
    return n;
}

static void every_failure(const char *path, size_t least)
{
    for (g_until = 0;; g_until++) {
        struct qn_ckpt *c = NULL;
        struct qn_err err = {0};
        g_seen = 0;
        enum qn_status rc = qn_ckpt_open(path, &c, &err);
        if (rc == QN_OK && g_seen <= g_until) { // nothing was left to fail
            qn_ckpt_close(c);
            break;
        }
        size_t n = g_until;
        if (rc == QN_OK) { // a note was dropped, or a sort took another way
            qn_ckpt_close(c);
        } else if (rc != QN_E_NOMEM || c != NULL) {
            g_until = SIZE_MAX;
            fail_msg("allocation %zu: found %s \"%s\", expected no memory", n, qn_status_name(rc),
                     err.msg);
        }
    }
    size_t n = g_until;
    g_until = SIZE_MAX;
    print_message("%zu allocations, each made to fail\n", n);
    assert_true(n >= least);
}

static void test_directory(void **state)
{
    (void)state;
    char dir[256];
    struct qn_buf b;
    qn_tf_mkdir(dir);
    qn_tf_puts(dir, "config.json", "{\"model_type\":\"llama\",\"list\":[1,2.5,\"x\"]}");
    qn_tf_puts(dir, "generation_config.json", "{\"eos_token_id\":[1]}");
    qn_tf_puts(dir, "tokenizer_config.json",
               "{\"chat_template\":\"x\",\"big\":100000000000000000000}");
    qn_tf_puts(dir, "tokenizer.json", "{}");
    qn_tf_puts(dir, "model.safetensors.index.json",
               "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\"}}");
    qn_tf_st(&b,
             "{\"__metadata__\":{\"k\":\"v\"},"
             "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
             "\"extra\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
             2);
    qn_tf_write(dir, "s1.safetensors", b.data, b.len);
    qn_buf_done(&b);
    qn_tf_st(&b, "{\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1);
    qn_tf_write(dir, "s2.safetensors", b.data, b.len);
    qn_buf_done(&b);
    every_failure(dir, 60);
    qn_tf_rmdir(dir);
}

static void test_gguf(void **state)
{
    (void)state;
    static const char *const k_tokens[2] = {"a", "<|im_end|>"};
    static const int32_t k_types[2] = {1, 3};
    static const char *const k_archs[] = {"llama", "gemma3"};
    for (size_t i = 0; i < 2; i++) {
        char dir[256], path[300];
        struct qn_tf_gguf g;
        struct qn_buf b;
        qn_tf_mkdir(dir);
        qn_tf_init(&g);
        qn_tf_model(&g, k_archs[i]);
        if (i == 1) {
            qn_tf_f32(&g, "gemma3.rope.freq_base", 1e6f);
            qn_tf_u32(&g, "gemma3.attention.sliding_window", 16);
            qn_tf_arr(&g, "gemma3.attention.sliding_window_pattern", QN_GGUF_BOOL, 1, "\1", 1);
        } else {
            qn_tf_u32(&g, "llama.attention.sliding_window", 16);
            qn_tf_str(&g, "llama.rope.scaling.type", "yarn");
            qn_tf_f32(&g, "llama.rope.scaling.factor", 4.0f);
            qn_tf_tensor(&g, "output.weight", 0, 32, 8);
        }
        qn_tf_str(&g, "tokenizer.chat_template", "x");
        qn_tf_strs(&g, "tokenizer.ggml.tokens", k_tokens, 2);
        qn_tf_arr(&g, "tokenizer.ggml.token_type", QN_GGUF_I32, 2, k_types, sizeof k_types);
        qn_tf_u32(&g, "tokenizer.ggml.eos_token_id", 0);
        qn_tf_finish(&g, &b);
        qn_tf_write(dir, "m.gguf", b.data, b.len);
        qn_buf_done(&b);
        qn_tf_done(&g);
        snprintf(path, sizeof path, "%s/m.gguf", dir);
        every_failure(path, 60);
        qn_tf_rmdir(dir);
    }
}

int main(void)
{
    g_until = SIZE_MAX;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_directory),
        cmocka_unit_test(test_gguf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
