#!/bin/sh
# The life of a disk with many files behind flash: adoption, a copy of the metadata to flash, a walk over all files from cold caches with the
# number of reads of the disk, release. At the end the device must be byte-equal to what it was before its first mount as a volume.
#
#   bench/adopt/run.sh [FILES] [DIR]      defaults: 1000000, the system's scratch directory
#
# FS is ext4 (default) or xfs. The files are empty, in directories of a thousand; what is walked are inodes and directories. Needs root and
# about 1 KiB of DIR for each file; ISOTHERM names a program that was built before.
set -eu
files=${1:-1000000}
dir=${2:-${TMPDIR:-/var/tmp}}
fs=${FS:-ext4}
here=$(cd "$(dirname "$0")/../.." && pwd)
[ "$(id -u)" -eq 0 ] || { echo "bench/adopt/run.sh: loop devices and mounts need root" >&2; exit 1; }
"$here/scripts/install-deps" util-linux jq e2fsprogs xfsprogs
isotherm=${ISOTHERM:-${CARGO_TARGET_DIR:-$here/target}/release/isotherm}
[ -n "${ISOTHERM:-}" ] || cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm
scratch=$(mktemp -d "$dir/isotherm-bench.XXXXXX")
export ISOTHERM_DEVICE_DIR="$scratch/dev"
ended() {
    umount "$scratch/m" 2>/dev/null || true
    "$isotherm" stop "$scratch/v" >/dev/null 2>&1 || true
   
    rm -rf "$scratch"
}
trap ended EXIT INT TERM
timed() { # name, command …
    name=$1
    shift
    begun=$(date +%s.%N)
    "$@" >"$scratch/out" 2>&1 || { cat "$scratch/out" >&2; exit 1; }
    echo "$name: $(echo "$(date +%s.%N) $begun" | awk '{ printf "%.1f", $1 - $2 }') s"
}
mkdir "$scratch/m"
truncate -s $((files * 2048 + (1 << 30))) "$scratch/disk"
case $fs in
ext4) mkfs.ext4 -q -F -N $((files + files / 50 + 10000)) -E lazy_itable_init=0 "$scratch/disk" $(((files * 2048 + (1 << 30) - (32 << 20)) / 4096)) ;;
xfs) mkfs.xfs -q -f "$scratch/disk" ;;
esac
mount -o loop,noatime "$scratch/disk" "$scratch/m"
awk -v n="$files" -v d="$scratch/m" 'BEGIN { for (i = 0; i < n; i++) { if (i % 1000 == 0) system("mkdir " d "/" i / 1000); printf "%s/%d/a-file-with-number-%d%c", d, i / 1000, i, 0 } }' |
    xargs -0 touch
umount "$scratch/m"
truncate -s 64M "$scratch/tail"
[ "$fs" = xfs ] && tail="--tail $scratch/tail" || tail=
before=$(sha256sum <"$scratch/disk")
# shellcheck disable=SC2086
timed "adopt, $files files on $fs" "$isotherm" adopt "$scratch/v" "$scratch/disk" --fast "$scratch/flash:$((files / 1000 + 1024))M" $tail --yes
"$isotherm" serve "$scratch/v" --loop >"$scratch/served" 2>&1 &
until grep -q ready "$scratch/served" 2>/dev/null; do sleep 0.1; done
timed "warm --metadata" "$isotherm" warm "$scratch/v" --metadata
reads() { "$isotherm" stats "$scratch/v" --json | jq '[.members[] | select(.tier == 1) | .reads] | add'; }
mount -o ro,noatime "$scratch/dev/v" "$scratch/m"
was=$(reads)
timed "find, cold" sh -c "find $scratch/m -printf '%s\n' | wc -l"
echo "files and directories: $(cat "$scratch/out"); reads of the disk: $(($(reads) - was))"
umount "$scratch/m"
"$isotherm" stop "$scratch/v" >/dev/null
timed "release" "$isotherm" release "$scratch/v" --yes
after=$(sha256sum <"$scratch/disk")
[ "$before" = "$after" ] && echo "the disk is byte-equal" || { echo "the disk has CHANGED"; exit 1; }
