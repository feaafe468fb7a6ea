//! Random reads, writes, truncations, holes and copies of one file, compared with the expected contents, while the file moves all the time.

use crate::world::{World, run};
use isotherm_core::random::SplitMix64;
use isotherm_files::chaos;
use isotherm_files::fuse::Io;
use isotherm_files::ranges::RANGE;
use isotherm_files::store::Settings;
use rustix::fs::FallocateFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const LARGEST: u64 = 3 * RANGE;
const STEPS: u32 = 1500;

struct Tried {
    file: File,
    other: File,
    /// The expected contents of both files.
    expected: Vec<u8>,
    copied: Vec<u8>,
}

/// The offset and the length of the next step.
fn range(random: &mut SplitMix64) -> (usize, usize) {
    let at = random.below(LARGEST);
    let len = 1 + random.below((LARGEST - at).min(20_000));
    (at as usize, len as usize)
}

impl Tried {
    fn grow(&mut self, to: usize) {
        if self.expected.len() < to {
            self.expected.resize(to, 0);
        }
    }
    fn step(&mut self, random: &mut SplitMix64, path: &std::path::Path) {
        let (at, len) = range(random);
        match random.below(12) {
            0..=3 => {
                let byte = random.draw() as u8;
                let data: Vec<u8> = (0..len).map(|i| byte.wrapping_add(i as u8)).collect();
                self.file.write_all_at(&data, at as u64).unwrap();
                self.grow(at + len);
                self.expected[at..at + len].copy_from_slice(&data);
            }
            4..=6 => self.look(at, len),
            7 => {
                self.file.set_len(at as u64).unwrap();
                self.expected.resize(at, 0);
            }
            8 => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.file, mode, at as u64, len as u64).unwrap();
                let end = (at + len).min(self.expected.len());
                if at < end {
                    self.expected[at..end].fill(0);
                }
            }
            9 => {
                let (mut from, mut to) = (at as u64, at as u64);
                let (a, b) = (Some(&mut from), Some(&mut to));
                let n = rustix::fs::copy_file_range(&self.file, a, &self.other, b, len).unwrap();
                assert_eq!(n, len.min(self.expected.len().saturating_sub(at)));
                if self.copied.len() < at + n && n > 0 {
                    self.copied.resize(at + n, 0);
                }
                if n > 0 {
                    self.copied[at..at + n].copy_from_slice(&self.expected[at..at + n]);
                }
            }
            10 => {
                rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at as u64, len as u64)
                    .unwrap();
                self.grow(at + len);
            }
            _ => {
                if random.draw().is_multiple_of(4) {
                    self.file.sync_all().unwrap();
                }
                self.file = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open(path)
                    .unwrap();
            }
        }
    }
    fn look(&self, at: usize, len: usize) {
        let mut got = vec![0; len];
        let n = self.file.read_at(&mut got, at as u64).unwrap();
        let end = (at + len).min(self.expected.len());
        let wanted = self.expected.get(at..end).unwrap_or_default();
        assert!(got[..n] == *wanted, "{len} bytes at {at}");
    }
}

#[test]
fn a_file_holds_what_was_written_while_it_moves() {
    for (copies, io) in [
        (false, Io::Cached),
        (true, Io::Cached),
        (true, Io::Writeback),
    ] {
        let change = |s: &mut Settings| {
            s.copies = copies;
            s.heads.bytes = if copies { 16 << 10 } else { 0 };
            (s.ranges.from, s.ranges.percent) = (RANGE, 1);
        };
        holds_what_was_written(copies, World::with_tiers(3, change, io));
    }
    holds_what_was_written(false, World::with_disks(|_| {}, Io::Cached));
}

fn holds_what_was_written(copies: bool, world: Option<World>) {
    let Some(w) = world else { return };
    let base = std::env::var("ISOTHERM_SEED").ok();
    let base = base.and_then(|s| s.parse().ok()).unwrap_or(2026u64);
    let mut random = SplitMix64::new(base);
    println!("ISOTHERM_SEED={base}");
    let stop = AtomicBool::new(false);
    let store = std::sync::Arc::clone(&w.mounted.as_ref().unwrap().store);
    let path = w.at("f");
    let make = |n: &str| File::create_new(w.at(n)).unwrap();
    drop(make("f"));
    let mut tried = Tried {
        file: OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap(),
        other: make("g"),
        expected: Vec::new(),
        copied: Vec::new(),
    };
    let moved = std::thread::scope(|scope| {
        let mover = scope.spawn(|| chaos::run(&store, base, || stop.load(Ordering::SeqCst)));
        let work = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let c = &store.copies;
            let count = |n: &AtomicU64| n.load(Ordering::Relaxed) > 0;
            let kinds = [&c.made, &c.heads.made, &c.ranges.hits];
            let all = || w.moves() > 0 && (!copies || kinds.into_iter().all(count));
            let begun = Instant::now();
            // On a busy machine the mover may not have had its turn yet.
            for n in 0.. {
                if n >= STEPS && (all() || begun.elapsed() > Duration::from_secs(120)) {
                    break;
                }
                tried.step(&mut random, &path);
            }
            tried.look(0, LARGEST as usize);
        }));
        stop.store(true, Ordering::SeqCst);
        let moved = mover.join().unwrap();
        if let Err(e) = work {
            std::panic::resume_unwind(e);
        }
        moved
    });
    assert!(moved > 0);
    let c = &store.copies;
    // The number of reads from copies depends on how busy the machine is; tests/copies/ checks that copies are read.
    assert_eq!(c.made.load(Ordering::Relaxed) > 0, copies);
    assert_eq!(c.heads.made.load(Ordering::Relaxed) > 0, copies);
    assert_eq!(c.ranges.hits.load(Ordering::Relaxed) > 0, copies);
    assert!(std::fs::read(w.at("g")).unwrap() == tried.copied);
    assert!(std::fs::metadata(&path).unwrap().len() == tried.expected.len() as u64);
}

/// A user without the right to set set-user-ID bits clears them with every change of data, by any call. The kernel leaves this to the file
/// system.
#[test]
fn rights_go_when_another_changes_the_data() {
    for io in [Io::Cached, Io::Writeback, Io::Passthrough] {
        let Some(w) = World::new(|_| {}, io) else {
            return;
        };
        run(
            "python3 - <<'P'
import os
os.chmod('.', 0o777)
def write(f): os.pwrite(f, b'x', 0)
def cut(f): os.ftruncate(f, 1)
def room(f): os.posix_fallocate(f, 0, 9000)
def copy(f):
    g = os.open('source', os.O_RDONLY); os.copy_file_range(g, f, 3, 0, 0); os.close(g)
open('source', 'w').write('abc'); os.chmod('source', 0o644)
for way in (write, cut, room, copy):
    for mode, left in ((0o6777, 0o777), (0o2767, None)):
        for user in (0, 65534):
            open('f', 'w').write('hello'); os.chown('f', 1, 1); os.chmod('f', mode)
            os.stat('f')
            pid = os.fork()
            if pid == 0:
                try:
                    os.setgroups([]); os.setresgid(user, user, user); os.setresuid(user, user, user)
                    f = os.open('f', os.O_RDWR); way(f); os.close(f); os._exit(0)
                except BaseException as e:
                    print(way.__name__, e, flush=True); os._exit(1)
            assert os.waitpid(pid, 0)[1] == 0
            now = os.stat('f').st_mode & 0o7777
            if user == 0: assert now == mode, (way.__name__, oct(now))
            elif left is not None: assert now == left, (way.__name__, oct(now))
            else: assert now & 0o4000 == 0
            os.remove('f')
P",
            &w.at(""),
        );
    }
}
