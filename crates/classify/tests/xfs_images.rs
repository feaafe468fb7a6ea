//! Images of mkfs.xfs that are filled through the kernel: the class of every block is compared with the output of `xfs_db`, and is kept
//! current from the written blocks. Mutated images must cause no panic.

use isotherm_classify::classes::{self, Source};
use isotherm_classify::ext::Bytes;
use isotherm_classify::layout::Layout;
use isotherm_classify::{Layers, Watch};
use isotherm_core::random::SplitMix64;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The smallest size that mkfs.xfs accepts is 300 MiB.
const BYTES: u64 = 320 << 20;

fn run(program: &str, args: &[&str]) -> Option<String> {
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let out = Command::new(program)
        .args(args)
        .env("PATH", path)
        .output()
        .ok()?;
    (out.status.success()).then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

struct Image {
    dir: tempfile::TempDir,
    device: Option<String>,
}

impl Image {
    /// Makes an image; `None`, with a message, if this system cannot do it.
    fn make(options: &[&str]) -> Option<Image> {
        let dir = tempfile::tempdir().expect("a directory");
        let image = Image { dir, device: None };
        let file = File::create(image.file()).expect("made");
        file.set_len(BYTES).expect("sized");
        std::fs::create_dir(image.mnt()).expect("made");
        let name = image.file();
        let all = [&["-q"], options, &[name.to_str().expect("text")]].concat();
        if run("mkfs.xfs", &all).is_none() {
            println!("skipped: no mkfs.xfs that takes {options:?}");
            return None;
        }
        Some(image)
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn open(&self) -> File {
        File::open(self.file()).expect("opens")
    }

    /// Pieces of 4 KiB that changed since the last call, as ranges of bytes.
    fn written(&self) -> Vec<std::ops::Range<u64>> {
        let (now, copy) = (self.open(), self.dir.path().join("copy"));
        let mut all = Vec::new();
        if let Ok(before) = File::open(&copy) {
            let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
            for at in (0..BYTES).step_by(1 << 20) {
                now.read_exact_at(&mut a, at).expect("read");
                before.read_exact_at(&mut b, at).expect("read");
                let pieces = a.chunks(4096).zip(b.chunks(4096)).enumerate();
                let other = pieces.filter(|(_, (a, b))| a != b);
                all.extend(other.map(|(i, _)| at + i as u64 * 4096..at + (i as u64 + 1) * 4096));
            }
        }
        let (from, to) = (self.file(), copy);
        let names = [from.to_str().expect("text"), to.to_str().expect("text")];
        run("cp", &["--sparse=always", names[0], names[1]]).expect("copied");
        all
    }

    fn mnt(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn mount(&mut self) -> bool {
        let file = self.file();
        let device = run("losetup", &["-f", "--show", file.to_str().expect("text")]);
        self.device = device.map(|d| d.trim().to_owned());
        let Some(device) = &self.device else {
            println!("skipped: no loop devices, which need root");
            return false;
        };
        let mnt = self.mnt();
        let done = run("mount", &["-t", "xfs", device, mnt.to_str().expect("text")]);
        if done.is_none() {
            println!("skipped: this kernel has no XFS");
        }
        done.is_some()
    }

    fn unmount(&mut self) {
        let mnt = self.mnt();
        let _ = run("umount", &[mnt.to_str().expect("text")]);
        if let Some(device) = self.device.take() {
            let _ = run("losetup", &["-d", &device]);
        }
    }

    fn db(&self, commands: &[&str]) -> String {
        let file = self.file();
        let mut args = vec!["-r"];
        for c in commands {
            args.extend(["-c", *c]);
        }
        args.push(file.to_str().expect("text"));
        run("xfs_db", &args).expect("xfs_db")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.unmount();
    }
}

/// Creates directories, small files, long files in pieces, attributes and holes; removes some of them.
fn fill(dir: &Path, round: u64) {
    let mut random = SplitMix64::new(round);
    for i in 0..500u64 {
        let x = random.draw();
        let at = dir.join(format!("d{}", x >> 61));
        std::fs::create_dir_all(&at).expect("made");
        let path = at.join(format!("a-file-with-a-rather-long-name-{round}-{i}"));
        let size = [300, 5000, 30_000, 200_000][(i % 4) as usize];
        std::fs::write(&path, vec![i as u8; size]).expect("written");
        if i % 50 == 0 {
            let value = vec![b'v'; 3000];
            let flags = rustix::fs::XattrFlags::empty();
            rustix::fs::setxattr(&path, "user.long", &value, flags).expect("set");
        }
        if x >> 62 == 0 {
            std::fs::remove_file(&path).expect("removed");
        }
    }
    // Every other block: more extents than an inode holds.
    let holes = File::create(dir.join(format!("holes-{round}"))).expect("made");
    for i in 0..400u64 {
        holes.write_all_at(&[7; 4096], i * 8192).expect("written");
    }
    holes.sync_all().expect("synced");
}

/// The sizes of files by inode.
fn sizes(dir: &Path, all: &mut HashMap<u64, u64>) {
    for entry in std::fs::read_dir(dir).expect("read").flatten() {
        let meta = entry.metadata().expect("known");
        all.insert(meta.ino(), meta.len());
        if meta.is_dir() {
            sizes(&entry.path(), all);
        }
    }
}

/// The class of every block according to `xfs_db`; `None` if its output does not tell.
fn expected(image: &Image, sizes: &HashMap<u64, u64>) -> Vec<Option<u8>> {
    let shape = image.db(&["sb 0", "p blocksize agblocks agcount agblklog dblocks"]);
    let number = |name: &str| -> u64 {
        let line = shape.lines().find_map(|l| l.strip_prefix(name));
        let value = line.expect("a field").trim_start_matches(" = ");
        value.parse().expect("a number")
    };
    let (per, shift, blocks) = (number("agblocks"), number("agblklog"), number("dblocks"));
    let (block_bytes, raw) = (number("blocksize"), image.open());
    let is_tree = |block: u64| {
        let mut magic = [0; 4];
        raw.read_exact_at(&mut magic, block * block_bytes)
            .expect("read");
        &magic == b"BMA3"
    };
    let mut all = vec![None; blocks as usize];
    for group in 0..number("agcount") {
        let n = per.min(blocks - group * per);
        let (go, use_) = (
            format!("fsblock {}", group << shift),
            format!("blockuse -c {n}"),
        );
        let text = image.db(&["blockget", &go, &use_]);
        for line in text.lines().filter(|l| l.starts_with("block ")) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words[2].trim_matches(['(', ')']).split_once('/');
            let at: u64 = at.expect("a place").1.parse().expect("a number");
            let inode = words.get(6).and_then(|i| i.parse::<u64>().ok());
            let class = match words[4] {
                "sb" | "agf" | "agi" | "agfl" => classes::SUPERBLOCK,
                "btbno" | "btcnt" | "btino" | "btfino" | "btrmap" | "btrefcnt" => classes::BITMAP,
                "inode" => classes::INODES,
                "btbmap" | "attr" => classes::INDIRECT,
                "dir" => classes::DIRECTORY,
                "log" => classes::JOURNAL,
                // `xfs_db` counts a file's tree blocks as its data; the blocks themselves state what they are.
                "data" if is_tree(group * per + at) => classes::INDIRECT,
                "data" => match inode.and_then(|i| sizes.get(&i)) {
                    Some(size) => classes::of_file_size(*size),
                    // Blocks of the file system's own files.
                    None => continue,
                },
                "free1" | "free2" | "freelist" => classes::NONE,
                other => panic!("xfs_db says `{other}`: {line}"),
            };
            all[(group * per + at) as usize] = Some(class);
        }
    }
    all
}

fn settle(layers: &mut Layers) {
    while !layers.is_settled() {
        layers.settle(1 << 20);
    }
}

fn differences(layers: &Layers, shift: u32, expected: &[Option<u8>]) -> Vec<(usize, u8, u8)> {
    let scale = 1u64 << (shift - shift.min(12));
    let class = |b: usize| layers.class_at(Source::Layout, b as u64 * scale);
    (expected.iter().enumerate())
        .filter_map(|(b, want)| want.map(|w| (b, class(b), w)))
        .filter(|(_, got, want)| got != want)
        .collect()
}

/// The first two shapes are used by default; `ISOTHERM_XFS_SHAPES=all` adds the others.
const SHAPES: [&[&str]; 4] = [
    &[],
    &["-b", "size=1k", "-m", "rmapbt=1"],
    &["-i", "size=1024", "-d", "agcount=3", "-m", "reflink=0"],
    &[
        "-m",
        "finobt=0,reflink=0",
        "-i",
        "sparse=0,nrext64=0",
        "-s",
        "size=4096",
    ],
];

#[test]
fn every_block_is_what_xfs_db_says_and_stays_so() {
    if run("xfs_db", &["-V"]).is_none() {
        println!("skipped: not installed: xfs_db");
        return;
    }
    let all = std::env::var_os("ISOTHERM_XFS_SHAPES").is_some();
    for options in &SHAPES[..if all { SHAPES.len() } else { 2 }] {
        let Some(mut image) = Image::make(options) else {
            continue;
        };
        let (mut layout, watch) = (Layout::default(), Watch::default());
        let mut layers = Layers::new(BYTES);
        for round in 0..2 {
            if !image.mount() {
                return;
            }
            fill(&image.mnt(), round);
            let mut known = HashMap::new();
            sizes(&image.mnt(), &mut known);
            image.unmount();
            let (mut now, written) = (image.open(), image.written());
            if round == 0 {
                layout.read(&mut now, &mut layers, &watch);
            } else {
                // The writes that the volume would have seen, one range for each piece of 4 KiB.
                layout.refresh(&mut now, &mut layers, &watch, Some(&written));
            }
            assert_eq!(layout.trouble, None, "{options:?}");
            settle(&mut layers);
            let shift = layout.xfs()[0].superblock().block_shift;
            let want = expected(&image, &known);
            let bad = differences(&layers, shift, &want);
            let some = &bad[..bad.len().min(20)];
            assert!(
                bad.is_empty(),
                "{options:?}, {round}: {} {some:?}",
                bad.len()
            );
            let kinds: std::collections::BTreeSet<u8> = want.into_iter().flatten().collect();
            for class in [1, 3, 4, 5, 6, 7, 8, 9] {
                assert!(
                    kinds.contains(&class),
                    "{options:?}: no block of class {class}"
                );
            }
        }
        assert_eq!(layout.looks.full, 1);
    }
}

/// The first bytes of an image, followed by zeros.
struct Front(Vec<u8>);

impl Bytes for Front {
    fn read(&mut self, offset: u64, buf: &mut [u8]) -> std::io::Result<()> {
        buf.fill(0);
        let from = self.0.get(offset as usize..).unwrap_or_default();
        let n = from.len().min(buf.len());
        buf[..n].copy_from_slice(&from[..n]);
        Ok(())
    }
}

#[test]
fn damaged_images_cost_classes_only() {
    let Some(image) = Image::make(&[]) else {
        return;
    };
    let mut part = Front(vec![0; 1 << 20]);
    image.open().read_exact_at(&mut part.0, 0).expect("read");
    let sound = part.0.clone();
    let mut random = SplitMix64::new(5);
    let mut next = |n| random.below(n);
    for _ in 0..200 {
        for _ in 0..=next(12) {
            // The headers, trees and inodes of the first group.
            let i = next(128 << 10) as usize;
            part.0[i] = [0, 1, 0x7f, 0xff, next(256) as u8][next(5) as usize];
        }
        let len = if next(4) == 0 { next(1 << 20) } else { 1 << 20 };
        part.0.truncate(len as usize);
        let mut layers = Layers::new(BYTES);
        Layout::default().read(&mut part, &mut layers, &Watch::default());
        part.0.clone_from(&sound);
    }
}

/// A feature that changes the layout and that nobody knows yet: nothing is misread, and the reason is said.
#[test]
fn unknown_features_give_no_classes_and_are_named() {
    let Some(image) = Image::make(&[]) else {
        return;
    };
    let read = || {
        let mut layers = Layers::new(BYTES);
        let mut layout = Layout::default();
        layout.read(&mut image.open(), &mut layers, &Watch::default());
        (layers.class_at(classes::Source::Layout, 0), layout.trouble)
    };
    assert_eq!(read(), (1, None));
    let file = File::options().write(true).open(image.file());
    let file = file.expect("opens");
    // Big endian: bit 20 of sb_features_incompat.
    file.write_all_at(&[0, 0x10], 216).expect("written");
    let (class, trouble) = read();
    let trouble = trouble.expect("said");
    assert!(trouble.contains("incompat 0x100000"), "{trouble}");
    assert_eq!(class, 0);
}
