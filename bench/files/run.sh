#!/bin/sh
# A tiering mount beside mergerfs (if installed) and the directory itself: sequential and random reads and writes, create/stat/unlink, and
# what 100000 idle files cost. Root. Usage: bench/files/run.sh [DIRECTORY]. The program is $ISOTHERM, or target/release/isotherm.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
isotherm=${ISOTHERM:-$here/../../target/release/isotherm}
work=$(mktemp -d "${1:-/var/tmp}/isotherm-files.XXXXXX")
server=""

leave() {
    for m in "$work/mnt" "$work/merged"; do
        if mountpoint -q "$m"; then umount "$m" || umount -l "$m"; fi
    done
    [ -z "$server" ] || wait "$server" 2>/dev/null || true
    rm -rf "$work"
}
trap leave EXIT
trap 'exit 1' INT TERM
mkdir "$work/fast" "$work/slow" "$work/mnt" "$work/merged"

# serve [OPTION]: mount and wait for "ready".
serve() {
    "$isotherm" mount --fast "$work/fast" --slow "$work/slow" --no-moves "$@" "$work/mnt" >"$work/out" &
    server=$!
    i=0
    until grep -q ready "$work/out"; do
        kill -0 "$server" && [ $i -lt 1200 ] || { echo "cannot mount" >&2; exit 1; }
        i=$((i + 1))
        sleep 0.1
    done
}
unserve() {
    umount "$work/mnt"
    wait "$server" || true
    server=""
}

# fio JOB DIRECTORY ARGUMENTS: one number, MB/s or operations/s.
job() {
    kind=$1 dir=$2
    shift 2
    sync
    fio --name=x --directory="$dir" --size=256M --time_based --runtime=4 --output-format=json "$@" >"$work/fio.json"
    python3 - "$work/fio.json" "$kind" <<'P'
import json, sys
j = json.load(open(sys.argv[1]))["jobs"][0]
d = j["read"] if j["read"]["io_bytes"] else j["write"]
print("%9.0f" % (d["bw_bytes"] / 1e6 if sys.argv[2] == "MB/s" else d["iops"]), end=" ")
P
    rm -f "$dir"/x.*
}
names() {
    python3 - "$1" <<'P'
import os, sys, time
d = sys.argv[1] + "/names"
os.mkdir(d)
n = 4000
def rate(f):
    t = time.monotonic()
    for i in range(n): f("%s/f%d" % (d, i))
    return "%9.0f" % (n / (time.monotonic() - t))
make = lambda p: os.close(os.open(p, os.O_CREAT | os.O_WRONLY, 0o644))
print(rate(make), rate(os.stat), rate(os.unlink))
os.rmdir(d)
P
}
all() {
    printf '%-22s' "$1"
    job MB/s "$2" --rw=read --bs=1M
    job MB/s "$2" --rw=write --bs=1M --end_fsync=1
    job ops "$2" --rw=randread --bs=4k
    job ops "$2" --rw=randwrite --bs=4k
    names "$2"
}

printf '%-22s%9s %9s %9s %9s %9s %9s %9s\n' "" "read MB/s" "write" "4K read/s" "write/s" "create/s" "stat/s" "unlink/s"
all native "$work/fast"
serve
all isotherm "$work/mnt"
unserve
serve --passthrough
all "isotherm passthrough" "$work/mnt"
unserve
if command -v mergerfs >/dev/null; then
    mergerfs -o cache.files=auto-full,category.create=ff "$work/fast:$work/slow" "$work/merged"
    all mergerfs "$work/merged"
    umount "$work/merged"
else
    echo "mergerfs: not installed (apt-get install mergerfs)"
fi

python3 - "$work/slow" <<'P'
import os, sys
for d in range(100):
    p = "%s/d%d" % (sys.argv[1], d)
    os.mkdir(p)
    for f in range(1000): os.close(os.open("%s/some-file-%d.txt" % (p, f), os.O_CREAT | os.O_WRONLY, 0o644))
P
start=$(date +%s%N)
serve
end=$(date +%s%N)
echo "100000 idle files: mounted in $(((end - start) / 1000000)) ms, $(awk '/VmRSS/ {print $2}' "/proc/$server/status") KiB resident"
unserve
