//! `serve --loop` and `--ublk`: the volume as a block device with a stable name, and `serve --wait`.
//!
//! ```text
//! block file in NAME.mnt ─► /dev/loopN (direct I/O) ─► /dev/isotherm/NAME
//! ```
//! The three are removed in the opposite order, and not while the device is in use. What a killed server left behind is removed before new
//! ones are made. It is recognised by what only a server of this volume can have made: the mount by its type, and that nobody answers there;
//! the loop device by its mark, which names the volume, and that its reads fail. (Its path says nothing if the server had a mount namespace of its own.)

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, io};

use isotherm_answers::Device;
use isotherm_control::live::End;
use isotherm_live::block_file::{self, Mount};
use isotherm_live::config::{VolumeConfig, format_uuid, parse_uuid};
use isotherm_live::front_end::{Capabilities, FrontEnd, FrontEndSettings, VolumeAccess};
use isotherm_live::loop_device::{self, LoopDevice};
use isotherm_live::ublk;

use crate::args::ServeArgs;
use crate::cmd::assemble::missing_members;
use crate::{Failure, notify, place};

/// The beginning of the marks of loop devices.
const MARK: &str = "isotherm ";
/// Interval between two searches for absent members.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The device for `status`; null until it exists.
pub(super) type DeviceStatus = Arc<Mutex<Option<Device>>>;

/// `--loop`: a block file and a loop device over it.
pub(super) struct Settings {
    pub dir: PathBuf,
    /// Whether the directory belongs to this program and is removed with the block file.
    pub own: bool,
    pub options: block_file::Options,
    pub told: DeviceStatus,
}

impl FrontEndSettings for Settings {
    fn names(&self, name: &str) -> Vec<String> {
        vec![format!("block-file:{}", self.dir.join(name).display())]
    }

    fn start(self: Box<Self>, volume: &VolumeAccess) -> io::Result<Box<dyn FrontEnd>> {
        let words = |e: &dyn std::fmt::Display| io::Error::other(e.to_string());
        let names = self.names(&volume.name);
        let left =
            clear_left(&self.dir, &volume.name, &mark(&volume.uuid)).map_err(|e| words(&e))?;
        if self.own {
            place::make_dir(&self.dir)
                .map_err(|e| words(&Failure::file(&self.dir, "make it", &e)))?;
        }
        let port = Arc::clone(&volume.port);
        let mount = block_file::mount_on_engine(
            &volume.engine,
            port,
            &self.dir,
            &volume.name,
            &self.options,
        )
        .map_err(|e| words(&e))?;
        let shown = AttachedLoop::start(mount.file(), volume, &left).map_err(|e| words(&e))?;
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(shown.describe());
        Ok(Box::new(Looped {
            names,
            shown: Some(shown),
            mount,
            own_dir: self.own.then_some(self.dir),
        }))
    }
}

/// `--ublk`, whose device `status` shows as well.
pub(super) struct Ublk {
    pub wanted: ublk::front::Settings,
    pub told: DeviceStatus,
}

impl FrontEndSettings for Ublk {
    fn names(&self, name: &str) -> Vec<String> {
        self.wanted.names(name)
    }

    fn start(self: Box<Self>, volume: &VolumeAccess) -> io::Result<Box<dyn FrontEnd>> {
        let link = self.wanted.link(&volume.name);
        if let Some(runtime) = place::runtime_dir() {
            let dir = runtime.join(format!("{}.mnt", volume.name));
            clear_left(&dir, &volume.name, &mark(&volume.uuid))
                .map_err(|e| io::Error::other(e.to_string()))?;
        }
        let front = Box::new(self.wanted).start(volume)?;
        let disk = front
            .names()
            .into_iter()
            .find_map(|n| Some(n.strip_prefix("ublk:")?.to_owned()));
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(Device {
            path: disk.unwrap_or_default(),
            link: link.to_string_lossy().into_owned(),
            zero_copy: front.zero_copy(),
        });
        Ok(front)
    }
}

/// A block file with a loop device over it. The device is removed first.
struct Looped {
    names: Vec<String>,
    shown: Option<AttachedLoop>,
    mount: Mount,
    own_dir: Option<PathBuf>,
}

impl FrontEnd for Looped {
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    fn capabilities(&self) -> Capabilities {
        block_file::front::CAPABILITIES
    }

    fn refuse_new(&mut self) {
        self.mount.refuse_new();
    }

    fn users(&mut self) -> Option<String> {
        self.leave().err()?;
        Some(match &self.shown {
            Some(shown) => format!("{} is in use", shown.link().display()),
            None => format!("{} is open", self.mount.file().display()),
        })
    }

    fn leave(&mut self) -> Result<(), String> {
        if let Some(shown) = &mut self.shown {
            if !shown.detach() {
                let link = shown.link().display();
                return Err(format!("{link} is in use: unmount what is on it first"));
            }
            self.shown = None;
        }
        self.mount.unmount().map_err(|e| e.to_string())
    }

    fn resized(&mut self) -> String {
        let file = self.mount.resized();
        let Some(shown) = &self.shown else {
            return format!("{}: is being removed", self.mount.file().display());
        };
        let link = shown.link().display();
        match file.and_then(|()| shown.device.resized()) {
            Ok(()) => format!("{link} has the new size"),
            Err(e) => format!("{link} may keep its size until the next start: {e}"),
        }
    }

    fn stop(self: Box<Self>) {
        if let Some(shown) = self.shown {
            shown.abandon();
        }
        drop(self.mount);
        if let Some(dir) = self.own_dir {
            // The directory is empty again, unless another program put something into it.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// The volume as a loop device.
pub(super) struct AttachedLoop {
    device: LoopDevice,
    link: PathBuf,
}

/// The directory of the block file: the one that was given, or one of this program for `--loop` (then the flag is true).
pub(super) fn block_dir(args: &ServeArgs, name: &str) -> Result<Option<(PathBuf, bool)>, Failure> {
    if let Some(dir) = &args.block_file {
        return Ok(Some((dir.clone(), false)));
    }
    if !args.loop_device {
        return Ok(None);
    }
    let runtime = place::runtime_dir().ok_or_else(|| {
        Failure::failed("--loop: there is no $XDG_RUNTIME_DIR: give --block-file")
    })?;
    Ok(Some((runtime.join(format!("{name}.mnt")), true)))
}

/// The mark of the volume's loop device.
fn mark(uuid: &[u8; 16]) -> String {
    format!("{MARK}{}", format_uuid(uuid))
}

/// Removes what a killed server of this volume left behind, whatever front end comes next: the mount, the loop device, and the link, which
/// would lead to whatever gets the number of that device.
pub(in crate::cmd) fn clear_of_killed(config: &VolumeConfig) {
    let uuid = config.uuid.as_deref().and_then(parse_uuid);
    let (Some(uuid), Some(runtime)) = (uuid, place::runtime_dir()) else {
        return;
    };
    let (name, mark) = (&config.name, mark(&uuid));
    let left = clear_left(&runtime.join(format!("{name}.mnt")), name, &mark);
    let left = left.unwrap_or_else(|e| {
        tracing::warn!("what a killed server left behind cannot be removed: {e}");
        Vec::new()
    });
    let link = place::device_dir().join(name);
    if leads_astray(&link, &left) {
        remove_link(&link);
    }
}

/// Whether a link with a volume's name leads to a loop device that shows no volume now.
fn leads_astray(link: &Path, left: &[PathBuf]) -> bool {
    let Some(device) = loop_behind(link) else {
        return false;
    };
    let foreign = |mark: String| !mark.starts_with(MARK);
    left.contains(&device)
        || !sys_backing(&device).exists()
        || loop_device::mark_of(&device).is_some_and(foreign)
}

/// The loop device to which a link leads, also one that has no file.
fn loop_behind(link: &Path) -> Option<PathBuf> {
    let to = fs::read_link(link).ok()?;
    let name = to.file_name()?;
    let is_loop = name.as_encoded_bytes().starts_with(b"loop");
    is_loop.then(|| Path::new("/dev").join(name))
}

fn remove_link(link: &Path) {
    match fs::remove_file(link) {
        Ok(()) => tracing::warn!(
            "{}: led to a device that is not this volume's: removed",
            link.display()
        ),
        Err(e) => tracing::warn!("{}: cannot be removed: {e}", link.display()),
    }
}

/// Removes the mount and the devices that a killed server of this volume left behind, before the block file is mounted in `dir`. Returns the
/// devices; those that are in use stay until their users close them.
fn clear_left(dir: &Path, name: &str, mark: &str) -> Result<Vec<PathBuf>, Failure> {
    let by_path = loop_device::showing(&dir.join(name));
    let cleared = match block_file::clear_dead(dir) {
        Ok(cleared) => cleared,
        // It is made later, or the mount says what is wrong.
        Err(block_file::Error::Directory { .. }) => false,
        Err(e) => return Err(Failure::failed(e.to_string())),
    };
    let mut left = if cleared { by_path } else { Vec::new() };
    // A copy of the volume may be served, too. Its device answers.
    let marked = loop_device::marked(mark).into_iter();
    left.extend(marked.filter(|d| loop_device::is_dead(d)));
    left.sort();
    left.dedup();
    for device in &left {
        match loop_device::release(device) {
            Ok(()) => tracing::warn!(
                "{}: was left behind by a server that was killed: released; what is mounted from it must be unmounted",
                device.display()
            ),
            Err(e) => tracing::error!("{}: cannot be released: {e}", device.display()),
        }
    }
    Ok(left)
}

impl AttachedLoop {
    /// Attaches the device and creates the link. `file` is the block file, `left` are the devices that a killed server left behind.
    fn start(
        file: &Path,
        volume: &VolumeAccess,
        left: &[PathBuf],
    ) -> Result<AttachedLoop, Failure> {
        let dir = place::device_dir();
        let link = dir.join(&volume.name);
        if let Some(target) = loop_behind(&link).filter(|t| !left.contains(t)) {
            let other = fs::read_to_string(sys_backing(&target)).unwrap_or_default();
            if !other.is_empty() && other.trim_end() != file.to_string_lossy() {
                let of = loop_device::mark_of(&target).unwrap_or_default();
                return Err(Failure::failed(format!(
                    "{}: is {} already, another volume of this name ({of}, which shows {}): stop that one or serve this one without --loop; if its server was \
                     killed, `losetup -d {1}` frees the name",
                    link.display(),
                    target.display(),
                    other.trim_end()
                )));
            }
        }
        let is_ublk = |to: &String| to.contains("ublkb");
        if let Some(other) = ublk::link::occupied(&link, Path::new("/sys/block")).filter(is_ublk) {
            return Err(Failure::failed(format!(
                "{}: is {other} already, served over ublk or left behind by its server: stop that one, or serve this volume with --ublk \
                 if it is its own",
                link.display()
            )));
        }
        let (read_only, block) = (volume.port.read_only(), volume.port.block_bytes());
        let device = LoopDevice::attach(file, read_only, block, &mark(&volume.uuid)).map_err(|e| {
            let why = crate::failure::reason(&e);
            Failure::failed(format!(
                "--loop: no loop device over {}: {why}: it takes root and the kernel's loop driver; or use --nbd",
                file.display()
            ))
        })?;
        let shown = AttachedLoop { device, link };
        match shown.put_link(&dir) {
            Ok(()) => Ok(shown),
            Err(e) => {
                let failure = Failure::file(&shown.link, "make the link", &e);
                shown.device.abandon();
                Err(failure)
            }
        }
    }

    /// The link is replaced in one step, so that the name always has a device. udev makes the same link.
    fn put_link(&self, dir: &Path) -> std::io::Result<()> {
        place::make_dir(dir)?;
        let target = Path::new("..").join(self.device.path().file_name().unwrap_or_default());
        let target = if dir == Path::new(place::SYSTEM_DEVICES) {
            target
        } else {
            self.device.path().to_owned()
        };
        let name = self.link.file_name().unwrap_or_default().to_string_lossy();
        let new = dir.join(format!(".{name}.new"));
        let _ = fs::remove_file(&new);
        std::os::unix::fs::symlink(target, &new)?;
        fs::rename(&new, &self.link)?;
        // A killed server may have left a link to what was its device.
        for other in fs::read_dir(dir).into_iter().flatten().flatten() {
            let other = other.path();
            if other != self.link && loop_behind(&other).as_deref() == Some(self.device.path()) {
                remove_link(&other);
            }
        }
        Ok(())
    }

    /// The description for `status`.
    pub(super) fn describe(&self) -> Device {
        Device {
            path: self.device.path().to_string_lossy().into_owned(),
            link: self.link.to_string_lossy().into_owned(),
            zero_copy: None,
        }
    }

    /// The stable name.
    pub(super) fn link(&self) -> &Path {
        &self.link
    }

    /// Removes the device unless it is in use. Returns whether it was removed.
    pub(super) fn detach(&mut self) -> bool {
        let gone = self.device.detach();
        if gone {
            self.unlink();
        }
        gone
    }

    fn unlink(&self) {
        let ours = fs::read_link(&self.link)
            .is_ok_and(|t| t.file_name() == self.device.path().file_name());
        if ours {
            // udev may have removed it first.
            let _ = fs::remove_file(&self.link);
        }
    }

    /// Gives up the device. Its users get errors from now on.
    pub(super) fn abandon(mut self) {
        if !self.detach() {
            self.unlink();
            self.device.abandon();
        }
    }
}

fn sys_backing(device: &Path) -> PathBuf {
    let name = device.file_name().unwrap_or_default();
    Path::new("/sys/block").join(name).join("loop/backing_file")
}

/// Waits until every member is present, at most for the time of `--wait`. After that, opening the volume reports what is wrong.
pub(super) fn wait_for_members(args: &ServeArgs, ended: &Receiver<End>) -> Result<(), Failure> {
    let deadline = Instant::now() + Duration::from_secs(args.wait);
    let mut said = Vec::new();
    loop {
        let missing = missing_members(&args.volume)?;
        if missing.is_empty() || Instant::now() >= deadline {
            return Ok(());
        }
        if missing != said {
            let words: Vec<String> = missing.iter().map(|p| p.display().to_string()).collect();
            let words = words.join(", ");
            tracing::info!(
                "waiting up to {} s for members that are not there: {words}",
                args.wait
            );
            notify::tell(&format!("STATUS=waiting for members: {words}"));
            said = missing;
        }
        match ended.recv_timeout(CHECK_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(End::Signal(name)) => {
                return Err(Failure::failed(format!(
                    "{name} while waiting for members: nothing was opened"
                )));
            }
            _ => return Ok(()),
        }
    }
}
