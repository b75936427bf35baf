#!/usr/bin/env bash
# run.sh FILE BINARY: the tests of one Python file against a server program.
set -euo pipefail
if [ -z "${QUERN_REF_PYTHON:-}" ]; then
    echo "skipped $1: no Python with the openai client (QUERN_REF_PYTHON)"
    exit 77
fi
exec "$QUERN_REF_PYTHON" "$(dirname "$0")/$1" "$2" -v
