#!/usr/bin/env bash
# run.sh MINIMAL: the example answers, the same twice, and says what is wrong with a missing model.
set -euo pipefail
minimal=$1
message=$("$minimal" /nonexistent/model 2>&1) && { echo "a missing model was no error"; exit 1; }
grep -q '^error: model "/nonexistent/model": ' <<<"$message" || { echo "$message"; exit 1; }
if [ -z "${QUERN_TEST_SMOLLM2:-}" ] || [ ! -e "$QUERN_TEST_SMOLLM2" ]; then
    echo "skipped example_minimal: no model (QUERN_TEST_SMOLLM2)"
    exit 77
fi
first=$("$minimal" "$QUERN_TEST_SMOLLM2" 'What is the capital of "France"?')
again=$("$minimal" "$QUERN_TEST_SMOLLM2" 'What is the capital of "France"?')
echo "$first"
grep -q Paris <<<"$first" && [ "$first" = "$again" ]
