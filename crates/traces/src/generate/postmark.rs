//! Postmark: it creates a pool of small files, runs transactions on the pool, and deletes it.
//!
//! - OODT 4.3.1: 40 000 files of 32–40 KB, 80 000 transactions, 4 KB granularity, on ext2. Mean request 9.5 KB, largest 28 KB
//!   (figure 4b). The largest request is a parameter. The mean results from the intervals at which the caches are written back and emptied.
//!   With `sync=1` and `drop=1`, the set-up as section 4.1 describes it, this layout writes so many single bitmap and inode blocks that the
//!   mean is 5.8 KB.
//! - Loris V-B1: 80 000 transactions on 40 000 files of 4–28 KB in 10 directories; each transaction pairs a whole-file read or an
//!   append with a create or a delete; read : write about 1 : 2.
//!
//! Assumed: even odds of read/append and of create/delete (Postmark's defaults), uniform sizes, appends of 1 … (max − size)
//! bytes as Postmark draws them.

use rand::{RngExt, SeedableRng};

use super::fileset::{DISCARD, FileSet, INODES, ROOM, config, drop_every};
use super::param::{Param, Values};
use super::run::{FileSteps, Rng};
use crate::layout::{Config, FileSystem, LayoutError};

const MANY: u64 = 1 << 30;

const FILES: Param = Param::count(
    "files",
    40_000,
    (1, MANY),
    "files of the pool (OODT 4.3.1, Loris V-B1)",
);
const TRANSACTIONS: Param = Param::count(
    "transactions",
    80_000,
    (0, MANY),
    "transactions (OODT 4.3.1, Loris V-B1)",
);
const MIN: Param = Param::bytes("min", 32 << 10, (1, 1 << 30), "smallest file (OODT 4.3.1)");
const MAX: Param = Param::bytes("max", 40 << 10, (1, 1 << 30), "largest file (OODT 4.3.1)");
const DIRS: Param = Param::count(
    "dirs",
    10,
    (1, 1 << 20),
    "directories (Loris V-B1; OODT does not say)",
);
const SYNC: Param = Param::switch(
    "sync",
    false,
    "mounted with the sync option (OODT 4.1; see above why not by default)",
);
const DROP: Param = Param::seconds(
    "drop",
    10.0,
    (0.0, 1e6),
    "write back and empty the caches this often; 0: never (calibrated on OODT figure 4b)",
);
const JOURNAL: Param = Param::bytes("journal", 0, (0, 64 << 20), "journal; 0 is ext2 (OODT 4.1)");
const CACHE: Param = Param::bytes("cache", 256 << 20, (0, 1 << 40), "page cache (assumed)");
const REQUEST: Param = Param::bytes(
    "request",
    28 << 10,
    (4 << 10, 4 << 20),
    "largest request (OODT figure 4b)",
);
const END: Param = Param::switch(
    "delete",
    true,
    "delete all files in the end (OODT 4.3.1: the third stage)",
);

/// OODT's set-up.
pub(super) const OODT: &[Param] = &[
    FILES,
    TRANSACTIONS,
    MIN,
    MAX,
    DIRS,
    SYNC,
    DROP,
    JOURNAL,
    CACHE,
    REQUEST,
    END,
];

/// Loris' set-up.
pub(super) const LORIS: &[Param] = &[
    FILES,
    TRANSACTIONS,
    MIN.or(4096.0),
    MAX.or(28_672.0),
    DIRS,
    SYNC,
    DROP.or(0.0),
    JOURNAL,
    CACHE.or(67_108_864.0),
    REQUEST.or(524_288.0),
    END,
    DISCARD,
    INODES,
    ROOM,
];

enum Stage {
    Create(u64),
    Run(u64),
    Delete,
}

/// The workload.
pub(super) struct Postmark {
    fs: FileSystem,
    set: FileSet,
    rng: Rng,
    files: u64,
    transactions: u64,
    min: u64,
    max: u64,
    delete: bool,
    stage: Stage,
}

impl Postmark {
    pub fn new(v: &Values) -> Result<Postmark, LayoutError> {
        let files = v.scaled("files", 1);
        let (min, max) = (v.count("min"), v.count("max").max(v.count("min")));
        let base = config(v, files as f64 * max as f64 * 1.5, files);
        let mut fs = FileSystem::new(Config {
            journal_bytes: v.count("journal"),
            sync: v.on("sync"),
            drop_every: drop_every(v),
            max_request: (v.count("request") / 4096 * 4096) as u32,
            ..base
        })?;
        let set = FileSet::flat(&mut fs, v.count("dirs"))?;
        Ok(Postmark {
            fs,
            set,
            rng: Rng::seed_from_u64(v.seed),
            files,
            transactions: v.scaled("transactions", 0),
            min,
            max,
            delete: v.on("delete"),
            stage: Stage::Create(0),
        })
    }

    fn create(&mut self) -> Result<(), LayoutError> {
        let size = self.rng.random_range(self.min..=self.max);
        self.set.add(&mut self.fs, &mut self.rng, size)
    }

    fn transaction(&mut self) -> Result<(), LayoutError> {
        if let Some(file) = self.set.any(&mut self.rng) {
            let size = self.fs.size(file);
            if self.rng.random::<bool>() {
                self.fs.read(file, 0, size)?;
            } else if size < self.max {
                let more = self.rng.random_range(1..=self.max - size);
                self.fs.append(file, more)?;
            }
        }
        if self.rng.random::<bool>() {
            self.create()
        } else if self.set.files.is_empty() {
            Ok(())
        } else {
            let at = self.rng.random_range(0..self.set.files.len());
            self.set.remove(&mut self.fs, at)
        }
    }
}

impl FileSteps for Postmark {
    fn fs(&mut self) -> &mut FileSystem {
        &mut self.fs
    }

    fn step(&mut self) -> Result<bool, LayoutError> {
        match self.stage {
            Stage::Create(done) if done < self.files => {
                self.create()?;
                self.stage = Stage::Create(done + 1);
            }
            Stage::Create(_) => self.stage = Stage::Run(0),
            Stage::Run(done) if done < self.transactions => {
                self.transaction()?;
                self.stage = Stage::Run(done + 1);
            }
            Stage::Run(_) => self.stage = Stage::Delete,
            Stage::Delete => {
                let last = self.set.files.len();
                if !self.delete || last == 0 {
                    return Ok(false);
                }
                self.set.remove(&mut self.fs, last - 1)?;
            }
        }
        Ok(true)
    }
}
