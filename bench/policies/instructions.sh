#!/bin/sh
# Instructions of one access in the null world, by valgrind: the same on every run and at every load of the machine.
#
#   bench/policies/instructions.sh [POLICY…]      default: benefit lru linear
#
# The work is that of bench/policies/run.sh. Each policy plays 300 000 accesses and 500 000; the difference, for each access, leaves out the
# setting up and the time when flash is empty. The digest is over all hits: equal digests of two trees mean that they decide the same.
# INSTRUCTIONS_PROGRAM is a program built before (crates/lab/benches/policies.rs), to compare trees.
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
