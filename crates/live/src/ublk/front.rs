//! A device as a [`FrontEnd`]: added, found again, taken over, removed.

use super::abi::{self, DeviceInfo, Params};
use super::control::Control;
use super::queue::{self, Counts, Plan};
use crate::front_end::{Can, FrontEnd, Kind, Way};
use crate::port::Port;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where links with the names of volumes are.
const LINKS: &str = "/dev/isotherm";
/// How long the kernel may take to show a device, or to notice that its server is gone.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often to look meanwhile.
const LOOK: Duration = Duration::from_millis(20);
/// Largest request, bytes.
const LARGEST: u32 = 1 << 20;
/// Largest discard, bytes.
const DISCARD: u32 = 1 << 30;

/// A device wanted.
#[derive(Debug)]
pub struct Wanted {
    /// Queues, each with a thread; the engine is one thread, so more than a few help nobody.
    pub queues: u16,
    /// Requests in each queue.
    pub depth: u16,
    /// The device outlives a server that is killed, and the next one takes it over. Its users hear of no crash, so a write is answered
    /// when the next server would find it ([`Way::keep_writes`]).
    pub recover: bool,
}

impl Default for Wanted {
    /// A queue of 128, recovered.
    fn default() -> Wanted {
        Wanted {
            queues: 1,
            depth: 128,
            recover: true,
        }
    }
}

/// Whose device it is: kept by the kernel with the device. Never 0, which other servers leave there.
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

impl Kind for Wanted {
    fn names(&self, name: &str) -> Vec<String> {
        vec![format!("ublk:{LINKS}/{name}")]
    }

    fn start(self: Box<Self>, way: &Way) -> io::Result<Box<dyn FrontEnd>> {
        let control = Control::open()?;
        let link = Path::new(LINKS).join(&way.name);
        let owner = owner(&way.uuid);
        let left = left_behind(&control, owner)?;
        check_link(&control, &link, owner)?;
        let params = params(&*way.port, way.extent);
        if self.recover || left.is_some() {
            way.keep_writes()?;
        }
        let mut shown = match left {
            Some(info) => take_over(control, info, &params, way)?,
            None => add(control, &self, &params, owner, way)?,
        };
        wait_for(&shown.disk)?;
        point(&link, shown.id)?;
        shown.link = Some(link);
        Ok(Box::new(shown))
    }
}

/// What the disk is like.
fn params(port: &dyn Port, extent: u32) -> Params {
    let shift = port.block_bytes().trailing_zeros() as u8;
    let read_only = if port.read_only() {
        abi::ATTR_READ_ONLY
    } else {
        0
    };
    Params {
        len: abi::PARAMS,
        types: abi::PARAM_TYPES,
        attributes: abi::ATTR_CACHE | abi::ATTR_FUA | read_only,
        logical_shift: shift,
        physical_shift: shift.max(12),
        optimal_shift: extent.trailing_zeros() as u8,
        minimal_shift: shift.max(12),
        max_sectors: LARGEST >> 9,
        sectors: port.volume_bytes() >> 9,
        discard_granularity: port.block_bytes(),
        max_discard_sectors: DISCARD >> 9,
        max_zeroes_sectors: DISCARD >> 9,
        max_discard_segments: 1,
        ..Params::default()
    }
}

/// A device of this volume whose server is gone. One that never started or cannot go on is removed.
fn left_behind(control: &Control, owner: u64) -> io::Result<Option<DeviceInfo>> {
    let until = Instant::now() + PATIENCE;
    for id in control.all() {
        // Others are somebody else's, or removed meanwhile.
        while let Some(info) = control.info(id).ok().filter(|i| i.owner == owner) {
            match info.state {
                abi::QUIESCED => return Ok(Some(info)),
                abi::DEAD => {
                    // Its users have errors already; it goes when they do.
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
                // The kernel has not noticed yet.
                _ => std::thread::sleep(LOOK),
            }
        }
    }
    Ok(None)
}

/// The link must not lead to another volume's device.
fn check_link(control: &Control, link: &Path, owner: u64) -> io::Result<()> {
    let Ok(to) = std::fs::read_link(link) else {
        return match link.symlink_metadata() {
            Err(_) => Ok(()),
            Ok(_) => Err(io::Error::other(format!(
                "ublk: {} is there and is no link: remove it",
                link.display()
            ))),
        };
    };
    let id = to
        .to_str()
        .and_then(|t| t.rsplit_once("ublkb")?.1.parse().ok());
    let foreign = id
        .and_then(|id| control.info(id).ok())
        .filter(|i| i.owner != owner);
    match foreign {
        Some(i) if i.state != abi::DEAD => Err(io::Error::other(format!(
            "ublk: {} leads to /dev/ublkb{}, which shows another volume of that name: stop that one, or rename this one",
            link.display(),
            i.id
        ))),
        _ => Ok(()),
    }
}

fn add(
    control: Control,
    wanted: &Wanted,
    params: &Params,
    owner: u64,
    way: &Way,
) -> io::Result<Shown> {
    let mut info = DeviceInfo {
        queues: wanted.queues,
        depth: wanted.depth,
        max_io_bytes: LARGEST,
        flags: if wanted.recover {
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
    let mut shown = Shown::new(control, &info, false);
    let id = info.id;
    shown
        .control
        .set_params(id, params)
        .map_err(|e| words(id, "its parameters are refused", &e))?;
    shown.serve(&info, way)?;
    shown
        .control
        .start(id)
        .map_err(|e| words(id, "does not start", &e))?;
    Ok(shown)
}

fn take_over(control: Control, info: DeviceInfo, params: &Params, way: &Way) -> io::Result<Shown> {
    let id = info.id;
    let known = control
        .params(id)
        .map_err(|e| words(id, "does not say what it is", &e))?;
    if known.sectors != params.sectors {
        return Err(io::Error::other(format!(
            "ublk: /dev/ublkb{id} was left by a volume of {} bytes with this identity, which has {} now: end its users, then remove \
             it with `ublk del -n {id}`",
            known.sectors << 9,
            params.sectors << 9
        )));
    }
    let until = Instant::now() + PATIENCE;
    loop {
        match control.begin_recovery(id) {
            Ok(()) => break,
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                std::thread::sleep(LOOK);
            }
            Err(e) => return Err(words(id, "cannot be taken over", &e)),
        }
    }
    let mut shown = Shown::new(control, &info, true);
    // A server of an earlier version may have told the device that there is no cache: then no flush will come.
    shown.durable = known.attributes & abi::ATTR_CACHE == 0;
    shown.serve(&info, way)?;
    shown
        .control
        .end_recovery(id)
        .map_err(|e| words(id, "does not go on", &e))?;
    shown.is_left = false;
    tracing::info!(
        device = id,
        "ublk: took /dev/ublkb{id} over from process {}: its users go on",
        info.pid
    );
    Ok(shown)
}

fn wait_for(path: &Path) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
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
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Lets the link lead to the device, at once or not at all.
fn point(link: &Path, id: u32) -> io::Result<()> {
    let failed = |e: io::Error| io::Error::new(e.kind(), format!("ublk: {}: {e}", link.display()));
    std::fs::create_dir_all(LINKS).map_err(failed)?;
    let new = link.with_extension(format!("new{id}"));
    let made = std::os::unix::fs::symlink(format!("../ublkb{id}"), &new)
        .and_then(|()| std::fs::rename(&new, link));
    if made.is_err() {
        // It may be the one that could not be renamed.
        let _ = std::fs::remove_file(&new);
    }
    made.map_err(failed)
}

/// A device at work. Dropping it removes it.
struct Shown {
    control: Control,
    id: u32,
    disk: PathBuf,
    link: Option<PathBuf>,
    threads: Vec<JoinHandle<()>>,
    counts: Arc<Counts>,
    /// Users of a server before us wait for it: not to be removed when taking it over fails.
    is_left: bool,
    is_over: bool,
    /// Every change is made durable before it is answered.
    durable: bool,
    /// See [`Wanted::recover`].
    recover: bool,
}

impl Shown {
    fn new(control: Control, info: &DeviceInfo, is_left: bool) -> Shown {
        Shown {
            control,
            id: info.id,
            disk: format!("/dev/ublkb{}", info.id).into(),
            link: None,
            threads: Vec::new(),
            counts: Arc::default(),
            is_left,
            is_over: false,
            durable: false,
            recover: info.flags & abi::F_USER_RECOVERY != 0,
        }
    }

    /// Starts the queues' threads. The kernel has all entries when it returns.
    fn serve(&mut self, info: &DeviceInfo, way: &Way) -> io::Result<()> {
        let path = PathBuf::from(format!("/dev/ublkc{}", self.id));
        wait_for(&path)?;
        let until = Instant::now() + PATIENCE;
        // Between servers the kernel lets nobody else have it, for a moment.
        let device: File = loop {
            match OpenOptions::new().read(true).write(true).open(&path) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) && Instant::now() < until => {
                    std::thread::sleep(LOOK);
                }
                other => break other.map_err(|e| words(self.id, "cannot be served", &e))?,
            }
        };
        let device = Arc::new(device);
        for queue in 0..info.queues {
            let plan = Plan {
                device: Arc::clone(&device),
                port: Arc::clone(&way.port),
                queue,
                depth: info.depth,
                counts: Arc::clone(&self.counts),
                durable: self.durable,
            };
            let (tell, told) = sync_channel(1);
            let thread = std::thread::Builder::new()
                .name("ublk".into())
                .spawn(move || queue::run(plan, &tell))?;
            self.threads.push(thread);
            let ready = told
                .recv()
                .unwrap_or_else(|_| Err(io::Error::other("its thread ended")));
            ready.map_err(|e| words(self.id, "cannot be served", &e))?;
        }
        Ok(())
    }

    /// Does anybody have the disk mounted, or to himself?
    fn is_in_use(&self) -> bool {
        let holders = std::fs::read_dir(format!("/sys/block/ublkb{}/holders", self.id));
        if holders.is_ok_and(|mut h| h.next().is_some()) {
            return true;
        }
        let mut exclusive = OpenOptions::new();
        exclusive.read(true).custom_flags(libc::O_EXCL);
        exclusive
            .open(&self.disk)
            .is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
    }

    fn remove(&mut self) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        if self.is_left {
            // Its threads end with the process; the next server may have more luck.
            return;
        }
        if let Err(e) = self.control.stop(self.id) {
            tracing::warn!(device = self.id, "{}", words(self.id, "does not stop", &e));
        }
        for thread in self.threads.drain(..) {
            // A panic there was reported already.
            let _ = thread.join();
        }
        if let Err(e) = self.control.delete(self.id) {
            tracing::warn!(
                device = self.id,
                "{}",
                words(self.id, "cannot be removed", &e)
            );
        }
        if let Some(link) = self.link.take() {
            let ours = format!("../ublkb{}", self.id);
            if std::fs::read_link(&link).is_ok_and(|to| to == Path::new(&ours)) {
                // Somebody else may have removed it.
                let _ = std::fs::remove_file(link);
            }
        }
    }
}

impl FrontEnd for Shown {
    fn names(&self) -> Vec<String> {
        vec![format!("ublk:{}", self.disk.display())]
    }

    fn can(&self) -> Can {
        Can {
            fua: true,
            discard: true,
            write_zeroes: true,
            classes: true,
            resize: false,
        }
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
            ("errors", &c.errors),
        ];
        all.map(|(name, n)| (name, n.load(Ordering::Relaxed)))
            .to_vec()
    }

    fn outlives(&self) -> bool {
        self.recover
    }

    /// The kernel's device cannot be closed to new users alone.
    fn refuse_new(&mut self) {}

    fn users(&mut self) -> Option<String> {
        self.is_in_use()
            .then(|| format!("{} is mounted or in use", self.disk.display()))
    }

    fn leave(&mut self) -> Result<(), String> {
        if self.is_in_use() {
            return Err(format!(
                "{} is mounted or in use: unmount it first",
                self.disk.display()
            ));
        }
        self.remove();
        Ok(())
    }

    fn stop(mut self: Box<Self>) {
        self.remove();
    }
}

impl Drop for Shown {
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
    fn where_there_is_no_ublk_it_is_said() {
        if super::super::missing().is_none() {
            eprintln!("skipped: this kernel has ublk");
            return;
        }
        let e = Control::open().err().expect("refused");
        assert!(e.to_string().contains("modprobe ublk_drv"), "{e}");
    }
}
