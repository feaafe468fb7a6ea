//! The standby state of disks.

use super::Device;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

const HDIO_DRIVE_CMD: libc::Ioctl = 0x031f;
const ATA_STANDBY_IMMEDIATE: u8 = 0xe0;
const ATA_CHECK_POWER_MODE: u8 = 0xe5;

impl Device {
    /// Sends a disk to standby (ATA STANDBY IMMEDIATE). `Ok(false)`: the device has no such state, which is no error. May take seconds.
    ///
    /// # Errors
    /// The disk has the state and refused.
    pub fn standby(file: &File) -> io::Result<bool> {
        if !Self::has_standby(file) {
            return Ok(false);
        }
        drive_command(file, ATA_STANDBY_IMMEDIATE).map(|()| true)
    }

    /// Whether the disk is in standby; false if the device cannot tell.
    pub fn is_asleep(file: &File) -> bool {
        let mut args = [ATA_CHECK_POWER_MODE, 0, 0, 0];
        // SAFETY: HDIO_DRIVE_CMD reads and writes these four bytes; a count of 0 means no data follows.
        let asked = unsafe { libc::ioctl(file.as_raw_fd(), HDIO_DRIVE_CMD, args.as_mut_ptr()) };
        // The sector count of the answer: 0x00 is standby.
        asked == 0 && args[2] == 0
    }

    /// Whether the device can be sent to standby: a drive that cannot report its power mode has none to change.
    pub fn has_standby(file: &File) -> bool {
        drive_command(file, ATA_CHECK_POWER_MODE).is_ok()
    }
}

fn drive_command(file: &File, command: u8) -> io::Result<()> {
    let mut args = [command, 0, 0, 0];
    // SAFETY: HDIO_DRIVE_CMD reads and writes these four bytes; a count of 0 means no data follows.
    match unsafe { libc::ioctl(file.as_raw_fd(), HDIO_DRIVE_CMD, args.as_mut_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
