#!/usr/bin/env bash
# Make (once) the Python environment that tests hold quern against: transformers, torch, the
# reference tokenizers, Jinja2 and the official openai client. Prints the path of its interpreter.
# It lives in the user's cache, is keyed by the pins below, and is never used at run time.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

pins="torch==2.13.0 transformers==5.24.0 tokenizers==0.23.3 safetensors>=0.5 gguf>=0.17
accelerate>=1.0 jinja2==3.1.6 numpy>=1.26 sentencepiece>=0.2 protobuf>=5 openai==3.57.0 httpx>=0.27"
key=$(printf '%s' "$pins" | sha256sum | cut -c1-12)
env=$qn_cache/ref-$key
if [ ! -x "$env/bin/python" ] || [ ! -e "$env/complete" ]; then
    python3 -c 'import venv, ensurepip' 2>/dev/null || qn_need_packages python3-venv python3-pip
    rm -rf "$env"
    mkdir -p "$qn_cache"
    qn_say "making the reference environment in $env (torch and transformers, a few GB, once)"
    python3 -m venv "$env"
    # shellcheck disable=SC2086
    "$env/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir $pins >&2
    "$env/bin/python" -c 'import torch, transformers, tokenizers, openai, jinja2, gguf' >&2
    touch "$env/complete"
fi
echo "$env/bin/python"
