#!/usr/bin/env bash
# first_tokens.sh QUERN QUERN_ARM MODEL: the first 8 greedy tokens in f32 on this machine and on Arm
# (under qemu-user, core from QEMU_CPU) are the same.
set -euo pipefail
native=$1 arm=$2 model=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
args=(run "$model" --raw -p "The capital of France is" --max-tokens 8 --temperature 0
    --activations f32 --max-model-len 64)
want=$("$native" "${args[@]}")
got=$("$root/tools/qemu_arm64.sh" "$arm" "${args[@]}")
if [ "$want" != "$got" ]; then
    printf 'FAILED on %s: found %q, expected %q\n' "${QEMU_CPU:-max}" "$got" "$want"
    exit 1
fi
printf 'the same 8 greedy tokens on %s as here: %q\n' "${QEMU_CPU:-max}" "$got"
