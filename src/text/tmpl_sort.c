#include <string.h>

#include "text/tmpl_rt.h"

/// Stable merge sort of two lists that move together.

static bool before(struct qn_trt *rt, struct qn_tv a, struct qn_tv b, bool reverse)
{
    // Stable both ways: equal keys keep their order.
    return (reverse ? qn_tv_cmp(rt, a, b) : qn_tv_cmp(rt, b, a)) == -1;
}

void qn_tlist_sort(struct qn_trt *rt, struct qn_tlist *keys, struct qn_tlist *vals, bool reverse)
{
    size_t n = keys->n;
    struct qn_tv *tmp = n > 0 ? qn_trt_alloc(rt, n * 2, sizeof *tmp) : NULL;
    if (tmp == NULL) {
        return;
    }
    for (size_t width = 1; width < n && rt->status == QN_OK; width *= 2) {
        for (size_t lo = 0; lo < n; lo += 2 * width) {
            size_t mid = lo + width < n ? lo + width : n;
            size_t hi = lo + 2 * width < n ? lo + 2 * width : n;
            size_t i = lo, j = mid;
            for (size_t k = lo; k < hi; k++) {
                bool right = j < hi && (i >= mid || before(rt, keys->at[i], keys->at[j], reverse));
                size_t from = right ? j++ : i++;
                tmp[k] = keys->at[from];
                tmp[n + k] = vals->at[from];
            }
        }
        memcpy(keys->at, tmp, n * sizeof *tmp);
        memcpy(vals->at, tmp + n, n * sizeof *tmp);
    }
}
