#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "formats/gguf.h"
#include "formats/gguf_arch.h"

static const struct qn_tensor *find(void *ctx, const char *name)
{
    return qn_gguf_find(ctx, name);
}

static void read_arrays(const struct qn_gguf *g, const char *key)
{
    enum qn_gguf_type type;
    size_t n, len;
    const char *s;
    int64_t i64;
    double f64;
    volatile unsigned char sink = 0;
    if (!qn_gguf_arr(g, key, &type, &n)) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (qn_gguf_arr_str(g, key, i, &s, &len)) {
            for (size_t j = 0; j < len; j++) {
                sink = (unsigned char)(sink ^ (unsigned char)s[j]);
            }
        }
        (void)qn_gguf_arr_int(g, key, i, &i64);
        (void)qn_gguf_arr_float(g, key, i, &f64);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Opens the input, reads every array and tensor, and makes the configuration.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qn_gguf *g = NULL;
    struct qn_err err;
    if (qn_gguf_open_mem(data, size, &g, &err) != QN_OK) {
        return 0;
    }
    for (size_t i = 0; i < qn_gguf_n_keys(g); i++) {
        read_arrays(g, qn_gguf_key(g, i, NULL));
    }
    float out[256], scale[64], min[64];
    for (size_t i = 0; i < qn_gguf_n_tensors(g); i++) {
        const struct qn_tensor *t = qn_gguf_tensor(g, i);
        volatile unsigned char sink = 0;
        for (uint64_t j = 0; j < t->n_bytes; j++) {
            sink = (unsigned char)(sink ^ t->data[j]);
        }
        (void)qn_tensor_read_f32(t, 0, 0, qn_dtype_block_elems(t->dtype), out, &err);
        uint64_t k = t->rank == 0 ? 1 : t->shape[t->rank - 1];
        if (k <= 256) {
            (void)qn_tensor_read_canon(t, 0, out, scale, min, &err);
        }
    }
    const char *arch;
    size_t len;
    json_t *json = NULL;
    if (qn_gguf_str(g, "general.architecture", &arch, &len)) {
        struct qn_gguf_view v = {g, qn_gguf_arch_find(arch, len), find, g};
        if (v.arch != NULL && qn_gguf_make_config(&v, &json, &err) == QN_OK) {
            json_decref(json);
        }
        for (size_t i = 0; v.arch != NULL && i < qn_gguf_n_tensors(g); i++) {
            struct qn_gguf_renamed to;
            (void)qn_gguf_rename(v.arch, qn_gguf_tensor(g, i)->name, 4, &to, &err);
        }
    }
    if (qn_gguf_make_generation(g, &json, &err) == QN_OK) {
        json_decref(json);
    }
    qn_gguf_close(g);
    return 0;
}
