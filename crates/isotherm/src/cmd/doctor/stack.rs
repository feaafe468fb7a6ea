//! What is wrong with the devices below a member: arrays of md, logical volumes, encryption, checksums (dm-integrity).

use isotherm_live::stack::tree::{Array, Kind, Leg, Node, Tree};

use super::{Finding, Level};

/// mdadm gives arrays of smaller devices no bitmap by itself, because they are compared in minutes.
const LARGE: u64 = 100_000_000_000;
/// Levels that are followed in the search for a second copy.
const DEPTH_MAX: usize = 16;

/// A member with the devices below it.
pub(super) struct Stack<'a> {
    /// The member's path.
    pub name: &'a str,
    pub tree: &'a Tree,
    pub is_flash: bool,
    /// Bytes of an extent.
    pub extent: u64,
}

impl Stack<'_> {
    /// Everything that is wrong or at risk.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        for (place, node) in self.tree.nodes.iter().enumerate() {
            if let Kind::Array(array) = &node.kind {
                found.extend(self.array(node, array));
                found.extend(self.consistency(node, array));
            }
            found.extend(self.missing_images(node));
            found.extend(self.one_drive(place));
            found.extend(self.flushes(node));
            if self.is_flash {
                found.extend(self.discards(node));
            }
        }
        found.extend(self.alignment());
        found
    }

    fn say(&self, level: Level, what: String, todo: impl Into<String>) -> Finding {
        Finding::new(level, self.name, what, todo)
    }

    fn below<'n>(&'n self, node: &'n Node) -> impl Iterator<Item = &'n Node> {
        node.below.iter().filter_map(|&at| self.tree.nodes.get(at))
    }

    /// The device of an array for mdadm: one that is gone has no name any more.
    fn leg(&self, leg: &Leg) -> String {
        let node = leg.node.and_then(|at| self.tree.nodes.get(at));
        node.map_or_else(|| "detached".to_owned(), Node::path)
    }

    /// Whether the array is whole and takes writes.
    fn array(&self, node: &Node, array: &Array) -> Vec<Finding> {
        let (path, level) = (node.path(), &array.level);
        let mut found = Vec::new();
        match array.state.as_str() {
            "broken" | "inactive" | "clear" => {
                let what = format!("its array {path} ({level}) is {}", array.state);
                let todo = format!(
                    "`mdadm --detail {path}` names what is missing: attach it, then `mdadm --run {path}`"
                );
                found.push(self.say(Level::Wrong, what, todo));
            }
            "readonly" => {
                let what = format!("its array {path} is read-only: each write fails");
                found.push(self.say(Level::Wrong, what, format!("mdadm --readwrite {path}")));
            }
            _ => {}
        }
        let faulty = array.legs.iter().filter(|l| l.has("faulty"));
        let faulty: Vec<&Leg> = faulty.collect();
        if array.degraded > 0 {
            found.push(self.degraded(&path, array, &faulty));
        } else if let Some(leg) = faulty.first() {
            let what = format!(
                "its array {path} is whole, and has a failed device: {}",
                leg.name
            );
            found.push(self.say(
                Level::Note,
                what,
                format!("mdadm {path} --remove {}", self.leg(leg)),
            ));
        }
        if array.action == "resync" && array.degraded == 0 {
            let what = format!(
                "its array {path} is compared and made consistent after a crash{}: until then one more fault may cost data",
                done(array)
            );
            found.push(self.say(Level::Risk, what, "cat /proc/mdstat says when it ends"));
        }
        for leg in array.legs.iter().filter(|l| l.has_bad_blocks) {
            let what = format!(
                "its array {path} cannot read parts of {} any more",
                leg.name
            );
            let todo = format!(
                "mdadm {path} --add NEW; mdadm {path} --replace {} --with NEW",
                self.leg(leg)
            );
            found.push(self.say(Level::Risk, what, todo));
        }
        found
    }

    fn degraded(&self, path: &str, array: &Array, faulty: &[&Leg]) -> Finding {
        let rebuilt = array.action == "recover";
        let left = array.spares().saturating_sub(array.degraded);
        let now = match (rebuilt, left) {
            (true, _) => format!("and is being rebuilt{}", done(array)),
            (false, 0) => "and the next fault costs data".to_owned(),
            (false, n) => format!("and survives {n} more"),
        };
        let whole = array.disks.saturating_sub(array.degraded);
        let what = format!(
            "its array {path} ({}) has {whole} of {} devices, {now}",
            array.level, array.disks
        );
        let removed: Vec<String> = faulty
            .iter()
            .map(|l| format!("mdadm {path} --remove {}; ", self.leg(l)))
            .collect();
        let todo = if rebuilt {
            "cat /proc/mdstat says when it ends".to_owned()
        } else {
            format!("{}mdadm {path} --add NEW", removed.concat())
        };
        let level = if rebuilt || left > 0 {
            Level::Risk
        } else {
            Level::Wrong
        };
        self.say(level, what, todo)
    }

    /// Whether the array's copies agree, and can be made to agree after a crash.
    fn consistency(&self, node: &Node, array: &Array) -> Vec<Finding> {
        let path = node.path();
        let mut found = Vec::new();
        if array.spares() > 0 && array.consistency == "resync" {
            let large = node.bytes >= LARGE;
            let what = format!(
                "its array {path} has no write-intent bitmap: after a crash, and after a device that was away, all of it is compared"
            );
            let level = if large { Level::Risk } else { Level::Note };
            found.push(self.say(
                level,
                what,
                format!("mdadm --grow --bitmap=internal {path}"),
            ));
        }
        if array.differing > 0 {
            let what = format!(
                "the last check of its array {path} found {} sectors that differ between its devices",
                array.differing
            );
            let todo = format!(
                "echo repair | sudo tee /sys/block/{}/md/sync_action (with dm-integrity below, the damaged copy is the one that is written anew)",
                node.name.replace('/', "!")
            );
            found.push(self.say(Level::Risk, what, todo));
        }
        found
    }

    /// A logical volume that was activated without one of its disks: LVM puts a device of errors in its place.
    fn missing_images(&self, node: &Node) -> Option<Finding> {
        let gone = |n: &Node| n.uuid().starts_with("LVM-") && n.path().contains("-missing_");
        let count = self.below(node).filter(|n| gone(n)).count();
        (count > 0).then(|| {
            let what = format!(
                "its logical volume {} lacks {count} of its devices",
                node.path()
            );
            self.say(
                Level::Wrong,
                what,
                "lvconvert --repair VG/LV, then vgreduce --removemissing VG",
            )
        })
    }

    /// Two copies that are lost together.
    fn one_drive(&self, place: usize) -> Option<Finding> {
        let node = self.tree.nodes.get(place)?;
        let legs: Vec<usize> = match &node.kind {
            // A spare and a journal hold no copy.
            Kind::Array(array) if array.spares() > 0 => {
                let holds = |l: &&Leg| l.has("in_sync") && !l.has("journal");
                array
                    .legs
                    .iter()
                    .filter(holds)
                    .filter_map(|l| l.node)
                    .collect()
            }
            _ => self.images(node),
        };
        for (n, &a) in legs.iter().enumerate() {
            let drives = self.tree.drives(a);
            for &b in legs.iter().skip(n + 1) {
                if let Some(same) = self.tree.drives(b).keys().find(|d| drives.contains_key(*d)) {
                    let drive = drives.get(same).map_or_else(String::new, |d| d.path());
                    let what = format!(
                        "two devices of {} are on one drive ({drive}): one fault takes both, so there is no second copy",
                        node.path()
                    );
                    let todo = format!(
                        "give {} a device of another drive (mdadm --add, then --replace; pvmove)",
                        node.path()
                    );
                    return Some(self.say(Level::Risk, what, todo));
                }
            }
        }
        None
    }

    /// The images of a RAID of LVM, as places of nodes.
    fn images(&self, node: &Node) -> Vec<usize> {
        let is_image = |at: &&usize| {
            let image = self.tree.nodes.get(**at);
            image.is_some_and(|n| n.uuid().starts_with("LVM-") && n.path().contains("_rimage_"))
        };
        node.below.iter().filter(is_image).copied().collect()
    }

    /// A cache that nobody empties: the kernel sends no FLUSH to a device that says that it has none.
    fn flushes(&self, node: &Node) -> Option<Finding> {
        let cached = self.below(node).find(|n| n.write_cache == "write back")?;
        (node.write_cache == "write through").then(|| {
            let what = format!(
                "{} says that it has no write cache, and {} below it has one: a FLUSH ends there, and a loss of power takes what was flushed",
                node.path(),
                cached.path()
            );
            let todo = format!("echo write back | sudo tee {}/write_cache", node.queue());
            self.say(Level::Wrong, what, todo)
        })
    }

    /// Where discards end that the drive would take.
    fn discards(&self, node: &Node) -> Option<Finding> {
        let takes = |n: &Node| n.discard_max.is_some_and(|most| most > 0);
        let (ends, there) = (node.discard_max == Some(0), self.below(node).any(takes));
        if !ends || !there {
            return None;
        }
        let path = node.path();
        let name = path.trim_start_matches("/dev/mapper/");
        let todo = match &node.kind {
            Kind::Array(_) => "raid456.devices_handle_discard_safely=Y on the kernel's command line, if its drives read as zeros after a discard".to_owned(),
            _ if node.uuid().starts_with("CRYPT-LUKS2") => format!("cryptsetup refresh --allow-discards --persistent {name}"),
            _ if node.is_crypt() => format!("the option `discard` for {name} in /etc/crypttab"),
            _ if node.uuid().starts_with("CRYPT-INTEGRITY") => format!("the option `allow-discards` for {name} in /etc/integritytab"),
            _ => String::new(),
        };
        let what = format!(
            "{path} passes on no discards: the drive does not learn which blocks are free, and wears more"
        );
        Some(self.say(Level::Note, what, todo))
    }

    /// Whether extents fit the stripes of an array with parity, which reads before it writes a part of a stripe.
    pub(super) fn alignment(&self) -> Option<Finding> {
        let parity = |n: &&Node| match &n.kind {
            Kind::Array(a) => {
                matches!(a.level.as_str(), "raid4" | "raid5" | "raid6") && n.optimal > 0
            }
            _ => false,
        };
        let own = self.tree.nodes.first()?;
        let array = self.tree.nodes.iter().find(parity)?;
        let (stripe, path) = (array.optimal, array.path());
        let cut = matches!(own.kind, Kind::Partition) && !own.start.is_multiple_of(stripe);
        if own.misaligned != 0 || cut {
            let what = format!(
                "does not begin at a stripe of its array {path} ({} KiB): each extent needs parts of two, and each write reads first",
                stripe >> 10
            );
            let todo = format!(
                "make it anew at a multiple of {} KiB (pvcreate --dataalignment, sgdisk --set-alignment) and `isotherm replace` it",
                stripe >> 10
            );
            return Some(self.say(Level::Risk, what, todo));
        }
        let fits = stripe.is_multiple_of(self.extent) || self.extent.is_multiple_of(stripe);
        (!fits).then(|| {
            let what = format!(
                "an extent ({} KiB) is neither a part nor a multiple of a stripe of its array {path} ({} KiB), so writes of whole extents read first",
                self.extent >> 10,
                stripe >> 10
            );
            let fit = 1u64 << stripe.trailing_zeros();
            let todo = format!("at the next `isotherm create`, --extent {}K or less", fit >> 10);
            self.say(Level::Note, what, todo)
        })
    }

    /// What this program cannot see, and who says it.
    pub(super) fn unknown(&self) -> Vec<String> {
        let nodes = self.tree.nodes.iter();
        let raids = nodes.filter(|n| !self.images(n).is_empty());
        let raids = raids.map(|n| {
            let path = n.path();
            format!(
                "{}: whether {path} is whole: lvs -o name,lv_health_status,copy_percent {path}",
                self.name
            )
        });
        let gone = self.tree.unread.iter();
        let gone = gone.map(|n| {
            format!(
                "{}: {n} below it vanished while it was looked at, or is one of too many",
                self.name
            )
        });
        raids.chain(gone).collect()
    }

    /// Whether one drive may fail without a loss of this member's data, as far as the kernel knows.
    pub(super) fn has_two_copies(&self) -> bool {
        self.doubled(0, DEPTH_MAX)
    }

    fn doubled(&self, place: usize, depth: usize) -> bool {
        let Some(node) = self.tree.nodes.get(place).filter(|_| depth > 0) else {
            return false;
        };
        let own = match &node.kind {
            Kind::Array(a) => a.spares() > a.degraded,
            _ => {
                !self.images(node).is_empty()
                    && !self.below(node).any(|n| n.path().contains("-missing_"))
            }
        };
        let all_below = || node.below.iter().all(|&at| self.doubled(at, depth - 1));
        (own && self.one_drive(place).is_none()) || (!node.below.is_empty() && all_below())
    }
}

/// How far the present action is.
fn done(array: &Array) -> String {
    let share = array.done.filter(|d| d.1 > 0);
    share.map_or_else(String::new, |(n, all)| {
        format!(" ({} % done)", n.saturating_mul(100) / all)
    })
}
