# For scripts that compare a volume under a loop device with a plain file under a loop device, on the same disk. The script that sources
# this file has set `here` (the tree), `dir` (a directory on the disk) and `servers`. ISOTHERM names a program that was built before;
# otherwise it is built, unless BENCH_NO_BUILD is set. Files go to the directory `scratch`. FUSE over io_uring is turned on
# (bench/fuse-ring.sh). At the end of the script `end_devices` ends and removes everything.
#
# The servers:
#   plain       a file, without a volume
#   ours        the block file of a volume
#   ours-dev    the same with `fuse_ring = false`: all requests come through /dev/fuse
#   ours-asked  with `flush_ahead = 0`: no flush begins before a FLUSH asks for it
#   ours-each   with `flush_gather = 0`: no FLUSH waits for writes in progress
#   ours-spinN  with `spin_us = N`
isotherm=${ISOTHERM:-${CARGO_TARGET_DIR:-$here/target}/release/isotherm}
[ -n "${ISOTHERM:-}${BENCH_NO_BUILD:-}" ] || cargo build --quiet --release --manifest-path "$here/Cargo.toml" -p isotherm
scratch=$(mktemp -d "$dir/isotherm-bench.XXXXXX")
. "$here/bench/fuse-ring.sh"

# Makes the block device of a server, and writes its name to NAME.loop. All files are allocated before.
device() { # name, size of the plain file, size of each member of a volume, policy
    file=$scratch/plain.img
    if [ "$1" = plain ]; then
        fallocate -l "$2" "$file"
    else
        "$isotherm" create "$scratch/$1" --fast "$scratch/$1.fast:$3" --slow "$scratch/$1.slow:$3" --preallocate --policy "$4" >/dev/null
        case $1 in
        ours-dev) setting fuse_ring false "$scratch/$1.toml" ;;
        ours-asked) setting flush_ahead 0 "$scratch/$1.toml" ;;
        ours-each) setting flush_gather 0 "$scratch/$1.toml" ;;
        ours-spin*) setting spin_us "${1#ours-spin}" "$scratch/$1.toml" ;;
        esac
        mkdir "$scratch/$1.mnt"
        "$isotherm" serve "$scratch/$1" --block-file "$scratch/$1.mnt" >"$scratch/$1.out" 2>&1 &
        echo $! >"$scratch/$1.pid"
        tries=0
        until grep -q ready "$scratch/$1.out" 2>/dev/null; do
            tries=$((tries + 1))
            [ "$tries" -lt 400 ] || { echo "the server $1 did not start:" >&2; cat "$scratch/$1.out" >&2; exit 1; }
            sleep 0.05
        done
        file=$scratch/$1.mnt/$1
    fi
    losetup --direct-io=on --find --show "$file" >"$scratch/$1.loop"
    [ "$(losetup -n -O DIO "$(cat "$scratch/$1.loop")" | tr -d ' ')" = 1 ] || { echo "$file: no direct I/O" >&2; exit 1; }
}

# Writes the device of a server once, so that all of its data lies on the fast tier.
fill() { # name, size
    head -c "$2" /dev/zero | dd of="$(cat "$scratch/$1.loop")" bs=1M iflag=fullblock oflag=direct conv=notrunc,fsync status=none
}

# Runs fio's random writes of 4 KiB on the device of a server; prints fio's terse output.
random_writes() { # name, size, depth, jobs, seconds, fsync (1 or 0), one more option
    fio --name=t --filename="$(cat "$scratch/$1.loop")" --ioengine=libaio --iodepth="$3" --numjobs="$4" --group_reporting \
        --rw=randwrite --bs=4k --direct=1 --size="$2" --fsync="$6" --time_based --runtime="${5}s" --norandommap \
        --output-format=terse --terse-version=3 ${7:+"$7"}
}

# Removes the loop devices, stops the volumes, restores FUSE and removes the files.
end_devices() {
    trap - EXIT INT TERM
    for name in $servers; do
        [ ! -f "$scratch/$name.loop" ] || losetup -d "$(cat "$scratch/$name.loop")"
        [ ! -f "$scratch/$name.pid" ] || { sleep 0.3; "$isotherm" stop "$scratch/$name" || kill "$(cat "$scratch/$name.pid")"; }
    done >/dev/null 2>&1
    wait
    fuse_ring_as_before
    rm -rf "$scratch"
}
trap end_devices EXIT INT TERM
