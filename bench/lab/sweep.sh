#!/bin/sh
# The speed of a sweep on two threads compared with one thread, on the same grid.
#
#   bench/lab/sweep.sh [ROUNDS] [TRACE]        defaults: 1, the MySQL trace of the fixtures, 24 cells
#
# Prints both rates and their ratio; the goal is 1.9 or more on two cores that are otherwise idle. The first of the two runs changes from
# round to round. With BOUND=1 two programs with one thread each also run at once, each with all cells: they share nothing but the
# machine, so their rate together is the most that it gives to two threads.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
rounds=${1:-1}
trace=${2:-$here/fixtures/linux-mysql.load.zst}
cd "$here"
[ -n "${BENCH_NO_BUILD:-}" ] || cargo build --quiet --release -p isotherm
target=${CARGO_TARGET_DIR:-$here/target}/release
work=$(mktemp -d "${TMPDIR:-/tmp}/isotherm-sweep.XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/grid.toml" <<GRID
traces = "$trace"
policies = ["linear", "greendm", "hot-dst-recency"]
fast_size = ["5%", "10%", "20%", "40%"]
depth = [1, 16]
GRID
cells=24
rate() { # threads; prints cells per second
    begin=$(date +%s.%N)
    "$target/isotherm" sweep "$work/grid.toml" --out "$work/$1" --threads "$1" >/dev/null
    end=$(date +%s.%N)
    rm -rf "${work:?}/$1"
    echo "$begin $end" | awk -v n="$cells" '{ printf "%.4f", n / ($2 - $1) }'
}
both() { # prints the cells per second of two programs at once
    begin=$(date +%s.%N)
    for n in a b; do
        "$target/isotherm" sweep "$work/grid.toml" --out "$work/$n" --threads 1 >/dev/null &
    done
    wait
    end=$(date +%s.%N)
    rm -rf "${work:?}/a" "$work/b"
    echo "$begin $end" | awk -v n="$cells" '{ printf "%.4f", 2 * n / ($2 - $1) }'
}
round=1
while [ "$round" -le "$rounds" ]; do
    order="1 2"
    [ $((round % 2)) = 1 ] || order="2 1"
    for n in $order; do
        [ "$n" = 1 ] && name="1 thread" || name="$n threads"
        printf '24 cells of MySQL\t%s\t%s\t%s\n' "$name" "$round" "$(rate "$n")"
    done
    [ -z "${BOUND:-}" ] || printf '24 cells of MySQL\t2 programs\t%s\t%s\n' "$round" "$(both)"
    round=$((round + 1))
done >"$work/results"
[ -z "${BENCH_KEEP:-}" ] || cp "$work/results" "$BENCH_KEEP"
awk -F'\t' '{ at[$3, $2] = $4 } END { for (r = 1; (r, "1 thread") in at; r++) printf "1 thread %.2f, 2 threads %.2f cells/s: %.2f times as fast\n",
    at[r, "1 thread"], at[r, "2 threads"], at[r, "2 threads"] / at[r, "1 thread"]
    for (r = 1; (r, "2 programs") in at; r++) printf "2 programs at once %.2f cells/s: %.2f times one thread\n",
    at[r, "2 programs"], at[r, "2 programs"] / at[r, "1 thread"] }' "$work/results"
