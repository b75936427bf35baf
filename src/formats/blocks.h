#ifndef QN_FORMATS_BLOCKS_H
#define QN_FORMATS_BLOCKS_H

#include "formats/ckpt.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// Decoders of GGUF's quantised blocks. Every block type is a run of small integers with a scale
/// (and, for some, a minimum) per group: w = scale * q + min. The integers, scales and minima are
/// exact, so the f32 value of a weight follows from them with at most one rounding, the same as in
/// ggml's reference decoder.

enum {
    QN_BLOCK_MAX_ELEMS = 256,
    QN_BLOCK_MAX_GROUPS = 16
};

struct qn_block_type {
    enum qn_dtype dtype;
    enum qn_canon kind; ///< QN_CANON_I8 or QN_CANON_I4
    unsigned group;     ///< elements per scale; divides the block
    bool has_min;
    /// Decode one block (any alignment): q[elems], scale[elems / group], and with has_min
    /// min[elems / group], which is untouched otherwise. I4 is in [-8, 7] without a minimum, in
    /// [0, 15] with one. MXFP4's scale byte 255 gives a NaN scale. Cannot fail.
    void (*unpack)(const unsigned char *block, int8_t *q, float *scale, float *min);
};

/// The decoder of a block type, NULL for plain types.
const struct qn_block_type *qn_block_type(enum qn_dtype t);

#endif
