#!/bin/sh
# The block file against a one-thread pread FUSE server, in one run, with nbdfuse over nbdkit for comparison.
#
#   bench/block-file/run.sh [SECONDS] [ROUNDS]
#
# Each server has a 1 GiB file on the same tmpfs. For `ours` the file is the fast tier of a volume, and the slow tier is unused. The
# servers take turns within a round. Prints medians and the median of the ratios within the rounds; the bar is 80 % of
# `pread`. Needs root, fio, nbdkit, nbdfuse, /dev/fuse.
set -eu
seconds=${1:-1}
rounds=${2:-5}
here=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}/release
[ "$(id -u)" -ne 0 ] || "$here/scripts/install-deps" fio nbdkit libnbd-bin jq
if [ -z "${BENCH_NO_BUILD:-}" ]; then
    cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm
    cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm-live --example fuse_pread
fi
scratch=$(mktemp -d /dev/shm/block-file.XXXXXX)

cleanup() {
    trap - EXIT INT TERM
    "$target/isotherm" stop "$scratch/v" >/dev/null 2>&1 || true
    umount "$scratch/nbdfuse" 2>/dev/null || true
    exec 9>&-
    kill ${nbdkit:-} 2>/dev/null || true
    wait
    rm -rf "$scratch"
}
trap cleanup EXIT INT TERM
ready() { # file with the server's output
    tries=0
    until grep -q ready "$1" 2>/dev/null; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || { echo "a server did not start:" >&2; cat "$1" >&2; exit 1; }
        sleep 0.05
    done
}

mkdir "$scratch/pread" "$scratch/ours" "$scratch/nbdfuse"
mkfifo "$scratch/stop"
head -c 1G /dev/zero >"$scratch/backing"
# Ends when the pipe's only writer (descriptor 9) closes.
"$target/examples/fuse_pread" "$scratch/pread" "$scratch/backing" <"$scratch/stop" >"$scratch/pread.out" 9>&- &
exec 9>"$scratch/stop"
"$target/isotherm" create "$scratch/v" --fast "$scratch/fast:1200M" --slow "$scratch/slow:1200M" --policy greendm >/dev/null
"$target/isotherm" serve "$scratch/v" --block-file "$scratch/ours" >"$scratch/ours.out" 2>&1 9>&- &
nbdkit -f -U "$scratch/nbd.sock" file "$scratch/backing" 9>&- &
nbdkit=$!
ready "$scratch/pread.out"
ready "$scratch/ours.out"
while [ ! -S "$scratch/nbd.sock" ]; do sleep 0.05; done
nbdfuse "$scratch/nbdfuse" --unix "$scratch/nbd.sock" 9>&- &
until [ -f "$scratch/nbdfuse/nbd" ]; do sleep 0.05; done
head -c 1G /dev/zero | dd of="$scratch/ours/v" bs=1M iflag=fullblock conv=notrunc status=none

file() {
    case $1 in
    pread) echo "$scratch/pread/file" ;;
    ours) echo "$scratch/ours/v" ;;
    nbdfuse) echo "$scratch/nbdfuse/nbd" ;;
    esac
}
measure() { # name, engine, depth, direction
    fio --name=t --filename="$(file "$1")" --ioengine="$2" --iodepth="$3" --rw="$4" --bs=4k --direct=1 --size=1G \
        --time_based --runtime="${seconds}s" --ramp_time=200ms --norandommap --output-format=terse --terse-version=3 9>&- |
        awk -F';' 'NF > 50 { print ($8 > 0 ? $8 : 0) + ($49 > 0 ? $49 : 0) }'
}
round=1
while [ "$round" -le "$rounds" ]; do
    for job in psync:1 libaio:32; do
        for direction in randread randwrite; do
            for name in pread ours nbdfuse; do
                echo "$direction-qd${job#*:} $name $round $(measure "$name" "${job%:*}" "${job#*:}" "$direction")"
            done
        done
    done
    round=$((round + 1))
done >"$scratch/results"
[ -z "${BENCH_KEEP:-}" ] || cp "$scratch/results" "$BENCH_KEEP"
awk -v peer=pread -v bar=0.80 -f "$here/bench/table.awk" "$scratch/results"
"$target/isotherm" stats "$scratch/v" --json | jq -r '"moves: \(.promotions) up, \(.demotions) down; \(.bytes_per_extent) bytes of memory an extent"'
