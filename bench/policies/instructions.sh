#!/bin/sh
# Instructions and cache misses of one access in the null world, by cachegrind. The figures are the same in every run and at every load of
# the machine.
#
#   bench/policies/instructions.sh [POLICY…]      default: benefit hro hot lru linear
#
# The workload is that of bench/policies/run.sh. Each policy runs 300 000 accesses and 500 000 accesses. The difference, divided by the
# number of accesses, contains neither the start nor the time in which flash is empty. The first cache (D1) has 32 KiB, the last one (LL)
# 1 MiB. The digest covers all hits: if two trees have equal digests, they decide the same. INSTRUCTIONS_PROGRAM names a program that was
# built before (crates/lab/benches/policies.rs), to compare trees.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
[ "$(id -u)" -ne 0 ] || scripts/install-deps valgrind jq
program=${INSTRUCTIONS_PROGRAM:-$(cargo bench --no-run --message-format=json -p isotherm-lab --bench policies |
    jq -r 'select(.target.name? == "policies" and .executable) | .executable')}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/instructions.XXXXXX")
trap 'rm -rf "$scratch"' EXIT INT TERM

count() { # policy, accesses; prints instructions, and data misses of the first and of the last cache
    valgrind --quiet --tool=cachegrind --cache-sim=yes --I1=32768,8,64 --D1=32768,8,64 --LL=1048576,16,64 \
        --cachegrind-out-file="$scratch/out" "$program" play "$1" "$2" >"$scratch/said" 2>"$scratch/warned" || { cat "$scratch/warned" >&2; exit 1; }
    awk '/^events:/ { for (i = 2; i <= NF; i++) at[$i] = i }
        /^summary:/ { print $at["Ir"], $at["D1mr"] + $at["D1mw"], $at["DLmr"] + $at["DLmw"] }' "$scratch/out"
}

echo "| policy | instructions an access | D1 misses | LL misses | digest |"
echo "|---|---|---|---|---|"
for policy in ${*:-benefit hro hot lru linear}; do
    few=$(count "$policy" 300000)
    many=$(count "$policy" 500000)
    digest=$(sed 's/.*digest \([0-9a-f]*\).*/\1/' "$scratch/said")
    echo "$policy $few $many $digest" | awk -v keep="${BENCH_KEEP:-}" '{
        ir = sprintf("%.0f", ($5 - $2) / 200000); d1 = sprintf("%.2f", ($6 - $3) / 200000); ll = sprintf("%.2f", ($7 - $4) / 200000)
        printf "| %s | %s | %s | %s | %s |\n", $1, ir, d1, ll, $8
        if (keep != "") printf "%s\tinstructions\t1\t%s\n%s\tD1 misses\t1\t%s\n%s\tLL misses\t1\t%s\n", $1, ir, $1, d1, $1, ll >> keep
    }'
done
