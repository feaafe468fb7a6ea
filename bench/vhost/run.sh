#!/bin/sh
# Our vhost-user front end against qemu-storage-daemon's (Debian's package) over files of the same size on the same tmpfs, in one run.
#
#   bench/vhost/run.sh [SECONDS] [ROUNDS]
#
# One driver (crates/live/examples/vhost_user_load.rs) sends requests of 4 KiB at random places to both, at depth 1 and 32, through one
# queue, as a guest's kernel does: a kick for what it sends together, an interrupt for what comes back. `qsd` is the daemon with its file
# driver as Debian's QEMU makes it, in an I/O thread of its own, with a page cache, as ours has one on tmpfs. They take turns within a round,
# and the first one changes from round to round. `ours` keeps writes over a kill -9 (`kept_writes`, which vhost-user turns on), the daemon
# does not. Prints medians and the median of the ratios within the rounds; the bar is 1.
set -eu
seconds=${1:-2}
rounds=${2:-5}
here=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}/release
[ "$(id -u)" -ne 0 ] || "$here/scripts/install-deps" qemu-system-common
[ -n "${BENCH_NO_BUILD:-}" ] ||
    cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm -p isotherm-live --no-default-features --bin isotherm --example vhost_user_load
scratch=$(mktemp -d /dev/shm/vhost.XXXXXX)

cleanup() {
    trap - EXIT INT TERM
    "$target/isotherm" stop "$scratch/v" >/dev/null 2>&1 || true
    kill ${qsd:-} 2>/dev/null || true
    wait
    rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

head -c 1G /dev/zero >"$scratch/backing"
qemu-storage-daemon --object iothread,id=io --blockdev "file,node-name=file,filename=$scratch/backing" \
    --blockdev raw,node-name=disk,file=file \
    --export "vhost-user-blk,id=x,node-name=disk,addr.type=unix,addr.path=$scratch/qsd,writable=on,iothread=io" >"$scratch/qsd.out" 2>&1 &
qsd=$!
"$target/isotherm" create "$scratch/v" --fast "$scratch/fast:1G" --slow "$scratch/slow:32M" --policy linear >/dev/null
"$target/isotherm" serve "$scratch/v" --vhost-user "$scratch/ours" >"$scratch/out" 2>&1 &
tries=0
until grep -q ready "$scratch/out" && [ -S "$scratch/qsd" ]; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || { echo "a server did not start:" >&2; cat "$scratch/out" "$scratch/qsd.out" >&2; exit 1; }
    sleep 0.05
done
load() { "$target/examples/vhost_user_load" "$scratch/$1" "$2" "$3" "$seconds"; }
# Everything is written once, so that both servers have allocated their memory and the data of the volume is on its fast tier.
for server in qsd ours; do load "$server" fill 1; done
round=1
while [ "$round" -le "$rounds" ]; do
    order="qsd ours"
    [ $((round % 2)) -ne 0 ] || order="ours qsd"
    for kind in read write; do
        for depth in 1 32; do
            for server in $order; do
                echo "rand$kind-qd$depth $server $round $(load "$server" "$kind" "$depth")"
            done
        done
    done
    round=$((round + 1))
done >"$scratch/results"
[ -z "${BENCH_KEEP:-}" ] || cp "$scratch/results" "$BENCH_KEEP"
awk -v peer=qsd -v bar=1 -f "$here/bench/table.awk" "$scratch/results"
