#!/bin/sh
# Hit-only runs against libCacheSim's C program, in turn in one run, on the same uncompressed trace of equal pieces and at the same size.
#
#   bench/hit-only/run.sh [ROUNDS] [TRACE…]     default: 3 rounds; OLTP, web server and MySQL traces that can be found
#
# A trace is a path, or a name in fixtures/ or $ISOTHERM_TRACES. Each is first cut into 4 KiB objects (oracleGeneral). The time of a
# program is that from its start to its end. Speed is requests per CPU second (user + system), which a busy machine disturbs less
# than elapsed time; `wall` is elapsed time. Medians of the rounds; the bar is a ratio of 1. Miss ratios are
# printed with the digits that the peer prints, and must be equal, except those of w-tinylfu (other hash functions, another sketch).
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
rounds=${1:-3}
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- arc-OLTP.lis.zst linux-webserver-2.load.zst linux-mysql.load.zst
peer=${ISOTHERM_PEER:-$here/target/peer}
"$here/scripts/peer-libcachesim" "$peer"
cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm
isotherm=${CARGO_TARGET_DIR:-$here/target}/release/isotherm
scratch=$(mktemp -d "${TMPDIR:-/tmp}/hit-only.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
export TIMEFORMAT="%U %S %R"

# Prints the CPU seconds and the elapsed seconds of a command. Its output goes to a file.
timed() { # output, command…
    out=$1
    shift
    bash -c 'time "$@" >"$0" 2>&1' "$out" "$@" 2>&1 | awk '{ print $1 + $2, $3 }'
}

printf '%-22s %-8s %8s  %9s %9s %6s  %9s %9s  %-9s %-9s %s\n' trace policy slots 'ours/cpu' 'peer/cpu' ratio 'ours/wall' 'peer/wall' 'ours miss' 'peer miss' verdict
for name; do
    trace=$name
    for dir in "$here/fixtures" "${ISOTHERM_TRACES:-}"; do
        [ -e "$trace" ] || trace=$dir/$name
    done
    if [ ! -e "$trace" ]; then
        echo "skipped: $name is neither in fixtures/ nor in \$ISOTHERM_TRACES"
        continue
    fi
    flat=$scratch/trace.oracle
    rm -f "$flat"
    "$isotherm" trace convert "$trace" --to oracle-general --out "$flat" >/dev/null
    requests=$(($(wc -c <"$flat") / 24))
    for slots in 500 2000 20000; do
        for pair in lru:LRU fifo:FIFO arc:ARC sieve:Sieve s3-fifo:S3FIFO lfu:LFU w-tinylfu:WTinyLFU; do
            ours=${pair%%:*}
            round=0
            : >"$scratch/times"
            while [ "$round" -lt "$rounds" ]; do
                round=$((round + 1))
                a=$(timed "$scratch/ours" "$isotherm" sim "$flat" --format oracle-general --policy "$ours" --fast-size $((slots * 4096)) --hit-only --json)
                b=$(cd "$scratch" && timed "$scratch/peer" "$peer/cachesim" "$flat" oracleGeneral "${pair##*:}" "$slots" --ignore-obj-size=1)
                echo "$a $b" >>"$scratch/times"
            done
            [ -z "${BENCH_KEEP:-}" ] || awk -v n="$requests" -v row="$ours, F = $slots, ${name%%.*}" '{
                printf "%s\tours\t%d\t%.3f\n%s\tpeer\t%d\t%.3f\n", row, NR, n / $1 / 1e6, row, NR, n / $3 / 1e6 }' "$scratch/times" >>"$BENCH_KEEP"
            hits=$(sed -n 's/.*"fast_hit_ratio": *\([0-9.e-]*\).*/\1/p' "$scratch/ours")
            miss=$(sed -n 's/.*miss ratio \([0-9.]*\).*/\1/p' "$scratch/peer")
            awk -v n="$requests" -v trace="$name" -v policy="$ours" -v slots="$slots" -v hits="$hits" -v miss="$miss" '
                function median(c, i, j, t, v) {
                    for (i = 1; i <= NR; i++) v[i] = at[i, c]
                    for (i = 2; i <= NR; i++) for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
                    return NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
                }
                function rate(seconds) { return n / (seconds > 0.0005 ? seconds : 0.0005) / 1e6 }
                { for (c = 1; c <= 4; c++) at[NR, c] = $c }
                END {
                    ours = sprintf("%.4f", 1 - hits)
                    ratio = rate(median(1)) / rate(median(3))
                    verdict = (ratio >= 1 ? "met" : "MISSED") (ours == miss ? "" : (policy == "w-tinylfu" ? ", own sketch" : ", MISS RATIOS DIFFER"))
                    printf "%-22.22s %-8s %8d  %7.2fM %7.2fM %6.2f  %7.2fM %7.2fM  %-9s %-9s %s\n", trace, policy, slots, rate(median(1)), rate(median(3)), ratio, rate(median(2)), rate(median(4)), ours, miss, verdict
                }' "$scratch/times"
        done
    done
done
