#include "text/uclass.h"

#include <stddef.h>
#include <string.h>

static const struct {
    uint32_t first, last;
    uint8_t bits;
} ranges[] = {
#include "text/uclass_table.inc"
};

void qn_uclass_fill(uint8_t *table)
{
    memset(table, 0, QN_UC_FLAT);
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (ranges[i].last < QN_UC_FLAT) {
            memset(table + ranges[i].first, ranges[i].bits, ranges[i].last - ranges[i].first + 1);
        }
    }
}
