#!/bin/sh
# Long traces in bounded memory: a computed trace of a billion requests without devices, and one with full models.
#
#   bench/lab/billion.sh [HIT_ONLY_REQUESTS [FULL_REQUESTS [SPAN]]]     default: 1000000000 100000000 4G
#
# Prints for each run: requests, CPU seconds (both passes), million accesses per CPU second, peak memory. The full run is also made at a
# tenth of its length, so that memory that grows with the length would be seen. Needs GNU time.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
hit_only=${1:-1000000000}
full=${2:-100000000}
span=${3:-4G}
cd "$here"
[ -n "${ISOTHERM:-}" ] || cargo build --quiet --release -p isotherm
isotherm=${ISOTHERM:-target/release/isotherm}
work=$(mktemp -d "${TMPDIR:-/tmp}/isotherm-billion.XXXXXX")
trap 'rm -rf "$work"' EXIT

run() {
    what=$1 requests=$2
    shift 2
    nice env time -o "$work/time" -f '%U %S %M' \
        "$isotherm" sim "gen:zipf,span=$span,requests=$requests" --json="$work/run.json" "$@" >/dev/null
    accesses=$(sed -n 's/^ *"accesses": \([0-9]*\),*/\1/p' "$work/run.json" | head -1)
    awk -v what="$what" -v n="$requests" -v a="$accesses" '{
        cpu = $1 + $2
        printf "%-38s %11d requests %8.1f CPU s %7.2f M accesses/s %6.0f MiB\n", what, n, cpu, a / cpu / 1e6, $3 / 1024
    }' "$work/time"
}

uptime
for policy in linear lru; do
    run "$policy, full models, depth 32" $((full / 10)) --policy "$policy" --fast-size 10% --depth 32
    run "$policy, full models, depth 32" "$full" --policy "$policy" --fast-size 10% --depth 32
done
run "linear, SSD alone, depth 32" "$full" --policy linear --depth 32 --tier nvme-tlc
run "lru, hit-only" "$hit_only" --policy lru --fast-size 10% --hit-only
uptime
