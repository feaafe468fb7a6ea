#!/bin/sh
# A mount of tiers (with and without FUSE passthrough) beside mergerfs, if that is installed, and the directory itself. Needs root.
#
#   bench/files/run.sh [DIRECTORY]
#
#   $ISOTHERM  the program (target/release/isotherm)
#   $ROUNDS    number of rounds, in each of which all four take turns (3); bench/files/table.py prints medians
#   $PEERS     which of native, isotherm, isotherm-passthrough and mergerfs (all of them that are there)
#   $PARTS     bytes, names (both)
#   $RUNTIME   seconds of each job of fio (2)
#   $THREADS   number of threads of isotherm's session (isotherm's default)
#   $RESULTS   file to which a line of JSON is added for each run (bench/files/results.jsonl)
#   $IDLE      number of idle files whose memory is measured (100000; 0: none)
# Bytes are read and written in DIRECTORY. Names are created, looked up and removed in memory (/dev/shm): after many files were removed,
# ext4 creates files slowly for half a minute, which would delay the next one measured.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
isotherm=${ISOTHERM:-$here/../../target/release/isotherm}
results=${RESULTS:-$here/results.jsonl}
data=$(mktemp -d "${1:-/var/tmp}/isotherm-files.XXXXXX")
memory=$(mktemp -d /dev/shm/isotherm-files.XXXXXX)
server=""

unserve() {
    for m in "$data/mnt" "$memory/mnt"; do
        if mountpoint -q "$m"; then umount "$m" || umount -l "$m"; fi
    done
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    server=""
}
leave() {
    unserve
    rm -rf "$data" "$memory"
}
trap leave EXIT
trap 'exit 1' INT TERM

# serve DIRECTORY WHAT: mounts the measured file system WHAT on DIRECTORY/mnt.
serve() {
    rm -rf "$1/fast" "$1/slow"
    mkdir -p "$1/fast" "$1/slow" "$1/mnt"
    case $2 in
    mergerfs) mergerfs -o cache.files=auto-full,category.create=ff "$1/fast:$1/slow" "$1/mnt" ;;
    isotherm*)
        option=""
        [ "$2" = isotherm ] || option=--passthrough
        # shellcheck disable=SC2086  # a list of words
        "$isotherm" mount --fast "$1/fast" --slow "$1/slow" --no-moves $option "$1/mnt" >"$1/out" 2>&1 &
        server=$!
        i=0
        until grep -q ready "$1/out"; do
            kill -0 "$server" && [ $i -lt 1200 ] || { cat "$1/out" >&2; exit 1; }
            i=$((i + 1))
            sleep 0.1
        done
        ;;
    esac
}

# note WHAT KIND NUMBER
note() {
    printf '{"what": "%s", "kind": "%s", "value": %s}\n' "$1" "$2" "$3" >>"$results"
}

# job WHAT DIRECTORY KIND FIELD FIO-ARGUMENTS
job() {
    what=$1 dir=$2 kind=$3 field=$4
    shift 4
    sync
    fio --name=x --directory="$dir" --size=128M --time_based --runtime="${RUNTIME:-2}" --group_reporting --output-format=json "$@" >"$data/fio.json"
    note "$what" "$kind" "$(jq ".jobs[0] | [.read.$field, .write.$field] | max" "$data/fio.json")"
    rm -f "$dir"/x.*
}

bytes() {
    job "$1" "$2" "read MB/s" bw_bytes --rw=read --bs=1M
    job "$1" "$2" "write MB/s" bw_bytes --rw=write --bs=1M
    job "$1" "$2" "4K reads/s" iops --rw=randread --bs=4k
    job "$1" "$2" "4K writes/s" iops --rw=randwrite --bs=4k
    job "$1" "$2" "4K reads/s, 4 jobs" iops --rw=randread --bs=4k --numjobs=4
}

names() {
    python3 "$here/names.py" "$2" | while read -r kind rate; do note "$1" "$kind" "$rate"; done
}

peers=${PEERS:-native isotherm isotherm-passthrough mergerfs}
parts=${PARTS:-bytes names}
if ! command -v mergerfs >/dev/null; then
    echo "mergerfs: not installed (apt-get install mergerfs)" >&2
    peers=$(echo "$peers" | sed 's/ *mergerfs//')
fi
round=0
while [ $round -lt "${ROUNDS:-3}" ]; do
    for what in $peers; do
        place=mnt
        [ "$what" = native ] && place=fast
        case $parts in *bytes*)
            serve "$data" "$what"
            bytes "$what" "$data/$place"
            unserve
            ;;
        esac
        case $parts in *names*)
            serve "$memory" "$what"
            names "$what" "$memory/$place"
            unserve
            ;;
        esac
    done
    round=$((round + 1))
done

idle=${IDLE:-100000}
if [ "$idle" -gt 0 ]; then
    # resident: memory of a server with $IDLE idle files, KiB.
    resident() {
        rm -rf "$memory/fast" "$memory/slow"
        mkdir "$memory/fast" "$memory/slow"
        python3 "$here/names.py" --make "$1" "$memory/slow"
        start=$(date +%s%N)
        "$isotherm" mount --fast "$memory/fast" --slow "$memory/slow" --no-moves "$memory/mnt" >"$memory/out" 2>&1 &
        server=$!
        until grep -q ready "$memory/out"; do kill -0 "$server"; sleep 0.02; done
        took=$((($(date +%s%N) - start) / 1000000))
        kib=$(awk '/VmRSS/ {print $2}' "/proc/$server/status")
        cpu=$(awk -v hz="$(getconf CLK_TCK)" '{print int(($14 + $15) * 1000 / hz)}' "/proc/$server/stat")
        unserve
    }
    mkdir -p "$memory/mnt"
    resident 0
    none=$kib
    resident "$idle"
    note isotherm "mount of $idle files, ms" "$took"
    note isotherm "mount of $idle files, ms of processor" "$cpu"
    note isotherm "bytes an idle file" "$(((kib - none) * 1024 / idle))"
fi
python3 "$here/table.py" "$results"
