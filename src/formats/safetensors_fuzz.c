#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Opens the input and reads through every tensor: whatever the header promised must be there.
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qn_st *st = NULL;
    struct qn_err err;
    if (qn_st_open_mem(data, size, "fuzz", &st, &err) != QN_OK) {
        return 0;
    }
    for (size_t i = 0; i < qn_st_n_tensors(st); i++) {
        const struct qn_tensor *t = qn_st_tensor(st, i);
        volatile unsigned char sink = 0;
        for (uint64_t j = 0; j < t->n_bytes; j++) {
            sink = (unsigned char)(sink ^ t->data[j]);
        }
        float out[64];
        if (qn_st_find(st, t->name) != t) {
            abort();
        }
        (void)qn_tensor_read_f32(t, 0, 0, 1, out, &err);
        uint64_t k = t->rank == 0 ? 1 : t->shape[t->rank - 1];
        if (k <= 64) {
            (void)qn_tensor_read_canon(t, 0, out, NULL, NULL, &err);
        }
    }
    qn_st_close(st);
    return 0;
}
