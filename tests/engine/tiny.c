#include "engine/tiny.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODELS "tests/golden/models/"

void tiny_open(struct tiny *t, const char *golden)
{
    static const char *const names[] = {"config.json", "model.safetensors"};
    snprintf(t->dir, sizeof t->dir, "/tmp/qn_tiny_XXXXXX");
    assert_non_null(mkdtemp(t->dir));
    for (size_t i = 0; i < 2; i++) {
        char from[256], to[128];
        snprintf(from, sizeof from, MODELS "%s/%s", golden, names[i]);
        snprintf(to, sizeof to, "%s/%s", t->dir, names[i]);
        char *full = realpath(from, NULL);
        assert_non_null(full);
        assert_int_equal(symlink(full, to), 0);
        free(full);
    }
}

void tiny_write(const struct tiny *t, const char *name, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", t->dir, name);
    unlink(path); // never write through a link
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

void tiny_write_json(const struct tiny *t, const char *name, json_t *value)
{
    char *text = json_dumps(value, 0);
    assert_non_null(text);
    tiny_write(t, name, text);
    free(text);
    json_decref(value);
}

void tiny_close(const struct tiny *t)
{
    DIR *d = opendir(t->dir);
    assert_non_null(d);
    const struct dirent *e;
    while ((e = readdir(d)) != NULL) {
        (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
    rmdir(t->dir);
}

struct quern_model *tiny_load(const char *path, const struct quern_model_options *options)
{
    struct quern_model_options o = options != NULL ? *options : (struct quern_model_options){0};
    o.path = path;
    o.n_threads = o.n_threads != 0 ? o.n_threads : 1;
    struct quern_model *m = NULL;
    struct quern_error err = {0};
    if (quern_model_load(&o, &m, &err) != QUERN_OK) {
        fail_msg("%s", err.message);
    }
    return m;
}

struct quern_model *tiny_load_golden(const char *golden, enum quern_activations act,
                                     size_t n_threads)
{
    char path[256];
    snprintf(path, sizeof path, MODELS "%s", golden);
    return tiny_load(path,
                     &(struct quern_model_options){.activations = act, .n_threads = n_threads});
}
