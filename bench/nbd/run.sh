#!/bin/sh
# NBD against nbdkit's file plugin on the same tmpfs, nbdkit's memory plugin as the ceiling, in one run.
#
#   bench/nbd/run.sh [SECONDS] [ROUNDS] [DEPTH:CONNECTIONS…]
#
# Unix sockets, fio's nbd engine; `qd64x4` is four connections with 64 requests each. The servers take turns within a
# round. Prints medians and the median of the ratios to `nbdkit-file` within the rounds; the bar is 1.
set -eu
seconds=${1:-1}
rounds=${2:-5}
jobs=${3:-1:1 32:1 64:4}
here=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}/release
[ "$(id -u)" -ne 0 ] || "$here/scripts/install-deps" fio nbdkit jq
[ -n "${BENCH_NO_BUILD:-}" ] || cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm
scratch=$(mktemp -d /dev/shm/nbd.XXXXXX)

cleanup() {
    trap - EXIT INT TERM
    "$target/isotherm" stop "$scratch/v" >/dev/null 2>&1 || true
    kill ${file:-} ${memory:-} 2>/dev/null || true
    wait
    rm -rf "$scratch"
}
trap cleanup EXIT INT TERM

head -c 1G /dev/zero >"$scratch/backing"
nbdkit -f -U "$scratch/nbdkit-file" file "$scratch/backing" &
file=$!
nbdkit -f -U "$scratch/nbdkit-memory" memory 1G allocator=malloc &
memory=$!
"$target/isotherm" create "$scratch/v" --fast "$scratch/fast:1200M" --slow "$scratch/slow:1200M" --policy greendm >/dev/null
"$target/isotherm" serve "$scratch/v" --nbd "unix:$scratch/ours" >"$scratch/out" 2>&1 &
tries=0
until grep -q ready "$scratch/out" && [ -S "$scratch/nbdkit-file" ] && [ -S "$scratch/nbdkit-memory" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || { echo "a server did not start:" >&2; cat "$scratch/out" >&2; exit 1; }
    sleep 0.05
done

run() { # name, depth, connections, direction, more options
    server=$1 depth=$2 connections=$3 rw=$4
    shift 4
    fio --name=t --ioengine=nbd --uri="nbd+unix:///?socket=$scratch/$server" --iodepth="$depth" --numjobs="$connections" --thread \
        --group_reporting --rw="$rw" --size=1G --norandommap --output-format=terse --terse-version=3 "$@" |
        awk -F';' 'NF > 50 { print ($8 > 0 ? $8 : 0) + ($49 > 0 ? $49 : 0) }'
}
for name in ours nbdkit-memory; do run "$name" 8 1 write --bs=1M >/dev/null; done
round=1
while [ "$round" -le "$rounds" ]; do
    for job in $jobs; do
        for direction in randread randwrite; do
            for name in nbdkit-file ours nbdkit-memory; do
                n=${job#*:}
                [ "$n" = 1 ] && label=qd${job%:*} || label=qd${job%:*}x$n
                echo "$direction-$label $name $round $(run "$name" "${job%:*}" "$n" "$direction" --bs=4k --time_based --runtime="${seconds}s" --ramp_time=200ms)"
            done
        done
    done
    round=$((round + 1))
done >"$scratch/results"
[ -z "${BENCH_KEEP:-}" ] || cp "$scratch/results" "$BENCH_KEEP"
awk -v peer=nbdkit-file -v bar=1 -f "$here/bench/table.awk" "$scratch/results"
