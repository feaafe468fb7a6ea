# The part of the guest that vm-nfs and vm-nfs-export share; `name` is the script's. Two disks with ext4, on /run/fast and `$second`; what the
# server of NFS needs; and a watch over the steps: if one takes over two minutes, the stacks of all threads that wait in the kernel are printed.
# shellcheck shell=bash disable=SC2154  # `here`, `name`, `second` and `mnt` are the script's
mkdir -p /run/bin
cp "$here/isotherm" /run/bin
PATH=/run/bin:$PATH
fast=/run/fast log=/run/log
: >$log
mkdir -p $fast "$second" "$mnt"
modprobe -a fuse nfsd nfs
mount -t nfsd nfsd /proc/fs/nfsd
mkdir -p /run/rpc_pipefs /var/lib/nfs/rpc_pipefs /var/lib/nfs/sm /var/lib/nfs/nfsdcld
mount -t rpc_pipefs sunrpc /var/lib/nfs/rpc_pipefs
mkfs.ext4 -q /dev/scratch0
mkfs.ext4 -q /dev/scratch1
mount /dev/scratch0 $fast
mount /dev/scratch1 "$second"
rmdir $fast/lost+found
chmod 755 $fast

# The stacks of all threads that cannot be interrupted, and the last steps of the script.
stacks() {
    local task steps
    steps=$(tail -n 12 /run/trace)
    echo "$name: a step waits"
    for task in /proc/[0-9]*/task/[0-9]*; do
        grep -q '^State:.D' "$task/status" 2>/dev/null || continue
        echo "$task $(cat "$task/comm")"
        head -n 12 "$task/stack"
    done
    echo "$steps"
} 2>/dev/null
watch_steps() {
    local before='' now since=$SECONDS
    while sleep 5; do
        now=$(stat -c %s /run/trace)
        [ "$now" = "$before" ] || { before=$now since=$SECONDS; }
        [ $((SECONDS - since)) -lt 120 ] || { stacks >&2; since=$SECONDS; }
    done
}
exec {BASH_XTRACEFD}>/run/trace
watch_steps &
PS4='+$SECONDS s, line $LINENO: '
set -x

start_server() {
    exportfs -ra
    rpc.nfsd -L 10 -G 10 4
}

# serve ARGUMENTS...: mounts, without the files that the script has open as 5 and 6.
server=
serve() {
    : >/run/ready
    isotherm mount "$@" "$mnt" >/run/ready 2>>$log 5<&- 6<&- &
    server=$!
    local tries=600
    until grep -q ready /run/ready; do
        kill -0 $server 2>/dev/null || fail "the mount ended"
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || fail "not ready"
        sleep 0.1
    done
}
