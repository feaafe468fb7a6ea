#!/bin/sh
# The block file against a one-thread pread server, in one run on one machine.
#
#   bench/fuse-pread/run.sh [SECONDS] [ROUNDS]
#
# Prints operations per second of each server, medians over the rounds, and the ratio to fuse_pread. Rounds are
# interleaved, so that a change of the machine's speed meets all servers. Needs root, fio, /dev/fuse and a tmpfs.
#
#   pread      one thread: read the request, pread or pwrite the tmpfs file, reply
#   inline     block file, volume in memory, completed on the session thread (inline2: two session threads)
#   handoffN   the same, completed on a thread of its own that polls for N microseconds before it sleeps
#   pumpN      that thread takes the requests from the kernel itself
set -eu
seconds=${1:-3}
rounds=${2:-3}
here=$(cd "$(dirname "$0")/../.." && pwd)
bin=${CARGO_TARGET_DIR:-$here/target}/release/examples
[ -x "$bin/fuse_pread" ] && [ -x "$bin/block_file_mem" ] ||
    cargo build --release -p isotherm-live --example fuse_pread --example block_file_mem
scratch=$(mktemp -d /dev/shm/fuse-pread.XXXXXX)
servers="pread inline inline2 handoff0 handoff20 pump0 pump20"

cleanup() {
    exec 9>&-
    wait
    rm -rf "$scratch"
}
trap cleanup EXIT INT TERM

mkfifo "$scratch/stop"
truncate -s 512M "$scratch/backing"
head -c 512M /dev/zero >"$scratch/backing"
start() { # name, command...
    name=$1
    shift
    mkdir "$scratch/$name"
    # The servers end when the pipe's only writer (descriptor 9) closes.
    "$@" <"$scratch/stop" >"$scratch/$name.out" 9>&- &
}
start pread "$bin/fuse_pread" "$scratch/pread" "$scratch/backing"
start inline "$bin/block_file_mem" "$scratch/inline" file 512
start inline2 "$bin/block_file_mem" "$scratch/inline2" file 512 threads=2
start handoff0 "$bin/block_file_mem" "$scratch/handoff0" file 512 handoff=0
start handoff20 "$bin/block_file_mem" "$scratch/handoff20" file 512 handoff=20
start pump0 "$bin/block_file_mem" "$scratch/pump0" file 512 pump=0
start pump20 "$bin/block_file_mem" "$scratch/pump20" file 512 pump=20
exec 9>"$scratch/stop"
for name in $servers; do
    until grep -q ready "$scratch/$name.out" 2>/dev/null; do sleep 0.1; done
done

measure() { # name, engine, depth, direction
    fio --name=t --filename="$scratch/$1/file" --ioengine="$2" --iodepth="$3" --rw="$4" --bs=4k --direct=1 \
        --time_based --runtime="$seconds" --ramp_time=0.3 --norandommap --output-format=terse --terse-version=3 9>&- |
        awk -F';' '{ print ($8 > 0 ? $8 : 0) + ($49 > 0 ? $49 : 0) }'
}

round=0
while [ "$round" -lt "$rounds" ]; do
    for job in psync:1 libaio:32 io_uring:32; do
        for direction in randread randwrite; do
            for name in $servers; do
                echo "$job $direction $name $(measure "$name" "${job%:*}" "${job#*:}" "$direction")"
            done
        done
    done
    round=$((round + 1))
done >"$scratch/results"

# Median of each case, in the order of first appearance; the pread server comes first in each group.
sort -s -k1,3 -k4,4n "$scratch/results" | awk -v rounds="$rounds" '
    { key = $1 " " $2 " " $3; n[key]++; if (n[key] == int((rounds + 1) / 2)) median[key] = $4 }
    END { for (key in median) print key, median[key] }' >"$scratch/medians"
awk 'NR == FNR { median[$1 " " $2 " " $3] = $4; next }
    !seen[$1 " " $2 " " $3]++ {
        value = median[$1 " " $2 " " $3]
        base = median[$1 " " $2 " pread"]
        printf "%-12s %-10s %-11s %9d IOPS  %5.2f\n", $1, $2, $3, value, value / base
    }' "$scratch/medians" "$scratch/results"
