//! `create` does not overwrite existing data without `--force`, and leaves nothing of it with `--force`.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};

use common::Place;
use common::loop_device::LoopDevice;

const MIB: u64 = 1 << 20;

/// Byte strings and their offsets.
type Parts = Vec<(u64, Vec<u8>)>;

/// Runs a program for at most 20 s. Returns `None` if it is not installed.
fn tool(place: &Place, call: &[&str]) -> Option<Output> {
    // Some programs are in directories that are only on root's path.
    let path = std::env::var("PATH").unwrap_or_default();
    let out = Command::new("timeout")
        .args(["--kill-after=1", "20"])
        .args(call)
        .env("PATH", format!("{path}:/usr/sbin:/sbin"))
        .current_dir(place.path("."))
        .output()
        .expect("coreutils");
    match out.status.code() {
        Some(126 | 127) => {
            println!("skipped: `{}` is not installed", call[0]);
            None
        }
        Some(124 | 137) => {
            println!("skipped: `{}` took longer than 20 s", call.join(" "));
            None
        }
        _ => Some(out),
    }
}

/// As [`tool`], but the program must succeed.
fn made(place: &Place, call: &[&str]) -> bool {
    let Some(out) = tool(place, call) else {
        return false;
    };
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{call:?}: {said}");
    true
}

fn sparse(path: &Path, bytes: u64) -> File {
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .open(path);
    let file = file.expect("made");
    file.set_len(bytes).expect("as long as that");
    file
}

/// The output of `blkid -p` and `file`, without the name.
fn said(place: &Place, name: &str) -> String {
    let mut text = String::new();
    for call in [
        &["blkid", "-p", "-o", "export", name][..],
        &["file", "-k", "-b", name],
    ] {
        if let Some(out) = tool(place, call) {
            text += &String::from_utf8_lossy(&out.stdout);
        }
    }
    text
}

/// The size of the data in a sparse file, and a checksum of it, which reveals a write.
fn fingerprint(path: &Path) -> (u64, u64) {
    let file = File::open(path).expect("opened");
    let bytes = file.metadata().expect("looked at").len();
    let mut sum = bytes;
    let (mut piece, zeros) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    while at < bytes {
        let n = file.read_at(&mut piece, at).expect("read");
        if piece[..n] != zeros[..n] {
            for page in piece[..n].chunks(4096).filter(|p| **p != zeros[..p.len()]) {
                let own = page
                    .iter()
                    .fold(at, |s, &b| (s ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
                sum = sum.rotate_left(7) ^ own;
            }
        }
        at += n as u64;
    }
    (bytes, sum)
}

/// `create` must refuse by name and place, and change nothing; with --force, nothing of the old contents may be left.
fn refused_then_wiped(place: &Place, name: &str, what: &str) {
    let image = place.path(name);
    let before = fingerprint(&image);
    let why = place.fails(&format!("create {name}-v --slow {name} --policy linear"));
    assert!(
        why.contains(what)
            && why.contains("--force")
            && why.contains(name)
            && why.lines().count() == 1,
        "{name} holds {what}, but: {why}"
    );
    assert_eq!(
        fingerprint(&image),
        before,
        "{name}: refused, yet written to"
    );
    assert!(!place.path(&format!("{name}-v.toml")).exists());
    place.ok(&format!(
        "create {name}-v --slow {name} --policy linear --force"
    ));
    // A new member of the same size, for comparison.
    sparse(&place.path("fresh"), before.0);
    place.ok("create fresh-v --slow fresh --policy linear");
    assert_eq!(
        said(place, name),
        said(place, "fresh"),
        "{name}: left of {what}"
    );
    for gone in [name, "fresh"] {
        fs::remove_file(place.path(gone)).expect("removed");
        fs::remove_file(place.path(&format!("{gone}-v.toml"))).expect("removed");
    }
}

#[test]
fn what_real_programs_made_is_refused_and_wiped() {
    let place = Place::in_memory();
    for (call, mib, what) in [
        (
            &["mke2fs", "-q", "-F", "-t", "ext2", "i"][..],
            64,
            "an ext2 file system",
        ),
        (
            &["mke2fs", "-q", "-F", "-t", "ext3", "i"],
            64,
            "an ext3 file system",
        ),
        (
            &["mke2fs", "-q", "-F", "-t", "ext4", "i"],
            64,
            "an ext4 file system",
        ),
        (&["mkfs.xfs", "-q", "-f", "i"], 300, "an XFS file system"),
        (&["mkfs.fat", "-F", "16", "i"], 64, "a FAT file system"),
        (&["mkfs.fat", "-F", "32", "i"], 64, "a FAT file system"),
        (&["mkswap", "-q", "i"], 64, "a swap area"),
        (&["sgdisk", "-n", "1:0:0", "i"], 64, "a GPT partition table"),
        (&["mkfs.btrfs", "-q", "-f", "i"], 128, "a btrfs file system"),
        (
            &["mkfs.ntfs", "-q", "-F", "-Q", "i"],
            64,
            "an NTFS file system",
        ),
        (&["mkfs.exfat", "i"], 64, "an exFAT file system"),
        (&["mkfs.f2fs", "-q", "i"], 128, "an F2FS file system"),
    ] {
        sparse(&place.path("i"), mib * MIB);
        if made(&place, call) {
            refused_then_wiped(&place, "i", what);
        }
    }
    // These programs write a file that is longer than it was created, by whole extents.
    let database = "create table t(a); insert into t values(zeroblob(3000000)); vacuum;";
    let lengthened = |name: &str| {
        let file = File::options()
            .write(true)
            .open(place.path(name))
            .expect("opened");
        file.set_len(64 * MIB).expect("longer");
    };
    if made(&place, &["sqlite3", "db", database]) {
        lengthened("db");
        refused_then_wiped(&place, "db", "an SQLite database");
    }
    for (format, what) in [
        ("qcow2", "a qcow2 image"),
        ("vmdk", "a VMDK image"),
        ("vdi", "a VDI image"),
        ("vpc", "a VHD image"),
        ("vhdx", "a VHDX image"),
    ] {
        if made(
            &place,
            &["qemu-img", "create", "-q", "-f", format, "disk", "64M"],
        ) {
            lengthened("disk");
            refused_then_wiped(&place, "disk", what);
        }
    }
}

/// Superblocks of programs that need device mapper, md or a kernel module, byte for byte as those programs write them.
#[test]
fn what_other_kernels_made_is_refused_and_wiped() {
    let place = Place::in_memory();
    let bytes = 64 * MIB;
    let md = |major: u32| [0xa92b_4efc_u32.to_le_bytes(), major.to_le_bytes()].concat();
    let mut luks1 = b"LUKS\xba\xbe\0\x01aes\0".to_vec();
    luks1.resize(592, 0);
    luks1[168..204].copy_from_slice(b"01234567-89ab-cdef-0123-456789abcdef");
    let mbr = [
        &[
            0x80, 1, 1, 0, 0x83, 0xfe, 0xff, 0xff, 0, 8, 0, 0, 0, 0xe8, 1, 0,
        ][..],
        &[0; 48],
        b"\x55\xaa",
    ]
    .concat();
    let bcache = b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
    let uberblocks: Parts = (0..8)
        .flat_map(|n| {
            let at = (128 << 10) + n * 1024;
            [0, 256 << 10, bytes - (512 << 10), bytes - (256 << 10)]
                .map(|l| (l + at, b"\x0c\xb1\xba\0\0\0\0\0\x88\x13".to_vec()))
        })
        .collect();
    let pg: &[u8] = &[
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x40, 0, 0, 0x1f, 0, 0x20, 4, 0x20,
    ];
    let at_end = (bytes / 512 - 16) / 8 * 8 * 512;
    let v = |at: u64, bytes: &[u8]| vec![(at, bytes.to_vec())];
    let luks2 = [
        v(0, b"LUKS\xba\xbe\0\x02"),
        v(0x4000, b"SKUL\xba\xbe\0\x02"),
    ]
    .concat();
    let cases: Vec<(&str, Parts)> = vec![
        (
            "an LVM physical volume",
            v(512, b"LABELONE\x01\0\0\0\0\0\0\0\0\0\0\0\x20\0\0\0LVM2 001"),
        ),
        ("a LUKS volume", v(0, &luks1)),
        ("a LUKS volume", luks2),
        ("a LUKS2 header copy", v(0x40_0000, b"SKUL\xba\xbe\0\x02")),
        ("(version 0.90)", v(bytes - 65536, &md(0))),
        ("(version 1.1)", v(0, &md(1))),
        ("(version 1.2)", v(4096, &md(1))),
        ("(version 1.0)", v(at_end, &md(1))),
        ("an MBR partition table", v(446, &mbr)),
        ("a ZFS pool member", uberblocks),
        ("a bcache device", v(4120, bcache)),
        (
            "an Open CAS cache",
            v(0, b"\x01\x01\x01\0\xa6\x1c\x7e\x18\0\0\x03\x1a"),
        ),
        ("dm-cache metadata", v(32, b"\x03\xc4\x18\0\0\0\0\0\x02")),
        ("dm-thin metadata", v(32, b"\xba\x52\x9c\x01\0\0\0\0\x02")),
        ("a dm-writecache cache", v(0, b"\x21\x93\x48\x23\x01\0\0\0")),
        (
            "an ISO 9660 file system",
            v(0x8000, b"\x01CD001\x01\0LINUX"),
        ),
        ("a PostgreSQL table or index", v(0, pg)),
    ];
    for (what, parts) in cases {
        let file = sparse(&place.path("i"), bytes);
        for (at, magic) in parts {
            file.write_all_at(&magic, at).expect("written");
        }
        drop(file);
        refused_then_wiped(&place, "i", what);
    }
}

#[test]
fn a_member_is_known_to_file() {
    let place = Place::in_memory();
    place.ok("create v --fast f:16M --slow s:64M --policy linear");
    let magic = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/magic");
    let Some(out) = tool(&place, &["file", "-b", "-m", magic, "s"]) else {
        return;
    };
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        text.starts_with("Isotherm volume member 1 of 2 (volume \"v\")"),
        "{text}"
    );
    // Another volume's member is refused by its name, without a look at the superblock copy at its end.
    let why = place.fails("create w --slow s");
    assert!(why.contains("belongs to a volume already (`v`)"), "{why}");
    place.ok("create w --slow s --force");
    assert!(place.ok("find s").contains("# volume w"));
}

#[test]
fn one_file_by_two_names_is_used_once() {
    let place = Place::in_memory();
    sparse(&place.path("i"), 64 * MIB);
    let Some(device) = LoopDevice::over(&place, &["--sector-size", "4096"], "i") else {
        return;
    };
    let node = &device.0;
    let why = place.fails("create v --slow i --policy linear");
    assert!(
        why.contains(node.as_str()) && why.contains("in use"),
        "{why}"
    );
    let out = place.run(&format!("create v --fast {node} --slow i --policy linear"));
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(
        !out.status.success() && why.contains("each device once"),
        "{why}"
    );
    // The same file through its loop device belongs to the same volume.
    place.ok(&format!("create v --slow {node} --policy linear"));
    let served = place.serve("v --nbd unix:n");
    let direct = fs::read_to_string(place.path("v.toml")).expect("read");
    let image = place.path("i");
    let direct = direct.replace(node.as_str(), image.to_str().expect("text"));
    fs::write(place.path("w.toml"), direct).expect("written");
    let why = place.fails("serve w --nbd unix:m");
    assert!(why.contains("in use"), "both would have served: {why}");
    assert_eq!(served.terminate(), Some(0));
    // The same in the other order.
    let served = place.serve("w --nbd unix:m");
    let why = place.fails("serve v --nbd unix:n");
    assert!(why.contains("in use"), "both would have served: {why}");
    assert_eq!(served.terminate(), Some(0));
    // Two loop devices over one file, and two over its halves.
    let Some(second) = LoopDevice::over(&place, &[], "i") else {
        return;
    };
    let why = place.fails(&format!(
        "create x --slow {} --policy linear --force",
        second.0
    ));
    assert!(why.contains(node.as_str()), "{why}");
    drop((device, second));
    sparse(&place.path("halves"), 64 * MIB);
    let size = ["--sizelimit", "33554432"];
    let first = LoopDevice::over(&place, &size, "halves");
    let second = LoopDevice::over(&place, &["--offset", "33554432"], "halves");
    if let (Some(a), Some(b)) = (&first, &second) {
        place.ok(&format!(
            "create y --fast {} --slow {} --policy linear",
            a.0, b.0
        ));
    }
}

/// Names on devices, in files and of files are shown, and what a terminal would obey in them is not sent to it.
#[test]
fn no_name_of_others_reaches_the_terminal_as_it_is() {
    use isotherm_core::store::superblock::Superblock;
    const NAME: &str = "v\u{1b}]0;x\u{7}\u{9b}2J\n# volume w\u{202e}";
    let place = Place::new();
    place.ok("create v --fast f:16M --slow s:64M --policy lru");
    for member in ["f", "s"] {
        let file = (File::options().read(true).write(true)).open(place.path(member));
        let file = file.expect("opened");
        let mut block = [0; isotherm_core::store::BLOCK];
        file.read_exact_at(&mut block, 0).expect("read");
        let mut superblock = Superblock::decode(&block).expect("whole");
        superblock.name = NAME.into();
        file.write_all_at(&superblock.encode(), 0).expect("written");
    }
    let trace = place.path("\u{1b}[2J.csv");
    fs::write(trace, "time,\u{1b}[2Jop\n1,R\u{9b}2J,x\n").expect("written");
    let mut shown = 0;
    for call in [
        "create w --fast f --slow s",
        "create w --fast f --slow s --force --json",
        "find f s",
        "find f s --json",
        "check v",
        "trace info \u{1b}[2J.csv",
        "trace info \u{1b}[2J.csv --json",
        "sim \u{1b}[2J.csv --policy lru",
        "status \u{1b}[2J",
        "\u{1b}[2J",
    ] {
        let out = place.run(call);
        for text in [&out.stdout, &out.stderr] {
            let text = String::from_utf8(text.clone()).expect("text");
            let odd = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
            assert!(!text.contains(odd), "`{call}`: {text:?}");
            assert!(!text.contains("\n# volume w"), "`{call}`: {text:?}");
            shown += usize::from(text.contains("\\u{1b}") || text.contains("\\u001b"));
        }
    }
    assert!(shown >= 4, "{shown} of them show such a name");
}
