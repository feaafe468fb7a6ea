#!/bin/sh
# What one write with its own fsync costs, counted: FLUSHes that reach the loop device and the disk, rounds and flushes of the engine,
# and how often the engine's threads gave up a processor. Counts hardly depend on the load of the machine, other than times.
#
#   bench/fsync/counts.sh [SECONDS] [ROUNDS] [DIR]      defaults: 2, 3, the system's scratch directory
#
# The set-up is that of bench/fsync/run.sh with 16 × 4 requests (COUNTS_JOB=DEPTH:JOBS chooses). COUNTS_SERVERS: default `plain ours
# ours-each`; `ours-each` has `flush_gather = 0`, so that no FLUSH waits for writes in progress. All other I/O on the same disk is
# counted too, so nothing else should write there. ISOTHERM names a program built before. Needs root and fio; installs it.
set -eu
seconds=${1:-2}
rounds=${2:-3}
dir=${3:-${TMPDIR:-/var/tmp}}
here=$(cd "$(dirname "$0")/../.." && pwd)
isotherm=${ISOTHERM:-${CARGO_TARGET_DIR:-$here/target}/release/isotherm}
[ "$(id -u)" -eq 0 ] || { echo "bench/fsync/counts.sh: loop devices and mounts need root" >&2; exit 1; }
"$here/scripts/install-deps" fio util-linux jq
scratch=$(mktemp -d "$dir/counts.XXXXXX")
servers=${COUNTS_SERVERS:-plain ours ours-each}
job=${COUNTS_JOB:-16:4}
. "$here/bench/fuse-ring.sh"

cleanup() {
    trap - EXIT INT TERM
    for name in $servers; do
        [ ! -f "$scratch/$name.loop" ] || losetup -d "$(cat "$scratch/$name.loop")"
        [ ! -f "$scratch/$name.pid" ] || { sleep 0.3; "$isotherm" stop "$scratch/$name" || kill "$(cat "$scratch/$name.pid")"; }
    done >/dev/null 2>&1
    wait
    fuse_ring_as_before
    rm -rf "$scratch"
}
trap cleanup EXIT INT TERM
for name in $servers; do
    file=$scratch/plain.img
    if [ "$name" = plain ]; then
        fallocate -l 512M "$file"
    else
        "$isotherm" create "$scratch/$name" --fast "$scratch/$name.fast:700M" --slow "$scratch/$name.slow:700M" \
            --preallocate --policy greendm >/dev/null
        [ "$name" != ours-each ] || setting flush_gather 0 "$scratch/$name.toml"
        mkdir "$scratch/$name.mnt"
        "$isotherm" serve "$scratch/$name" --block-file "$scratch/$name.mnt" >"$scratch/$name.out" 2>&1 &
        echo $! >"$scratch/$name.pid"
        tries=0
        until grep -q ready "$scratch/$name.out"; do
            tries=$((tries + 1))
            [ "$tries" -lt 400 ] || { echo "a server did not start:" >&2; cat "$scratch/$name.out" >&2; exit 1; }
            sleep 0.05
        done
        file=$scratch/$name.mnt/$name
    fi
    losetup --direct-io=on --find --show "$file" >"$scratch/$name.loop"
    head -c 512M /dev/zero | dd of="$(cat "$scratch/$name.loop")" bs=1M iflag=fullblock oflag=direct conv=notrunc,fsync status=none
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
        fio --name=t --filename="$(cat "$scratch/$name.loop")" --ioengine=libaio --iodepth="${job%:*}" --numjobs="${job#*:}" \
            --group_reporting --rw=randwrite --bs=4k --direct=1 --size=512M --fsync=1 --time_based --runtime="${seconds}s" \
            --norandommap --output-format=terse --terse-version=3 >"$scratch/fio"
        counts "$name" >"$scratch/after"
        # KiB written, and writes a second.
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
