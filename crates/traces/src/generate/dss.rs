//! The file server and the e-mail server of DSS (5.2): first a pool of files is created, then existing files are read and new files are
//! written in the ratio 2 : 1.
//!
//! Calibrated: Table 8 (file sizes); 262 144 files in 8 738 directories and an equal number of transactions (SPECsfs); 1 million files in 1
//! 000 directories and 1 million transactions (e-mail); ext3 with a journal, 8 GB of memory (5.1). The used capacity is then close to the
//! 184 GB and 204 GB that the paper reports. Assumed: whole files are read and written, directories are chosen uniformly, and neighbouring
//! pages are merged into one request (the 4 KB of the paper are requests of the application).

use rand::{RngExt, SeedableRng};

use super::dist::Sizes;
use super::fileset::{FileSet, config};
use super::param::{Param, Values};
use super::run::{FileSteps, Rng};
use crate::layout::{Config, FileSystem, Ino, LayoutError};

const FILES: Param = Param::count("files", 262_144, (1, 1 << 26), "files made first (DSS 5.2)");
const DIRS: Param = Param::count("dirs", 8_738, (1, 1 << 22), "directories (DSS 5.2)");
const TRANSACTIONS: Param = Param::count(
    "transactions",
    262_144,
    (0, 1 << 40),
    "transactions (DSS 5.2)",
);
const READS: Param = Param::real(
    "reads",
    2.0 / 3.0,
    (0.0, 1.0),
    "share of transactions that read (DSS 5.2: 2 to 1)",
);
const PREPARE: Param = Param::switch(
    "prepare",
    false,
    "the trace begins with the making of the files; 0: it finds them made",
);
const JOURNAL: Param = Param::bytes("journal", 64 << 20, (0, 64 << 20), "journal (ext3)");
const CACHE: Param = Param::bytes(
    "cache",
    6 << 30,
    (0, 1 << 40),
    "page cache (DSS 5.1: 8 GB of memory)",
);
const REQUEST: Param = Param::bytes(
    "request",
    512 << 10,
    (4 << 10, 4 << 20),
    "largest request (DSS 4.4.2)",
);

/// The file server.
pub(super) const SPECSFS: &[Param] = &[
    FILES,
    DIRS,
    TRANSACTIONS,
    READS,
    PREPARE,
    JOURNAL,
    CACHE,
    REQUEST,
];

/// The e-mail server.
pub(super) const EMAIL: &[Param] = &[
    FILES.or(1e6),
    DIRS.or(1e3),
    TRANSACTIONS.or(1e6),
    READS,
    PREPARE,
    JOURNAL,
    CACHE,
    REQUEST,
];

/// Bytes of a member's header in an archive, including the padding.
const TAR_HEADER: u64 = 1024;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;

/// Table 8, file server: bytes and percent.
pub(super) const SPECSFS_SIZES: &[(u64, f64)] = &[
    (K, 17.0),
    (2 * K, 16.0),
    (4 * K, 16.0),
    (8 * K, 7.0),
    (16 * K, 7.0),
    (32 * K, 9.0),
    (64 * K, 7.0),
    (128 * K, 5.0),
    (256 * K, 5.0),
    (512 * K, 4.0),
    (M, 3.0),
    (2 * M, 2.0),
    (8 * M, 1.0),
    (32 * M, 1.0),
];

/// Table 8, e-mail server.
pub(super) const EMAIL_SIZES: &[(u64, f64)] = &[
    (2 * K, 24.0),
    (4 * K, 26.0),
    (8 * K, 18.0),
    (16 * K, 12.0),
    (32 * K, 6.0),
    (64 * K, 5.0),
    (128 * K, 3.0),
    (256 * K, 2.0),
    (512 * K, 2.0),
    (M, 1.0),
    (10 * M, 1.0),
];

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// SPECsfs' file sizes.
    File,
    /// The e-mail server's.
    Email,
}

/// The kind and size of a transaction, for callers that measure the latency of whole files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Whether it created a file; otherwise it read one.
    pub write: bool,
    /// Bytes of the file.
    pub size: u64,
}

/// The workload. Under the generators' reader it is a stream of requests. A caller that drives it directly also learns where transactions
/// begin and end, and can run the utilities of DSS 5.6 over the resulting image.
pub struct Server {
    fs: FileSystem,
    set: FileSet,
    rng: Rng,
    sizes: Sizes,
    files: u64,
    left: u64,
    reads: f64,
    keep: bool,
    running: bool,
}

impl Server {
    /// A workload of `scale` times the counts of the paper. It includes the creation of the files, and a block is written under the size
    /// that its file had when the block was added (4.2.1). The streams of the generators do neither.
    ///
    /// # Errors
    /// The scale is out of bounds.
    pub fn with(mix: Mix, scale: f64, seed: u64) -> Result<Server, LayoutError> {
        if !(1e-6..=1.0).contains(&scale) {
            return Err(LayoutError::Config("scale (0.000001 to 1)"));
        }
        let (params, sizes) = match mix {
            Mix::File => (SPECSFS, SPECSFS_SIZES),
            Mix::Email => (EMAIL, EMAIL_SIZES),
        };
        let mut v = Values::defaults(params, scale);
        v.seed = seed;
        // The journal is scaled, too; otherwise it would fill the cache.
        let journal = (JOURNAL.default * scale).max(f64::from(1 << 20)) as u64 / 4096 * 4096;
        for (param, value) in [(PREPARE, 1.0), (JOURNAL, journal as f64)] {
            if let Some(at) = params.iter().position(|p| p.name == param.name) {
                v.set(at, value);
            }
        }
        Server::make(&v, sizes, true)
    }

    /// Creates the next file of the pool. Returns false if all files exist.
    ///
    /// # Errors
    /// The volume is full.
    pub fn prepare(&mut self) -> Result<bool, LayoutError> {
        if self.set.files.len() as u64 >= self.files {
            return Ok(false);
        }
        self.add()?;
        Ok(true)
    }

    /// The next transaction; `None` after the last one.
    ///
    /// # Errors
    /// The volume is full.
    pub fn transaction(&mut self) -> Result<Option<Transaction>, LayoutError> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        match self.set.any(&mut self.rng) {
            Some(file) if self.rng.random::<f64>() < self.reads => {
                let size = self.fs.size(file);
                self.fs.read(file, 0, size)?;
                Ok(Some(Transaction { write: false, size }))
            }
            _ => {
                self.add()?;
                let size = self.set.files.last().map_or(0, |f| self.fs.size(*f));
                Ok(Some(Transaction { write: true, size }))
            }
        }
    }

    /// The file system that it works on.
    pub fn file_system(&mut self) -> &mut FileSystem {
        &mut self.fs
    }

    /// Its directories.
    pub fn directories(&self) -> &[Ino] {
        &self.set.directories
    }

    /// Searches for a file that does not exist, which reads every directory (find, DSS 5.6).
    ///
    /// # Errors
    /// None, unless the layout has a bug.
    pub fn find(&mut self) -> Result<(), LayoutError> {
        self.fs.readdir(self.fs.root())?;
        for &directory in &self.set.directories {
            self.fs.readdir(directory)?;
        }
        Ok(())
    }

    /// Reads every file below the first `directories` and writes their content to one new file (tar, DSS 5.6).
    ///
    /// # Errors
    /// The volume is full.
    pub fn tar(&mut self, directories: usize) -> Result<(), LayoutError> {
        let archive = self.fs.create(self.fs.root())?;
        let mut inside: Vec<(Ino, Ino)> = Vec::new();
        for &file in &self.set.files {
            let above = self.fs.parent(file).unwrap_or_default();
            inside.push((above, file));
        }
        // A directory is read as a whole. Its files are then read in the order of their names, which is the order of their creation.
        inside.sort_unstable();
        for &directory in self.set.directories.iter().take(directories) {
            self.fs.readdir(directory)?;
            let from = inside.partition_point(|x| x.0 < directory);
            for &(_, file) in inside[from..].iter().take_while(|x| x.0 == directory) {
                let size = self.fs.size(file);
                self.fs.read(file, 0, size)?;
                self.fs.append(archive, size + TAR_HEADER)?;
            }
        }
        self.fs.sync();
        Ok(())
    }

    pub(super) fn new(v: &Values, sizes: &[(u64, f64)]) -> Result<Server, LayoutError> {
        Server::make(v, sizes, false)
    }

    fn make(v: &Values, sizes: &[(u64, f64)], growing: bool) -> Result<Server, LayoutError> {
        let (files, transactions) = (v.scaled("files", 1), v.scaled("transactions", 0));
        let in_the_end = files as f64 + transactions as f64 * (1.0 - v.real("reads"));
        let total: f64 = sizes.iter().map(|s| s.1).sum();
        let mean = sizes
            .iter()
            .map(|&(size, weight)| size as f64 * weight)
            .sum::<f64>()
            / total;
        // If the files are few, some may by chance be far larger than the mean.
        let largest = sizes.iter().map(|s| s.0).max().unwrap_or(0) as f64;
        let data = in_the_end * mean + 4.0 * largest * in_the_end.sqrt().min(1e3);
        let mut fs = FileSystem::new(Config {
            journal_bytes: v.count("journal"),
            class_at_growth: growing,
            max_request: (v.count("request") / 4096 * 4096) as u32,
            ..config(v, data, in_the_end as u64)
        })?;
        if !v.on("prepare") {
            fs.make_image();
        }
        let set = FileSet::flat(&mut fs, v.scaled("dirs", 1))?;
        Ok(Server {
            fs,
            set,
            rng: Rng::seed_from_u64(v.seed),
            sizes: Sizes::new(sizes),
            files,
            left: transactions,
            reads: v.real("reads"),
            keep: v.on("prepare"),
            running: false,
        })
    }

    fn add(&mut self) -> Result<(), LayoutError> {
        let size = self.sizes.draw(&mut self.rng);
        self.set.add(&mut self.fs, &mut self.rng, size)
    }
}

impl FileSteps for Server {
    fn fs(&mut self) -> &mut FileSystem {
        &mut self.fs
    }

    fn step(&mut self) -> Result<bool, LayoutError> {
        if !self.running {
            if (self.set.files.len() as u64) < self.files {
                self.add()?;
            } else {
                self.running = true;
            }
            if !self.keep {
                self.fs.forget_output();
                if self.running {
                    self.fs.forget_io();
                }
            }
            return Ok(true);
        }
        Ok(self.transaction()?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Table 8 and 5.2 give sizes and counts; the capacities in 5.2 follow from them within 6 %.
    #[test]
    fn capacities_follow_from_table_8() {
        for (sizes, files, gb) in [(SPECSFS_SIZES, 262_144.0, 184.0), (EMAIL_SIZES, 1e6, 204.0)] {
            assert!((sizes.iter().map(|s| s.1).sum::<f64>() - 100.0).abs() < 1e-9);
            let mean = sizes.iter().map(|s| s.0 as f64 * s.1 / 100.0).sum::<f64>();
            // There are as many transactions as files, and a third of the transactions create a file.
            let used = files * 4.0 / 3.0 * mean / 1e9;
            assert!((used / gb - 1.0).abs() < 0.06, "{used} for {gb}");
        }
    }
}
