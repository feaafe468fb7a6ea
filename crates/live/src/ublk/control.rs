//! Commands to `/dev/ublk-control`.

use super::abi::{
    self, ADD_DEV, ControlCommand, DEL_DEV, DEL_DEV_ASYNC, DeviceInfo, END_RECOVERY, GET_DEV_INFO,
    GET_FEATURES, GET_PARAMS, PARAMS, Params, SET_PARAMS, START_DEV, START_RECOVERY, STOP_DEV,
    UPDATE_SIZE,
};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};

/// The command refers to no queue.
const NO_QUEUE: u16 = u16::MAX;
/// The kernel chooses the number of the device.
const ANY: u32 = u32::MAX;

/// The control device.
pub struct Control {
    features: u64,
    file: File,
    ring: Mutex<IoUring<squeue::Entry128>>,
}

impl Control {
    /// Opens the control device.
    ///
    /// # Errors
    /// There is no such device, the process is not root, the kernel is too old, or it has no io_uring.
    pub fn open() -> io::Result<Control> {
        if let Some(why) = super::missing() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let named = |e: io::Error| io::Error::new(e.kind(), format!("ublk: {}: {e}", abi::CONTROL));
        let file = OpenOptions::new().read(true).write(true).open(abi::CONTROL);
        let ring = IoUring::<squeue::Entry128, cqueue::Entry>::builder().build(4);
        let mut control = Control {
            features: 0,
            file: file.map_err(named)?,
            ring: Mutex::new(ring.map_err(named)?),
        };
        let mut features = 0u64;
        let told = control.run(GET_FEATURES, ANY, 8, (&raw mut features) as u64, 0);
        if told.is_err() || features & abi::NEEDED != abi::NEEDED {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                format!(
                    "ublk: this kernel's ublk is too old (features {features:#x}, needed {:#x}): use Linux 6.5 or later",
                    abi::NEEDED
                ),
            ));
        }
        control.features = features;
        Ok(control)
    }

    /// The features of this kernel's ublk, `F_…`.
    pub fn features(&self) -> u64 {
        self.features
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
        // SAFETY: the memory to which the command points (`addr`) belongs to the caller, and this function waits for the completion below.
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

    /// Adds a device. The kernel fills in its number and the values that it has changed.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn add(&self, info: &mut DeviceInfo) -> io::Result<()> {
        info.id = ANY;
        let len = size_of_val(info) as u16;
        self.run(ADD_DEV, ANY, len, std::ptr::from_mut(info) as u64, 0)
    }

    /// The kernel's description of a device.
    ///
    /// # Errors
    /// There is no device of this number.
    pub fn info(&self, id: u32) -> io::Result<DeviceInfo> {
        let mut info = DeviceInfo::default();
        let len = size_of_val(&info) as u16;
        self.run(GET_DEV_INFO, id, len, (&raw mut info) as u64, 0)?;
        Ok(info)
    }

    /// Sets the properties of the device.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn set_params(&self, id: u32, params: &Params) -> io::Result<()> {
        let mut params = *params;
        self.run(SET_PARAMS, id, PARAMS as u16, (&raw mut params) as u64, 0)
    }

    /// The properties of the device.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn params(&self, id: u32) -> io::Result<Params> {
        let mut params = Params {
            len: PARAMS,
            ..Params::default()
        };
        self.run(GET_PARAMS, id, PARAMS as u16, (&raw mut params) as u64, 0)?;
        Ok(params)
    }

    /// Creates the disk. Waits until a fetch command has been issued for every queue.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn start(&self, id: u32) -> io::Result<()> {
        self.run(START_DEV, id, 0, 0, std::process::id().into())
    }

    /// Changes the size of the disk, which may be in use, to a number of sectors of 512 bytes.
    ///
    /// # Errors
    /// The kernel cannot do this ([`abi::F_UPDATE_SIZE`]), or refuses.
    pub fn resize(&self, id: u32, sectors: u64) -> io::Result<()> {
        if self.features & abi::F_UPDATE_SIZE == 0 {
            let what = "this kernel cannot change the size of a ublk device (Linux 6.16 can)";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        self.run(UPDATE_SIZE, id, 0, 0, sectors)
    }

    /// Removes the disk. Requests that the kernel has in flight must still be answered.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn stop(&self, id: u32) -> io::Result<()> {
        self.run(STOP_DEV, id, 0, 0, 0)
    }

    /// Removes the device.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn delete(&self, id: u32) -> io::Result<()> {
        self.run(DEL_DEV, id, 0, 0, 0)
    }

    /// Removes a device without a server as soon as its last user has closed it.
    ///
    /// # Errors
    /// The kernel refuses; kernels before 6.9 do not have this command.
    pub fn delete_later(&self, id: u32) -> io::Result<()> {
        self.run(DEL_DEV_ASYNC, id, 0, 0, 0)
    }

    /// Starts to take over a device whose server is gone.
    ///
    /// # Errors
    /// `EBUSY` until the kernel has noticed that the server is gone.
    pub fn begin_recovery(&self, id: u32) -> io::Result<()> {
        self.run(START_RECOVERY, id, 0, 0, 0)
    }

    /// Completes the takeover. Waits until a fetch command has been issued for every queue.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn end_recovery(&self, id: u32) -> io::Result<()> {
        self.run(END_RECOVERY, id, 0, 0, std::process::id().into())
    }

    /// The numbers of all devices.
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
