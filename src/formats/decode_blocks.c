// Decodes rows of blocks from standard input to f32 on standard output, for comparison with other
// decoders: decode_blocks TYPE < blocks > floats

#include <stdio.h>
#include <string.h>

#include "formats/ckpt.h"

int main(int argc, char **argv)
{
    unsigned t = 0;
    while (argc == 2 && t < QN_N_DTYPES && strcmp(qn_dtype_name((enum qn_dtype)t), argv[1]) != 0) {
        t++;
    }
    if (argc != 2 || t == QN_N_DTYPES) {
        fprintf(stderr, "usage: decode_blocks TYPE < blocks > floats\n");
        return 2;
    }
    const enum qn_dtype dtype = (enum qn_dtype)t;
    const size_t elems = qn_dtype_block_elems(dtype), bytes = qn_dtype_block_bytes(dtype);
    unsigned char block[512];
    float out[256];
    struct qn_tensor row = {.name = "input",
                            .file = "-",
                            .dtype = dtype,
                            .rank = 1,
                            .shape = {elems},
                            .data = block,
                            .n_bytes = bytes};
    while (fread(block, 1, bytes, stdin) == bytes) {
        struct qn_err err;
        if (qn_tensor_read_f32(&row, 0, 0, elems, out, &err) != QN_OK) {
            fprintf(stderr, "decode_blocks: %s\n", err.msg);
            return 1;
        }
        if (fwrite(out, sizeof *out, elems, stdout) != elems) {
            fprintf(stderr, "decode_blocks: could not write\n");
            return 1;
        }
    }
    return 0;
}
