//! Images of mke2fs and debugfs in many shapes: our class of every block is compared with the output of `dumpe2fs` and `debugfs`.
//!
//! Needs e2fsprogs; without it the tests are skipped with a message. `ISOTHERM_SEED_BASE=N` creates other files.

mod reference;

use isotherm_classify::classes::{self, Source};
use isotherm_classify::layout::Layout;
use isotherm_classify::{Layers, Watch};
use isotherm_core::random::SplitMix64;
use reference::reference;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn has_tools() -> bool {
    let has = |tool: &str| {
        let mut asked = Command::new(tool);
        asked.arg("-V").stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok()
    };
    let all = ["mke2fs", "debugfs", "dumpe2fs"].into_iter().all(has);
    if !all {
        eprintln!("SKIPPED: needs mke2fs, debugfs and dumpe2fs (e2fsprogs)");
    }
    all
}

fn output(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().expect("runs");
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{program} {args:?}: {err}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Creates files of all kinds: small, large, sparse, in deep and wide directories, links short and long.
fn populate(dir: &Path, r: &mut SplitMix64, budget: u64) {
    use std::io::{Seek, SeekFrom, Write};
    let mut left = budget;
    let mut dirs = vec![dir.to_owned()];
    for i in 0..120 {
        let parent = dirs[r.below(dirs.len() as u64) as usize].clone();
        if i % 9 == 3 {
            let d = parent.join(format!("d{i}"));
            fs::create_dir(&d).unwrap();
            dirs.push(d);
            continue;
        }
        let path = parent.join(format!("file-{i}-{}", "n".repeat(r.below(60) as usize)));
        match r.below(10) {
            0 => std::os::unix::fs::symlink("short", &path).unwrap(),
            1 => {
                std::os::unix::fs::symlink("l/".repeat(40 + r.below(100) as usize), &path).unwrap();
            }
            2 => {
                // A sparse file whose distant pieces need many indirect blocks or extents.
                let mut f = File::create(&path).unwrap();
                for _ in 0..r.below(30) {
                    f.seek(SeekFrom::Start(r.below(60 << 20))).unwrap();
                    f.write_all(&vec![7; r.below(9000) as usize]).unwrap();
                }
                left = left.saturating_sub(300_000);
            }
            _ => {
                let size = match r.below(4) {
                    0 => r.below(100),
                    1 => r.below(5000),
                    2 => r.below(70_000),
                    _ => r.below(left / 4 + 1),
                };
                fs::write(&path, vec![1 + (i % 200) as u8; size as usize]).unwrap();
                left = left.saturating_sub(size);
            }
        }
    }
    // A directory of many blocks.
    let wide = dir.join("wide");
    fs::create_dir(&wide).unwrap();
    for i in 0..r.below(400) {
        fs::write(wide.join(format!("{i:03}{}", "w".repeat(100))), b"").unwrap();
    }
}

fn read(image: &Path) -> (Layers, Layout) {
    let mut file = File::open(image).unwrap();
    let mut layers = Layers::new(file.metadata().unwrap().len());
    let mut layout = Layout::default();
    layout.read(&mut file, &mut layers, &Watch::default());
    assert_eq!(layout.trouble, None);
    (layers, layout)
}

/// Our class of every block, in the file system's own block size.
fn ours(image: &Path) -> Vec<u8> {
    let (layers, layout) = read(image);
    let ext = &layout.file_systems()[0];
    let (shift, blocks) = (ext.superblock().block_shift, ext.superblock().blocks);
    let scale = 1 << (shift - shift.min(12));
    (0..blocks)
        .map(|b| layers.class_at(Source::Layout, b * scale))
        .collect()
}

fn compare(name: &str, image: &Path) -> BTreeMap<u8, u64> {
    let ours = ours(image);
    let theirs = reference(image, ours.len() as u64);
    for (b, (us, them)) in ours.iter().zip(&theirs).enumerate() {
        assert_eq!(
            us,
            them,
            "{name}: block {b}: {} here, {} there",
            classes::name(*us),
            classes::name(*them)
        );
    }
    let mut counts = BTreeMap::new();
    for c in ours {
        *counts.entry(c).or_insert(0) += 1;
    }
    counts
}

fn make(image: &Path, dir: Option<&Path>, options: &str, size: &str) {
    let mut args = vec!["-q", "-F"];
    if let Some(d) = dir {
        args.extend(["-d", d.to_str().unwrap()]);
    }
    args.extend(options.split_whitespace());
    args.extend([image.to_str().unwrap(), size]);
    output("mke2fs", &args);
}

const SHAPES: [(&str, &str, &str); 20] = [
    ("ext2 1K", "-t ext2 -b 1024", "24M"),
    ("ext2 4K", "-t ext2 -b 4096", "64M"),
    (
        "ext2 1K, no sparse",
        "-t ext2 -b 1024 -O ^sparse_super,^resize_inode",
        "40M",
    ),
    ("ext3 1K", "-t ext3 -b 1024", "32M"),
    ("ext3 2K", "-t ext3 -b 2048", "48M"),
    ("ext3 4K, inodes of 128", "-t ext3 -b 4096 -I 128", "64M"),
    ("ext4 1K", "-t ext4 -b 1024", "40M"),
    ("ext4 4K", "-t ext4 -b 4096", "80M"),
    ("ext4 4K, many groups", "-t ext4 -b 4096 -g 2048", "80M"),
    (
        "ext4 1K, many groups",
        "-t ext4 -b 1024 -g 1024 -G 4",
        "60M",
    ),
    ("ext4 no flex_bg", "-t ext4 -b 1024 -O ^flex_bg", "40M"),
    (
        "ext4 32 bit",
        "-t ext4 -b 4096 -O ^64bit,^metadata_csum",
        "64M",
    ),
    (
        "ext4 64 bit, meta_bg",
        "-t ext4 -b 1024 -O 64bit,meta_bg,^resize_inode",
        "60M",
    ),
    (
        "ext4 meta_bg, small groups",
        "-t ext4 -b 1024 -g 256 -O meta_bg,^resize_inode",
        "40M",
    ),
    (
        "ext4 bigalloc",
        "-t ext4 -b 4096 -O bigalloc -C 65536",
        "96M",
    ),
    (
        "ext4 bigalloc 1K",
        "-t ext4 -b 1024 -O bigalloc -C 8192",
        "48M",
    ),
    (
        "ext4 inline data",
        "-t ext4 -b 4096 -O inline_data -I 256",
        "64M",
    ),
    (
        "ext4 sparse_super2",
        "-t ext4 -b 1024 -O sparse_super2",
        "40M",
    ),
    ("ext4 quota, mmp", "-t ext4 -b 4096 -O quota,mmp", "64M"),
    ("ext4 indirect", "-t ext4 -b 1024 -O ^extents,^64bit", "48M"),
];

#[test]
fn every_block_is_what_debugfs_says() {
    if !has_tools() {
        return;
    }
    let base = std::env::var("ISOTHERM_SEED_BASE")
        .ok()
        .and_then(|s| s.parse().ok());
    let base: u64 = base.unwrap_or(1);
    eprintln!("ISOTHERM_SEED_BASE={base}");
    for (i, (name, options, size)) in SHAPES.iter().enumerate() {
        let place = tempfile::tempdir().unwrap();
        let (dir, image) = (place.path().join("d"), place.path().join("image"));
        fs::create_dir(&dir).unwrap();
        populate(&dir, &mut SplitMix64::new(base * 1000 + i as u64), 8 << 20);
        make(&image, Some(&dir), options, size);
        let counts = compare(name, &image);
        let has = |c: u8| counts.contains_key(&c);
        assert!((1..=4).chain([6, 8]).all(has), "{name}: {counts:?}");
        assert_eq!(has(7), !options.contains("ext2"), "{name}: {counts:?}");
        // Files with indirect blocks and sparse files have tree blocks.
        if options.contains("ext2") || options.contains("ext3") || options.contains("^extents") {
            assert!(has(5), "{name}: {counts:?}");
        }
    }
}

#[test]
fn journals_outside_and_file_systems_in_partitions() {
    if !has_tools() {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { place.path().join(name) };
    // A journal on another device.
    make(
        &at("outside"),
        None,
        "-t ext4 -b 1024 -O ^has_journal",
        "16M",
    );
    let image = at("outside");
    let image = image.to_str().unwrap();
    output("debugfs", &["-w", "-R", "feature has_journal", image]);
    output("debugfs", &["-w", "-R", "ssv journal_inum 0", image]);
    let counts = compare("journal outside", &at("outside"));
    assert!(!counts.contains_key(&7));
    // The journal device itself.
    make(&at("journal"), None, "-b 4096 -O journal_dev", "16M");
    let all = ours(&at("journal"));
    assert_eq!((all[0], all[1], all[4095]), (1, 7, 7));
    // Two partitions with different block sizes.
    let (a, b) = (at("a"), at("b"));
    make(&a, None, "-t ext4 -b 4096", "16M");
    make(&b, None, "-t ext3 -b 1024", "16M");
    let mut disk = vec![0u8; 1 << 20];
    for (i, start) in [2048u32, 2048 + 32768].into_iter().enumerate() {
        let entry = &mut disk[446 + 16 * i..][..16];
        entry[4] = 0x83;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&32768u32.to_le_bytes());
    }
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk.extend(fs::read(&a).unwrap());
    disk.extend(fs::read(&b).unwrap());
    fs::write(at("disk"), &disk).unwrap();
    let (layers, layout) = read(&at("disk"));
    assert_eq!(layout.file_systems().len(), 2);
    let class_at = |byte: u64| layers.class_at(Source::Layout, byte >> 10);
    for (start, part) in [(1u64 << 20, &a), (17 << 20, &b)] {
        let shift = if part == &a { 12 } else { 10 };
        for (i, class) in ours(part).iter().enumerate() {
            assert_eq!(
                class_at(start + ((i as u64) << shift)),
                *class,
                "{part:?} block {i}"
            );
        }
    }
}

/// debugfs changes an image, and the layout learns only which blocks differ: the result must be that of a full examination.
#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn a_refresh_of_what_was_written_is_as_good_as_a_full_look() {
    if !has_tools() {
        return;
    }
    for (name, options) in [
        ("ext4 4K", "-t ext4 -b 4096 -O ^has_journal"),
        ("ext4 1K", "-t ext4 -b 1024 -g 2048 -O ^has_journal"),
        ("ext2", "-t ext2 -b 1024"),
        (
            "bigalloc",
            "-t ext4 -b 4096 -O bigalloc,^has_journal -C 16384",
        ),
        (
            "meta_bg",
            "-t ext4 -b 1024 -g 256 -O meta_bg,^resize_inode,^has_journal",
        ),
    ] {
        let place = tempfile::tempdir().unwrap();
        let (dir, image) = (place.path().join("d"), place.path().join("image"));
        fs::create_dir(&dir).unwrap();
        let mut r = SplitMix64::new(77);
        populate(&dir, &mut r, 6 << 20);
        make(&image, Some(&dir), options, "64M");
        let (mut layers, mut layout) = read(&image);
        let mut before = fs::read(&image).unwrap();
        for round in 0..6 {
            // Half of the written files are removed, and as many are created.
            let mut script = Vec::new();
            for i in 0..25 {
                let source = place.path().join(format!("s{round}-{i}"));
                let size = [50, 3000, 50_000, 900_000][r.below(4) as usize];
                fs::write(&source, vec![3; r.below(size) as usize]).unwrap();
                script.push(format!("write {} n{round}-{i}", source.display()));
                if round > 0 && i % 2 == 0 {
                    script.push(format!("rm n{}-{i}", round - 1));
                }
            }
            script.push(format!("mkdir m{round}\n"));
            let file = place.path().join("script");
            fs::write(&file, script.join("\n")).unwrap();
            let (f, i) = (file.to_str().unwrap(), image.to_str().unwrap());
            output("debugfs", &["-w", "-f", f, i]);
            let after = fs::read(&image).unwrap();
            let written: Vec<_> = before
                .chunks(1024)
                .zip(after.chunks(1024))
                .enumerate()
                .filter(|(_, (a, b))| a != b)
                .map(|(i, _)| (i as u64) << 10..(i as u64 + 1) << 10)
                .collect();
            let mut file = File::open(&image).unwrap();
            layout.refresh(&mut file, &mut layers, &Watch::default(), Some(&written));
            assert_eq!(
                (layout.trouble.as_ref(), layout.looks.full),
                (None, 1),
                "{name}"
            );
            let (fresh, _) = read(&image);
            let scale = layout.file_systems()[0].superblock();
            let blocks = scale.blocks << (scale.block_shift - scale.block_shift.min(12));
            for b in 0..blocks {
                let (kept, full) = (
                    layers.class_at(Source::Layout, b),
                    fresh.class_at(Source::Layout, b),
                );
                assert_eq!(kept, full, "{name}, round {round}: block {b}");
            }
            before = after;
        }
        // Another file system is made on it: it must be read again.
        make(&image, None, "-t ext3 -b 1024", "32M");
        let mut file = File::open(&image).unwrap();
        layout.refresh(
            &mut file,
            &mut layers,
            &Watch::default(),
            Some(std::slice::from_ref(&(0..4096))),
        );
        assert_eq!(layout.looks.full, 2);
    }
}

/// A volume may hold arbitrary bytes: reading must end without a panic, with the right number of blocks.
#[test]
fn damaged_images_end_without_harm() {
    if !has_tools() {
        return;
    }
    for (i, options) in [
        "-t ext4 -b 1024",
        "-t ext3 -b 1024",
        "-t ext4 -b 4096 -O bigalloc -C 16384",
    ]
    .into_iter()
    .enumerate()
    {
        let place = tempfile::tempdir().unwrap();
        let (dir, image) = (place.path().join("d"), place.path().join("image"));
        fs::create_dir(&dir).unwrap();
        let mut r = SplitMix64::new(5 + i as u64);
        populate(&dir, &mut r, 2 << 20);
        make(&image, Some(&dir), options, "16M");
        let sound = fs::read(&image).unwrap();
        let (layers, _) = read(&image);
        // The blocks that hold metadata.
        let meta: Vec<usize> = (0..sound.len() >> 12)
            .filter(|b| {
                let at = layers
                    .class_run(Source::Layout, (*b as u64) << if i == 2 { 0 } else { 2 }, 1)
                    .0;
                (1..=6).contains(&at)
            })
            .collect();
        for _ in 0..60 {
            let mut bytes = sound.clone();
            for _ in 0..=r.below(30) {
                let at = meta[r.below(meta.len() as u64) as usize] << 12;
                let at = at + r.below(4096) as usize;
                bytes[at] = match r.below(3) {
                    0 => 0xff,
                    1 => 0,
                    _ => r.draw() as u8,
                };
            }
            let mut layers = Layers::new(bytes.len() as u64);
            let mut layout = Layout::default();
            layout.read(&mut &bytes[..], &mut layers, &Watch::default());
            layout.refresh(
                &mut &bytes[..],
                &mut layers,
                &Watch::default(),
                Some(std::slice::from_ref(&(0..bytes.len() as u64))),
            );
            while !layers.is_settled() {
                layers.settle(1 << 16);
            }
            assert!(layers.memory() < 4 << 20 && layout.memory() < 8 << 20);
        }
    }
}

/// A feature that changes the layout and that nobody knows yet: nothing is misread, and the reason is said.
#[test]
fn unknown_features_give_no_classes_and_are_named() {
    use std::os::unix::fs::FileExt;
    if !has_tools() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    File::create(&image).unwrap().set_len(16 << 20).unwrap();
    output(
        "mke2fs",
        &["-q", "-t", "ext4", "-b", "4096", image.to_str().unwrap()],
    );
    assert_eq!(ours(&image)[0], 1);
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let mut features = [0; 4];
    file.read_exact_at(&mut features, 1024 + 0x60).unwrap();
    features[2] |= 8;
    file.write_all_at(&features, 1024 + 0x60).unwrap();
    let mut layers = Layers::new(16 << 20);
    let mut layout = Layout::default();
    layout.read(
        &mut file.try_clone().unwrap(),
        &mut layers,
        &Watch::default(),
    );
    let trouble = layout.trouble.unwrap();
    assert!(trouble.contains("incompat 0x80000"), "{trouble}");
    assert_eq!(layers.class_at(Source::Layout, 0), 0);
}
