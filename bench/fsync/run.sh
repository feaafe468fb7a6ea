#!/bin/sh
# 4 KiB random writes, each with its own fsync, on the block file under a loop device, beside a plain loop device on the same
# disk, in turn; and the same without fsync.
#
#   bench/fsync/run.sh [SECONDS] [ROUNDS] [DIR]      defaults: 2, 5, the system's scratch directory
#
# One request at a time, and four jobs of 16 (fio sends an fsync only when its job has nothing in flight, so that is four at a
# time). Both files were written once before. `ours` and `ours-dev`: see bench/pgbench/run.sh; `ours-asked` is `ours` with
# `flush_ahead = 0`, so that no flush begins before it is asked for, `ours-spinN` has
# `spin_us = N`, and `ours-each` has `flush_gather = 0`, so that no FLUSH waits for writes in progress (both not unless named).
# bench/fsync/counts.sh counts flushes. FSYNC_SERVERS and FSYNC_JOBS choose. Needs root and fio; installs it.
set -eu
seconds=${1:-2}
rounds=${2:-5}
dir=${3:-${TMPDIR:-/var/tmp}}
here=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}/release
[ "$(id -u)" -eq 0 ] || { echo "bench/fsync/run.sh: loop devices and mounts need root" >&2; exit 1; }
"$here/scripts/install-deps" fio util-linux jq
[ -n "${BENCH_NO_BUILD:-}" ] || cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm
scratch=$(mktemp -d "$dir/fsync.XXXXXX")
servers=${FSYNC_SERVERS:-plain ours ours-dev ours-asked}
. "$here/bench/fuse-ring.sh"

cleanup() {
    trap - EXIT INT TERM
    for name in $servers; do
        [ ! -f "$scratch/$name.loop" ] || losetup -d "$(cat "$scratch/$name.loop")"
        [ ! -f "$scratch/$name.pid" ] || { sleep 0.3; "$target/isotherm" stop "$scratch/$name" || kill "$(cat "$scratch/$name.pid")"; }
    done >/dev/null 2>&1
    wait
    fuse_ring_as_before
    rm -rf "$scratch"
}
trap cleanup EXIT INT TERM
for name in $servers; do
    file=$scratch/plain.img
    if [ "$name" = plain ]; then
        fallocate -l 1G "$file"
    else
        "$target/isotherm" create "$scratch/$name" --fast "$scratch/$name.fast:1200M" --slow "$scratch/$name.slow:1200M" \
            --preallocate --policy greendm >/dev/null
        case $name in
        ours-dev) setting fuse_ring false "$scratch/$name.toml" ;;
        ours-asked) setting flush_ahead 0 "$scratch/$name.toml" ;;
        ours-each) setting flush_gather 0 "$scratch/$name.toml" ;;
        ours-spin*) setting spin_us "${name#ours-spin}" "$scratch/$name.toml" ;;
        esac
        mkdir "$scratch/$name.mnt"
        "$target/isotherm" serve "$scratch/$name" --block-file "$scratch/$name.mnt" >"$scratch/$name.out" 2>&1 &
        echo $! >"$scratch/$name.pid"
        tries=0
        until grep -q ready "$scratch/$name.out"; do
            tries=$((tries + 1))
            [ "$tries" -lt 200 ] || { echo "a server did not start:" >&2; cat "$scratch/$name.out" >&2; exit 1; }
            sleep 0.05
        done
        file=$scratch/$name.mnt/$name
    fi
    losetup --direct-io=on --find --show "$file" >"$scratch/$name.loop"
    head -c 1G /dev/zero | dd of="$(cat "$scratch/$name.loop")" bs=1M iflag=fullblock oflag=direct conv=notrunc,fsync status=none
done
measure() { # name, depth, jobs, fsync
    fio --name=t --filename="$(cat "$scratch/$1.loop")" --ioengine=libaio --iodepth="$2" --numjobs="$3" --group_reporting \
        --rw=randwrite --bs=4k --direct=1 --size=1G --fsync="$4" --time_based --runtime="${seconds}s" --ramp_time=200ms \
        --norandommap --output-format=terse --terse-version=3 | awk -F';' 'NF > 50 { print $49 }'
}
round=1
while [ "$round" -le "$rounds" ]; do
    for fsync in ${FSYNC_CASES:-1 0}; do
        for job in ${FSYNC_JOBS:-1:1 16:4}; do
            [ "$fsync" = 1 ] && case=fsync || case=write
            for name in $servers; do
                echo "$case-qd${job%:*}x${job#*:} $name $round $(measure "$name" "${job%:*}" "${job#*:}" "$fsync")"
            done
        done
    done
    round=$((round + 1))
done >"$scratch/results"
[ -z "${BENCH_KEEP:-}" ] || cp "$scratch/results" "$BENCH_KEEP"
awk -v peer=plain -v bar=0.85 -f "$here/bench/table.awk" "$scratch/results"
