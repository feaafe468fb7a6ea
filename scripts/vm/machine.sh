# Sourced by scripts/vm-boot, vm-root and vm-vhost: an emulated machine with a Debian of its own and systemd. The caller sets `here` (the
# directory scripts), `name` (its own, for messages), `accel`, `limit` (seconds that a boot may take), and `packages` (more of them, or none).

die() { echo "$name: $*" >&2; [ ! -e "${log:-}" ] || tail -n 30 "$log" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "needs root, to make the machine's root file system"
for tool in mmdebstrap qemu-system-x86_64 mke2fs; do
    command -v $tool >/dev/null || die "$tool is not installed: apt-get install mmdebstrap qemu-system-x86 e2fsprogs"
done

work=${ISOTHERM_VM_DIR:-$(mktemp -d)}
mkdir -p "$work"
pid=
finish() {
    [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null || true
    [ -n "${ISOTHERM_VM_DIR:-}" ] || rm -rf "$work"
}
trap finish EXIT

# build GUEST [KERNEL_SUITE]: a small Debian in $work/root.ext4 with kernel and initial file system beside it, which know virtio disks and
# ext4 only. GUEST (scripts/vm/GUEST) runs after each boot.
build() {
    local root=$work/root release sources kernel=linux-image-amd64 guest=$1 suite=${2:-}
    release=$(. /etc/os-release; echo "$VERSION_CODENAME")
    sources=$(apt-get indextargets --format 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' | sort -u | grep -E " ($release|$release-updates|$release-security) main\$") || true
    [ -n "$sources" ] || die "no Debian mirror in the apt sources"
    if [ -n "$suite" ]; then
        sources="$sources
$(grep -E " $release main\$" <<<"$sources" | sed "s/ $release main\$/ $suite main/")"
        kernel="linux-image-amd64/$suite"
    fi
    rm -rf "$root"
    mmdebstrap --quiet --variant=minbase --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
        --dpkgopt='path-exclude=/usr/share/{doc,man,locale,info}/*' \
        --include=systemd-sysv,udev,kmod,e2fsprogs,initramfs-tools,$kernel,mount,util-linux,curl,prometheus${packages:+,$packages} \
        --essential-hook='mkdir -p "$1/etc/initramfs-tools/conf.d"; echo MODULES=list >"$1/etc/initramfs-tools/conf.d/small"' \
        --customize-hook='printf "virtio_pci\nvirtio_blk\next4\ncrc32c_generic\n" >>"$1/etc/initramfs-tools/modules"; chroot "$1" update-initramfs -u' \
        "$release" "$root" - <<<"$sources" >"$work/build.log" 2>&1 || { tail -5 "$work/build.log" >&2; die "the machine cannot be made"; }
    # Prometheus is there, as if the administrator had installed it; nobody has started it.
    chroot "$root" systemctl disable -q prometheus prometheus-node-exporter 2>/dev/null || true
    install -m 755 "$here/vm/$guest" "$root/usr/local/sbin/boot-guest"
    # Journals of earlier boots are kept.
    mkdir -p "$root/var/log/journal"
    cat >"$root/etc/systemd/system/boot-guest.service" <<'UNIT'
[Unit]
Description=What the proof does after each boot
After=multi-user.target
[Service]
Type=simple
ExecStart=/usr/local/sbin/boot-guest
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
[Install]
WantedBy=graphical.target multi-user.target
UNIT
    ln -sf /etc/systemd/system/boot-guest.service "$root/etc/systemd/system/multi-user.target.wants/boot-guest.service"
    # Nothing else speaks on the line; the default target is reached without a display.
    ln -sf /dev/null "$root/etc/systemd/system/serial-getty@ttyS0.service"
    ln -sf /lib/systemd/system/multi-user.target "$root/etc/systemd/system/default.target"
    echo "/dev/vda / ext4 defaults 0 1" >"$root/etc/fstab"
    echo machine >"$root/etc/hostname"
    cp "$root"/boot/vmlinuz-* "$work/vmlinuz"
    cp "$root"/boot/initrd.img-* "$work/initrd"
    truncate -s 4G "$work/root.new"
    mke2fs -q -F -t ext4 -E lazy_itable_init=1,lazy_journal_init=1 -d "$root" "$work/root.new"
    mv "$work/root.new" "$work/root.ext4"
    rm -rf "$root"
}

boots=0
early=0
# The emulated machine's own kernel sometimes panics on a busy host before it has started its init: its timers are emulated too. That says
# nothing about a volume, because nothing of the package has run and no disk was read. So the machine is started again, EARLY_MAX times in
# all, and it is said. `quiet` is not on its command line, because the initial file system says then that it has begun: with WOKEN.
EARLY_MAX=${ISOTHERM_VM_EARLY_MAX:-8}
WOKEN='Loading, please wait|Begin: '

# boot KERNEL INITRD WORDS OPTIONS...: starts the machine with those words on its command line; its serial line goes to $log.
boot() {
    boots=$((boots + 1))
    log=$work/boot-$boots.log
    machine=("$@")
    power_on
}
power_on() {
    : >"$log"
    # On a busy host the emulated timer can be too late for the kernel's check at its start, which then panics: the check is left out.
    qemu-system-x86_64 -machine q35 -accel "$accel" -cpu Nehalem -m 1024 -smp 1 -nodefaults -no-user-config -display none -no-reboot \
        -kernel "${machine[0]}" -initrd "${machine[1]}" -append "rw console=ttyS0 loglevel=3 mitigations=off nowatchdog no_timer_check \
systemd.show_status=0 panic=-1 ${machine[2]}" "${machine[@]:3}" -device virtio-rng-pci -serial "file:$log" </dev/null &
    pid=$!
    began=$SECONDS
}
# The machine is off before PATTERN came: starts it again if its kernel has not even started its init.
off_before() {
    wait "$pid" 2>/dev/null || true
    pid=
    grep -aqE "$WOKEN" "$log" && die "boot $boots: the machine went off before: $1"
    early=$((early + 1))
    [ "$early" -le "$EARLY_MAX" ] || die "boot $boots: the machine's kernel did not start its init, $early times in all"
    cp "$log" "$work/early-$early.log"
    echo "boot $boots: the machine's kernel ended before its init was started, so nothing was tried; started again ($early in all):" \
        "$(grep -am1 -oE 'Kernel panic.*' "$log" | tr -d '\r' | cut -c1-100 || echo 'no message')"
    power_on
}
# disk FILE [FORMAT]: options for one, in $disks.
disks=()
disk() { disks+=(-drive "file=$1,format=${2:-raw},if=virtio,cache=writeback"); }

# A copy of the machine's own disk, so that the image can be used again; with this package and this GUEST, not those of then.
fresh() {
    rm -f "$work/run.qcow2" "$work"/boot-*.log "$work"/early-*.log
    debugfs -w -R 'rm /root/isotherm.deb' "$work/root.ext4" 2>/dev/null
    debugfs -w -R "write $1 /root/isotherm.deb" "$work/root.ext4" >/dev/null 2>&1
    debugfs -w -R 'rm /usr/local/sbin/boot-guest' "$work/root.ext4" 2>/dev/null
    debugfs -w -R "write $here/vm/$2 /usr/local/sbin/boot-guest" "$work/root.ext4" >/dev/null 2>&1
    debugfs -w -R 'sif /usr/local/sbin/boot-guest mode 0100755' "$work/root.ext4" 2>/dev/null
    qemu-img create -q -f qcow2 -F raw -b "$work/root.ext4" "$work/run.qcow2"
}

# until_line PATTERN [COUNT]: waits until so many lines of the log fit.
until_line() {
    until [ "$(grep -acE "$1" "$log")" -ge "${2:-1}" ]; do
        grep -aqE '^FAILED' "$log" && die "boot $boots: $(grep -aE '^FAILED' "$log")"
        kill -0 "$pid" 2>/dev/null || off_before "$1"
        [ $((SECONDS - began)) -lt "$limit" ] || die "boot $boots: not within $limit s: $1"
        sleep 0.3
    done
}

until_off() {
    while kill -0 "$pid" 2>/dev/null; do
        [ $((SECONDS - began)) -lt "$limit" ] || die "boot $boots: no shutdown within $limit s"
        sleep 0.3
    done
    wait "$pid" || die "boot $boots: QEMU failed"
    pid=
}
