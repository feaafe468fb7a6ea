//! A block device and all devices below it, as the kernel shows them in `/sys` (Documentation/ABI: sysfs-block, sysfs-block-dm; admin-guide/md).
//!
//! ```text
//! md0 (raid1) ─► dm-0 (integrity) ─► sda1 ─► sda
//!             └► dm-1 (integrity) ─► sdb1 ─► sdb
//! ```
//! Any entry may vanish while it is read, and older kernels have fewer of them. What cannot be read is unknown: an empty text, 0 or `None`.

use super::{device_number, number, read};
use rustix::fs::{major, minor};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Number of devices that are looked at; more are left out, which [`Tree::unread`] says.
const NODES_MAX: usize = 512;
const SECTOR: u64 = 512;

/// A block device and all devices below it. The first node is the device itself.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// The devices, each once.
    pub nodes: Vec<Node>,
    /// Devices that vanished while they were looked at.
    pub unread: Vec<String>,
}

/// One block device.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its name below `/dev`.
    pub name: String,
    /// What makes it.
    pub kind: Kind,
    /// Its size, bytes.
    pub bytes: u64,
    /// First byte of a partition on its disk.
    pub start: u64,
    /// Bytes by which its first block is off the granularity of what is below; -1: it cannot be aligned.
    pub misaligned: i64,
    /// `write back` if it has a volatile cache that it must be told to flush.
    pub write_cache: String,
    /// `none`, `host-aware` or `host-managed`.
    pub zoned: String,
    /// Whether it is a rotating disk.
    pub rotates: bool,
    /// Bytes that it reads and writes at once.
    pub physical: u64,
    /// Bytes of the requests that suit it best: the data of a stripe; 0: all are alike.
    pub optimal: u64,
    /// Most bytes of a discard; 0: it takes none. `None`: unknown.
    pub discard_max: Option<u64>,
    /// Its place among the buses, as a path.
    pub bus: String,
    /// What names the drive: its serial number or world-wide name, else the device's number.
    pub identity: String,
    /// The devices that it is made of, as places in the list of nodes.
    pub below: Vec<usize>,
}

/// What makes a block device.
#[derive(Clone, Debug, Default)]
pub enum Kind {
    /// A drive, or something of which no more is known.
    #[default]
    Drive,
    /// A partition of the one device below it.
    Partition,
    /// An array of md.
    Array(Array),
    /// A device of the device mapper.
    Mapped {
        /// Its name.
        name: String,
        /// Its UUID, which begins with the name of the program that made it.
        uuid: String,
    },
}

/// An array of md.
#[derive(Clone, Debug, Default)]
pub struct Array {
    /// `raid1`, `raid6`, `linear` and so on.
    pub level: String,
    /// Number of devices that it should have.
    pub disks: u64,
    /// Number of devices that it lacks.
    pub degraded: u64,
    /// `clean`, `active`, `broken` and so on.
    pub state: String,
    /// `idle`, `recover`, `resync`, `check` and so on.
    pub action: String,
    /// Sectors that this has done, of all.
    pub done: Option<(u64, u64)>,
    /// How it becomes consistent after a crash: `bitmap`, `resync`, `journal`, `ppl`.
    pub consistency: String,
    /// Bytes of a chunk.
    pub chunk: u64,
    /// What `raid10` needs to know how many copies there are.
    pub layout: u64,
    /// Sectors that differed at the last check; 0 if the last action was another one.
    pub differing: u64,
    /// Its devices.
    pub legs: Vec<Leg>,
}

/// A device of an array.
#[derive(Clone, Debug, Default)]
pub struct Leg {
    /// Its name below `/dev`.
    pub name: String,
    /// Its place in the list of nodes, unless it is gone.
    pub node: Option<usize>,
    /// `in_sync`, `faulty`, `spare` and other words, with commas.
    pub state: String,
    /// Whether md remembers bad blocks of it.
    pub has_bad_blocks: bool,
}

impl Leg {
    /// Whether its state has this word.
    pub fn has(&self, word: &str) -> bool {
        self.state.split(',').any(|w| w == word)
    }
}

impl Array {
    /// Number of devices that may fail at worst without a loss of data, if none is lacking.
    pub fn spares(&self) -> u64 {
        match self.level.as_str() {
            "raid1" => self.disks.saturating_sub(1),
            "raid4" | "raid5" => 1,
            "raid6" => 2,
            // The product of near and far copies.
            "raid10" => ((self.layout & 255) * ((self.layout >> 8) & 255)).saturating_sub(1),
            _ => 0,
        }
    }
}

impl Node {
    /// The UUID of a device of the device mapper, else an empty text.
    pub fn uuid(&self) -> &str {
        match &self.kind {
            Kind::Mapped { uuid, .. } => uuid,
            _ => "",
        }
    }

    /// Its name for people and commands: `/dev/mapper/NAME` for a device of the device mapper.
    pub fn path(&self) -> String {
        match &self.kind {
            Kind::Mapped { name, .. } if !name.is_empty() => format!("/dev/mapper/{name}"),
            _ => format!("/dev/{}", self.name),
        }
    }

    /// The directory `queue` for people and commands.
    pub fn queue(&self) -> String {
        format!("/sys/block/{}/queue", self.name.replace('/', "!"))
    }

    /// Whether it is a device of cryptsetup that encrypts.
    pub fn is_crypt(&self) -> bool {
        let made = self.uuid().strip_prefix("CRYPT-");
        made.is_some_and(|m| {
            !m.starts_with("INTEGRITY") && !m.starts_with("VERITY") && !m.starts_with("SUBDEV")
        })
    }
}

fn text(path: &Path) -> String {
    read(path).unwrap_or_default()
}

fn figure(path: &Path) -> u64 {
    number(path).unwrap_or(0)
}

/// Names in `/sys` have `!` in the place of `/`.
fn in_dev(name: &str) -> String {
    name.replace('!', "/")
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

impl Tree {
    /// The device at `path`; `/sys` is below `root`. `None` if it is no block device, or `/sys` does not have it.
    pub fn of(path: &Path, root: &Path) -> Option<Tree> {
        let meta = fs::metadata(path).ok()?;
        let own = meta.rdev();
        let is_block = meta.file_type().is_block_device();
        is_block.then(|| Tree::of_number(own, root))?
    }

    /// As [`Tree::of`], of a device's number.
    pub fn of_number(device: u64, root: &Path) -> Option<Tree> {
        let own = root.join(format!("sys/dev/block/{}:{}", major(device), minor(device)));
        let own = own.canonicalize().ok()?;
        let mut reader = Reader::default();
        reader.add(&own)?;
        // Each device is looked at once, so a loop of devices ends.
        while let Some((place, dir)) = reader.left.pop() {
            reader.look_below(place, &dir);
        }
        Some(reader.tree)
    }

    /// The nodes below the one at `place`, each once, and itself.
    pub fn within(&self, place: usize) -> BTreeSet<usize> {
        let (mut seen, mut left) = (BTreeSet::new(), vec![place]);
        while let Some(at) = left.pop() {
            if seen.insert(at) {
                left.extend(self.nodes.get(at).into_iter().flat_map(|n| &n.below));
            }
        }
        seen
    }

    /// The drives below the node at `place`, by what names them. Paths of one drive (multipath) are one drive.
    pub fn drives(&self, place: usize) -> BTreeMap<&str, &Node> {
        let all = self.within(place);
        let nodes = all.iter().filter_map(|&at| self.nodes.get(at));
        let ends = nodes.filter(|n| n.below.is_empty());
        // The path that comes first stands for the drive.
        ends.rev().map(|n| (n.identity.as_str(), n)).collect()
    }
}

/// A tree that is being read.
#[derive(Default)]
struct Reader {
    tree: Tree,
    places: BTreeMap<PathBuf, usize>,
    left: Vec<(usize, PathBuf)>,
}

impl Reader {
    /// The place of the device with this directory, which is looked at later if it is new.
    fn add(&mut self, dir: &Path) -> Option<usize> {
        if let Some(&place) = self.places.get(dir) {
            return Some(place);
        }
        let place = self.tree.nodes.len();
        let Some(node) = node(dir).filter(|_| place < NODES_MAX) else {
            self.tree.unread.push(in_dev(&file_name(dir)));
            return None;
        };
        self.tree.nodes.push(node);
        self.places.insert(dir.to_owned(), place);
        self.left.push((place, dir.to_owned()));
        Some(place)
    }

    fn look_below(&mut self, place: usize, dir: &Path) {
        let mut below = Vec::new();
        if dir.join("partition").exists() {
            below.extend(dir.parent().and_then(|disk| self.add(disk)));
        }
        for entry in sorted(&dir.join("slaves"), "") {
            match entry.canonicalize() {
                Ok(slave) => below.extend(self.add(&slave)),
                Err(_) => self.tree.unread.push(in_dev(&file_name(&entry))),
            }
        }
        let legs: Vec<Leg> = sorted(&dir.join("md"), "dev-")
            .iter()
            .map(|leg| Leg {
                name: in_dev(file_name(leg).trim_start_matches("dev-")),
                node: leg
                    .join("block")
                    .canonicalize()
                    .ok()
                    .and_then(|d| self.add(&d)),
                state: text(&leg.join("state")),
                has_bad_blocks: !text(&leg.join("bad_blocks")).is_empty(),
            })
            .collect();
        let Some(node) = self.tree.nodes.get_mut(place) else {
            return;
        };
        node.below = below;
        if let Kind::Array(array) = &mut node.kind {
            array.legs = legs;
        }
    }
}

/// The entries of a directory whose names begin with `head`, in the order of their names.
fn sorted(dir: &Path, head: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = all.map(|e| e.path()).collect();
    all.retain(|p| file_name(p).starts_with(head));
    all.sort();
    all
}

/// The device with this directory, without what is below it.
fn node(dir: &Path) -> Option<Node> {
    let device = device_number(&read(&dir.join("dev"))?)?;
    let is_partition = dir.join("partition").exists();
    // A partition has the queue of its disk.
    let disk = dir.parent().filter(|_| is_partition).unwrap_or(dir);
    let queue = disk.join("queue");
    let bus = disk.display().to_string();
    Some(Node {
        name: in_dev(&file_name(dir)),
        kind: kind(dir, is_partition),
        bytes: figure(&dir.join("size")) * SECTOR,
        start: figure(&dir.join("start")) * SECTOR,
        misaligned: text(&dir.join("alignment_offset")).parse().unwrap_or(0),
        write_cache: text(&queue.join("write_cache")),
        zoned: text(&queue.join("zoned")),
        rotates: figure(&queue.join("rotational")) == 1,
        physical: figure(&queue.join("physical_block_size")),
        optimal: figure(&queue.join("optimal_io_size")),
        discard_max: number(&queue.join("discard_max_bytes")),
        identity: named(disk, &bus).unwrap_or_else(|| device.to_string()),
        bus,
        below: Vec::new(),
    })
}

/// The name that a drive has of itself, so that two ways to it, or two namespaces of it, are one drive.
fn named(disk: &Path, bus: &str) -> Option<String> {
    // Adapters of USB may state the same number for every drive.
    if bus.contains("/usb") {
        return None;
    }
    let model = text(&disk.join("device/model"));
    let serial = text(&disk.join("device/serial"));
    let all = [
        format!("{model} {serial}"),
        text(&disk.join("device/wwid")),
        text(&disk.join("wwid")),
    ];
    let named = [serial.as_str(), &all[1], &all[2]];
    let is_name = |s: &str| {
        let mut all = s.chars().filter(|c| c.is_alphanumeric());
        let first = all.next();
        // Virtual drives have no number, or zeros.
        s.len() >= 4 && all.any(|c| Some(c) != first)
    };
    let found = named.iter().position(|s| is_name(s));
    found.and_then(|at| all.into_iter().nth(at))
}

fn kind(dir: &Path, is_partition: bool) -> Kind {
    if is_partition {
        return Kind::Partition;
    }
    if dir.join("dm").exists() {
        return Kind::Mapped {
            name: text(&dir.join("dm/name")),
            uuid: text(&dir.join("dm/uuid")),
        };
    }
    let md = dir.join("md");
    if !md.exists() {
        return Kind::Drive;
    }
    let done = text(&md.join("sync_completed"));
    let done = done.split_once('/');
    let last = text(&md.join("last_sync_action"));
    let policy = text(&md.join("consistency_policy"));
    // Kernels before 4.12 tell only where the bitmap is.
    let bitmap = match text(&md.join("bitmap/location")).as_str() {
        "" => "",
        "none" => "resync",
        _ => "bitmap",
    };
    Kind::Array(Array {
        level: text(&md.join("level")),
        disks: figure(&md.join("raid_disks")),
        degraded: figure(&md.join("degraded")),
        state: text(&md.join("array_state")),
        action: text(&md.join("sync_action")),
        done: done.and_then(|(n, all)| Some((n.trim().parse().ok()?, all.trim().parse().ok()?))),
        consistency: if policy.is_empty() {
            bitmap.to_owned()
        } else {
            policy
        },
        chunk: figure(&md.join("chunk_size")),
        layout: figure(&md.join("layout")),
        differing: if last == "check" {
            figure(&md.join("mismatch_cnt"))
        } else {
            0
        },
        legs: Vec::new(),
    })
}
