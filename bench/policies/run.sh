#!/bin/sh
# The cost of a policy: the median time of an access in the null world (crates/lab/benches/policies.rs).
#
#   bench/policies/run.sh [ROUNDS]      default: 1
set -eu
rounds=${1:-1}
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
work=$(mktemp "${TMPDIR:-/tmp}/policies.XXXXXX")
trap 'rm -f "$work"' EXIT
round=1
while [ "$round" -le "$rounds" ]; do
    cargo bench --quiet -p isotherm-lab --bench policies | tee "$work"
    # Divan's rows: name and fastest │ slowest │ median │ mean │ …, each of 1000 accesses.
    [ -z "${BENCH_KEEP:-}" ] || awk -F'│' -v round="$round" '/[├╰]─ [a-z0-9-]+ +[0-9.]+ (n|µ|m)?s/ {
        split($0, head, "─ "); split(head[2], word, " ")
        split($3, at, " ")
        scale = at[2] == "ns" ? 1 : at[2] == "µs" ? 1000 : at[2] == "ms" ? 1000000 : 1000000000
        printf "an access in the null world\t%s\t%d\t%.1f\n", word[1], round, at[1] * scale / 1000
    }' "$work" >>"$BENCH_KEEP"
    round=$((round + 1))
done
