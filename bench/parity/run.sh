#!/bin/sh
# A live volume with paced members and the lab with the same requests in a closed loop: elapsed time and energy side by side. The loads
# are linux-mysql.load, postmark as the block file gets it (recorded first; needs root, FUSE, loop devices and postmark), and the traces
# that are given.
#
#   bench/parity/run.sh [TRACE…]      LIMIT requests (8000; of postmark 24000), DEPTH=8 in flight, POLICY=greendm,PT=16,
#                                     WORK='linux-mysql postmark' or a part of it, ISOTHERM=the program, TMPDIR, CLIENT_US
#
# `demo --save-events` records each replay: the state of the volume when the replay begins, and the requests. `sim --as-recorded` begins in
# the same state. So both start with the same extents on flash and with the same places on the disk, and differ in nothing but the time that
# operations take. Devices and policy are those of the demo, too.
#
# The members are files in memory if /dev/shm has room: a paced operation ends when its model and the real file are done, and a real flush
# takes longer than that of the modelled flash.
#
# A live client needs time between a reply and its next request. The flash alone shows how much: the lab gets the client time with which
# its flash takes as long as the live one (`sim --client-us`), so this row is fitted, and the other two are the test. CLIENT_US=0 leaves it
# out. A row that lasts less than 5 s measures the machine and not the volume, so it is mentioned but not compared.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
isotherm=${ISOTHERM:-$here/target/release/isotherm}
work_of=${WORK-linux-mysql postmark}
limit=${LIMIT:-8000} depth=${DEPTH:-8} policy=${POLICY:-greendm,PT=16}
hdd=wd5000aaks ssd=ocz-vertex3-maxiops
[ -x "$isotherm" ] || { echo "bench/parity: $isotherm is missing: run \`make build\`" >&2; exit 1; }
[ -n "${TMPDIR-}" ] || [ ! -w /dev/shm ] || TMPDIR=/dev/shm
work=$(mktemp -d "${TMPDIR:-/tmp}/isotherm-parity-XXXXXX")
tidy() {
    mountpoint -q "$work/fs" && umount "$work/fs"
    [ ! -S "$work/v.sock" ] || "$isotherm" stop "$work/v" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap tidy EXIT
trap 'exit 1' INT TERM

# row SETUP KEY: prints a figure of the live run.
row() { jq -r --arg s "$1" --arg k "$2" '.rows[] | select(.setup == $s) | .[$k]' "$work/live.json"; }

# lab SETUP TIER…: runs the recorded requests from the recorded state; the result is in lab.json.
lab() {
    events=$work/events/$1.events
    shift
    "$isotherm" sim "$events" --as-recorded "$@" --time closed --depth "$depth" --client-us "$client" \
        --json="$work/lab.json" 2>/dev/null
}
# of KEY: prints a figure of that run of the lab.
of() { jq -r --arg k "$1" '(if type == "array" then .[0] else . end)[$k]' "$work/lab.json"; }

# client_time: sets `client` to the client time in microseconds with which the flash alone takes as long in the lab as live.
client_time() {
    low=0 high=5000 client=${CLIENT_US-}
    [ -z "$client" ] || return 0
    while [ $((high - low)) -gt 2 ]; do
        client=$(((low + high) / 2))
        lab ssd --tier "$ssd"
        if awk -v l="$(row ssd elapsed_s)" -v m="$(of elapsed_s)" 'BEGIN { exit !(m < l) }'; then low=$client; else high=$client; fi
    done
}

compare() {
    name=$1
    shift
    rm -rf "$work/events"
    mkdir "$work/events"
    "$isotherm" demo --quiet --skip-postmark --limit "$limit" --depth "$depth" --policy "$policy" --dir "$work" \
        --save-events "$work/events" --json="$work/live.json" "$@" >/dev/null 2>"$work/said" ||
        { cat "$work/said" >&2; return 1; }
    client_time
    echo "$name: client time $client us"
    for setup in hdd hybrid ssd; do
        case $setup in
        hdd) lab hdd --tier "$hdd" ;;
        ssd) lab ssd --tier "$ssd" ;;
        *) lab hybrid --tier "$ssd" --tier "$hdd" ;;
        esac
        awk -v n="$name" -v s=$setup -v l="$(row $setup elapsed_s)" -v m="$(of elapsed_s)" -v lj="$(row $setup energy_j)" \
            -v mj="$(of energy_j)" -v lu="$(row $setup promotions)" -v ld="$(row $setup demotions)" -v mu="$(of promotions)" \
            -v md="$(of demotions)" 'BEGIN {
                printf "%-16s %-7s live %8.2f s %8.1f J   lab %8.2f s %8.1f J   ", n, s, l, lj, m, mj
                if (s == "ssd") printf "gives the client time"
                else if (l < 5) printf "too short to compare"
                else printf "lab/live %5.3f s %5.3f J", m / l, mj / lj
                printf "   moves %d up %d down, lab %d up %d down\n", lu, ld, mu, md
            }'
    done
}

# Records the requests of postmark on ext4 on the block file of an unpaced volume.
postmark_trace() {
    "$isotherm" create "$work/v" --slow "$work/disk:1G" --policy linear >/dev/null
    mkdir "$work/block" "$work/fs"
    "$isotherm" serve "$work/v" --block-file "$work/block" >"$work/served" 2>&1 &
    until grep -q ready "$work/served"; do
        kill -0 $! 2>/dev/null || { cat "$work/served" >&2; return 1; }
        sleep 0.1
    done
    mkfs.ext4 -q -F "$work/block/v"
    # Every write of a file goes to the disk at once. Otherwise the page cache would keep nearly all of postmark's data.
    mount -o loop,sync "$work/block/v" "$work/fs"
    "$isotherm" record "$work/v" --out "$work/postmark.parquet" 2>"$work/recorded" >/dev/null &
    recorder=$!
    until grep -q recording "$work/recorded"; do sleep 0.1; done
    printf 'set location %s\nset number 300\nset transactions 900\nset size 512 10240\nset subdirectories 20\nset buffering false\nset seed 42\nrun\nquit\n' \
        "$work/fs" | postmark >/dev/null
    umount "$work/fs"
    kill -INT $recorder
    wait $recorder
    "$isotherm" stop "$work/v" >/dev/null
}

echo "$limit requests at most, $depth in flight, hybrid under $policy: $ssd over $hdd"
case $work_of in *linux-mysql*) compare linux-mysql ;; esac
limit=${LIMIT:-24000}
case $work_of in *postmark*) recorded=yes ;; *) recorded= ;; esac
if [ -n "$recorded" ] && [ "$(id -u)" -eq 0 ] && [ -e /dev/fuse ] && command -v postmark >/dev/null && postmark_trace; then
    compare postmark --trace "$work/postmark.parquet"
elif [ -n "$recorded" ]; then
    echo "postmark         not recorded: needs root, /dev/fuse, loop devices and postmark"
fi
limit=${LIMIT:-8000}
for trace in "$@"; do
    compare "$(basename "$trace" | cut -c1-16)" --trace "$trace"
done
