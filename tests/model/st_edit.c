#include "model/st_edit.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "formats/test_files.h"
#include "model/fixture.h"

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond);                     \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

void st_edit_open(struct st_edit *e, const char *dir)
{
    char path[256];
    size_t n;
    memset(e, 0, sizeof *e);
    snprintf(path, sizeof path, "%s/config.json", dir);
    MUST(qn_json_read(path, 1 << 20, 32, &e->config, NULL) == QN_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unsigned char *file = fx_read_file(path, &n);
    uint64_t header = 0;
    for (int i = 7; i >= 0; i--) {
        header = header << 8 | file[i];
    }
    MUST(n > 8 && header < n - 8);
    MUST(qn_json_parse((const char *)file + 8, header, 32, &e->header, NULL) == QN_OK);
    json_object_del(e->header, "__metadata__");
    qn_buf_init(&e->data, SIZE_MAX / 2);
    MUST(qn_buf_add(&e->data, file + 8 + header, n - 8 - header));
    free(file);
}

static json_t *entry(struct st_edit *e, const char *name)
{
    json_t *t = json_object_get(e->header, name);
    MUST(json_is_object(t));
    return t;
}

static void range(const json_t *t, size_t *out_begin, size_t *out_n)
{
    const json_t *o = json_object_get(t, "data_offsets");
    *out_begin = (size_t)json_integer_value(json_array_get(o, 0));
    *out_n = (size_t)json_integer_value(json_array_get(o, 1)) - *out_begin;
}

void st_edit_drop(struct st_edit *e, const char *name)
{
    (void)entry(e, name);
    MUST(json_object_del(e->header, name) == 0); // st_edit_write closes the hole
}

void st_edit_add(struct st_edit *e, const char *name, const char *dtype, size_t rows, size_t cols,
                 const void *data, size_t n_bytes)
{
    size_t begin = e->data.len;
    json_t *shape = rows > 0 ? json_pack("[I,I]", (json_int_t)rows, (json_int_t)cols)
                             : json_pack("[I]", (json_int_t)cols);
    for (size_t i = 0; data == NULL && i < n_bytes; i++) {
        MUST(qn_buf_putc(&e->data, '\0'));
    }
    MUST(data == NULL || qn_buf_add(&e->data, data, n_bytes));
    MUST(json_object_set_new(e->header, name,
                             json_pack("{s:s,s:o,s:[I,I]}", "dtype", dtype, "shape", shape,
                                       "data_offsets", (json_int_t)begin,
                                       (json_int_t)(begin + n_bytes))) == 0);
}

unsigned char *st_edit_bytes(struct st_edit *e, const char *name, size_t *out_n)
{
    size_t begin;
    range(entry(e, name), &begin, out_n);
    return (unsigned char *)e->data.data + begin;
}

void st_edit_dtype(struct st_edit *e, const char *name, const char *dtype)
{
    MUST(json_object_set_new(entry(e, name), "dtype", json_string(dtype)) == 0);
}

void st_edit_write(struct st_edit *e, char out[256])
{
    struct qn_buf data, file;
    const char *name;
    json_t *t;
    qn_buf_init(&data, SIZE_MAX / 2);
    qn_buf_init(&file, SIZE_MAX / 2);
    json_object_foreach(e->header, name, t)
    {
        size_t begin, n, at = data.len;
        range(t, &begin, &n);
        MUST(qn_buf_add(&data, e->data.data + begin, n));
        json_object_set_new(t, "data_offsets",
                            json_pack("[I,I]", (json_int_t)at, (json_int_t)(at + n)));
    }
    char *header = json_dumps(e->header, JSON_COMPACT), *config = json_dumps(e->config, 0);
    MUST(header != NULL && config != NULL);
    for (size_t i = 0; i < 8; i++) {
        MUST(qn_buf_putc(&file, (char)((uint64_t)strlen(header) >> (8 * i) & 255)));
    }
    MUST(qn_buf_puts(&file, header) && qn_buf_add(&file, data.data, data.len));
    qn_tf_mkdir(out);
    qn_tf_puts(out, "config.json", config);
    qn_tf_write(out, "model.safetensors", file.data, file.len);
    free(header);
    free(config);
    qn_buf_done(&data);
    qn_buf_done(&file);
    qn_buf_done(&e->data);
    json_decref(e->header);
    json_decref(e->config);
}
