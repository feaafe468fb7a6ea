#!/bin/sh
# What an answered FLUSH covered survives a power loss, on the kernel's own block devices: dm-log-writes records in a guest
# what reaches the members, the replay here takes away what was not flushed. Details at the heads of scripts/vm/*.py.
#
# ISOTHERM_VM    a program that runs a command in a guest:
#                PROGRAM [--share DIR[:GUESTPATH]].. [--disk SIZE|FILE].. [--modules WORDS] [--timeout SECONDS] -- COMMAND..;
#                disks are /dev/scratch0.. there. Unset or missing: skipped.
# ISOTHERM_SEED  seed of the load and of what the power loss takes (default: the time)
# ISOTHERM_CUTS  moments at which the power fails, three outcomes each (default 40)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
vm=${ISOTHERM_VM:-}
seed=${ISOTHERM_SEED:-$(date +%s)}
cuts=${ISOTHERM_CUTS:-40}
isotherm=${ISOTHERM:-$here/../target/release/isotherm}

if [ -z "$vm" ] || [ ! -x "$vm" ]; then
    echo "vm-dm-log-writes: SKIPPED: ISOTHERM_VM is unset or names no program; nothing was tested"
    exit 0
fi
if [ ! -x "$isotherm" ]; then
    echo "vm-dm-log-writes: $isotherm is missing: cargo build --release -p isotherm" >&2
    exit 1
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/isotherm-vm.XXXXXX")
# shellcheck disable=SC2317  # called by the trap
leave() {
    status=$?
    if [ "$status" -eq 0 ]; then rm -rf "$work"; else echo "vm-dm-log-writes: seed $seed; kept $work" >&2; fi
    exit "$status"
}
trap leave EXIT

mkdir "$work/share"
cp "$isotherm" "$here"/vm/*.py "$work/share"
truncate -s 12M "$work/share/fast.data"
truncate -s 64M "$work/share/slow.data"
truncate -s 2G "$work/share/fast.log" "$work/share/slow.log"
"$vm" --share "$work/share" --timeout 900 --modules "dm-log-writes" \
    --disk "$work/share/fast.data" --disk "$work/share/slow.data" \
    --disk "$work/share/fast.log" --disk "$work/share/slow.log" \
    -- python3 /share/log_writes_guest.py /share/isotherm /share "$seed" "$cuts"
python3 "$work/share/log_writes_replay.py" "$isotherm" "$work/share" "$seed"
