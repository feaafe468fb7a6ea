//! Members that earlier programs have made, from format 3 on, with each kind of record: this program and `scripts/rescue` must read each of
//! them as it was read when it was made. They are in `golden_images`, a file for each member, compressed by zstd; `sums` has the SHA-256 of
//! what each volume holds. An image is never made anew: a later format gets images of its own beside these. They were made by
//!
//! ```sh
//! ISOTHERM_BLESS=1 cargo test -p isotherm --test golden_images -- --ignored
//! ```
//!
//! which makes those that are not there. Most are made by the program, those named `chaos-` by the world of `crates/hostile`.

mod common;

use common::Place;
use common::peer::{FLUSH, Peer};
use isotherm_core::store::open::Mode;
use isotherm_hostile::disk::Disk;
use isotherm_hostile::image::{contents, each_crash};
use isotherm_hostile::run::{Scenario, Shape};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const TRIM: u16 = 4;
/// What a range that cannot be read counts as.
const LOST: u8 = 0xee;

struct Case {
    name: &'static str,
    members: &'static [&'static str],
    make: fn(&Place),
}

const CASES: [Case; 10] = [
    Case {
        name: "cache-clean",
        members: &["f", "s"],
        make: |place| {
            place.ok("create v --fast f:16M --slow s:32M --policy lru");
            write(place, |peer| fill(peer, 1, 20 << 20), true);
        },
    },
    Case {
        name: "cache-dirty",
        members: &["f", "s"],
        make: |place| {
            place.ok("create v --fast f:16M --slow s:32M --policy lru");
            write(place, |peer| fill(peer, 1, 20 << 20), true);
            let some = |peer: &mut Peer| {
                fill(peer, 2, 10 << 20);
                trim(peer, 2 << 20, 1 << 20);
            };
            write(place, some, false);
        },
    },
    Case {
        name: "cache-two-flash",
        members: &["f", "g", "s", "u"],
        make: |place| {
            place.ok("create v --fast f:16M --fast g:16M --slow s:16M --slow u:24M --policy lru");
            write(place, |peer| fill(peer, 3, 24 << 20), false);
        },
    },
    Case {
        name: "cache-large-extents",
        members: &["f", "s"],
        make: |place| {
            place.ok("create v --fast f:32M --slow s:32M --policy lru --extent 1M");
            write(place, |peer| fill(peer, 6, 12 << 20), false);
        },
    },
    Case {
        name: "cache-lost",
        members: &["s"],
        make: |place| {
            place.ok("create v --fast f:16M --slow s:32M --policy lru");
            write(place, |peer| fill(peer, 4, 10 << 20), false);
            fs::remove_file(place.path("f")).expect("removed");
            let served = place.serve("v --nbd unix:n --without-flash");
            let mut peer = Peer::connect(&place.path("n")).expect("connected");
            put(&mut peer, 5, 0, 64 << 10);
            flush(&mut peer);
            served.kill();
        },
    },
    Case {
        name: "adopted",
        members: &["f", "s"],
        make: |place| {
            disk_with_data(place, 24 << 20, 32 << 20);
            place.ok("adopt v s --fast f:16M --policy lru --yes");
            trial_ends(place);
        },
    },
    Case {
        name: "adopted-with-tail",
        members: &["f", "s", "t"],
        make: |place| {
            disk_with_data(place, (24 << 20) + 4096, (24 << 20) + 4096);
            let tail = File::create(place.path("t")).expect("created");
            tail.set_len(8 << 20).expect("sized");
            place.ok("adopt v s --tail t --fast f:16M --policy lru --yes");
            trial_ends(place);
        },
    },
    Case {
        name: "tiering",
        members: &["f", "s"],
        make: |place| {
            place.ok("create v --fast f:16M --slow s:32M --policy linear");
            let some = |peer: &mut Peer| {
                fill(peer, 8, 30 << 20);
                trim(peer, 2 << 20, 1 << 20);
            };
            write(place, some, false);
        },
    },
    Case {
        name: "chaos-copies",
        members: &["0", "1", "2"],
        make: |place| {
            let shape = Shape::ThreeTiers;
            chaos(
                place,
                Scenario {
                    shape,
                    copies: true,
                    ..Scenario::new(11)
                },
            );
        },
    },
    Case {
        name: "chaos-cache",
        members: &["0", "1", "2", "3"],
        make: |place| {
            let (shape, cache) = (Shape::CacheOfFour, Some(false));
            chaos(
                place,
                Scenario {
                    shape,
                    cache,
                    copies: true,
                    ..Scenario::new(12)
                },
            );
        },
    },
];

/// The blocks of `version`, which are the same bytes at each run.
fn put(peer: &mut Peer, version: u64, offset: u64, len: u64) {
    let words = (offset..offset + len).step_by(8);
    let data: Vec<u8> = words
        .flat_map(|at| ((at >> 12) << 8 | version).to_le_bytes())
        .collect();
    peer.write(offset, &data).expect("written");
}

/// Writes whole extents and parts of some up to the byte `end`, and flushes.
fn fill(peer: &mut Peer, version: u64, end: u64) {
    for at in (0..end).step_by(1 << 20) {
        put(peer, version, at, 64 << 10);
        put(peer, version, at + (192 << 10) + 8192, 12 << 10);
    }
    flush(peer);
}

fn flush(peer: &mut Peer) {
    peer.ask(FLUSH, 0, 0).expect("asked");
    assert_eq!(peer.answer().expect("answered"), 0);
}

fn trim(peer: &mut Peer, offset: u64, len: u32) {
    peer.ask(TRIM, offset, len).expect("asked");
    assert_eq!(peer.answer().expect("answered"), 0);
    flush(peer);
}

/// Serves `v` for some writes, and ends it well, or kills it.
fn write(place: &Place, what: impl Fn(&mut Peer), well: bool) {
    let served = place.serve("v --nbd unix:n");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    what(&mut peer);
    drop(peer);
    if well {
        assert_eq!(served.terminate(), Some(0));
    } else {
        served.kill();
    }
}

/// A device `s` with a file system, and something in it.
fn disk_with_data(place: &Place, data: u64, bytes: u64) {
    let file = File::create(place.path("s")).expect("created");
    file.set_len(data).expect("sized");
    let args = [
        "-q",
        "-F",
        "-b",
        "4096",
        "-J",
        "size=4",
        "-U",
        "00000000-0000-4000-8000-000000000001",
        "s",
    ];
    let made = place.tool("mkfs.ext4", &args);
    assert!(made.status.success(), "{made:?}");
    let file = File::options().write(true).open(place.path("s"));
    file.and_then(|f| f.set_len(bytes)).expect("sized");
}

fn trial_ends(place: &Place) {
    let served = place.serve("v --nbd unix:n");
    place.ok("adopt --finish v");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    fill(&mut peer, 7, 8 << 20);
    served.kill();
}

/// What the last crash of a scenario leaves.
fn chaos(place: &Place, s: Scenario) {
    each_crash(s, |disks| {
        for (i, disk) in disks.iter().enumerate() {
            fs::write(place.path(&i.to_string()), disk.read(0, disk.len())).expect("written");
        }
        Ok(())
    })
    .expect("a scenario without a fault");
}

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden_images")
}

/// The lines of `sums`: SHA-256, then name.
fn sums() -> BTreeMap<String, String> {
    let text = fs::read_to_string(dir().join("sums")).unwrap_or_default();
    let line = |l: &str| {
        l.split_once("  ")
            .map(|(sum, name)| (name.to_owned(), sum.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// The members of a case in a new directory.
fn unpacked(case: &Case) -> Place {
    let place = Place::new();
    for member in case.members {
        let from = dir()
            .join(format!("{}.{member}.zst", case.name))
            .display()
            .to_string();
        let out = place.tool("zstd", &["-q", "-d", "--sparse", &from, "-o", member]);
        assert!(out.status.success(), "{out:?}");
    }
    place
}

fn sum(place: &Place, bytes: &[u8]) -> String {
    fs::write(place.path("content"), bytes).expect("written");
    let out = place.tool("sha256sum", &["content"]);
    let said = String::from_utf8(out.stdout).expect("text");
    said.split(' ').next().expect("a sum").to_owned()
}

/// What the program serves of it.
fn served(case: &Case) -> Vec<u8> {
    let place = unpacked(case);
    if case.name.starts_with("chaos-") {
        let disk = |m: &&str| Disk::holding(fs::read(place.path(m)).expect("read"));
        let disks = case.members.iter().map(disk).collect();
        let cells = contents(disks, Mode::ReadWrite { epoch: 9 }, u64::MAX);
        let cells = cells.expect("reads end").expect("the volume opens");
        return cells
            .into_iter()
            .flat_map(|c| c.unwrap_or(vec![LOST; 64]))
            .collect();
    }
    let found = place.ok(&format!("find {}", case.members.join(" ")));
    fs::write(place.path("v.toml"), found).expect("written");
    let options = if case.members.contains(&"f") {
        ""
    } else {
        " --without-flash"
    };
    let server = place.serve(&format!("v --nbd unix:n{options}"));
    let size = place.status()["volume_bytes"].as_u64().expect("a number");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    let mut all = Vec::new();
    for at in (0..size).step_by(1 << 16) {
        match peer.read(at, 1 << 16) {
            Ok(data) => all.extend(data),
            // Some of its blocks may be readable.
            Err(_) => {
                for at in (at..at + (1 << 16)).step_by(4096) {
                    all.extend(peer.read(at, 4096).unwrap_or(vec![LOST; 4096]));
                }
            }
        }
    }
    drop(peer);
    assert_eq!(server.terminate(), Some(0));
    all
}

fn rescue(place: &Place, call: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/rescue"));
    command
        .args(call.split(' '))
        .current_dir(place.path(""))
        .stdin(Stdio::null());
    let out = command.output().expect("python3 runs");
    let [said, why] = [out.stdout, out.stderr].map(|t| String::from_utf8(t).expect("text"));
    (out.status.code(), said, why)
}

/// What `scripts/rescue` gives.
fn rescued(case: &Case) -> Vec<u8> {
    let place = unpacked(case);
    let members = case.members.join(" ");
    let (code, _, why) = rescue(&place, &format!("{members} --out image --accept-loss"));
    assert_eq!(code, Some(0), "{}: {why}", case.name);
    let mut image = fs::read(place.path("image")).expect("read");
    for line in why.lines().filter(|l| l.starts_with("cannot be had: ")) {
        let words: Vec<&str> = line.split([' ', ':']).collect();
        let byte = |i: usize| words[i].parse::<usize>().expect("a byte");
        image[byte(5)..byte(7)].fill(LOST);
    }
    image
}

#[test]
fn images_of_earlier_programs_are_read() {
    let (sums, place) = (sums(), Place::new());
    assert_eq!(sums.len(), CASES.len());
    for case in &CASES {
        let known = &sums[case.name];
        assert_eq!(sum(&place, &served(case)), *known, "{}, served", case.name);
        assert_eq!(
            sum(&place, &rescued(case)),
            *known,
            "{}, rescued",
            case.name
        );
    }
    let lost = CASES.iter().find(|c| c.name == "cache-lost");
    let (code, said, _) = rescue(&unpacked(lost.expect("a case")), "--list s");
    assert!(
        code == Some(3) && said.contains("was lost with flash earlier"),
        "{said}"
    );
}

/// The kinds of record in what counts of journals and checkpoints.
const KINDS: &str = r#"
import importlib.machinery, importlib.util, sys
loader = importlib.machinery.SourceFileLoader("rescue", sys.argv[1])
rescue = importlib.util.module_from_spec(importlib.util.spec_from_loader("rescue", loader))
sys.dont_write_bytecode = True
loader.exec_module(rescue)
kinds = set()
records = rescue.records
def noted(sb, block, where):
    at, units = 64, -(-(sb.extent // sb.unit) // 128)
    while at < 4096 and block[at]:
        kind = block[at] & 15
        kinds.add(kind)
        sets = block[at + 22] if kind == 4 or kind == 6 and sb.extent // sb.unit > 16 else 0
        bitmaps = (kind == 2) + sum(sets >> shift & 3 == 2 for shift in ((0, 2, 4) if kind == 4 else (0, 2)))
        at += (32 if kind in (4, 6) else 16) + 16 * units * bitmaps
    return records(sb, block, where)
rescue.records = noted
rescue.assemble(sys.argv[2:], False, True)
print(*sorted(kinds))
"#;

#[test]
fn each_kind_of_record_is_in_an_image() {
    let mut kinds = std::collections::BTreeSet::new();
    for case in &CASES {
        let place = unpacked(case);
        let mut python = Command::new("python3");
        python.args([
            "-c",
            KINDS,
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/rescue"),
        ]);
        let out = python
            .args(case.members)
            .current_dir(place.path(""))
            .output();
        let out = String::from_utf8(out.expect("python3 runs").stdout).expect("text");
        println!("{}: {}", case.name, out.trim());
        kinds.extend(
            out.split_whitespace()
                .map(|k| k.parse::<u32>().expect("a kind")),
        );
    }
    assert!((1..8).all(|k| kinds.contains(&k)), "{kinds:?}");
}

/// A member whose superblocks state something that no program knows yet is refused in words that name the file and the field.
#[test]
fn what_a_newer_program_made_is_refused() {
    for (at, value, field, ours) in [
        (8, 4u32, "`version` (byte 8) is 4", "version"),
        (
            16,
            1 << 9 | 8,
            "`incompatible features` (byte 16), bits [9]",
            "newer",
        ),
    ] {
        let place = unpacked(&CASES[1]);
        let found = place.ok("find f s");
        let mut bytes = fs::read(place.path("s")).expect("read");
        let blocks: Vec<usize> = (0..bytes.len() / 4096).map(|b| b * 4096).collect();
        for block in blocks
            .into_iter()
            .filter(|&b| bytes[b..].starts_with(b"ISOTHERM"))
            .collect::<Vec<_>>()
        {
            let block = &mut bytes[block..block + 4096];
            block[at..at + 4].copy_from_slice(&value.to_le_bytes());
            block[12..16].fill(0);
            let crc = isotherm_core::crc32c::crc32c(block);
            block[12..16].copy_from_slice(&crc.to_le_bytes());
        }
        fs::write(place.path("s"), bytes).expect("written");
        let (code, _, why) = rescue(&place, "--list f s");
        assert!(
            code == Some(1) && why.contains("s: superblock") && why.contains(field),
            "{why}"
        );
        fs::write(place.path("v.toml"), found).expect("written");
        let why = place.fails("serve v --nbd unix:n");
        assert!(why.contains(ours) && why.contains("/s"), "{why}");
    }
}

/// Erases the activity stamp: it names the machine, and others would wait for its process. Recovery does not read it.
fn forget_who(member: &Path) {
    let file = File::options().read(true).write(true).open(member);
    let (file, mut magic) = (file.expect("opened"), [0; 8]);
    file.read_exact_at(&mut magic, 0).expect("read");
    if magic == *b"ISOTHERM" {
        file.write_all_at(&[0; 4096], 4096).expect("written");
    }
}

/// Makes the images that are not there; see the head of this file.
#[test]
#[ignore = "makes images"]
fn make_images() {
    assert!(
        std::env::var_os("ISOTHERM_BLESS").is_some(),
        "only with ISOTHERM_BLESS=1"
    );
    fs::create_dir_all(dir()).expect("made");
    let mut sums = sums();
    for case in CASES.iter().filter(|c| {
        !dir()
            .join(format!("{}.{}.zst", c.name, c.members[0]))
            .exists()
    }) {
        let place = Place::new();
        (case.make)(&place);
        for member in case.members {
            forget_who(&place.path(member));
            let to = dir()
                .join(format!("{}.{member}.zst", case.name))
                .display()
                .to_string();
            let out = place.tool("zstd", &["-q", "-19", "--long=26", member, "-o", &to]);
            assert!(out.status.success(), "{out:?}");
        }
        // Its members would be found beside the copies.
        drop(place);
        sums.insert(case.name.to_owned(), sum(&Place::new(), &served(case)));
    }
    let lines: Vec<String> = sums
        .iter()
        .map(|(n, sum)| format!("{sum}  {n}\n"))
        .collect();
    fs::write(dir().join("sums"), lines.concat()).expect("written");
}
