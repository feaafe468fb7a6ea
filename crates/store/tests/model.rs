//! Random lives of a disk over a store that fails, beside a model that knows the state after each write.
//!
//! `ISOTHERM_SEED=N` runs one seed, `SEEDS=N` so many (500).

mod common;

use common::{Faults, Random, World, runtime, scratch, way};
use isotherm_store::disk::{Disk, DiskError, Settings};
use isotherm_store::upload::Failed;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;

const BLOCKS: u64 = 48;
const BLOCK: usize = 4096;

type Content = [u32; BLOCKS as usize];

fn settings() -> Settings {
    Settings {
        order: Duration::from_secs(3600),
        new_spool: true,
        remote_wait: Duration::ZERO,
        grace: Duration::ZERO,
        deltas: 3,
        compact_bytes: 0,
        cache_bytes: 1 << 20,
        ..Settings::default()
    }
}

struct Writer {
    disk: Option<Disk>,
    faults: Arc<Mutex<Faults>>,
    dir: PathBuf,
}

struct Life {
    seed: u64,
    random: Random,
    world: Arc<World>,
    runtime: Arc<Runtime>,
    scratch: tempfile::TempDir,
    dirs: u32,
    writer: Writer,
    /// The content after each write.
    history: Vec<Content>,
    /// Places in the history: of the last FLUSH, of the newest state that the store has for certain, and of the one that it may have.
    flushed: usize,
    committed: usize,
    pending: Option<usize>,
    faulty: bool,
}

fn contents(disk: &Disk) -> Result<Content, DiskError> {
    let mut bytes = vec![1; BLOCKS as usize * BLOCK];
    disk.read(0, &mut bytes)?;
    let mut found = [0; BLOCKS as usize];
    for (number, block) in found.iter_mut().zip(bytes.chunks(BLOCK)) {
        *number = u32::from_le_bytes(block[..4].try_into().unwrap());
        let same = block.chunks(4).all(|w| w == number.to_le_bytes());
        assert!(same, "a block of several writes");
    }
    Ok(found)
}

fn newest(dir: &Path) -> PathBuf {
    let files = std::fs::read_dir(dir).unwrap().map(|f| f.unwrap().path());
    files
        .filter(|p| p.extension().is_some_and(|e| e == "spool"))
        .max()
        .unwrap()
}

impl Life {
    fn new(seed: u64, runtime: Arc<Runtime>) -> Life {
        let world = Arc::new(World::default());
        let (remote, faults) = way(&world, seed, &runtime);
        isotherm_store::head::create(&remote, BLOCKS * BLOCK as u64, 1 << 20).unwrap();
        let scratch = scratch();
        let dir = scratch.path().join("0");
        let disk = Disk::open(remote, &dir, settings(), false).unwrap();
        let mut random = Random(seed);
        Life {
            seed,
            faulty: random.one_in(2),
            random,
            world,
            runtime,
            scratch,
            dirs: 0,
            writer: Writer {
                disk: Some(disk),
                faults,
                dir,
            },
            history: vec![[0; BLOCKS as usize]],
            flushed: 0,
            committed: 0,
            pending: None,
        }
    }

    fn disk(&self) -> &Disk {
        self.writer.disk.as_ref().unwrap()
    }

    fn rate(&mut self) {
        let rate = if self.faulty {
            3 + self.random.below(12)
        } else {
            0
        };
        self.writer.faults.lock().unwrap().one_in = rate;
    }

    fn write(&mut self) {
        let start = self.random.below(BLOCKS);
        let len = 1 + self.random.below((BLOCKS - start).min(9));
        let zero = self.random.one_in(5);
        let number = if zero { 0 } else { self.history.len() as u32 };
        let mut next = *self.history.last().unwrap();
        next[start as usize..(start + len) as usize].fill(number);
        if zero {
            self.disk().zero(start, len).unwrap();
        } else {
            self.disk()
                .write(
                    start,
                    &number.to_le_bytes().repeat(len as usize * BLOCK / 4),
                )
                .unwrap();
        }
        self.history.push(next);
    }

    fn now(&self) -> usize {
        self.history.len() - 1
    }

    fn upload(&mut self) {
        if self.random.one_in(6) {
            let left = self.random.below(9);
            self.writer.faults.lock().unwrap().left = Some(left);
        }
        match self.disk().upload() {
            Ok(true) => self.committed = self.pending.take().unwrap(),
            Ok(false) | Err(Failed::Later(_) | Failed::Moved(_)) => {}
            Err(other) => panic!("seed {}: {other:?}", self.seed),
        }
        let folded = self.disk().fold();
        assert!(
            !matches!(folded, Err(Failed::Fenced | Failed::Spool(_))),
            "seed {}: {folded:?}",
            self.seed
        );
        self.writer.faults.lock().unwrap().left = None;
    }

    fn cut(&mut self) {
        if self.disk().cut_now() && self.pending.is_none() {
            self.pending = Some(self.now());
        }
    }

    /// Opens the disk again in `dir`, through faults.
    fn open(&mut self, dir: &Path) {
        for attempt in 0.. {
            let seed = self.random.below(u64::MAX);
            let (remote, faults) = way(&self.world, seed, &self.runtime);
            faults.lock().unwrap().one_in = if self.faulty && attempt < 3 { 8 } else { 0 };
            match Disk::open(remote, dir, settings(), false) {
                Ok(disk) => {
                    self.writer = Writer {
                        disk: Some(disk),
                        faults,
                        dir: dir.to_owned(),
                    };
                    return;
                }
                Err(why) => assert!(attempt < 3 && self.faulty, "seed {}: {why}", self.seed),
            }
        }
    }

    fn new_dir(&mut self) -> PathBuf {
        self.dirs += 1;
        self.scratch.path().join(self.dirs.to_string())
    }

    /// The content is one of `places` of the history, which ends there from now on.
    fn is_one_of(&mut self, places: &[usize]) {
        self.writer.faults.lock().unwrap().one_in = 0;
        let found = contents(self.disk()).unwrap_or_else(|e| panic!("seed {}: {e}", self.seed));
        let at = places.iter().copied().find(|&p| self.history[p] == found);
        let at = at.unwrap_or_else(|| {
            panic!(
                "seed {}: the content is none of {places:?} of {}",
                self.seed,
                self.now()
            )
        });
        self.history.truncate(at + 1);
        self.flushed = self.flushed.min(at);
        self.rate();
    }

    fn kill(&mut self) {
        self.writer.disk = None;
        let dir = self.writer.dir.clone();
        self.open(&dir);
        self.is_one_of(&[self.now()]);
        // A commit without an answer may be there, and what is in no commit is one epoch now.
        self.pending = self.pending.filter(|_| false);
        self.committed = self.committed.min(self.now());
        self.settle();
    }

    /// All that is known is in the store.
    fn settle(&mut self) {
        self.writer.faults.lock().unwrap().one_in = 0;
        self.disk().cut_now();
        self.disk().upload().unwrap();
        self.committed = self.now();
        self.rate();
    }

    /// As [`Life::settle`], whatever was cut before.
    fn settle_all(&mut self) {
        self.writer.faults.lock().unwrap().one_in = 0;
        self.disk().upload().unwrap();
        self.pending = None;
        self.settle();
    }

    /// The last file of the spool loses a part that no FLUSH covered.
    fn power_loss(&mut self, durable: &(u64, PathBuf)) {
        self.writer.disk = None;
        let path = newest(&self.writer.dir);
        let last = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        // A file is durable before the next one is made.
        let durable = if path == durable.1 { durable.0 } else { 64 };
        let len = last.metadata().unwrap().len();
        let from = durable.min(len).max(64);
        last.set_len(from + self.random.below(len - from + 1))
            .unwrap();
        if self.random.one_in(2) && len > from {
            // A later part may be there without an earlier one.
            last.set_len(len).unwrap();
        }
        let dir = self.writer.dir.clone();
        self.open(&dir);
        let least = self.flushed.max(self.committed);
        let places: Vec<usize> = (least..=self.now()).collect();
        self.is_one_of(&places);
        self.pending = None;
        self.settle();
    }

    fn lose_spool(&mut self) {
        self.writer.disk = None;
        let dir = self.new_dir();
        self.open(&dir);
        let places: Vec<usize> = std::iter::once(self.committed)
            .chain(self.pending)
            .collect();
        self.is_one_of(&places);
        self.pending = None;
        self.committed = self.now();
    }

    /// Another writer takes the store while ours is in the middle of an upload, and both go on.
    fn second_writer(&mut self) {
        self.settle_all();
        self.writer.faults.lock().unwrap().one_in = 0;
        self.write();
        self.cut();
        let (world, dir, seed) = (
            Arc::clone(&self.world),
            self.new_dir(),
            self.random.below(u64::MAX),
        );
        let slot: Arc<Mutex<Option<Disk>>> = Arc::default();
        let (theirs, place) = (Arc::clone(&slot), dir.clone());
        let take = move || {
            let (remote, _) = way(&world, seed, &runtime());
            let disk = Disk::open(remote, &place, settings(), false).unwrap();
            // Old objects of the loser are removed at once.
            disk.write(0, &[0xee; BLOCK]).unwrap();
            disk.cut_now();
            disk.upload().unwrap();
            disk.collect().unwrap();
            *theirs.lock().unwrap() = Some(disk);
        };
        let at = self.random.below(7);
        self.writer.faults.lock().unwrap().hook = Some((at, Box::new(take)));
        let (mut known, mut fenced) = (self.committed, false);
        for _ in 0..4 {
            match self.disk().upload() {
                Ok(_) if slot.lock().unwrap().is_none() => known = self.now(),
                Err(Failed::Fenced) => fenced = true,
                Ok(_) | Err(_) => {}
            }
            let _ = self.disk().fold();
            let _ = self.disk().collect();
            if fenced {
                break;
            }
            if self.disk().write(1, &[0xaa; BLOCK]).is_ok() {
                self.disk().cut_now();
            }
        }
        let Some(winner) = slot.lock().unwrap().take() else {
            // It was not asked so often. What it has written is known to nobody.
            self.writer.faults.lock().unwrap().hook = None;
            self.history.push(contents(self.disk()).unwrap());
            self.pending = None;
            return self.settle();
        };
        assert!(fenced, "seed {}: the loser has not noticed", self.seed);
        assert_eq!(self.disk().write(1, &[0; BLOCK]), Err(DiskError::Fenced));
        assert_eq!(self.disk().flush(), Err(DiskError::Fenced));
        // A request of the loser arrives late.
        while !self.world.late.lock().unwrap().is_empty() {
            self.runtime.block_on(self.world.arrive(0));
        }
        drop(winner);
        self.writer.disk = None;
        self.open(&dir);
        self.writer.faults.lock().unwrap().one_in = 0;
        let mut found = contents(self.disk()).unwrap_or_else(|e| panic!("seed {}: {e}", self.seed));
        assert_eq!(found[0], 0xeeee_eeee, "seed {}", self.seed);
        // The winner began with what the loser had committed before: the state before its last write, or after it.
        let before = (known..self.history.len()).any(|p| self.history[p][1..] == found[1..]);
        let with_marks = found[1] == 0xaaaa_aaaa;
        assert!(before || with_marks, "seed {}: {found:?}", self.seed);
        if with_marks {
            // Only writes before the fence are visible.
            found[1] = 0xaaaa_aaaa;
        }
        self.history = vec![found];
        (self.flushed, self.committed, self.pending) = (0, 0, None);
        self.rate();
    }

    fn run(&mut self) {
        self.rate();
        let mut durable = (0, PathBuf::new());
        for _ in 0..10 + self.random.below(50) {
            match self.random.below(20) {
                0..8 => self.write(),
                8..10 => {
                    self.disk().flush().unwrap();
                    self.flushed = self.now();
                    let last = newest(&self.writer.dir);
                    durable = (last.metadata().unwrap().len(), last);
                }
                10..12 => self.cut(),
                12..15 => self.upload(),
                15 => {
                    let _ = self.disk().collect();
                }
                16 if contents(self.disk()).is_ok_and(|c| c != *self.history.last().unwrap()) => {
                    panic!("seed {}: a read is wrong", self.seed);
                }
                17 if self.random.one_in(3) => self.kill(),
                18 if self.random.one_in(3) => {
                    self.power_loss(&durable);
                }
                19 if self.random.one_in(3) => {
                    if self.random.one_in(2) {
                        self.lose_spool();
                    } else {
                        self.second_writer();
                    }
                }
                _ => {}
            }
        }
        self.writer.disk = None;
        let dir = self.new_dir();
        self.open(&dir);
        let places: Vec<usize> = std::iter::once(self.committed)
            .chain(self.pending)
            .collect();
        self.is_one_of(&places);
    }
}

#[test]
fn lives_of_a_disk() {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    let seeds = match number("ISOTHERM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SEEDS").unwrap_or(500),
    };
    let runtime = runtime();
    for seed in seeds {
        Life::new(seed, Arc::clone(&runtime)).run();
    }
}
