#!/bin/sh
# Instructions, cache misses and memory of one request on large maps, by callgrind's model of the caches. The figures are the same in
# every run and at every load of the machine.
#
#   bench/map/misses.sh [EXTENTS:POLICY:TOGETHER…]     default: 10^6, 10^7 and 10^8 extents, linear and lru, 1 and 32 together
#
# Each case (crates/live/benches/map.rs) creates its volume before callgrind counts anything, fills the simulated caches with 10^6 requests,
# and then counts REQUESTS (default: 200 000) requests. MISSES_LL is the last cache in the form of valgrind's --LL; the default is 32 MiB
# with 16 ways. The first cache has 32 KiB with 8 ways. MISSES_PROGRAM names a program that was built before, to compare trees.
# 10^8 extents take 3 GB and about two minutes for each case.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
[ "$(id -u)" -ne 0 ] || scripts/install-deps valgrind jq
program=${MISSES_PROGRAM:-$(cargo bench --no-run --message-format=json -p isotherm-live --bench map |
    jq -r 'select(.target.name? == "map" and .executable) | .executable')}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/misses.XXXXXX")
trap 'rm -rf "$scratch"' EXIT INT TERM

cases=$*
if [ -z "$cases" ]; then
    for extents in 1000000 10000000 100000000; do
        for policy in linear lru; do
            cases="$cases $extents:$policy:1 $extents:$policy:32"
        done
    done
fi
echo "| extents | policy | together | instructions | data references | D1 misses | LL misses | bytes per extent |"
echo "|---|---|---|---|---|---|---|---|"
for case in $cases; do
    valgrind --quiet --tool=callgrind --instr-atstart=no --cache-sim=yes --I1=32768,8,64 --D1=32768,8,64 --LL="${MISSES_LL:-33554432,16,64}" \
        --callgrind-out-file="$scratch/out" "$program" "only=$case" "requests=${REQUESTS:-200000}" >"$scratch/said"
    # Totals: instructions, data references, and data misses of the first and of the last cache.
    awk -v what="$case" -v said="$(cat "$scratch/said")" -v keep="${BENCH_KEEP:-}" '
        /^events:/ { for (i = 2; i <= NF; i++) at[$i] = i }
        /^(summary|totals):/ && NF > 5 { line = $0 }
        function row(column, value) { if (keep != "") printf "%s extents, %s, %s together\t%s\t1\t%s\n", c[1], c[2], c[3], column, value >> keep }
        END {
            split(line, sum, " "); split(said, words, " "); split(what, c, ":")
            n = words[1]
            ir = sprintf("%.0f", sum[at["Ir"]] / n); refs = sprintf("%.0f", (sum[at["Dr"]] + sum[at["Dw"]]) / n)
            d1 = sprintf("%.2f", (sum[at["D1mr"]] + sum[at["D1mw"]]) / n); ll = sprintf("%.2f", (sum[at["DLmr"]] + sum[at["DLmw"]]) / n)
            printf "| %s | %s | %s | %s | %s | %s | %s | %s |\n", c[1], c[2], c[3], ir, refs, d1, ll, words[3]
            row("instructions", ir); row("data references", refs); row("D1 misses", d1); row("LL misses", ll); row("bytes per extent", words[3])
        }' "$scratch/out"
done
