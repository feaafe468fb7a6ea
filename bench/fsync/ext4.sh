#!/bin/sh
# 8 KiB random writes to files of an ext4 with its journal, each write with its own fsync, on a cache volume of the default policy under a loop
# device, beside a plain loop device on the same disk, in turn. Also prints the blocks that the volume's journal took for each fsync.
#
#   bench/fsync/ext4.sh [SECONDS] [ROUNDS] [DIR]      defaults: 5, 5, the system's scratch directory
#
# The loads are one job and eight jobs, each with a file of 64 MiB of which 24 MiB were rewritten at random before. The servers are
# those of bench/loop-device.sh; FSYNC_SERVERS chooses them (default: `plain ours`). Needs root; installs fio.
set -eu
seconds=${1:-5}
rounds=${2:-5}
dir=${3:-${TMPDIR:-/var/tmp}}
here=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" -eq 0 ] || { echo "bench/fsync/ext4.sh: loop devices and mounts need root" >&2; exit 1; }
"$here/scripts/install-deps" fio util-linux jq e2fsprogs
servers=${FSYNC_SERVERS:-plain ours}
. "$here/bench/loop-device.sh"

unmount() {
    for name in $servers; do umount "$scratch/$name.ext4" 2>/dev/null || true; done
    end_devices
}
trap unmount EXIT INT TERM
for name in $servers; do
    device "$name" 2G 2G benefit
    mkfs.ext4 -q -F -J size=16 "$(cat "$scratch/$name.loop")"
    mkdir "$scratch/$name.ext4"
    mount "$(cat "$scratch/$name.loop")" "$scratch/$name.ext4"
done
writes() { # name, jobs, options for the length
    fio --name=t --directory="$scratch/$1.ext4" --ioengine=psync --numjobs="$2" --group_reporting --rw=randwrite --bs=8k --size=64M \
        --fsync=1 --fallocate=none --overwrite=1 --norandommap --output-format=terse --terse-version=3 $3
}
blocks() { # name
    [ "$1" = plain ] && echo 0 || "$isotherm" stats "$scratch/$1" --json | jq .commit.journal_blocks
}
# Blocks that flash does not have yet need a record with their first write. Afterwards what is measured are rewrites, those of ext4's journal
# included, which is small so that it has been written several times by then.
for name in $servers; do writes "$name" 8 --io_size=24M >/dev/null; done
rate_of() { awk -F';' 'NF > 50 { print $49 }'; }
# The journal's blocks are counted in one piece of a single job's load: extents that rest for a minute, as most do where the servers take
# turns, are recorded as clean, and need a record again.
for name in $servers; do
    [ "$name" != plain ] || continue
    writes "$name" 1 "--time_based --runtime=10s" >/dev/null
    before=$(blocks "$name")
    rate=$(writes "$name" 1 "--time_based --runtime=10s" | rate_of)
    echo "$name $rate $before $(blocks "$name")" |
        awk '$2 { printf "%s, rewritten without a pause: %.3f blocks of the journal for each fsync\n", $1, ($4 - $3) / $2 / 10 }'
done
round=1
while [ "$round" -le "$rounds" ]; do
    for jobs in 1 8; do
        for name in $servers; do
            echo "jobs-$jobs $name $round $(writes "$name" "$jobs" "--time_based --runtime=${seconds}s" | rate_of)"
        done
    done
    round=$((round + 1))
done >"$scratch/results"
[ -z "${BENCH_KEEP:-}" ] || cp "$scratch/results" "$BENCH_KEEP"
awk -v peer=plain -v bar=0.75 -f "$here/bench/table.awk" "$scratch/results"
