#!/bin/sh
# How a sweep scales: the same grid on one thread and on two.
#
#   bench/lab/sweep.sh [TRACE]        default: the MySQL trace of the fixtures, 24 cells
#
# Prints both times and their ratio; 1.8 and more is the goal on two cores with nothing else to do.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
trace=${1:-$here/fixtures/linux-mysql.load.zst}
cd "$here"
cargo build --quiet --release -p isotherm
work=$(mktemp -d "${TMPDIR:-/tmp}/isotherm-sweep.XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/grid.toml" <<GRID
traces = "$trace"
policies = ["linear", "greendm", "hot-dst-recency"]
fast_size = ["5%", "10%", "20%", "40%"]
depth = [1, 16]
GRID
took() {
    begin=$(date +%s.%N)
    target/release/isotherm sweep "$work/grid.toml" --out "$work/$1" --threads "$1" >/dev/null
    end=$(date +%s.%N)
    echo "$begin $end" | awk '{ printf "%.3f", $2 - $1 }'
}
one=$(took 1)
two=$(took 2)
echo "$one $two" | awk '{ printf "1 thread %.2f s, 2 threads %.2f s: %.2f times as fast\n", $1, $2, $1 / $2 }'
