#!/usr/bin/env bash
# template_diff.sh TMPL_TOOL: every real chat template over many conversations against Jinja2, set
# up as transformers does, and the committed goldens against the same.
set -euo pipefail
tool=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
data=${QUERN_TEST_DATA:-$root/../shared/data}
if [ -z "${QUERN_REF_PYTHON:-}" ] || ! ls "$data"/templates/*.jinja >/dev/null 2>&1; then
    echo "skipped template_real: no reference environment or templates (QUERN_REF_PYTHON, QUERN_TEST_DATA)"
    exit 77
fi
"$QUERN_REF_PYTHON" "$root/tools/golden/template_diff.py" --tool "$tool" \
    "$data"/templates/*.jinja "$data"/tokenizers/*/tokenizer_config.json
"$QUERN_REF_PYTHON" "$root/tools/golden/template_diff.py" --cases --tool "$tool" \
    "$root"/tests/data/templates/*.json
