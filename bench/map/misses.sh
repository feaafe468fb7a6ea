#!/bin/sh
# Instructions and cache misses of one request on large maps, by cachegrind's model of the caches. The figures are the same in every run
# and at every load of the machine.
#
#   bench/map/misses.sh [EXTENTS:POLICY:TOGETHER…]     default: 10^6 and 10^7 extents, linear and lru, 1 and 32 together
#
# Each case (crates/live/benches/map.rs) runs twice, with 50 000 requests and with 100 000. The difference, divided by the number of
# requests, does not contain the cost of the volume's creation. MISSES_LL is the last cache in the form of valgrind's --LL; the
# default is 32 MiB, 16 ways. 10^8 extents take 3 GB and, under cachegrind, a quarter of an hour or more for each case.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
cd "$here"
[ "$(id -u)" -ne 0 ] || scripts/install-deps valgrind jq
program=${MISSES_PROGRAM:-$(cargo bench --no-run --message-format=json -p isotherm-live --bench map |
    jq -r 'select(.target.name? == "map" and .executable) | .executable')}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/misses.XXXXXX")
trap 'rm -rf "$scratch"' EXIT INT TERM

# The totals of a run: instructions, data references, and misses of the first and of the last cache.
count() { # case, requests
    valgrind --quiet --tool=cachegrind --cache-sim=yes --LL="${MISSES_LL:-33554432,16,64}" \
        --cachegrind-out-file="$scratch/out" "$program" "only=$1" "requests=$2" >/dev/null
    awk '/^events:/ { for (i = 2; i <= NF; i++) at[$i] = i }
        /^summary:/ { print $at["Ir"], $at["Dr"] + $at["Dw"], $at["D1mr"] + $at["D1mw"], $at["DLmr"] + $at["DLmw"] }' "$scratch/out"
}

cases=$*
if [ -z "$cases" ]; then
    for extents in 1000000 10000000; do
        for policy in linear lru; do
            cases="$cases $extents:$policy:1 $extents:$policy:32"
        done
    done
fi
echo "| extents | policy | together | instructions | data references | first cache missed | last cache missed |"
echo "|---|---|---|---|---|---|---|"
for case in $cases; do
    few=$(count "$case" 50000)
    many=$(count "$case" 100000)
    echo "$case $few $many" | awk '{ split($1, c, ":"); n = 50000
        printf "| %s | %s | %s | %.0f | %.0f | %.2f | %.2f |\n", c[1], c[2], c[3], ($6 - $2) / n, ($7 - $3) / n, ($8 - $4) / n, ($9 - $5) / n }'
done
