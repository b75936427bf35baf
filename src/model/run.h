#ifndef QN_MODEL_RUN_H
#define QN_MODEL_RUN_H

#include "base/team.h"
#include "kernels/attn.h"
#include "kernels/ops.h"
#include "model/weights.h"

enum {
    QN_ATTN_TILE_ROWS = 4, ///< query rows of one attention item
    QN_ROW_UNIT = 24       ///< every kernel's mr divides it
};

/// Query rows of one sequence that attention treats together.
struct qn_attn_tile {
    size_t seq;
    size_t row0, row1; ///< within the sequence's rows
};

/// Everything that a step touches, reserved once.
struct qn_run {
    const struct qn_model *m;
    struct qn_run_opts opts;
    size_t n_workers;
    unsigned char **pools;            ///< [n_groups] KV blocks
    size_t *n_blocks;                 ///< [n_groups]
    const struct qn_attn_impl **attn; ///< [n_layers]
    struct qn_kv_view *kv;            ///< [n_layers]
    unsigned char *mem;
    size_t mem_bytes;
    // Activations, rows of max_rows. Widths are in the layout (run.c).
    float *x;      ///< [rows][d_model] residual stream
    float *h;      ///< [rows][wide] norm outputs, attention outputs
    float *qkv;    ///< [rows][q | k | v]
    float *ffn[2]; ///< [rows][d_ff]; the second for separate gate and up alone
    float *branch; ///< [rows][d_model] a branch before its post norm
    unsigned char *lhs[QN_MAX_PARTS];
    float *rope;       ///< [sets][rows][cos | sin]
    size_t rope_width; ///< floats of one row of one set
    float *partials;   ///< [2 * n_workers] slots
    size_t slot_floats;
    size_t *row_pos; ///< [rows] position
    size_t *row_seq; ///< [rows] sequence of the batch
    struct qn_attn_tile *tiles;
    size_t n_tiles;
    struct qn_claim claims[2];
    const struct qn_batch *batch;
};

/// The forward pass of the run's batch, by every worker of one fork.
qn_team_fn qn_forward;

#endif
