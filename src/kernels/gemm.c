#include "kernels/gemm.h"

#include "kernels/gemm_util.h"

#define QN_GEMM_ROW(symbol) extern const struct qn_gemm_impl symbol;
#include "kernels/gemm.inc"
#undef QN_GEMM_ROW

static const struct qn_gemm_impl *const impls[] = {
#define QN_GEMM_ROW(symbol) &symbol,
#include "kernels/gemm.inc"
#undef QN_GEMM_ROW
};

enum {
    N_IMPLS = sizeof impls / sizeof impls[0]
};

size_t qn_gemm_act_group(const struct qn_wdesc *w)
{
    return qn_gemm_act_span(w);
}

const struct qn_gemm_impl *qn_gemm_select(const struct qn_wdesc *w, enum qn_act act)
{
    for (size_t i = N_IMPLS; i-- > 0;) {
        const struct qn_gemm_impl *g = impls[i];
        if (g->kind == w->kind && g->act == act && qn_cpu_has(g->isa) && g->supports(w)) {
            return g;
        }
    }
    return NULL;
}

const struct qn_gemm_impl *const *qn_gemm_impls(size_t *out_n)
{
    *out_n = N_IMPLS;
    return impls;
}

size_t qn_gemm_n_panels(const struct qn_gemm_impl *g, const struct qn_wdesc *w)
{
    size_t n = (qn_gemm_n_out(w) + g->nr - 1) / g->nr;

    return w->pair ? 2 * n : n;
}

size_t qn_gemm_rhs_bytes(const struct qn_gemm_impl *g, const struct qn_wdesc *w)
{
    return qn_gemm_n_panels(g, w) * g->panel_bytes(w);
}

void qn_gemm_panel_rows(const struct qn_gemm_impl *g, const struct qn_wdesc *w, size_t p,
                        size_t *out_row0, size_t *out_n_rows)
{
    size_t col0;

    qn_gemm_panel_cols(w, g->nr, p, &col0, out_n_rows);
    *out_row0 = w->pair && p % 2 == 1 ? w->n / 2 + col0 : col0;
}

const char *qn_wkind_name(enum qn_wkind kind)
{
    static const char *const names[QN_N_WKINDS] = {"f32", "bf16", "i8", "i4"};

    return (unsigned)kind < QN_N_WKINDS ? names[kind] : "unknown";
}

const char *qn_act_name(enum qn_act act)
{
    static const char *const names[QN_N_ACTS] = {"f32", "bf16", "i8"};

    return (unsigned)act < QN_N_ACTS ? names[act] : "unknown";
}
