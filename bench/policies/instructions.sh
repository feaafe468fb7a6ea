#!/bin/sh
# Instructions of one access in the null world, by valgrind. The figures are the same in every run and at every load of the machine.
#
#   bench/policies/instructions.sh [POLICY…]      default: benefit lru linear
#
# The workload is that of bench/policies/run.sh. Each policy runs 300 000 accesses and 500 000 accesses. The difference, divided by the
# number of accesses, contains neither the start nor the time in which flash is empty. The digest covers all hits: if two trees have equal
# digests, they decide the same. INSTRUCTIONS_PROGRAM names a program that was built before (crates/lab/benches/policies.rs), to compare
# trees.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
[ "$(id -u)" -ne 0 ] || scripts/install-deps valgrind jq
program=${INSTRUCTIONS_PROGRAM:-$(cargo bench --no-run --message-format=json -p isotherm-lab --bench policies |
    jq -r 'select(.target.name? == "policies" and .executable) | .executable')}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/instructions.XXXXXX")
trap 'rm -rf "$scratch"' EXIT INT TERM

count() { # policy, accesses
    valgrind --quiet --tool=cachegrind --cache-sim=no --cachegrind-out-file="$scratch/out" "$program" play "$1" "$2" >"$scratch/said"
    awk '/^summary:/ { print $2 }' "$scratch/out"
}

echo "| policy | instructions an access | digest |"
echo "|---|---|---|"
for policy in ${*:-benefit lru linear}; do
    few=$(count "$policy" 300000)
    many=$(count "$policy" 500000)
    digest=$(sed 's/.*digest \([0-9a-f]*\).*/\1/' "$scratch/said")
    echo "| $policy | $(((many - few) / 200000)) | $digest |"
done
