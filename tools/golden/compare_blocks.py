#!/usr/bin/env python3
"""Compare quern's GGUF block decoders with the gguf package, bit for bit.

    compare_blocks.py BUILD_DIR/decode_blocks [--blocks N] [--seed S]

Random blocks of every type that both know, half-precision fields finite. Needs gguf and numpy.
Prints one line per type; exit status 1 if any element differs.
"""

import argparse
import subprocess
import sys

import gguf
import numpy as np

# Offsets of half-precision fields; MXFP4 has an exponent byte instead.
HALVES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
    "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "BF16": [], "F16": [0],
}


def random_blocks(rng, name, n_bytes, n_blocks):
    raw = rng.integers(0, 256, (n_blocks, n_bytes), dtype=np.uint8)
    for at in HALVES[name]:
        raw[:, at + 1] &= 0xBF  # clears the exponent's top bit: never infinite or NaN
    if name == "MXFP4":
        raw[:, 0] = np.where(raw[:, 0] == 255, 0, raw[:, 0])
    return raw


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--blocks", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    bad = 0
    for name in HALVES:
        kind = gguf.GGMLQuantizationType[name]
        elems, n_bytes = gguf.GGML_QUANT_SIZES[kind]
        raw = random_blocks(rng, name, n_bytes, args.blocks)
        with np.errstate(all="ignore"):
            want = gguf.quants.dequantize(raw.reshape(1, -1), kind).astype(np.float32).ravel()
        out = subprocess.run([args.program, name], input=raw.tobytes(), stdout=subprocess.PIPE,
                             check=True).stdout
        got = np.frombuffer(out, dtype=np.float32)
        assert got.size == want.size == args.blocks * elems, (name, got.size, want.size)
        same = (got.view(np.uint32) == want.view(np.uint32)) | (np.isnan(got) & np.isnan(want))
        zeros = ~same & (got == 0) & (want == 0)  # +0 and -0
        differ = int((~same & ~zeros).sum())
        bad += differ
        print(f"{name:7s} {want.size:8d} elements, {differ} differ, {int(zeros.sum())} zeros of "
              "the other sign")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
