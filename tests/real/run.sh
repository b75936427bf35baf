#!/usr/bin/env bash
# run.sh QUERN NAME: one real model (smollm2_gguf, smollm2_hf, gemma3_gguf, gemma3_hf).
set -euo pipefail
quern=$1 name=$2
case $name in
smollm2_gguf) model=${QUERN_TEST_SMOLLM2:-} ;;
gemma3_gguf) model=${QUERN_TEST_GEMMA3:-} ;;
smollm2_hf) model=${QUERN_TEST_HF:+$QUERN_TEST_HF/smollm2} ;;
gemma3_hf) model=${QUERN_TEST_HF:+$QUERN_TEST_HF/gemma3-270m} ;;
*) echo "unknown model $name" >&2 && exit 2 ;;
esac
if [ -z "${QUERN_REF_PYTHON:-}" ] || [ -z "$model" ] || [ ! -e "$model" ]; then
    echo "skipped real_$name: no reference environment or model (./check makes them)"
    exit 77
fi
exec "$QUERN_REF_PYTHON" "$(dirname "$0")/real_models.py" "$quern" "$model"
