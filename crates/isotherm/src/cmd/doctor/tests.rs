//! Trees of `/sys` as kernels show them (6.1 and 6.12), and what is said of them.

mod boot;
mod members;

use super::*;
use std::fs;
use std::os::unix::fs::symlink;

/// The findings as `level: what`.
pub(super) fn words(found: &[Finding]) -> String {
    let all: Vec<String> = (found.iter())
        .map(|f| format!("{}: {}", isotherm_answers::word(f.level), f.what))
        .collect();
    all.join("\n")
}

/// A root directory with `/sys` and `/etc`.
struct Root(tempfile::TempDir);

/// Drives that take discards and have a cache.
const SSD: &str = "queue/write_cache=write~back queue/discard_max_bytes=2147450880 queue/physical_block_size=512 queue/rotational=0";
/// What an array of two devices shows when it is well.
const MIRROR: &str = "md/level=raid1 md/raid_disks=2 md/degraded=0 md/array_state=clean md/sync_action=idle md/sync_completed=none md/consistency_policy=bitmap md/mismatch_cnt=0 md/chunk_size=0 md/layout=0 queue/write_cache=write~back queue/discard_max_bytes=2147450880 queue/optimal_io_size=0";

impl Root {
    fn new() -> Root {
        Root(tempfile::tempdir().expect("a directory"))
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let at = self.at(path);
        fs::create_dir_all(at.parent().expect("a directory")).expect("made");
        fs::write(at, text).expect("written");
    }

    /// A device at `dir` below `sys/devices`, made of `slaves`, with files (`~` is a space).
    fn device(&self, dir: &str, number: &str, slaves: &[&str], files: &str) -> &Root {
        let own = format!("sys/devices/{dir}");
        self.write(&format!("{own}/dev"), &format!("{number}\n"));
        for file in files.split_whitespace() {
            let (name, text) = file.split_once('=').expect("NAME=TEXT");
            self.write(
                &format!("{own}/{name}"),
                &format!("{}\n", text.replace('~', " ")),
            );
        }
        let link = self.at(&format!("sys/dev/block/{number}"));
        fs::create_dir_all(link.parent().expect("a directory")).expect("made");
        symlink(self.at(&own), link).expect("linked");
        for slave in slaves {
            let name = slave.rsplit('/').next().expect("a name");
            let link = self.at(&format!("{own}/slaves/{name}"));
            fs::create_dir_all(link.parent().expect("a directory")).expect("made");
            symlink(self.at(&format!("sys/devices/{slave}")), link).expect("linked");
            if files.contains("md/level") {
                let leg = format!("{own}/md/dev-{name}");
                self.write(&format!("{leg}/state"), "in_sync\n");
                self.write(&format!("{leg}/bad_blocks"), "");
                symlink(
                    self.at(&format!("sys/devices/{slave}")),
                    self.at(&format!("{leg}/block")),
                )
                .expect("linked");
            }
        }
        self
    }

    /// Two SSDs, and a mirror of them with other files than usual.
    fn mirror(&self, files: &str) -> &Root {
        self.device("pci0/ata1/block/sda", "8:0", &[], SSD);
        self.device("pci0/ata2/block/sdb", "8:16", &[], SSD);
        let both = ["pci0/ata1/block/sda", "pci0/ata2/block/sdb"];
        self.device(
            "virtual/block/md0",
            "9:0",
            &both,
            &format!("size=204800 {MIRROR} {files}"),
        )
    }

    fn tree(&self, major: u32, minor: u32) -> Tree {
        Tree::of_number(rustix::fs::makedev(major, minor), self.0.path()).expect("a tree")
    }

    fn said(&self, major: u32, minor: u32) -> String {
        words(&self.found(major, minor, true))
    }

    fn found(&self, major: u32, minor: u32, is_flash: bool) -> Vec<Finding> {
        let tree = self.tree(major, minor);
        let stack = Stack {
            name: "m",
            tree: &tree,
            is_flash,
            extent: 65536,
        };
        stack.findings()
    }

    fn boot(&self, major: u32, minor: u32) -> (Vec<Finding>, Vec<String>) {
        let (tree, mut unknown) = (self.tree(major, minor), Vec::new());
        let boot = Boot {
            name: "m",
            volume: "v",
            tree: &tree,
            sleeps: true,
            root: self.0.path(),
        };
        (boot.findings(&mut unknown), unknown)
    }

    fn copies(&self, major: u32, minor: u32) -> bool {
        let tree = self.tree(major, minor);
        let stack = Stack {
            name: "m",
            tree: &tree,
            is_flash: true,
            extent: 65536,
        };
        stack.has_two_copies()
    }
}

#[test]
fn a_mirror_that_is_well_needs_nothing() {
    let root = Root::new();
    root.mirror("");
    assert_eq!(root.said(9, 0), "");
    assert!(root.copies(9, 0) && !root.copies(8, 0));
    let tree = root.tree(9, 0);
    let names: Vec<String> = tree.drives(0).values().map(|d| d.path()).collect();
    assert_eq!(names, ["/dev/sda", "/dev/sdb"]);
}

#[test]
fn arrays_that_lack_devices_are_told_apart() {
    let root = Root::new();
    root.mirror("md/degraded=1");
    root.write("sys/devices/virtual/block/md0/md/dev-sdb/state", "faulty\n");
    let found = root.found(9, 0, true);
    assert_eq!(
        words(&found),
        "wrong: its array /dev/md0 (raid1) has 1 of 2 devices, and the next fault costs data"
    );
    assert_eq!(
        found[0].todo,
        "mdadm /dev/md0 --remove /dev/sdb; mdadm /dev/md0 --add NEW"
    );
    assert!(!root.copies(9, 0));
    // The device is gone: its link leads nowhere.
    fs::remove_dir_all(root.at("sys/devices/pci0/ata2")).expect("pulled out");
    let found = root.found(9, 0, true);
    assert_eq!(
        found[0].todo,
        "mdadm /dev/md0 --remove detached; mdadm /dev/md0 --add NEW"
    );
    assert_eq!(root.tree(9, 0).unread, ["sdb"]);

    let rebuilt = Root::new();
    rebuilt.mirror("md/degraded=1 md/sync_action=recover md/sync_completed=1024~/~4096");
    assert_eq!(
        rebuilt.said(9, 0),
        "risk: its array /dev/md0 (raid1) has 1 of 2 devices, and is being rebuilt (25 % done)"
    );
    let six = Root::new();
    six.mirror("md/level=raid6 md/raid_disks=6 md/degraded=1");
    assert!(
        six.said(9, 0).starts_with(
            "risk: its array /dev/md0 (raid6) has 5 of 6 devices, and survives 1 more"
        )
    );
    let ten = Root::new();
    ten.mirror("md/level=raid10 md/raid_disks=4 md/degraded=1 md/layout=258");
    assert!(ten.said(9, 0).starts_with("wrong:"), "{}", ten.said(9, 0));
    let stopped = Root::new();
    stopped.mirror("md/array_state=inactive");
    assert!(
        stopped
            .said(9, 0)
            .starts_with("wrong: its array /dev/md0 (raid1) is inactive")
    );
    let fixed = Root::new();
    fixed.mirror("md/array_state=readonly");
    assert!(
        fixed
            .said(9, 0)
            .starts_with("wrong: its array /dev/md0 is read-only")
    );
}

#[test]
fn copies_that_may_differ_are_named() {
    let root = Root::new();
    root.mirror("md/consistency_policy=resync");
    assert!(
        root.said(9, 0)
            .starts_with("note: its array /dev/md0 has no write-intent bitmap")
    );
    let large = Root::new();
    large.mirror("md/consistency_policy=resync");
    large.write("sys/devices/virtual/block/md0/size", "400000000\n");
    assert!(
        large
            .said(9, 0)
            .starts_with("risk: its array /dev/md0 has no write-intent bitmap")
    );
    // A kernel before 4.12, and an array of level 0, which can have none.
    let old = Root::new();
    old.mirror("md/consistency_policy= md/bitmap/location=none");
    assert!(old.said(9, 0).contains("no write-intent bitmap"));
    let stripes = Root::new();
    stripes.mirror("md/level=raid0 md/consistency_policy=none");
    assert_eq!(stripes.said(9, 0), "");
    assert!(!stripes.copies(9, 0));

    let differ = Root::new();
    differ.mirror("md/mismatch_cnt=128 md/last_sync_action=check md/sync_action=resync md/sync_completed=none");
    let said = differ.said(9, 0);
    assert!(
        said.contains("risk: the last check of its array /dev/md0 found 128 sectors")
            && said.contains("after a crash: until"),
        "{said}"
    );
    let mended = Root::new();
    mended.mirror("md/mismatch_cnt=128 md/last_sync_action=repair");
    assert_eq!(mended.said(9, 0), "");
    let bad = Root::new();
    bad.mirror("");
    bad.write(
        "sys/devices/virtual/block/md0/md/dev-sda/bad_blocks",
        "2048 8\n",
    );
    assert_eq!(
        bad.said(9, 0),
        "risk: its array /dev/md0 cannot read parts of sda any more"
    );
}

#[test]
fn copies_on_one_drive_are_no_copies() {
    let root = Root::new();
    root.device("pci0/ata1/block/sda", "8:0", &[], SSD);
    root.device(
        "pci0/ata1/block/sda/sda1",
        "8:1",
        &[],
        "partition=1 start=2048 size=4096",
    );
    root.device(
        "pci0/ata1/block/sda/sda2",
        "8:2",
        &[],
        "partition=2 start=8192 size=4096",
    );
    let both = ["pci0/ata1/block/sda/sda1", "pci0/ata1/block/sda/sda2"];
    root.device("virtual/block/md0", "9:0", &both, MIRROR);
    let said = root.said(9, 0);
    assert_eq!(
        said,
        "risk: two devices of /dev/md0 are on one drive (/dev/sda): one fault takes both, so there is no second copy"
    );
    assert!(!root.copies(9, 0));
    // A spare and a journal there are none of the copies.
    for state in ["spare\n", "in_sync,journal\n"] {
        root.write("sys/devices/virtual/block/md0/md/dev-sda2/state", state);
        assert_eq!(root.said(9, 0), "");
    }
    // Two namespaces of one NVMe drive; and two drives behind USB, whose adapters state the same number.
    let nvme = Root::new();
    let serial = format!("{SSD} device/serial=S4EWNX0R device/model=Example");
    nvme.device("pci0/nvme/nvme0/nvme0n1", "259:0", &[], &serial);
    nvme.device("pci0/nvme/nvme0/nvme0n2", "259:1", &[], &serial);
    nvme.device(
        "virtual/block/md0",
        "9:0",
        &["pci0/nvme/nvme0/nvme0n1", "pci0/nvme/nvme0/nvme0n2"],
        MIRROR,
    );
    assert!(nvme.said(9, 0).contains("are on one drive"));
    let usb = Root::new();
    let same = format!("{SSD} device/serial=0123456789AB");
    usb.device("pci0/usb1/block/sda", "8:0", &[], &same);
    usb.device("pci0/usb1/block/sdb", "8:16", &[], &same);
    usb.device(
        "virtual/block/md0",
        "9:0",
        &["pci0/usb1/block/sda", "pci0/usb1/block/sdb"],
        MIRROR,
    );
    assert_eq!(usb.said(9, 0), "");
    // Two paths of one drive (multipath) are one drive, and are no copies.
    let paths = Root::new();
    let wwid = format!("{SSD} device/wwid=naa.5000c500a1b2c3d4");
    paths.device("pci0/ata1/block/sda", "8:0", &[], &wwid);
    paths.device("pci0/ata2/block/sdb", "8:16", &[], &wwid);
    let both = ["pci0/ata1/block/sda", "pci0/ata2/block/sdb"];
    paths.device(
        "virtual/block/dm-0",
        "252:0",
        &both,
        "dm/name=mpatha dm/uuid=mpath-35000c500a1b2c3d4",
    );
    assert_eq!(paths.tree(252, 0).drives(0).len(), 1);
    assert!(!paths.copies(252, 0));
}

#[test]
fn logical_volumes_are_followed() {
    let root = Root::new();
    let lv = |name: &str| {
        format!("dm/name={name} dm/uuid=LVM-PYcirgIYUKKjTQJ6 queue/discard_max_bytes=4096")
    };
    root.device("pci0/block/cciss!c0d0", "104:0", &[], SSD);
    root.device("pci0/ata2/block/sdb", "8:16", &[], SSD);
    root.device(
        "virtual/block/dm-1",
        "252:1",
        &["pci0/block/cciss!c0d0"],
        &lv("vg-a--b_rimage_0"),
    );
    root.device(
        "virtual/block/dm-2",
        "252:2",
        &["pci0/ata2/block/sdb"],
        &lv("vg-a--b_rimage_1"),
    );
    root.device(
        "virtual/block/dm-3",
        "252:3",
        &["virtual/block/dm-1", "virtual/block/dm-2"],
        &lv("vg-a--b"),
    );
    assert_eq!(root.said(252, 3), "");
    let tree = root.tree(252, 3);
    let names: Vec<String> = tree.drives(0).values().map(|d| d.path()).collect();
    assert!(names.contains(&"/dev/cciss/c0d0".to_owned()), "{names:?}");
    let stack = Stack {
        name: "m",
        tree: &tree,
        is_flash: true,
        extent: 65536,
    };
    assert!(stack.has_two_copies());
    assert!(
        stack.unknown()[0]
            .contains("lvs -o name,lv_health_status,copy_percent /dev/mapper/vg-a--b")
    );
    // A disk is gone: LVM has a device of errors in its place.
    let gone = Root::new();
    gone.device(
        "virtual/block/dm-9",
        "252:9",
        &[],
        &lv("vg-a_rimage_1-missing_0_0"),
    );
    gone.device(
        "virtual/block/dm-3",
        "252:3",
        &["virtual/block/dm-9"],
        &lv("vg-a"),
    );
    assert!(
        gone.said(252, 3)
            .starts_with("wrong: its logical volume /dev/mapper/vg-a lacks 1 of its devices")
    );
    assert!(!gone.copies(252, 3));
}

#[test]
fn flushes_and_discards_that_end_on_the_way_are_named() {
    let root = Root::new();
    root.mirror("");
    let luks = "dm/name=fast dm/uuid=CRYPT-LUKS2-f6a960c7ec1343d9b099a34476f36087-fast queue/discard_max_bytes=0 queue/write_cache=write~through";
    root.device("virtual/block/dm-0", "252:0", &["virtual/block/md0"], luks);
    let found = root.found(252, 0, true);
    let said = words(&found);
    assert!(
        said.starts_with(
            "wrong: /dev/mapper/fast says that it has no write cache, and /dev/md0 below it has one"
        ),
        "{said}"
    );
    assert!(
        said.contains("note: /dev/mapper/fast passes on no discards"),
        "{said}"
    );
    assert_eq!(
        found[0].todo,
        "echo write back | sudo tee /sys/block/dm-0/queue/write_cache"
    );
    assert_eq!(
        found[1].todo,
        "cryptsetup refresh --allow-discards --persistent fast"
    );
    assert!(root.copies(252, 0));
    // A disk has nothing to discard.
    assert_eq!(root.found(252, 0, false).len(), 1);
}

#[test]
fn extents_that_do_not_fit_stripes_are_named() {
    let raid5 = |stripe: &str, more: &str| {
        let root = Root::new();
        let parity = format!(
            "md/level=raid5 md/raid_disks=3 md/chunk_size=65536 queue/optimal_io_size={stripe} {more}"
        );
        root.mirror(&parity);
        root.device(
            "virtual/block/md0/md0p1",
            "259:7",
            &[],
            "partition=1 start=2048 size=4096",
        );
        root
    };
    assert_eq!(raid5("131072", "").said(9, 0), "");
    assert_eq!(raid5("131072", "").said(259, 7), "");
    let odd = raid5("98304", "").found(9, 0, false);
    assert!(words(&odd).starts_with("note: an extent (64 KiB) is neither a part nor a multiple of a stripe of its array /dev/md0 (96 KiB)"));
    assert_eq!(
        odd[0].todo,
        "at the next `isotherm create`, --extent 32K or less"
    );
    let cut = raid5("2097152", "").said(259, 7);
    assert!(
        cut.starts_with("risk: does not begin at a stripe of its array /dev/md0 (2048 KiB)"),
        "{cut}"
    );
    assert!(
        raid5("131072", "alignment_offset=-1")
            .said(9, 0)
            .contains("does not begin at a stripe")
    );
}

/// Whatever is below, it is looked at once, and what is absent is unknown.
#[test]
fn loops_and_gaps_end_the_search() {
    let root = Root::new();
    let dm = "dm/name=a dm/uuid=";
    root.device("virtual/block/dm-0", "252:0", &["virtual/block/dm-1"], dm);
    root.device(
        "virtual/block/dm-1",
        "252:1",
        &["virtual/block/dm-0", "virtual/block/none"],
        dm,
    );
    let tree = root.tree(252, 0);
    assert_eq!(
        (tree.nodes.len(), tree.unread.as_slice()),
        (2, ["none".to_owned()].as_slice())
    );
    assert!(tree.drives(0).is_empty() && !root.copies(252, 0));
    assert_eq!(root.said(252, 0), "");
    assert!(Tree::of_number(rustix::fs::makedev(1, 2), root.0.path()).is_none());
    assert!(Tree::of(&root.at("sys"), root.0.path()).is_none());
    // More devices than anybody has.
    let many = Root::new();
    let names: Vec<String> = (0..600).map(|n| format!("virtual/block/d{n}")).collect();
    for (n, name) in names.iter().enumerate() {
        many.device(name, &format!("7:{n}"), &[], "");
    }
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    many.device("virtual/block/dm-0", "252:0", &all, dm);
    let tree = many.tree(252, 0);
    assert_eq!((tree.nodes.len(), tree.unread.len()), (512, 89));
}
