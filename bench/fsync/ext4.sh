#!/bin/sh
# 8 KiB random writes to files of an ext4 with its journal, each write with its own fsync, on a cache volume of the default policy under a loop
# device, beside a plain loop device on the same disk, in turn. Also prints the blocks that the volume's journal took for each fsync.
#
#   bench/fsync/ext4.sh [SECONDS] [ROUNDS] [DIR]      defaults: 5, 5, the system's scratch directory
#
# The loads are one job and eight jobs, each with a file of 64 MiB that was rewritten at random for ten seconds before. The servers
# are those of bench/loop-device.sh; FSYNC_SERVERS chooses them (default: `plain ours`). Needs root; installs fio.
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
    mkfs.ext4 -q -F "$(cat "$scratch/$name.loop")"
    mkdir "$scratch/$name.ext4"
    mount "$(cat "$scratch/$name.loop")" "$scratch/$name.ext4"
done
writes() { # name, jobs, seconds
    fio --name=t --directory="$scratch/$1.ext4" --ioengine=psync --numjobs="$2" --group_reporting --rw=randwrite --bs=8k --size=64M \
        --fsync=1 --fallocate=none --overwrite=1 --time_based --runtime="${3}s" --norandommap --output-format=terse --terse-version=3
}
blocks() { # name
    [ "$1" = plain ] && echo 0 || "$isotherm" stats "$scratch/$1" --json | jq .commit.journal_blocks
}
# Blocks that flash does not have yet need a record with their first write. Afterwards, what is measured are rewrites.
for name in $servers; do writes "$name" 1 10 >/dev/null; writes "$name" 8 10 >/dev/null; done
round=1
while [ "$round" -le "$rounds" ]; do
    for jobs in 1 8; do
        for name in $servers; do
            before=$(blocks "$name")
            rate=$(writes "$name" "$jobs" "$seconds" | awk -F';' 'NF > 50 { print $49 }')
            after=$(blocks "$name")
            echo "jobs-$jobs $name $round $rate"
            echo "$name $jobs $rate $seconds $before $after" >>"$scratch/blocks"
        done
    done
    round=$((round + 1))
done >"$scratch/results"
[ -z "${BENCH_KEEP:-}" ] || cp "$scratch/results" "$BENCH_KEEP"
awk -v peer=plain -v bar=0.75 -f "$here/bench/table.awk" "$scratch/results"
awk '$1 != "plain" { n[$1 " with " $2 " jobs"] += $6 - $5; f[$1 " with " $2 " jobs"] += $3 * $4 }
    END { for (k in n) if (f[k]) printf "%s: %.3f blocks of the journal for each fsync\n", k, n[k] / f[k] }' "$scratch/blocks"
