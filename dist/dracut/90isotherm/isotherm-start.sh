#!/bin/sh
# For dracut: serves the volume NAME. Over ublk, since what FUSE carries would be cut off when systemd unmounts everything at shutdown.
# Members may appear late, so nothing waits here.
name=$1
modprobe -q ublk_drv || echo "isotherm: this kernel has no ublk_drv: it must be Linux 6.5 or later" >&2
mkdir -p /run/isotherm
# A session of its own: the service that runs this ends when the root is there.
setsid @isotherm serve "/etc/isotherm/$name" --ublk --wait 1200 </dev/null >"/run/isotherm/$name.ready" 2>"/run/isotherm/$name.boot" &
