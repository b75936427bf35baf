#ifndef QN_TESTS_MODEL_FIXTURE_H
#define QN_TESTS_MODEL_FIXTURE_H

#include "model/model.h"

#include <stdbool.h>

/// What tests of whole models share. Everything here aborts the test when it cannot go on.

/// An open checkpoint and its model.
struct fx_model {
    struct qn_ckpt *ckpt;
    struct qn_model *model;
    size_t vocab;
    char notes[1024]; ///< what the loader said, each note ended by a newline
};
/// Load with QN_KV_F32 for f32 activations, else QN_KV_BF16.
void fx_open(struct fx_model *f, const char *path, enum qn_act act);
/// The same; a refusal comes back as status and message, and *f is then empty.
enum qn_status fx_try(struct fx_model *f, const char *path, enum qn_act act, struct qn_err *err);
void fx_close(struct fx_model *f);

/// A run with a block table for each sequence and group. Blocks come from a shuffled free list, and
/// go back to it when a window has left them behind.
struct fx_run;
struct fx_run *fx_run_new(const struct qn_model *m, size_t n_threads, size_t max_rows,
                          size_t max_seqs, size_t max_len, size_t block_tokens);
void fx_run_free(struct fx_run *r);

/// The next n tokens of sequence `seq`.
struct fx_part {
    size_t seq;
    const int32_t *tokens;
    size_t n;
    size_t n_out; ///< logits are wanted for this many of them, the last ones
};
/// One step over the parts; logits [sum of n_out][vocab].
void fx_step(struct fx_run *r, const struct fx_part *parts, size_t n_parts, float *logits);
/// Positions of a sequence already fed.
size_t fx_position(const struct fx_run *r, size_t seq);
/// Give the sequence's blocks back; it starts anew at position 0.
void fx_forget(struct fx_run *r, size_t seq);
/// All of one sequence in chunks of at most `chunk` tokens.
void fx_feed(struct fx_run *r, size_t seq, const int32_t *tokens, size_t n, size_t chunk,
             float *logits);

/// A .npy file of little-endian int32 or float32, one or two dimensions; free() the data.
void *fx_npy(const char *path, const char *descr, size_t *out_rows, size_t *out_cols);

/// Random numbers for tests: splitmix64.
uint64_t fx_random(uint64_t *state);

/// A whole file; free() it.
unsigned char *fx_read_file(const char *path, size_t *out_n);
float *fx_floats(size_t n);

#endif
