#!/bin/sh
# For dracut: root=/dev/isotherm/NAME has its volume served as soon as udev has settled. The module of block devices waits for the device.
isotherm_device=$(getarg root=)
case ${isotherm_device#block:} in
/dev/isotherm/*)
    /sbin/initqueue --settled --onetime --unique --name isotherm /sbin/isotherm-start "${isotherm_device##*/}"
    ;;
esac
