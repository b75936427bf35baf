#ifndef QN_MODEL_WEIGHTS_H
#define QN_MODEL_WEIGHTS_H

#include "model/desc.h"
#include "model/model.h"

/// Bound and packed weights of a model.

enum {
    QN_MAX_PARTS = 3
};

/// Rows of one tensor that become consecutive outputs of a linear.
struct qn_part {
    const struct qn_tensor *tensor;
    size_t n_rows;
    size_t head_dim; ///< > 0: rows are in interleaved-pair order inside heads of this size
};

/// y = W x + b, packed for one kernel variant. `parts` are stacked.
struct qn_linear {
    struct qn_wdesc w;
    const struct qn_gemm_impl *gemm;
    unsigned char *rhs; ///< packed panels
    size_t rhs_bytes, n_panels;
    float *bias; ///< [w.n] or NULL
    struct qn_part parts[QN_MAX_PARTS];
    size_t n_parts;
};

struct qn_layer {
    /// q, k and v in one linear where their kinds agree, else up to three; outputs stand one after
    /// another in a row of q | k | v.
    struct qn_linear qkv[QN_MAX_PARTS];
    size_t n_qkv;
    struct qn_linear o;
    /// One pair where gate and up agree, else two plain linears.
    struct qn_linear gate_up[2];
    size_t n_gate_up;
    struct qn_linear down;
    float *pre_attn, *post_attn, *pre_ffn, *post_ffn; ///< norms [d_model]; post: NULL where absent
    float *q_norm, *k_norm;                           ///< [head_dim] or NULL
    size_t kv_group, kv_index;                        ///< KV group and place among its layers
};

struct qn_model {
    struct qn_desc desc;
    struct qn_model_info info;
    struct qn_arena *arena;
    const struct qn_tensor *embed;
    float embed_scale;
    struct qn_layer *layers;
    float *final_norm;
    struct qn_linear head;
    struct qn_kv_group *groups; ///< shape.block_tokens is 0 here: it belongs to a run
    size_t n_groups;
};

/// Find, check and describe every weight, choose kernels; no packing.
enum qn_status qn_bind(struct qn_model *m, const struct qn_ckpt *ckpt,
                       const struct qn_model_opts *opts, struct qn_err *err);

/// Every linear of the model, for packing and sizing: calls fn for each, in layer order.
typedef enum qn_status qn_linear_fn(struct qn_linear *l, void *arg, struct qn_err *err);
enum qn_status qn_each_linear(struct qn_model *m, qn_linear_fn *fn, void *arg, struct qn_err *err);

/// Reserve and fill the packed panels of every linear, streaming row by row.
enum qn_status qn_pack_all(struct qn_model *m, const struct qn_model_opts *opts,
                           struct qn_err *err);

#endif
