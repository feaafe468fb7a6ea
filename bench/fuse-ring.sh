# For scripts that measure the block file: FUSE over io_uring turned on for the run, and put back by `fuse_ring_as_before`.
# Says what it found.
fuse_ring_switch=/sys/module/fuse/parameters/enable_uring
fuse_ring_before=$(cat "$fuse_ring_switch" 2>/dev/null || true)
fuse_ring_as_before() { [ -z "$fuse_ring_before" ] || echo "$fuse_ring_before" >"$fuse_ring_switch"; }
if [ -n "$fuse_ring_before" ] && { echo Y >"$fuse_ring_switch"; } 2>/dev/null; then
    echo "FUSE over io_uring: on"
else
    fuse_ring_before=
    echo "FUSE over io_uring: not here; all requests go through /dev/fuse"
fi
# A key under [io] of a description: key, value, file.
setting() { sed -i "/^$1 = /d; s/^\[io\]\$/[io]\n$1 = $2/" "$3"; }
