#include "kernels/ops.h"

#include "kernels/ops_tables.h"

static const struct qn_ops *const tables[] = {
#define QN_OPS_ROW(symbol) &symbol,
#include "kernels/ops.inc"
#undef QN_OPS_ROW
};

enum {
    N_TABLES = sizeof tables / sizeof tables[0]
};

const struct qn_ops *qn_ops_get(void)
{
    for (size_t i = N_TABLES; i-- > 1;) {
        if (qn_cpu_has(tables[i]->isa)) {
            return tables[i];
        }
    }
    return tables[0];
}

const struct qn_ops *const *qn_ops_tables(size_t *out_n)
{
    *out_n = N_TABLES;
    return tables;
}
