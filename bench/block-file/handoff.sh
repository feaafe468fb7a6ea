#!/bin/sh
# The block file against a one-thread pread server, in one run on one machine.
#
#   bench/block-file/handoff.sh [SECONDS] [ROUNDS] [JOBS] [SERVERS]
#
# Prints operations per second of each server (median over the rounds) and the ratio to fuse_pread (median of the ratios
# within each round). The servers take turns within a round, so that a change of the machine's speed affects all of them. Needs
# root, fio, /dev/fuse and a tmpfs.
#
#   pread      one thread: read the request, pread or pwrite the tmpfs file, reply
#   inline     block file, volume in memory, completed on the thread that takes the requests from the kernel, as the engine's
#              thread does (inline2: two such threads)
#   handoffN   the same, completed on another thread, which polls for N microseconds before it sleeps
set -eu
seconds=${1:-3}
rounds=${2:-3}
here=$(cd "$(dirname "$0")/../.." && pwd)
bin=${CARGO_TARGET_DIR:-$here/target}/release/examples
[ -x "$bin/fuse_pread" ] && [ -x "$bin/block_file_mem" ] ||
    cargo build --release -p isotherm-live --example fuse_pread --example block_file_mem
scratch=$(mktemp -d /dev/shm/fuse-pread.XXXXXX)
jobs=${3:-psync:1 libaio:32 io_uring:32}
servers=${4:-pread inline inline2 handoff0 handoff20}

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
    for job in $jobs; do
        for direction in randread randwrite; do
            for name in $servers; do
                echo "$job $direction $name $round $(measure "$name" "${job%:*}" "${job#*:}" "$direction")"
            done
        done
    done
    round=$((round + 1))
done >"$scratch/results"

awk '
    function median(list, n, i, j, t) {
        for (i = 2; i <= n; i++)
            for (j = i; j > 1 && list[j - 1] > list[j]; j--) { t = list[j]; list[j] = list[j - 1]; list[j - 1] = t }
        return n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
    }
    {
        key = $1 " " $2
        if (!((key, $3) in count)) order[++cases] = key " " $3
        value[key, $3, ++count[key, $3]] = $5
        iops[key, $3, $4] = $5
    }
    END {
        for (c = 1; c <= cases; c++) {
            split(order[c], part, " ")
            key = part[1] " " part[2]
            n = count[key, part[3]]
            for (i = 1; i <= n; i++) {
                list[i] = value[key, part[3], i]
                base = iops[key, "pread", i - 1]
                ratio[i] = base > 0 ? list[i] / base : 0
            }
            printf "%-12s %-10s %-11s %9d IOPS  %5.2f\n", part[1], part[2], part[3], median(list, n), median(ratio, n)
        }
    }' "$scratch/results"
