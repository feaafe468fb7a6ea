#!/bin/sh
# A volume over ublk beside the kernel's own caches (dm-cache, bcache), or beside rublk's targets, in a guest whose kernel has ublk.
#
#   bench/vm-peers/run.sh [ROUNDS] [peers|ceilings|copies]
#
# ISOTHERM_VM names the program that boots a guest with flash and a disk with an arm. The head of scripts/vm-dm-log-writes.sh describes
# its options; --hdd and --env are needed here as well. The head of scripts/vm-peers describes the measurements. `ceilings` and `copies`
# need rublk, which is installed below target/tools if it is missing (its licence is the GPL; it is only run, and none of its code is
# here). `copies` needs a guest with Linux 6.16. Without KVM the guest's processor is 20 to 30 times slower than the host's. This slows
# programs in user space down, but not the disks, whose times are those of a model.
set -eu
rounds=${1:-1}
part=${2:-peers}
here=$(cd "$(dirname "$0")/../.." && pwd)
vm=${ISOTHERM_VM:-}
[ -x "$vm" ] || { echo "vm-peers: ISOTHERM_VM is unset or names no program: nothing was measured" >&2; exit 1; }
program=${ISOTHERM:-${CARGO_TARGET_DIR:-$here/target}/release/isotherm}
[ -n "${BENCH_NO_BUILD:-}" ] || cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
cp "$program" "$share/isotherm"
cp "$here/scripts/vm-peers" "$share"
case $part in
peers) peers="dm-cache bcache isotherm bcache-like" ;;
ceilings | copies)
    peers=$part
    rublk=$here/target/tools/bin/rublk
    [ -x "$rublk" ] || cargo install --quiet --locked --no-default-features --root "$here/target/tools" rublk
    cp "$rublk" "$share"
    ;;
*)
    echo "vm-peers: $part: peers, ceilings or copies" >&2
    exit 2
    ;;
esac
round=1
while [ "$round" -le "$rounds" ]; do
    "$vm" --share "$share" --disk 512M --hdd 8G --timeout 3000 --env "ROUND=$round" --env "PEERS=${PEERS:-$peers}" -- /share/vm-peers
    round=$((round + 1))
done
[ -z "${BENCH_KEEP:-}" ] || cp "$share/rows" "$BENCH_KEEP"
