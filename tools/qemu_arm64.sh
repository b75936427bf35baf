#!/usr/bin/env bash
# Run an Arm program of the arm64 preset under qemu-user, in its sysroot. The emulated core is the
# environment's QEMU_CPU: cortex-a72 (NEON alone), neoverse-n1 (+ dotprod), max,sve=off (+ i8mm,
# bf16; the default).
exec qemu-aarch64 -cpu "${QEMU_CPU:-max,sve=off}" \
    -L "${XDG_CACHE_HOME:-$HOME/.cache}/quern/sysroot-arm64" "$@"
