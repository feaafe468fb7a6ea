# For scripts that measure the block file: turns FUSE over io_uring on, if the kernel has it, and says so. `fuse_ring_as_before` restores
# the kernel's setting.
fuse_ring_switch=/sys/module/fuse/parameters/enable_uring
fuse_ring_before=$(cat "$fuse_ring_switch" 2>/dev/null || true)
fuse_ring_as_before() { [ -z "$fuse_ring_before" ] || echo "$fuse_ring_before" >"$fuse_ring_switch"; }
if [ -n "$fuse_ring_before" ] && { echo Y >"$fuse_ring_switch"; } 2>/dev/null; then
    echo "FUSE over io_uring: on"
else
    fuse_ring_before=
    echo "FUSE over io_uring: not here; all requests go through /dev/fuse"
fi
# Sets a key under [io] of a volume's description.
setting() { # key, value, file
    sed -i "/^$1 = /d; s/^\[io\]\$/[io]\n$1 = $2/" "$3"
}
