//! Commands to `/dev/ublk-control`.

use super::abi::{
    self, ADD_DEV, ControlCommand, DEL_DEV, DEL_DEV_ASYNC, DeviceInfo, END_RECOVERY, GET_DEV_INFO,
    GET_FEATURES, GET_PARAMS, PARAMS, Params, SET_PARAMS, START_DEV, START_RECOVERY, STOP_DEV,
};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

/// No queue in particular.
const NO_QUEUE: u16 = u16::MAX;
/// Let the kernel choose the number of a device.
const ANY: u32 = u32::MAX;

/// The control device.
pub struct Control {
    file: File,
    ring: Mutex<IoUring<squeue::Entry128>>,
}

impl Control {
    /// Opens it.
    ///
    /// # Errors
    /// There is none, only root may, the kernel is too old, or it has no io_uring.
    pub fn open() -> io::Result<Control> {
        if let Some(why) = super::missing() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let named = |e: io::Error| io::Error::new(e.kind(), format!("ublk: {}: {e}", abi::CONTROL));
        let file = OpenOptions::new().read(true).write(true).open(abi::CONTROL);
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().build(4);
        let control = Control {
            file: file.map_err(named)?,
            ring: Mutex::new(ring.map_err(named)?),
        };
        let mut features = 0u64;
        let told = control.run(GET_FEATURES, ANY, 8, (&raw mut features) as u64, 0);
        if told.is_err() || features & abi::NEEDED != abi::NEEDED {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "ublk: this kernel's ublk is too old (features {features:#x}, needed {:#x}): use Linux 6.5 or later, or \
                     --block-file DIR and a loop device",
                    abi::NEEDED
                ),
            ));
        }
        Ok(control)
    }

    fn run(&self, command: u32, id: u32, len: u16, addr: u64, data: u64) -> io::Result<()> {
        let argument = ControlCommand {
            dev_id: id,
            queue_id: NO_QUEUE,
            len,
            addr,
            data,
            ..ControlCommand::default()
        };
        let mut bytes = [0; 80];
        // SAFETY: a plain structure of 32 bytes without gaps.
        let plain = unsafe {
            std::slice::from_raw_parts((&raw const argument).cast::<u8>(), size_of_val(&argument))
        };
        bytes[..plain.len()].copy_from_slice(plain);
        let entry = opcode::UringCmd80::new(types::Fd(self.file.as_raw_fd()), command).cmd(bytes);
        let mut ring = self.ring.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: what the command points to (`addr`) lives in our caller, who waits for its completion below.
        unsafe { ring.submission().push(&entry.build()) }
            .map_err(|_| io::Error::other("ublk: the control ring is full"))?;
        while let Err(e) = ring.submit_and_wait(1) {
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
        let result = ring.completion().next().map(|c| c.result());
        match result {
            Some(n) if n >= 0 => Ok(()),
            Some(n) => Err(io::Error::from_raw_os_error(-n)),
            None => Err(io::Error::other(
                "ublk: a control command without an answer",
            )),
        }
    }

    /// Adds a device; the kernel fills in its number and what it changed.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn add(&self, info: &mut DeviceInfo) -> io::Result<()> {
        info.id = ANY;
        let len = size_of_val(info) as u16;
        self.run(ADD_DEV, ANY, len, std::ptr::from_mut(info) as u64, 0)
    }

    /// What a device is.
    ///
    /// # Errors
    /// There is none of that number.
    pub fn info(&self, id: u32) -> io::Result<DeviceInfo> {
        let mut info = DeviceInfo::default();
        let len = size_of_val(&info) as u16;
        self.run(GET_DEV_INFO, id, len, (&raw mut info) as u64, 0)?;
        Ok(info)
    }

    /// Says what the device is like.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn set_params(&self, id: u32, params: &Params) -> io::Result<()> {
        let mut params = *params;
        self.run(SET_PARAMS, id, PARAMS as u16, (&raw mut params) as u64, 0)
    }

    /// What the device is like.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn params(&self, id: u32) -> io::Result<Params> {
        let mut params = Params {
            len: PARAMS,
            ..Params::default()
        };
        self.run(GET_PARAMS, id, PARAMS as u16, (&raw mut params) as u64, 0)?;
        Ok(params)
    }

    /// Makes the disk appear. Waits until every queue has been fetched from.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn start(&self, id: u32) -> io::Result<()> {
        self.run(START_DEV, id, 0, 0, std::process::id().into())
    }

    /// Takes the disk away. What the kernel has in flight is still to be answered.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn stop(&self, id: u32) -> io::Result<()> {
        self.run(STOP_DEV, id, 0, 0, 0)
    }

    /// Removes the device.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn delete(&self, id: u32) -> io::Result<()> {
        self.run(DEL_DEV, id, 0, 0, 0)
    }

    /// Removes a device that nobody serves, as soon as its last user has closed it.
    ///
    /// # Errors
    /// As the kernel says; older ones than 6.9 do not know it.
    pub fn delete_later(&self, id: u32) -> io::Result<()> {
        self.run(DEL_DEV_ASYNC, id, 0, 0, 0)
    }

    /// Begins to take over a device whose server is gone.
    ///
    /// # Errors
    /// `EBUSY` until the kernel has noticed that it is gone.
    pub fn begin_recovery(&self, id: u32) -> io::Result<()> {
        self.run(START_RECOVERY, id, 0, 0, 0)
    }

    /// Goes on with it. Waits until every queue has been fetched from.
    ///
    /// # Errors
    /// As the kernel says.
    pub fn end_recovery(&self, id: u32) -> io::Result<()> {
        self.run(END_RECOVERY, id, 0, 0, std::process::id().into())
    }

    /// Numbers of all devices.
    pub fn all(&self) -> Vec<u32> {
        let names = std::fs::read_dir("/sys/class/ublk-char")
            .into_iter()
            .flatten();
        let names = names.flatten().map(|e| e.file_name());
        names
            .filter_map(|n| n.to_str()?.strip_prefix("ublkc")?.parse().ok())
            .collect()
    }
}
