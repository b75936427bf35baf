#include "formats/test_files.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void need(bool ok)
{
    if (!ok) {
        abort();
    }
}

static void add(struct qn_buf *b, const void *data, size_t n)
{
    need(qn_buf_add(b, data, n));
}

static void add_u32(struct qn_buf *b, uint32_t v)
{
    add(b, &v, sizeof v);
}

static void add_u64(struct qn_buf *b, uint64_t v)
{
    add(b, &v, sizeof v);
}

static void add_str(struct qn_buf *b, const char *s)
{
    add_u64(b, strlen(s));
    add(b, s, strlen(s));
}

void qn_tf_st(struct qn_buf *out, const char *header, size_t n_data)
{
    qn_buf_init(out, 0);
    add_u64(out, strlen(header));
    add(out, header, strlen(header));
    for (size_t i = 0; i < n_data; i++) {
        need(qn_buf_putc(out, (char)i));
    }
}

void qn_tf_init(struct qn_tf_gguf *g)
{
    *g = (struct qn_tf_gguf){.align = 32};
}

void qn_tf_done(struct qn_tf_gguf *g)
{
    qn_buf_done(&g->kv);
    qn_buf_done(&g->info);
    qn_buf_done(&g->data);
}

static void key(struct qn_tf_gguf *g, const char *name, enum qn_gguf_type type)
{
    add_str(&g->kv, name);
    add_u32(&g->kv, type);
    g->n_kv++;
}

void qn_tf_u16(struct qn_tf_gguf *g, const char *name, uint16_t v)
{
    key(g, name, QN_GGUF_U16);
    add(&g->kv, &v, sizeof v);
}

void qn_tf_u32(struct qn_tf_gguf *g, const char *name, uint32_t v)
{
    key(g, name, QN_GGUF_U32);
    add_u32(&g->kv, v);
}

void qn_tf_f32(struct qn_tf_gguf *g, const char *name, float v)
{
    key(g, name, QN_GGUF_F32);
    add(&g->kv, &v, sizeof v);
}

void qn_tf_bool(struct qn_tf_gguf *g, const char *name, bool v)
{
    key(g, name, QN_GGUF_BOOL);
    need(qn_buf_putc(&g->kv, v ? 1 : 0));
}

void qn_tf_str(struct qn_tf_gguf *g, const char *name, const char *v)
{
    key(g, name, QN_GGUF_STR);
    add_str(&g->kv, v);
}

void qn_tf_arr(struct qn_tf_gguf *g, const char *name, enum qn_gguf_type type, size_t n,
               const void *data, size_t n_bytes)
{
    key(g, name, QN_GGUF_ARR);
    add_u32(&g->kv, type);
    add_u64(&g->kv, n);
    add(&g->kv, data, n_bytes);
}

void qn_tf_strs(struct qn_tf_gguf *g, const char *name, const char *const *v, size_t n)
{
    qn_tf_arr(g, name, QN_GGUF_STR, n, "", 0);
    for (size_t i = 0; i < n; i++) {
        add_str(&g->kv, v[i]);
    }
}

void qn_tf_raw(struct qn_tf_gguf *g, const char *name, const void *data, size_t n_bytes)
{
    add_str(&g->kv, name);
    add(&g->kv, data, n_bytes);
    g->n_kv++;
}

void qn_tf_info(struct qn_tf_gguf *g, const char *name, uint32_t n_dims, const uint64_t *ne,
                uint32_t type, uint64_t offset)
{
    add_str(&g->info, name);
    add_u32(&g->info, n_dims);
    add(&g->info, ne, n_dims * sizeof *ne);
    add_u32(&g->info, type);
    add_u64(&g->info, offset);
    g->n_tensors++;
}

void qn_tf_tensor(struct qn_tf_gguf *g, const char *name, unsigned type, uint64_t ne0, uint64_t ne1)
{
    static const struct {
        unsigned elems, bytes;
    } k_size[] = {[0] = {1, 4},      [1] = {1, 2},      [2] = {32, 18},   [8] = {32, 34},
                  [12] = {256, 144}, [14] = {256, 210}, [16] = {256, 66}, [30] = {1, 2}};
    const uint64_t ne[2] = {ne0, ne1};
    need(type < sizeof k_size / sizeof k_size[0] && k_size[type].elems != 0);
    qn_tf_info(g, name, ne1 == 0 ? 1 : 2, ne, type, g->data.len);
    uint64_t n = ne0 / k_size[type].elems * k_size[type].bytes * (ne1 == 0 ? 1 : ne1);
    for (uint64_t i = 0; i < (n + g->align - 1) / g->align * g->align; i++) {
        need(qn_buf_putc(&g->data, 0));
    }
}

void qn_tf_finish(const struct qn_tf_gguf *g, struct qn_buf *out)
{
    qn_buf_init(out, 0);
    add(out, "GGUF", 4);
    add_u32(out, 3);
    add_u64(out, g->n_tensors);
    add_u64(out, g->n_kv);
    add(out, g->kv.data, g->kv.len);
    add(out, g->info.data, g->info.len);
    while (g->n_tensors > 0 && out->len % g->align != 0) {
        need(qn_buf_putc(out, 0));
    }
    add(out, g->data.data, g->data.len);
}

static void arch_u32(struct qn_tf_gguf *g, const char *arch, const char *suffix, uint32_t v)
{
    char name[128];
    snprintf(name, sizeof name, "%s.%s", arch, suffix);
    qn_tf_u32(g, name, v);
}

void qn_tf_model(struct qn_tf_gguf *g, const char *arch)
{
    static const struct {
        const char *suffix;
        uint32_t v;
    } k_keys[] = {{"block_count", 1},          {"context_length", 64},
                  {"embedding_length", 32},    {"feed_forward_length", 64},
                  {"attention.head_count", 2}, {"attention.head_count_kv", 1}};
    static const struct {
        const char *name;
        uint64_t ne0, ne1;
    } k_tensors[] = {{"token_embd.weight", 32, 8},         {"output_norm.weight", 32, 0},
                     {"blk.0.attn_norm.weight", 32, 0},    {"blk.0.attn_q.weight", 32, 32},
                     {"blk.0.attn_k.weight", 32, 16},      {"blk.0.attn_v.weight", 32, 16},
                     {"blk.0.attn_output.weight", 32, 32}, {"blk.0.ffn_norm.weight", 32, 0},
                     {"blk.0.ffn_gate.weight", 32, 64},    {"blk.0.ffn_up.weight", 32, 64},
                     {"blk.0.ffn_down.weight", 64, 32}};
    char name[128];
    qn_tf_str(g, "general.architecture", arch);
    for (size_t i = 0; i < sizeof k_keys / sizeof k_keys[0]; i++) {
        arch_u32(g, arch, k_keys[i].suffix, k_keys[i].v);
    }
    snprintf(name, sizeof name, "%s.attention.layer_norm_rms_epsilon", arch);
    qn_tf_f32(g, name, 1e-5f);
    for (size_t i = 0; i < sizeof k_tensors / sizeof k_tensors[0]; i++) {
        qn_tf_tensor(g, k_tensors[i].name, 0, k_tensors[i].ne0, k_tensors[i].ne1);
    }
}

void qn_tf_mkdir(char out[256])
{
    const char *tmp = getenv("TMPDIR");
    int n = snprintf(out, 256, "%s/quern-test-XXXXXX", tmp != NULL && *tmp ? tmp : "/tmp");
    need(n > 0 && n < 256 && mkdtemp(out) != NULL);
}

void qn_tf_write(const char *dir, const char *name, const void *data, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    need(f != NULL && fwrite(data, 1, n, f) == n && fclose(f) == 0);
}

void qn_tf_puts(const char *dir, const char *name, const char *text)
{
    qn_tf_write(dir, name, text, strlen(text));
}

void qn_tf_rmdir(const char *dir)
{
    DIR *d = opendir(dir);
    need(d != NULL);
    const struct dirent *e;
    while ((e = readdir(d)) != NULL) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            need(unlink(path) == 0);
        }
    }
    closedir(d);
    need(rmdir(dir) == 0);
}
