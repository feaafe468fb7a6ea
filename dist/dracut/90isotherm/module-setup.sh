#!/bin/bash
# For dracut: what a root file system on a volume needs before it is there. Part of the image if the line of `/` in /etc/fstab names
# /dev/isotherm/NAME. The program, the description and its module come along; nothing else of /etc/isotherm does: secrets lie there, and many
# systems let everybody read the image. dist/initramfs is the same for initramfs-tools.

# The name of the volume in /etc/fstab.
isotherm_root() {
    awk '$1 ~ "^/dev/isotherm/[^/]+$" && $2 == "/" { sub(".*/", "", $1); print $1; exit }' "${dracutsysrootdir:-}/etc/fstab" 2>/dev/null
}

check() {
    require_binaries isotherm || return 1
    [ -n "$(isotherm_root)" ]
}

depends() {
    echo rootfs-block
}

installkernel() {
    instmods ublk_drv
}

install() {
    local name file
    name=$(isotherm_root)
    if [ -z "$name" ] || ! [ -e "${dracutsysrootdir:-}/etc/isotherm/$name.toml" ]; then
        derror "isotherm: /etc/fstab must have / on /dev/isotherm/NAME, and /etc/isotherm/NAME.toml must be there: the next boot would not find its root"
        return 1
    fi
    # The last three are for the udev rule.
    inst_multiple isotherm mkdir modprobe setsid basename find head
    # systemd ends every process when it leaves the image, and at shutdown, but those whose name begins so: this one carries the root.
    ln -sf isotherm "${initdir:?}/usr/bin/@isotherm"
    inst_simple "/etc/isotherm/$name.toml"
    # Classes of ranges, and data sheets that lie beside the description.
    for file in "$name.classes" $(sed -n 's/^[[:space:]]*\(sheet\|paced\)[[:space:]]*=[[:space:]]*"\([^"/]*\.toml\)".*/\2/p' "${dracutsysrootdir:-}/etc/isotherm/$name.toml"); do
        if [ -f "${dracutsysrootdir:-}/etc/isotherm/$file" ]; then
            inst_simple "/etc/isotherm/$file"
        fi
    done
    inst_rules 60-isotherm.rules
    inst_hook cmdline 96 "${moddir:?}/parse-isotherm.sh"
    inst_script "${moddir:?}/isotherm-start.sh" /sbin/isotherm-start
}
