//! A loop device over a file, by the kernel's own calls (`linux/loop.h`): it is attached with direct I/O in one step, distinguished from a
//! device of another process, and detached.

use crate::buffers::{ALIGNMENT, Buffer};
use crate::open_files;
use crate::stack;
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};
use std::ffi::c_void;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const GET_FREE: Opcode = 0x4C82;
const CONFIGURE: Opcode = 0x4C0A;
const CLEAR: Opcode = 0x4C01;
const SET_CAPACITY: Opcode = 0x4C07;
const SET_STATUS: Opcode = 0x4C04;
const GET_STATUS: Opcode = 0x4C05;

const READ_ONLY: u32 = 1;
const AUTOCLEAR: u32 = 4;
const PARTSCAN: u32 = 8;
const DIRECT_IO: u32 = 16;

/// Another process may take the free device between the query and the call; the query is repeated up to this often.
const TRIES: u32 = 16;
/// Longest wait for a detached device to disappear, because udev may have it open for a moment; and if nobody is seen to use it, because a
/// busy system may take longer.
const GONE: Duration = Duration::from_secs(2);
const CLOSING: Duration = Duration::from_secs(30);

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Info {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct Config {
    fd: u32,
    block_size: u32,
    info: Info,
    reserved: [u64; 8],
}

impl Info {
    fn new(flags: u32) -> Info {
        Info {
            device: 0,
            inode: 0,
            rdevice: 0,
            offset: 0,
            size_limit: 0,
            number: 0,
            encrypt_type: 0,
            encrypt_key_size: 0,
            flags,
            file_name: [0; 64],
            crypt_name: [0; 64],
            encrypt_key: [0; 32],
            init: [0; 2],
        }
    }
}

/// A loop device that we attached. Dropping the value leaves it attached; call [`LoopDevice::detach`] to detach it.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    /// `None` once it is detached.
    holder: Option<Holder>,
}

/// A process that has the device open while it is attached, so that no other process can detach it. It cannot be this one: if this one is
/// killed, its exit would close the device, and the last close writes back what is dirty in the device's page cache. That needs the answers of
/// the block file's server, which is this process: neither would ever end. The other process ends when its standard input does.
#[derive(Debug)]
struct Holder(Option<Child>);

impl Holder {
    fn start(device: File) -> Holder {
        let mut program = Command::new("cat");
        // A Ctrl-C in the terminal is meant for this process, which may go on for a while.
        program.process_group(0).current_dir("/");
        program
            .stdin(Stdio::piped())
            .stdout(device)
            .stderr(Stdio::null());
        let started = program.spawn();
        if let Err(e) = &started {
            tracing::warn!(
                "no process could be started that keeps the loop device (cat: {e}): do not detach it by hand"
            );
        }
        Holder(started.ok())
    }

    /// Lets it close the device. Returns whether it has, within a limit.
    fn end(&mut self) -> bool {
        let Some(child) = &mut self.0 else {
            return true;
        };
        drop(child.stdin.take());
        let begun = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if begun.elapsed() > CLOSING {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        true
    }
}

/// The file that a loop device shows now, if any.
fn backing_of(device: &Path) -> Option<String> {
    let name = device.file_name()?;
    let sys = Path::new("/sys/block").join(name).join("loop/backing_file");
    fs::read_to_string(sys)
        .ok()
        .map(|s| s.trim_end_matches('\n').to_owned())
}

/// Loop devices that show a file, for which `is_wanted` holds.
fn attached(is_wanted: impl Fn(&Path, &str) -> bool) -> Vec<PathBuf> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = all
        .filter(|d| d.file_name().to_string_lossy().starts_with("loop"))
        .map(|d| Path::new("/dev").join(d.file_name()))
        .filter(|d| backing_of(d).is_some_and(|b| is_wanted(d, &b)))
        .collect();
    found.sort();
    found
}

/// Loop devices that show `backing`, including those of a server that was killed.
pub fn showing(backing: &Path) -> Vec<PathBuf> {
    let wanted = backing.as_os_str().to_string_lossy().into_owned();
    attached(|_, backing| backing.trim_end_matches(" (deleted)") == wanted)
}

/// Loop devices that were attached with this mark, whatever the path of their file is now: a file in a mount namespace that has ended has none.
pub fn marked(mark: &str) -> Vec<PathBuf> {
    attached(|device, _| mark_of(device).as_deref() == Some(mark))
}

/// The text that was given to [`LoopDevice::attach`]; for a device of another program usually the path of its file.
pub fn mark_of(device: &Path) -> Option<String> {
    let info = status(device)?;
    let end = info.file_name.iter().position(|&b| b == 0)?;
    Some(String::from_utf8_lossy(&info.file_name[..end]).into_owned())
}

fn status(device: &Path) -> Option<Info> {
    let file = File::open(device).ok()?;
    // SAFETY: `Info` is the kernel's `struct loop_info64`.
    unsafe { ioctl(&file, Getter::<GET_STATUS, Info>::new()) }.ok()
}

/// Whether it is a loop device that shows a file.
pub(crate) fn is_attached(device: &Path) -> bool {
    backing_of(device).is_some()
}

/// The file system and inode of the file that a loop device shows, if the kernel tells.
pub(crate) fn backing(device: &Path) -> Option<(u64, u64)> {
    status(device).map(|info| (info.device, info.inode))
}

/// The numbers of what a loop device shows: the file system of its file, and the device, if its file is one.
pub(crate) fn below(device: &Path) -> Option<[u64; 2]> {
    status(device).map(|info| [info.device, info.rdevice])
}

/// Whether reads of the device fail, as those of a file whose server has ended. One that does not answer for some time may live.
pub fn is_dead(device: &Path) -> bool {
    let (tell, told) = mpsc::channel();
    let device = device.to_owned();
    let reads = move || {
        let mut block = Buffer::new(0, 4096, ALIGNMENT as u32);
        let mut how = OpenOptions::new();
        how.read(true).custom_flags(OFlags::DIRECT.bits() as i32);
        let read = how
            .open(device)
            .and_then(|f| f.read_exact_at(&mut block, 0));
        // After the deadline there is no receiver.
        let _ = tell.send(read.is_err());
    };
    let started = std::thread::Builder::new()
        .name("probe".into())
        .spawn(reads);
    started.is_ok() && told.recv_timeout(GONE).unwrap_or(false)
}

/// Whether a loop device was detached, and disappears as soon as its last user has closed it, who is none that counts: no file system on it is
/// mounted.
pub(crate) fn is_detached(device: &Path) -> bool {
    let name = device.file_name().unwrap_or_default();
    let flag = Path::new("/sys/block").join(name).join("loop/autoclear");
    fs::read_to_string(flag).is_ok_and(|f| f.trim() == "1")
        && !stack::is_claimed(device)
        && open_files::user_of(device).is_none()
}

/// Detaches a loop device that another process attached; if it is in use, the kernel does this when the last user has closed it.
///
/// # Errors
/// It cannot be opened, or shows no file.
pub fn release(device: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).open(device)?;
    clear(&file)
}

fn clear(device: &File) -> io::Result<()> {
    // SAFETY: the call takes no argument.
    unsafe { ioctl(device, NoArg::<CLEAR>::new())? };
    Ok(())
}

/// The query for the number of a loop device that is not attached. The kernel returns the number as the result of the call.
struct GetFree;

// SAFETY: the call takes no argument, so the kernel writes to no memory of ours.
unsafe impl Ioctl for GetFree {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(number: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(number)
    }
}

impl LoopDevice {
    /// Attaches `backing` as a loop device with direct I/O; partitions in it become devices of their own. `mark` is a text of up to 63 bytes
    /// that the device has from then on, by which [`marked`] finds it.
    ///
    /// # Errors
    /// No permission (`EACCES`, `EPERM`: root has it), no loop devices in this kernel, or the file cannot be opened.
    pub fn attach(
        backing: &Path,
        read_only: bool,
        block_bytes: u32,
        mark: &str,
    ) -> io::Result<LoopDevice> {
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")?;
        let file = OpenOptions::new()
            .read(true)
            .write(!read_only)
            .open(backing)?;
        let flags = DIRECT_IO | PARTSCAN | if read_only { READ_ONLY } else { 0 };
        let mut last = Errno::BUSY;
        for _ in 0..TRIES {
            // SAFETY: see `GetFree`.
            let number = unsafe { ioctl(&control, GetFree)? };
            let path = PathBuf::from(format!("/dev/loop{number}"));
            let device = OpenOptions::new()
                .read(true)
                .write(!read_only)
                .open(&path)?;
            let mut config = Config {
                fd: file.as_raw_fd() as u32,
                block_size: block_bytes,
                info: Info::new(flags),
                reserved: [0; 8],
            };
            let name = mark.as_bytes();
            let n = name.len().min(63);
            config.info.file_name[..n].copy_from_slice(&name[..n]);
            // SAFETY: `Config` is the kernel's `struct loop_config`.
            match unsafe { ioctl(&device, Setter::<CONFIGURE, Config>::new(config)) } {
                Ok(()) => {
                    return Ok(LoopDevice {
                        path,
                        holder: Some(Holder::start(device)),
                    });
                }
                Err(Errno::BUSY) => {}
                Err(e) => {
                    last = e;
                    break;
                }
            }
        }
        Err(last.into())
    }

    /// `/dev/loopN`.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file has another size: the device gets it as well, also while it is in use.
    ///
    /// # Errors
    /// The device was detached, or the kernel refuses.
    pub fn resized(&self) -> io::Result<()> {
        let file = File::open(&self.path)?;
        // SAFETY: the call takes no argument.
        unsafe { ioctl(&file, NoArg::<SET_CAPACITY>::new())? };
        Ok(())
    }

    /// Whether a file system on it is mounted, or another device uses it.
    pub fn is_claimed(&self) -> bool {
        stack::is_claimed(&self.path)
    }

    /// Detaches the device unless it is in use; then it stays unchanged. Returns true if it is detached.
    pub fn detach(&mut self) -> bool {
        if self.holder.is_none() {
            return true;
        }
        if self.is_claimed() {
            return false;
        }
        let before = backing_of(&self.path);
        if !self.holder.as_mut().is_none_or(Holder::end) {
            return false;
        }
        self.holder = None;
        let Ok(file) = File::open(&self.path) else {
            return true;
        };
        if backing_of(&self.path) != before {
            // Another process has detached it, or uses it for another file already.
            return true;
        }
        // If another process has the device open, the call succeeds, and the device stays until the last user closes it. So the only sign
        // of another user is that the device stays.
        let cleared = clear(&file);
        drop(file);
        let asked = Instant::now();
        while cleared.is_ok() && before.is_some() && backing_of(&self.path) == before {
            let waited = asked.elapsed();
            if waited > CLOSING || waited > GONE && open_files::user_of(&self.path).is_some() {
                self.keep();
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Another process has it open: it stays attached, also when that process closes it.
    fn keep(&mut self) {
        let Ok(file) = File::open(&self.path) else {
            return;
        };
        // SAFETY: `Info` is the kernel's `struct loop_info64`, in both calls.
        let kept = unsafe {
            ioctl(&file, Getter::<GET_STATUS, Info>::new()).and_then(|mut info| {
                info.flags &= !AUTOCLEAR;
                ioctl(&file, Setter::<SET_STATUS, Info>::new(info))
            })
        };
        // If the device disappeared in the meantime, it is detached, as intended.
        if kept.is_ok() {
            self.holder = Some(Holder::start(file));
        }
    }

    /// Detaches it as soon as its users close it; until then they get errors.
    pub fn abandon(mut self) {
        if self.holder.take().is_some() {
            // An error here has no remedy, because the process ends, and the other one with it.
            let _ = release(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_structures_have_the_kernels_sizes() {
        assert_eq!(size_of::<Info>(), 232);
        assert_eq!(size_of::<Config>(), 8 + 232 + 64);
    }

    #[test]
    fn a_file_is_shown_found_and_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image");
        File::create(&file).unwrap().set_len(1 << 20).unwrap();
        let mut device = match LoopDevice::attach(&file, false, 512, "isotherm test") {
            Ok(device) => device,
            Err(e) => {
                eprintln!("skipped: no loop devices for us here: {e}");
                return;
            }
        };
        assert_eq!(showing(&file), [device.path().to_owned()]);
        let mark = mark_of(device.path());
        assert_eq!(mark.as_deref(), Some("isotherm test"));
        assert!(marked("isotherm test").contains(&device.path().to_owned()));
        let longer = OpenOptions::new().write(true).open(&file).unwrap();
        longer.set_len(3 << 20).unwrap();
        device.resized().unwrap();
        let name = device.path().file_name().unwrap();
        let sectors = fs::read_to_string(Path::new("/sys/block").join(name).join("size")).unwrap();
        assert_eq!(sectors.trim(), (3 << 11).to_string());
        let user = File::open(device.path()).unwrap();
        assert!(!device.detach(), "in use");
        drop(user);
        assert_eq!(showing(&file), [device.path().to_owned()], "it stays");
        assert!(device.detach());
        assert!(showing(&file).is_empty());
    }
}
