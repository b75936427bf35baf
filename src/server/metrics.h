#ifndef QN_SERVER_METRICS_H
#define QN_SERVER_METRICS_H

#include "base/buf.h"
#include "quern/quern.h"

#include <stddef.h>
#include <stdint.h>

enum qn_route {
    QN_ROUTE_CHAT,
    QN_ROUTE_COMPLETIONS,
    QN_ROUTE_TOKENIZE,
    QN_ROUTE_DETOKENIZE,
    QN_ROUTE_MODELS,
    QN_ROUTE_MODEL,
    QN_ROUTE_HEALTH,
    QN_ROUTE_PING,
    QN_ROUTE_VERSION,
    QN_ROUTE_METRICS,
    QN_ROUTE_LOAD,
    QN_ROUTE_NONE, ///< no such path
    QN_N_ROUTES
};

/// What the front end counts itself; the engine's own figures come from quern_engine_stats. One
/// thread.
struct qn_metrics {
    struct quern_hist n_choices, max_tokens, max_generated, prefill_computed;
    uint64_t cached_tokens, computed_tokens;
    struct {
        uint64_t by_status[3][6]; ///< [GET, POST, other][hundreds digit]
        struct quern_hist seconds;
        double bytes_in, bytes_out;
        uint64_t n;
    } http[QN_N_ROUTES];
};

void qn_metrics_init(struct qn_metrics *m, size_t max_model_len);
void qn_metrics_hist(struct quern_hist *h, double v);
/// One HTTP exchange that ended. method: 0 GET, 1 POST, 2 other.
void qn_metrics_http(struct qn_metrics *m, enum qn_route route, int method, int status,
                     double seconds, uint64_t bytes_in, uint64_t bytes_out);

struct qn_metrics_labels {
    const char *model_name; ///< first served name
    const char *version, *isa;
    size_t n_threads;
    uint64_t weight_bytes;
    bool legacy_names;
};

/// Prometheus text format 0.0.4. No label comes from a request. stats NULL (no engine yet): only
/// what the front end knows.
void qn_metrics_write(const struct qn_metrics *m, const struct quern_stats *stats,
                      const struct qn_metrics_labels *labels, struct qn_buf *out);

#endif
