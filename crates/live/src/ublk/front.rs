//! A device as a [`FrontEnd`]: it is added, found again, taken over, removed.

use super::abi::{self, DeviceInfo, Params};
use super::control::Control;
use super::link;
use super::properties::{has_zero_copy, params};
use super::queue::{Counts, PageBuffers, Plan, Queues};
use crate::device::while_busy;
use crate::front_end::{Capabilities, FrontEnd, FrontEndSettings, VolumeAccess};
use crate::port::Port;
use crate::stack;
use crate::world::UringWorld;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

/// How long the kernel may take to create a device, or to notice that its server is gone.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval of the checks in this time.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Maximum size of a request in bytes.
pub(super) const LARGEST: u32 = 1 << 20;
/// Maximum size of a discard in bytes.
pub(super) const DISCARD: u32 = 1 << 30;

/// The configuration of a device.
#[derive(Debug)]
pub struct Settings {
    /// Number of queues. The engine's thread serves all of them, so several only save the kernel's processors a shared lock.
    pub queues: u16,
    /// Number of requests in each queue.
    pub depth: u16,
    /// The device survives a server that is killed, and the next server takes it over. Its users do not notice the crash, so a write is
    /// answered only when the next server would find it ([`VolumeAccess::keep_writes`]).
    pub recover: bool,
    /// Devices read and write the pages of requests themselves, if the kernel can register these with the engine's ring (Linux 6.16).
    pub zero_copy: bool,
    /// The directory for links with the names of volumes.
    pub links: PathBuf,
}

impl Default for Settings {
    /// One queue of 128 requests, with recovery, and with copies of all data.
    fn default() -> Settings {
        Settings {
            queues: 1,
            depth: 128,
            recover: true,
            zero_copy: false,
            links: link::DIRECTORY.into(),
        }
    }
}

impl Settings {
    /// The link to the device of the volume `name`.
    pub fn link(&self, name: &str) -> PathBuf {
        self.links.join(name)
    }
}

/// Identifies the volume of a device; the kernel keeps the value with the device. It is never 0, which other servers use.
fn owner(uuid: &[u8; 16]) -> u64 {
    let half = |at: usize| {
        uuid[at..at + 8]
            .iter()
            .fold(0u64, |n, b| n << 8 | u64::from(*b))
    };
    (half(0) ^ half(8).rotate_left(1)).max(1)
}

fn words(id: u32, what: &str, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("ublk: /dev/ublkb{id}: {what}: {e}"))
}

impl FrontEndSettings for Settings {
    fn names(&self, name: &str) -> Vec<String> {
        vec![format!("ublk:{}", self.link(name).display())]
    }

    fn start(self: Box<Self>, volume: &VolumeAccess) -> io::Result<Box<dyn FrontEnd>> {
        let control = Control::open()?;
        let link = self.link(&volume.name);
        let owner = owner(&volume.uuid);
        let left = left_behind(&control, owner)?;
        link::check(&control, &link, owner)?;
        let zero_copy = self.zero_copy && has_zero_copy(&control);
        let params = params(&*volume.port, volume.extent, zero_copy);
        if self.recover || left.is_some() {
            volume.keep_writes()?;
        }
        let earlier = left.as_ref().map(|l| l.pid);
        if let Some(info) = &left {
            let id = info.id;
            volume.must_have_answers(&format!(
                "ublk: /dev/ublkb{id}: end its users and remove it with `ublk del -n {id}`"
            ))?;
        }
        let mut served = match left {
            Some(info) => take_over(control, info, &params, volume, zero_copy)?,
            None => add(control, &self, &params, owner, volume, zero_copy)?,
        };
        // The link must exist before the disk appears, because udev takes the volume's name from the link.
        link::point(&link, served.id)?;
        served.link = Some(link);
        served.go_on()?;
        if let Some(pid) = earlier {
            let id = served.id;
            tracing::info!(
                device = id,
                "ublk: took /dev/ublkb{id} over from process {pid}: its users go on"
            );
        }
        wait_for(&served.disk)?;
        Ok(Box::new(served))
    }
}

/// Finds a device of this volume whose server is gone. A device that was never started or cannot continue is removed.
fn left_behind(control: &Control, owner: u64) -> io::Result<Option<DeviceInfo>> {
    let until = Instant::now() + TIMEOUT;
    for id in control.all() {
        // Other devices belong to another server, or were removed in the meantime.
        while let Some(info) = control.info(id).ok().filter(|i| i.owner == owner) {
            match info.state {
                abi::QUIESCED => return Ok(Some(info)),
                abi::DEAD => {
                    // Its users have already received errors; the device is removed when they close it.
                    (control.delete_later(id).or_else(|_| control.delete(id)))
                        .map_err(|e| words(id, "left behind, and cannot be removed", &e))?;
                    break;
                }
                _ if Instant::now() >= until => {
                    return Err(io::Error::other(format!(
                        "ublk: /dev/ublkb{id} shows this volume already, served by process {}",
                        info.pid
                    )));
                }
                // The kernel has not yet noticed that the server is gone.
                _ => std::thread::sleep(CHECK_INTERVAL),
            }
        }
    }
    Ok(None)
}

/// Adds a device. Its queues are served when this returns; there is no disk yet.
fn add(
    control: Control,
    wanted: &Settings,
    params: &Params,
    owner: u64,
    volume: &VolumeAccess,
    zero_copy: bool,
) -> io::Result<ServedDevice> {
    let register = if zero_copy { abi::F_REGISTER } else { 0 };
    let mut info = DeviceInfo {
        queues: wanted.queues,
        depth: wanted.depth,
        max_io_bytes: LARGEST,
        flags: register
            | if wanted.recover {
                abi::NEEDED
            } else {
                abi::F_IOCTL | abi::F_USER_COPY
            },
        owner,
        ..DeviceInfo::default()
    };
    let failed =
        |e: io::Error| io::Error::new(e.kind(), format!("ublk: no device can be added: {e}"));
    control.add(&mut info).map_err(failed)?;
    let mut served = ServedDevice::new(control, &volume.port, &info, false, zero_copy);
    let id = info.id;
    served
        .control
        .set_params(id, params)
        .map_err(|e| words(id, "its parameters are refused", &e))?;
    served.serve(&info, volume)?;
    Ok(served)
}

/// Serves the queues of a device that was left behind. Its users wait until [`ServedDevice::go_on`].
fn take_over(
    control: Control,
    info: DeviceInfo,
    params: &Params,
    volume: &VolumeAccess,
    zero_copy: bool,
) -> io::Result<ServedDevice> {
    let id = info.id;
    let known = control
        .params(id)
        .map_err(|e| words(id, "does not say what it is", &e))?;
    // A volume grows, so a device may be smaller: it was left before it got the new size, or its kernel could not change the size.
    if known.sectors > params.sectors {
        return Err(io::Error::other(format!(
            "ublk: /dev/ublkb{id} was left by a volume of {} bytes with this identity, which has {} now: end its users, then remove \
             it with `ublk del -n {id}`",
            known.sectors << 9,
            params.sectors << 9
        )));
    }
    while_busy(TIMEOUT, || control.begin_recovery(id))
        .map_err(|e| words(id, "cannot be taken over", &e))?;
    let mut served = ServedDevice::new(control, &volume.port, &info, true, zero_copy);
    if zero_copy && info.flags & abi::F_REGISTER == 0 {
        tracing::warn!(
            device = id,
            "ublk: /dev/ublkb{id} was made without zero copy, so its data is copied until the volume is stopped"
        );
    }
    // A server of an earlier version may have told the kernel that the device has no cache: in that case no flush will arrive.
    served.durable = known.attributes & abi::ATTR_CACHE == 0;
    served.serve(&info, volume)?;
    Ok(served)
}

fn wait_for(path: &Path) -> io::Result<()> {
    let until = Instant::now() + TIMEOUT;
    while !path.exists() {
        if Instant::now() >= until {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!(
                    "ublk: {} does not appear: is /dev a devtmpfs, or udev running?",
                    path.display()
                ),
            ));
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    Ok(())
}

/// A device in service. Dropping it removes the device.
struct ServedDevice {
    control: Control,
    port: Arc<dyn Port>,
    id: u32,
    disk: PathBuf,
    link: Option<PathBuf>,
    counts: Arc<Counts>,
    /// Users of an earlier server wait for the device, so it must not be removed if the takeover fails.
    is_left: bool,
    is_over: bool,
    /// Every change is made durable before it is answered.
    durable: bool,
    /// See [`Settings::recover`].
    recover: bool,
    /// Whether the pages of requests are to be registered, and from when it is served on, whether they are.
    zero_copy: bool,
}

impl ServedDevice {
    fn new(
        control: Control,
        port: &Arc<dyn Port>,
        info: &DeviceInfo,
        is_left: bool,
        zero_copy: bool,
    ) -> ServedDevice {
        ServedDevice {
            control,
            port: Arc::clone(port),
            id: info.id,
            disk: format!("/dev/ublkb{}", info.id).into(),
            link: None,
            counts: Arc::default(),
            is_left,
            is_over: false,
            durable: false,
            recover: info.flags & abi::F_USER_RECOVERY != 0,
            zero_copy,
        }
    }

    /// Lets the engine's thread serve the queues. When this returns, the kernel has all commands.
    fn serve(&mut self, info: &DeviceInfo, volume: &VolumeAccess) -> io::Result<()> {
        let path = PathBuf::from(format!("/dev/ublkc{}", self.id));
        wait_for(&path)?;
        // Directly after the end of the previous server, the kernel refuses to open the device for a moment.
        let open = || OpenOptions::new().read(true).write(true).open(&path);
        let failed = |e| words(self.id, "cannot be served", &e);
        let device = while_busy(TIMEOUT, open).map_err(failed)?;
        let slots = info.queues.saturating_mul(info.depth);
        let (registers, wanted) = (info.flags & abi::F_REGISTER != 0, self.zero_copy);
        let mut plan = Plan {
            device: Arc::new(device),
            port: Arc::clone(&volume.port),
            queues: info.queues,
            depth: info.depth,
            counts: Arc::clone(&self.counts),
            durable: self.durable,
            buffers: PageBuffers::Off,
        };
        let (tell, told) = sync_channel(1);
        let ended = || failed(io::Error::other("the volume has ended"));
        let add = move |world: &mut UringWorld| {
            plan.buffers = match world.free_buffers(slots) {
                _ if !registers => PageBuffers::Off,
                Some(first) if wanted => PageBuffers::From(first),
                _ => PageBuffers::Nowhere,
            };
            let zero_copy = matches!(plan.buffers, PageBuffers::From(_));
            world.add_ring_source(Box::new(Queues::new(plan, tell)?));
            Ok(zero_copy)
        };
        let added = volume.engine.call(move |_, world| add(world));
        self.zero_copy = added.ok_or_else(ended)?.map_err(failed)?;
        told.recv().map_err(|_| ended())?.map_err(failed)
    }

    /// Creates the disk, or lets the users of the one that was left behind continue.
    fn go_on(&mut self) -> io::Result<()> {
        let id = self.id;
        if self.is_left {
            let ended = self.control.end_recovery(id);
            ended.map_err(|e| words(id, "does not go on", &e))?;
            self.is_left = false;
            self.catch_up();
            return Ok(());
        }
        let started = self.control.start(id);
        started.map_err(|e| words(id, "does not start", &e))
    }

    /// Gives a disk that was left behind the size of the volume, which may have grown.
    fn catch_up(&mut self) {
        let sectors = self.port.volume_bytes() >> 9;
        let known = self.control.params(self.id).map(|p| p.sectors);
        if known.is_ok_and(|known| known < sectors) {
            let sentence = self.resized();
            tracing::info!(device = self.id, "ublk: the volume has grown: {sentence}");
        }
    }

    /// Returns true if the disk is mounted or opened exclusively.
    fn is_in_use(&self) -> bool {
        let holders = std::fs::read_dir(format!("/sys/block/ublkb{}/holders", self.id));
        if holders.is_ok_and(|mut h| h.next().is_some()) {
            return true;
        }
        stack::is_claimed(&self.disk)
    }

    fn remove(&mut self) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        if self.is_left {
            // Leave the device to the next server, which may succeed. The engine's ring ends with the process.
            return;
        }
        if let Err(e) = self.control.stop(self.id) {
            tracing::warn!(device = self.id, "{}", words(self.id, "does not stop", &e));
        }
        if let Err(e) = self.control.delete(self.id) {
            tracing::warn!(
                device = self.id,
                "{}",
                words(self.id, "cannot be removed", &e)
            );
        }
        if let Some(link) = self.link.take() {
            link::remove(&link, &self.disk);
        }
    }
}

impl FrontEnd for ServedDevice {
    fn names(&self) -> Vec<String> {
        vec![format!("ublk:{}", self.disk.display())]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            fua: true,
            discard: true,
            write_zeroes: true,
            classes: true,
            resize: self.control.features() & abi::F_UPDATE_SIZE != 0,
        }
    }

    fn zero_copy(&self) -> Option<bool> {
        Some(self.zero_copy)
    }

    fn figures(&self) -> Vec<(&'static str, u64)> {
        let c = &self.counts;
        let all = [
            ("reads", &c.reads),
            ("writes", &c.writes),
            ("flushes", &c.flushes),
            ("discards", &c.discards),
            ("fua", &c.fua),
            ("metadata", &c.metadata),
            ("zero_copy", &c.registered),
            ("errors", &c.errors),
        ];
        all.map(|(name, n)| (name, n.load(Ordering::Relaxed)))
            .to_vec()
    }

    fn outlives(&self) -> bool {
        self.recover
    }

    /// The kernel's device cannot be closed to new users only.
    fn refuse_new(&mut self) {}

    fn users(&mut self) -> Option<String> {
        self.is_in_use()
            .then(|| format!("{} is mounted or in use", self.disk.display()))
    }

    fn leave(&mut self) -> Result<(), String> {
        if self.is_in_use() {
            return Err(format!(
                "{} is in use: unmount what is on it first",
                self.disk.display()
            ));
        }
        self.remove();
        Ok(())
    }

    fn resized(&mut self) -> String {
        let disk = self.disk.display();
        match self.control.resize(self.id, self.port.volume_bytes() >> 9) {
            Ok(()) => format!("{disk} has the new size"),
            Err(e) => {
                format!("{disk} keeps its size until the volume is stopped and served again: {e}")
            }
        }
    }

    fn stop(mut self: Box<Self>) {
        self.remove();
    }
}

impl Drop for ServedDevice {
    fn drop(&mut self) {
        self.remove();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_have_owners_of_their_own() {
        let mut uuid = [0; 16];
        assert_eq!(owner(&uuid), 1);
        uuid[3] = 9;
        let one = owner(&uuid);
        uuid[12] = 9;
        assert!(one != owner(&uuid) && one != 1);
    }

    #[test]
    fn a_missing_ublk_is_reported() {
        if super::super::missing().is_none() {
            eprintln!("skipped: this kernel has ublk");
            return;
        }
        let e = Control::open().err().expect("refused");
        assert!(e.to_string().contains("modprobe ublk_drv"), "{e}");
    }
}
