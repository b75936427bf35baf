#!/usr/bin/env bash
# fuzz_one.sh TARGET SECONDS: run one libFuzzer program on its seeds (tests/fuzz/NAME, if any) with
# bounded memory; findings are kept in build/fuzz/findings.
set -uo pipefail
target=$1 seconds=$2
name=$(basename "$target" | sed 's/^fuzz_//')
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$root/build/fuzz/corpus/$name" "$root/build/fuzz/findings"
seeds=$root/tests/fuzz/$name
log=$root/build/fuzz/$name.log
dirs=("$root/build/fuzz/corpus/$name")
[ -d "$seeds" ] && dirs+=("$seeds")
if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=1024 -max_len=65536 \
    -print_final_stats=1 -artifact_prefix="$root/build/fuzz/findings/$name-" "${dirs[@]}" >"$log" 2>&1; then
    echo "fuzz $name: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs in $seconds s, no finding"
else
    tail -n 40 "$log"
    echo "fuzz $name: FINDING, see $log"
    exit 1
fi
