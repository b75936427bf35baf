#ifndef QN_ENGINE_API_H
#define QN_ENGINE_API_H

#include <quern/quern.h>

#include "base/topo.h"
#include "model/model.h"
#include "text/template.h"
#include "text/tokenizer.h"

/// Behind struct quern_model: everything that was loaded. Immutable afterwards.
struct quern_model {
    struct quern_model_info info;
    struct qn_ckpt *ckpt;
    struct qn_tok *tok;     ///< NULL: the checkpoint has none
    struct qn_tmpl *tmpl;   ///< NULL: no template, or info.chat_template_error
    json_t *trusted;        ///< bos_token and the like, for the template
    struct qn_model *model; ///< NULL: loaded without weights
    bool parse_special_tokens;
    struct qn_topo topo;
    // Strings that info points to.
    char *path, *name, *template_error;
    char resources[128];
    int32_t *eos_ids;
};

/// Tokenizer of a checkpoint; *out_tok stays NULL where it has none.
enum qn_status qn_api_load_tok(const struct qn_ckpt *ckpt, struct qn_tok **out_tok,
                               struct qn_err *err);
/// A team for this model's thread count: pinned when it takes every core, since fewer threads than
/// cores are for sharing the machine, and two programs must not pin themselves to the same few.
enum qn_status qn_api_team(const struct quern_model *m, struct qn_team **out_team,
                           struct qn_err *err);
/// CPUs to pin to, NULL: none.
const int *qn_api_cpus(const struct quern_model *m);

#endif
