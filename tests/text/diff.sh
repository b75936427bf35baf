#!/usr/bin/env bash
# diff.sh TOK_TOOL NAME: one real tokenizer (llama3_1, qwen3, gptoss, gemma3, smollm2_gguf,
# gemma3_gguf, or a vocabulary file) against the reference library.
set -euo pipefail
tool=$1 name=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
data=${QUERN_TEST_DATA:-$root/../shared/data}
case $name in
smollm2_gguf) model=${QUERN_TEST_SMOLLM2:-} ;;
gemma3_gguf) model=${QUERN_TEST_GEMMA3:-} ;;
vocab_*) model=$data/vocab-gguf/ggml-vocab-${name#vocab_}.gguf ;;
*) model=$data/tokenizers/$name/tokenizer.json ;;
esac
if [ -z "${QUERN_REF_PYTHON:-}" ] || [ -z "$model" ] || [ ! -e "$model" ]; then
    echo "skipped tokenizer_$name: no reference environment or file (QUERN_REF_PYTHON, QUERN_TEST_DATA)"
    exit 77
fi
exec "$QUERN_REF_PYTHON" "$root/tools/golden/tokenizer_diff.py" --tool "$tool" --count 20000 \
    --corpus "$root/tests/data/english.txt" "$model"
