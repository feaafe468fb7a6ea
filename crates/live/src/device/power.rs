//! The standby state of disks.

use super::Device;
use rustix::ioctl::{Opcode, Updater, ioctl};
use std::fs::File;
use std::io;

const HDIO_DRIVE_CMD: Opcode = 0x031f;
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
        drive_command(file, ATA_STANDBY_IMMEDIATE).map(|_| true)
    }

    /// Whether the disk is in standby; false if the device cannot tell.
    pub fn is_asleep(file: &File) -> bool {
        // The sector count of the answer: 0x00 is standby.
        drive_command(file, ATA_CHECK_POWER_MODE).is_ok_and(|answer| answer[2] == 0)
    }

    /// Whether the device can be sent to standby: a drive that cannot report its power mode has none to change.
    pub fn has_standby(file: &File) -> bool {
        drive_command(file, ATA_CHECK_POWER_MODE).is_ok()
    }
}

/// Sends a command without data; returns the drive's registers afterwards.
fn drive_command(file: &File, command: u8) -> io::Result<[u8; 4]> {
    let mut registers = [command, 0, 0, 0];
    // SAFETY: HDIO_DRIVE_CMD reads and writes these four bytes; a count of 0 means no data follows.
    unsafe { ioctl(file, Updater::<HDIO_DRIVE_CMD, _>::new(&mut registers))? };
    Ok(registers)
}
