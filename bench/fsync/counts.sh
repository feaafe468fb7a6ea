#!/bin/sh
# The cost of a write with its own fsync, as counts: FLUSHes that reach the loop device and the disk, rounds and flushes of the engine,
# and context switches of the engine's threads. Unlike times, counts hardly depend on the load of the machine.
#
#   bench/fsync/counts.sh [SECONDS] [ROUNDS] [DIR]      defaults: 2, 3, the system's scratch directory
#
# The servers are those of bench/loop-device.sh. COUNTS_SERVERS chooses them (default: `plain ours ours-each`), and COUNTS_JOB=DEPTH:JOBS
# the load (default: 16:4). Other I/O on the same disk is counted as well, so nothing else should write there. Needs root; installs fio.
set -eu
seconds=${1:-2}
rounds=${2:-3}
dir=${3:-${TMPDIR:-/var/tmp}}
here=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" -eq 0 ] || { echo "bench/fsync/counts.sh: loop devices and mounts need root" >&2; exit 1; }
"$here/scripts/install-deps" fio util-linux jq
servers=${COUNTS_SERVERS:-plain ours ours-each}
job=${COUNTS_JOB:-16:4}
. "$here/bench/loop-device.sh"

for name in $servers; do
    device "$name" 512M 700M greendm
    fill "$name" 512M
done
# The disk below the scratch directory: the whole device, not a partition.
disk=$(lsblk --noheadings --inverse --list --output NAME "$(df --output=source "$scratch" | tail -n 1)" | tail -n 1)

# A name and a count on each line. The 16th field of `stat` counts FLUSHes.
counts() {
    loop=$(cat "$scratch/$1.loop")
    awk '{ print "loop-flushes", $16 }' "/sys/block/${loop#/dev/}/stat"
    awk '{ print "disk-flushes", $16 }' "/sys/block/$disk/stat"
    [ "$1" != plain ] || return 0
    "$isotherm" stats "$scratch/$1" --json | jq -r '"rounds \(.commit.rounds)\nwaited \(.commit.gathered // 0)\nmember-flushes \([.members[].flushes] | add)"'
    awk '$1 ~ /ctxt_switches/ { n += $2 } END { print "switches", n }' "/proc/$(cat "$scratch/$1.pid")"/task/*/status
}
echo "| served by | round | writes/s | for each write: FLUSHes of the loop device | flushes of the disk | rounds | of these waited | flushes of members | switches of the server's threads |"
echo "|---|---|---|---|---|---|---|---|---|"
round=1
while [ "$round" -le "$rounds" ]; do
    for name in $servers; do
        counts "$name" >"$scratch/before"
        random_writes "$name" 512M "${job%:*}" "${job#*:}" "$seconds" 1 >"$scratch/fio"
        counts "$name" >"$scratch/after"
        # Number of 4 KiB writes, and writes per second.
        written=$(awk -F';' 'NF > 50 { print $47 / 4 }' "$scratch/fio")
        rate=$(awk -F';' 'NF > 50 { print $49 }' "$scratch/fio")
        awk -v name="$name" -v round="$round" -v rate="$rate" -v written="$written" '
            NR == FNR { before[$1] = $2; next }
            { n[$1] = $2 - before[$1] }
            function each(what) { return what in n ? sprintf("%.3f", n[what] / written) : "" }
            END { printf "| %s | %d | %d | %s | %s | %s | %s | %s | %s |\n", name, round, rate, each("loop-flushes"), each("disk-flushes"),
                each("rounds"), each("waited"), each("member-flushes"), each("switches") }' "$scratch/before" "$scratch/after"
    done
    round=$((round + 1))
done
