#!/bin/sh
# 4 KiB random writes, each with its own fsync, on the block file under a loop device, beside a plain loop device on the same
# disk, in turn; and the same without fsync.
#
#   bench/fsync/run.sh [SECONDS] [ROUNDS] [DIR]      defaults: 2, 5, the system's scratch directory
#
# The loads are one request at a time, and four jobs of 16 requests. (fio sends an fsync only when its job has nothing in flight, so four
# fsyncs are in flight.) Each device is written once first. The servers are those of bench/loop-device.sh; FSYNC_SERVERS chooses them
# (default: `plain ours ours-dev ours-asked`), FSYNC_JOBS the loads and FSYNC_CASES 1 (fsync), 0 (none) or both. bench/fsync/counts.sh
# counts flushes. Needs root; installs fio.
set -eu
seconds=${1:-2}
rounds=${2:-5}
dir=${3:-${TMPDIR:-/var/tmp}}
here=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" -eq 0 ] || { echo "bench/fsync/run.sh: loop devices and mounts need root" >&2; exit 1; }
"$here/scripts/install-deps" fio util-linux jq
servers=${FSYNC_SERVERS:-plain ours ours-dev ours-asked}
. "$here/bench/loop-device.sh"

for name in $servers; do
    device "$name" 1G 1200M greendm
    fill "$name" 1G
done
measure() { # name, depth, jobs, fsync
    random_writes "$1" 1G "$2" "$3" "$seconds" "$4" --ramp_time=200ms | awk -F';' 'NF > 50 { print $49 }'
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
