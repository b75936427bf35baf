#ifndef TESTS_ENGINE_TINY_H
#define TESTS_ENGINE_TINY_H

#include <quern/quern.h>

#include <jansson.h>

/// A temporary checkpoint directory: the weights and config.json of a golden model, and whatever
/// files a test writes beside them.
struct tiny {
    char dir[64];
};
void tiny_open(struct tiny *t, const char *golden);
void tiny_write(const struct tiny *t, const char *name, const char *text);
/// Takes the value over.
void tiny_write_json(const struct tiny *t, const char *name, json_t *value);
void tiny_close(const struct tiny *t);

/// Load, or fail the test.
struct quern_model *tiny_load(const char *path, const struct quern_model_options *options);
/// A golden model in place.
struct quern_model *tiny_load_golden(const char *golden, enum quern_activations act,
                                     size_t n_threads);

#endif
