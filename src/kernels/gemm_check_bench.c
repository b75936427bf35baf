#include "kernels/gemm_check.h"

#include <string.h>

#include "kernels/gemm_util.h"
#include "kernels/peak.h"

/// `n_panels` copies of one packed panel: as good as random weights for the rate, and quick.
static unsigned char *bench_rhs(struct qn_check *c, const struct qn_gemm_impl *g,
                                const struct qn_wdesc *w, size_t n_panels)
{
    const size_t n_bytes = g->panel_bytes(w);
    unsigned char *rhs = qn_check_bytes(c, n_bytes * n_panels);
    struct qn_wrows rows = qn_gemm_check_rows(c, w, g->nr, false);

    g->pack_panel(rhs, w, &rows, g->nr);
    for (size_t p = 1; p < n_panels; p++) {
        memcpy(rhs + p * n_bytes, rhs, n_bytes);
    }
    return rhs;
}

static void bench_shape(struct qn_check *c, const struct qn_gemm_impl *g, struct qn_wdesc w,
                        size_t m, size_t n_panels)
{
    w.n = n_panels * g->nr;
    const float *x = qn_check_f32(c, m * w.k, -2.0f, 2.0f);
    void *lhs = qn_check_bytes(c, g->lhs_bytes(&w, m));
    float *out = qn_check_out(c, m * w.n);
    const struct qn_gemm_args a = {.w = &w,
                                   .rhs = bench_rhs(c, g, &w, n_panels),
                                   .lhs = lhs,
                                   .m = m,
                                   .out = out,
                                   .ldo = w.n,
                                   .scale = 1.0f};
    const size_t n_bytes = qn_gemm_rhs_bytes(g, &w);
    const double macs = (double)m * (double)w.n * (double)w.k;
    const double peak = g->act == QN_ACT_I8 && qn_peak_dot8(g->isa) > 0.0 ? qn_peak_dot8(g->isa)
                                                                          : qn_peak_fma(g->isa);
    const double read = qn_peak_read();
    double best = 0.0;

    g->lhs_pack(lhs, &w, x, w.k, m, 0, m);
    g->run(&a, 0, m, 0, n_panels);
    // Best of short runs, as the peaks are measured.
    uint64_t begin = qn_check_now();
    do {
        uint64_t t0 = qn_check_now();
        g->run(&a, 0, m, 0, n_panels);
        uint64_t ns = qn_check_now() - t0;
        double rate = (m == 1 ? (double)n_bytes : macs) / (double)ns;
        best = rate > best ? rate : best;
    } while (qn_check_now() - begin < 300000000u);
    qn_check_shape(c, "M=%zu N=%zu K=%zu g=%zu%s", m, w.n, w.k, w.group, w.has_min ? " min" : "");
    if (m == 1) {
        qn_check_rate_of(c, best * 1e6, "B", 1000000, read);
    } else {
        qn_check_rate_of(c, best * 1e6, "MAC", 1000000, peak);
    }
    qn_check_release(c);
}

void qn_gemm_check_bench(struct qn_check *c, const struct qn_gemm_impl *g)
{
    static const struct {
        size_t group;
        bool has_min;
    } forms[] = {{0, false}, {32, false}, {32, true}, {128, false}};
    const size_t stream_bytes = (size_t)128 << 20; // far above the caches
    const bool slow = g->isa == QN_ISA_GENERIC;
    struct qn_wdesc w = {.kind = g->kind, .k = 2048};

    for (size_t i = 0; i < (qn_gemm_is_int(&w) ? 4 : 1); i++) {
        w.group = forms[i].group;
        w.has_min = forms[i].has_min;
        if (!g->supports(&(struct qn_wdesc){
                .kind = w.kind, .n = g->nr, .k = w.k, .group = w.group, .has_min = w.has_min})) {
            continue;
        }
        size_t n_panels = (slow ? (size_t)1 << 20 : stream_bytes) / g->panel_bytes(&w);
        bench_shape(c, g, w, 1, n_panels ? n_panels : 1);
        bench_shape(c, g, w, 64, (slow ? 64 : 1024) / g->nr);
    }
}
