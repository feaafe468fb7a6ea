#!/bin/sh
# Our iSCSI target against tgt (Debian's package) over a file of the same size on the same tmpfs, in one run.
#
#   bench/iscsi/run.sh [SECONDS] [ROUNDS]
#
# Debian's fio has no libiscsi engine, so the initiators are libiscsi's own `iscsi-perf` (random reads of 4 KiB) and QEMU's driver over
# libiscsi (`qemu-img bench`: writes of 4 KiB, each 17 blocks after the last one). Both targets listen on loopback, with one session at
# depth 1 and 32. They take turns within a round, and the first one changes from round to round. `ours` keeps writes over a kill -9
# (`kept_writes`, which iSCSI turns on), tgt does not. Prints medians and the median of the ratios within the rounds; the bar is 1.
set -eu
seconds=${1:-2}
rounds=${2:-5}
here=$(cd "$(dirname "$0")/../.." && pwd)
target=${CARGO_TARGET_DIR:-$here/target}/release
[ "$(id -u)" -ne 0 ] || "$here/scripts/install-deps" tgt libiscsi-bin qemu-utils qemu-block-extra jq
[ -n "${BENCH_NO_BUILD:-}" ] || cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm
scratch=$(mktemp -d /dev/shm/iscsi.XXXXXX)
port=$((20000 + $$ % 20000))
# The number of the control socket of this tgt.
control=$(($$ % 30000))

cleanup() {
    trap - EXIT INT TERM
    "$target/isotherm" stop "$scratch/v" >/dev/null 2>&1 || true
    # tgt does not end on SIGTERM while it has a target.
    kill -9 ${tgt:-} 2>/dev/null || true
    wait
    rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

admin() { tgtadm -C "$control" "$@"; }
head -c 1G /dev/zero >"$scratch/backing"
tgtd -f -C "$control" --iscsi "portal=127.0.0.1:$port" >"$scratch/tgt.out" 2>&1 &
tgt=$!
"$target/isotherm" create "$scratch/v" --fast "$scratch/fast:1G" --slow "$scratch/slow:32M" --policy linear >/dev/null
"$target/isotherm" serve "$scratch/v" --iscsi "127.0.0.1:$((port + 1))" >"$scratch/out" 2>&1 &
tries=0
until grep -q ready "$scratch/out" && admin --op show --mode sys >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ "$tries" -lt 200 ] || { echo "a server did not start:" >&2; cat "$scratch/out" "$scratch/tgt.out" >&2; exit 1; }
    sleep 0.05
done
admin --lld iscsi --op new --mode target --tid 1 -T iqn.2026-01.local.tgt:v
admin --lld iscsi --op new --mode logicalunit --tid 1 --lun 1 -b "$scratch/backing"
admin --lld iscsi --op bind --mode target --tid 1 -I ALL

url() {
    case $1 in
    tgt) echo "iscsi://127.0.0.1:$port/iqn.2026-01.local.tgt:v/1" ;;
    ours) echo "iscsi://127.0.0.1:$((port + 1))/iqn.2026-01.local.isotherm:v/0" ;;
    esac
}
reads() { # server, depth
    blocks=8
    iscsi-perf -t "$seconds" -m "$2" -b "$blocks" -r "$(url "$1")" | tr '\r' '\n' | awk '/^iops average/ { print $3 }'
}
writes() { # server, depth, requests
    qemu-img bench -f raw -t none -w -c "$3" -d "$2" -s 4096 -S 69632 "$(url "$1")" | awk -v n="$3" '/^Run completed/ { print n / $4 }'
}
# Everything is written once, so that both servers have allocated their memory and nearly all data of the volume is on its fast tier. Then
# the number of requests that fill the time is measured at each depth.
for server in tgt ours; do
    qemu-img bench -q -f raw -t none -w -c 1000 -d 4 -s 1048576 "$(url "$server")" >/dev/null
done
for depth in 1 32; do
    eval "count$depth=$(writes tgt $depth 5000 | awk -v s="$seconds" '{ printf "%d", $1 * s + 1 }')"
done
round=1
while [ "$round" -le "$rounds" ]; do
    order="tgt ours"
    [ $((round % 2)) -ne 0 ] || order="ours tgt"
    for depth in 1 32; do
        for server in $order; do
            echo "randread-qd$depth $server $round $(reads $server $depth)"
        done
        for server in $order; do
            eval "n=\$count$depth"
            # shellcheck disable=SC2154  # set above
            echo "write-qd$depth $server $round $(writes $server $depth "$n")"
        done
    done
    round=$((round + 1))
done >"$scratch/results"
[ -z "${BENCH_KEEP:-}" ] || cp "$scratch/results" "$BENCH_KEEP"
awk -v peer=tgt -v bar=1 -f "$here/bench/table.awk" "$scratch/results"
