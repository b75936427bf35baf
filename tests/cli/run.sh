#!/usr/bin/env bash
# run.sh BINARY: the command line's tests; they need nothing but Python's own library.
set -euo pipefail
python=${QUERN_REF_PYTHON:-python3}
if ! command -v "$python" >/dev/null; then
    echo "skipped cli: no Python 3 ($python)"
    exit 77
fi
exec "$python" "$(dirname "$0")/cli_test.py" "$1" -v
