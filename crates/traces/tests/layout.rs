//! Guarantees of the layout under random file operations.

use std::collections::{BTreeMap, BTreeSet};

use isotherm_core::Nanos;
use isotherm_traces::layout::{Config, FileSystem, Ino, LayoutError, Owner, file_class};
use isotherm_traces::{Flags, Op, Record};
use proptest::prelude::*;

/// An operation on one of the files that exist.
#[derive(Clone, Copy, Debug)]
enum Do {
    Mkdir(u8),
    Create(u8),
    Write(u8, u32, u32),
    Append(u8, u32),
    Read(u8),
    Unlink(u8),
    Rmdir(u8),
    Rename(u8, u8),
    Stat(u8),
    Readdir(u8),
    Fsync(u8),
    Idle(u8),
    Sync,
}

fn any_op() -> impl Strategy<Value = Do> {
    prop_oneof![
        1 => any::<u8>().prop_map(Do::Mkdir),
        6 => any::<u8>().prop_map(Do::Create),
        3 => (any::<u8>(), 0u32..300_000, 1u32..200_000).prop_map(|(f, at, n)| Do::Write(f, at, n)),
        // Offsets that need double indirect blocks.
        1 => (any::<u8>(), 4_000_000u32..6_000_000, 1u32..9000).prop_map(|(f, at, n)| Do::Write(f, at, n)),
        6 => (any::<u8>(), 1u32..100_000).prop_map(|(f, n)| Do::Append(f, n)),
        4 => any::<u8>().prop_map(Do::Read),
        3 => any::<u8>().prop_map(Do::Unlink),
        1 => any::<u8>().prop_map(Do::Rmdir),
        1 => (any::<u8>(), any::<u8>()).prop_map(|(f, d)| Do::Rename(f, d)),
        2 => any::<u8>().prop_map(Do::Stat),
        1 => any::<u8>().prop_map(Do::Readdir),
        2 => any::<u8>().prop_map(Do::Fsync),
        1 => any::<u8>().prop_map(Do::Idle),
        1 => Just(Do::Sync),
    ]
}

/// The file system, and the test's own record of it.
struct Tried {
    fs: FileSystem,
    directories: Vec<Ino>,
    files: Vec<Ino>,
}

impl Tried {
    fn new(config: Config) -> Tried {
        let fs = FileSystem::new(config).expect("a sound configuration");
        Tried {
            directories: vec![fs.root()],
            fs,
            files: Vec::new(),
        }
    }

    fn act(&mut self, op: Do) -> Result<(), LayoutError> {
        let file = |f: u8| {
            self.files
                .get(f as usize % self.files.len().max(1))
                .copied()
        };
        let directory = |d: u8| self.directories[d as usize % self.directories.len()];
        match op {
            Do::Mkdir(d) => {
                let made = self.fs.mkdir(directory(d))?;
                self.directories.push(made);
            }
            Do::Create(d) => {
                let made = self.fs.create(directory(d))?;
                self.files.push(made);
            }
            Do::Idle(seconds) => self.fs.idle(Nanos::from_secs(u64::from(seconds))),
            Do::Sync => self.fs.sync(),
            Do::Readdir(d) => self.fs.readdir(directory(d))?,
            Do::Rmdir(d) => {
                let at = d as usize % self.directories.len();
                match self.fs.unlink(self.directories[at]) {
                    Ok(()) => {
                        self.directories.swap_remove(at);
                    }
                    Err(LayoutError::NotEmpty(_)) => {}
                    Err(e) => return Err(e),
                }
            }
            Do::Unlink(f) if !self.files.is_empty() => {
                let at = f as usize % self.files.len();
                self.fs.unlink(self.files.swap_remove(at))?;
            }
            Do::Write(f, at, n) => {
                if let Some(file) = file(f) {
                    self.fs.write(file, u64::from(at), u64::from(n))?;
                }
            }
            Do::Append(f, n) => {
                if let Some(file) = file(f) {
                    self.fs.append(file, u64::from(n))?;
                }
            }
            Do::Read(f) => {
                if let Some(file) = file(f) {
                    self.fs.read(file, 0, u64::MAX)?;
                }
            }
            Do::Rename(f, d) => {
                if let Some(file) = file(f) {
                    self.fs.rename(file, directory(d))?;
                }
            }
            Do::Stat(f) => {
                if let Some(file) = file(f) {
                    self.fs.stat(file)?;
                }
            }
            Do::Fsync(f) => {
                if let Some(file) = file(f) {
                    self.fs.fsync(file)?;
                }
            }
            Do::Unlink(_) => {}
        }
        Ok(())
    }

    fn drain(&mut self) -> Vec<Record> {
        let mut out = Vec::new();
        self.fs.drain(&mut out);
        out
    }
}

fn blocks(r: &Record) -> std::ops::Range<u64> {
    r.offset / 4096..r.end() / 4096
}

/// Whether the class of `r` is that of an owner of `block`, before or after the operation.
fn class_fits(r: &Record, block: u64, owners: &[&BTreeMap<u64, Owner>]) -> bool {
    let mut known = owners.iter().filter_map(|o| o.get(&block)).peekable();
    if known.peek().is_none() {
        // Not a block of a file or directory: the superblock … the journal.
        return matches!(r.class, 1..=4 | 7);
    }
    known.any(|owner| match owner {
        Owner::Directory(_) => r.class == 6,
        Owner::Indirect(_) => r.class == 5,
        Owner::File(_) => r.file_size.is_some_and(|size| r.class == file_class(size)),
        _ => false,
    })
}

/// Runs operations and checks every guarantee after each.
fn check(config: Config, ops: &[Do]) -> Result<(), TestCaseError> {
    let (end, journal) = (config.bytes, config.journal_bytes > 0);
    let mut t = Tried::new(config);
    let mut owners = t.fs.owners().map_err(TestCaseError::fail)?;
    // Blocks that got an owner, and blocks written, since the last sync.
    let (mut fresh, mut written) = (BTreeSet::new(), BTreeSet::new());
    // Metadata blocks that were written in place since the last write to the journal.
    let mut in_place = BTreeSet::new();
    let mut journalled = false;
    let mut last = Nanos(0);
    for &op in ops {
        t.act(op)
            .map_err(|e| TestCaseError::fail(format!("{op:?}: {e}")))?;
        let now = t.fs.owners().map_err(TestCaseError::fail)?;
        fresh.extend(
            now.iter()
                .filter(|(b, o)| owners.get(b) != Some(o))
                .map(|(&b, _)| b),
        );
        for r in t.drain() {
            prop_assert!(r.time >= last, "time goes back at {r:?}");
            last = r.time;
            if r.op == Op::Flush {
                continue;
            }
            prop_assert!(r.end() <= end && r.len > 0 && r.offset % 4096 == 0, "{r:?}");
            prop_assert_eq!(r.flags.contains(Flags::META), r.class <= 7, "{:?}", r);
            for b in blocks(&r) {
                prop_assert!(
                    class_fits(&r, b, &[&owners, &now]),
                    "{op:?}: block {b} in {r:?}"
                );
                if r.op != Op::Write {
                    continue;
                }
                written.insert(b);
                if journal && r.class < 7 {
                    prop_assert!(
                        journalled,
                        "block {b} is in place before any journal: {r:?}"
                    );
                    prop_assert!(
                        in_place.insert(b),
                        "block {b} is in place twice without a journal between: {r:?}"
                    );
                }
                if r.class == 7 {
                    journalled = true;
                    in_place.clear();
                }
            }
        }
        if matches!(op, Do::Sync) {
            for &b in fresh.iter().filter(|b| now.contains_key(b)) {
                prop_assert!(
                    written.contains(&t.fs.bitmap_of(b)),
                    "the bitmap of block {b} is not written"
                );
                prop_assert!(written.contains(&b), "block {b} is not written");
            }
            fresh.clear();
            written.clear();
            prop_assert!(t.drain().is_empty());
            t.fs.sync();
            prop_assert!(t.drain().is_empty(), "a second sync has nothing to write");
        }
        owners = now;
    }
    Ok(())
}

fn small(journal: bool, sync: bool, cache: u64) -> Config {
    Config {
        bytes: 300 << 20,
        journal_bytes: if journal { 1 << 20 } else { 0 },
        cache_bytes: cache,
        max_request: 64 << 10,
        sync,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn promises_hold(
        mut ops in prop::collection::vec(any_op(), 1..120),
        journal: bool,
        sync: bool,
        cache in prop_oneof![Just(256u64 << 10), Just(4 << 20), Just(64 << 20)],
    ) {
        ops.push(Do::Sync);
        check(small(journal, sync, cache), &ops)?;
    }
}

#[test]
fn a_commit_goes_to_the_journal_before_anything_is_in_place() {
    let mut t = Tried::new(small(true, false, 64 << 20));
    let d = t.fs.mkdir(t.fs.root()).expect("room");
    let f = t.fs.create(d).expect("room");
    t.fs.write(f, 0, 100_000).expect("room");
    t.drain();
    t.fs.sync();
    let writes: Vec<u8> = t.drain().iter().map(|r| r.class).collect();
    let first =
        |what: &dyn Fn(u8) -> bool| writes.iter().position(|&c| what(c)).expect("there is one");
    // Ordered mode: data, journal, then metadata in place.
    assert!(first(&|c| c >= 8) < first(&|c| c == 7), "{writes:?}");
    let last_journal = writes.iter().rposition(|&c| c == 7).expect("there is one");
    assert!(last_journal < first(&|c| c < 7), "{writes:?}");
    assert!(
        [1, 2, 3, 4, 6].iter().all(|c| writes.contains(c)),
        "{writes:?}"
    );
}

#[test]
fn the_class_follows_the_size_of_the_moment() {
    let mut t = Tried::new(small(false, true, 64 << 20));
    let f = t.fs.create(t.fs.root()).expect("room");
    let mut seen = Vec::new();
    for _ in 0..5 {
        t.fs.append(f, 6000).expect("room");
        let data = t
            .drain()
            .into_iter()
            .filter(|r| r.class >= 8 && r.op == Op::Write);
        seen.extend(data.map(|r| (r.class, r.file_size)));
    }
    let due: Vec<(u8, Option<u64>)> = (1..=5u64)
        .map(|n| (file_class(6000 * n), Some(6000 * n)))
        .collect();
    seen.dedup();
    assert_eq!(seen, due);
}

#[test]
fn inodes_that_moved_are_read_and_written_behind_the_volume() {
    let mut t = Tried::new(small(false, false, 64 << 20));
    let root = t.fs.root();
    let all: Vec<_> = (0..40).map(|_| t.fs.create(root).expect("room")).collect();
    let behind = t.fs.blocks() * 4096;
    t.fs.move_inodes(&all[..20]);
    let reads = |t: &mut Tried, of: usize| -> Vec<u64> {
        t.fs.drop_caches();
        t.drain();
        t.fs.stat(all[of]).expect("there");
        let read = t
            .drain()
            .into_iter()
            .filter(|r| r.op == Op::Read && r.class == 4);
        read.map(|r| r.offset).collect()
    };
    // Sixteen to a block; the root's own inode is read from the volume first.
    assert_eq!(reads(&mut t, 0).last(), Some(&behind));
    assert_eq!(reads(&mut t, 16).last(), Some(&(behind + 4096)));
    assert!(reads(&mut t, 20).iter().all(|at| *at < behind));
    // A new file that gets the number of a deleted one is an ordinary file.
    t.fs.unlink(all[0]).expect("there");
    assert_eq!(t.fs.create(root), Ok(all[0]));
    assert!(reads(&mut t, 0).iter().all(|at| *at < behind));
}

#[test]
fn directories_grow_with_their_entries() {
    let mut t = Tried::new(Config {
        entry_bytes: 32,
        ..small(false, false, 64 << 20)
    });
    let d = t.fs.mkdir(t.fs.root()).expect("room");
    let count = |t: &Tried| {
        let owners = t.fs.owners().expect("sound");
        owners
            .values()
            .filter(|o| **o == Owner::Directory(d))
            .count()
    };
    // 128 entries a block, two of them for `.` and `..`.
    for (files, blocks) in [(126, 1), (127, 2), (254, 2), (255, 3)] {
        while t.files.len() < files {
            t.files.push(t.fs.create(d).expect("room"));
        }
        assert_eq!(count(&t), blocks, "{files} files");
    }
}

#[test]
fn what_does_not_fit_is_refused_and_leaves_no_damage() {
    let mut t = Tried::new(Config {
        bytes: 16 << 20,
        journal_bytes: 0,
        ..small(false, false, 1 << 20)
    });
    let root = t.fs.root();
    let f = t.fs.create(root).expect("room");
    assert_eq!(t.fs.write(f, 0, 64 << 20), Err(LayoutError::NoSpace));
    t.fs.owners().expect("sound");
    t.fs.unlink(f).expect("still there");
    let f = t.fs.create(root).expect("room again");
    t.fs.write(f, 0, 8 << 20).expect("room again");
    assert_eq!(t.fs.write(f, 0, u64::MAX), Err(LayoutError::TooLarge));
    assert_eq!(t.fs.unlink(root), Err(LayoutError::NotEmpty(root.0)));
    assert_eq!(t.fs.read(root, 0, 1), Err(LayoutError::NotFound(root.0)));
    let mut made = 0;
    while t.fs.create(root).is_ok() {
        made += 1;
    }
    assert!(made > 500, "{made}");
    t.fs.owners().expect("sound");
    assert!(
        FileSystem::new(Config {
            bytes: 1,
            ..Config::default()
        })
        .is_err()
    );
}

#[test]
fn cached_pages_are_not_read_again() {
    let mut t = Tried::new(small(false, false, 64 << 20));
    let f = t.fs.create(t.fs.root()).expect("room");
    t.fs.write(f, 0, 1 << 20).expect("room");
    t.fs.forget_io();
    t.fs.read(f, 0, 1 << 20).expect("there");
    let first: u64 = t
        .drain()
        .iter()
        .filter(|r| r.class >= 8)
        .map(|r| u64::from(r.len))
        .sum();
    assert_eq!(first, 1 << 20);
    t.fs.read(f, 0, 1 << 20).expect("there");
    assert!(t.drain().is_empty());
}

#[test]
fn an_image_made_quietly_is_the_same_image() {
    let run = |quiet: bool| {
        let mut t = Tried::new(small(true, false, 1 << 20));
        if quiet {
            t.fs.make_image();
        }
        for i in 0..40u8 {
            t.act(Do::Mkdir(i)).expect("room");
            t.act(Do::Create(i)).expect("room");
            t.act(Do::Append(i, 70_000)).expect("room");
            t.act(Do::Unlink(i.wrapping_mul(7))).expect("there");
            t.act(Do::Create(i)).expect("room");
        }
        t.fs.forget_io();
        assert!(t.drain().is_empty());
        for i in 0..40u8 {
            t.act(Do::Append(i, 9000)).expect("room");
            t.act(Do::Read(i)).expect("there");
        }
        t.fs.sync();
        (t.fs.owners().expect("sound"), t.drain())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn with_room_of_its_own_a_file_has_its_rooms_for_itself_and_discards_them_when_it_goes() {
    const ROOM: u64 = 8;
    let mut fs = FileSystem::new(Config {
        bytes: 64 << 20,
        room_blocks: ROOM as u32,
        discard: true,
        ..Config::default()
    })
    .expect("a sound configuration");
    let root = fs.root();
    let mut files = Vec::new();
    for i in 0..300u64 {
        let file = fs.create(root).expect("room");
        fs.write(file, 0, 1 + i * 97 % 28_000).expect("room");
        files.push(file);
        if i % 3 == 1 {
            let gone = files.remove((i * 7 % files.len() as u64) as usize);
            fs.unlink(gone).expect("it is there");
        }
        // A file grows in its own room, whatever other files were created in between.
        let grown = files[(i * 5 % files.len() as u64) as usize];
        let size = fs.size(grown);
        fs.append(grown, (28_000 - size).min(5000)).expect("room");
    }
    let mut rooms: BTreeMap<Ino, BTreeSet<u64>> = BTreeMap::new();
    for (block, owner) in fs.owners().expect("sound") {
        if let Owner::File(file) = owner {
            rooms.entry(file).or_default().insert(block / ROOM);
        }
    }
    assert_eq!(rooms.len(), files.len());
    let all: BTreeSet<u64> = rooms.values().flatten().copied().collect();
    assert_eq!(all.len(), rooms.len(), "one room each, none shared");

    let mut before = Vec::new();
    fs.drain(&mut before);
    fs.unlink(files[0]).expect("it is there");
    let mut after = Vec::new();
    fs.drain(&mut after);
    let gone: Vec<_> = after.iter().filter(|r| r.op == Op::Discard).collect();
    let blocks = fs.owners().expect("sound");
    assert_eq!(gone.len(), 1);
    let range = gone[0].offset / 4096..gone[0].end() / 4096;
    assert_eq!(Some(&(range.start / ROOM)), rooms[&files[0]].first());
    assert!(range.clone().all(|b| !blocks.contains_key(&b)));
}
