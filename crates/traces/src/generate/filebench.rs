//! Filebench's web server and file server.
//!
//! - Loris V-B2: file server, 10 000 files, directory width 20, 128 KB a file; create and write, append, read whole, delete,
//!   stat; uniform choice.
//! - Loris V-B3: web server, 25 000 files of 32 KB, width 20; ten whole-file reads, then 16 KB to a log. V-B4: two sets of
//!   25 000 files are created first, then the first set is read by Zipf: the popular files are not the ones written last.
//! - OODT 4.3.5: web server, 10 000 files of 16 KB, width 20; about 60 % reads and 40 % metadata, mean request 10 KB.
//! - GreenDM 6.2.5: file server, 8 GB, 1 GB of memory; files chosen by a Gamma distribution of shape 1, 4, 16.
//!
//! Assumed: file sizes by Filebench's Gamma of shape 1.5 around the size (Loris calls it the median, Filebench's model files
//! the mean); appends of 16 KB (Filebench's file server; with 1 MB, Loris' I/O size, 10 000 files outgrow the 8 GB of Loris V-A);
//! the Gamma's scale is a 32nd of the files, so that shapes 1, 4, 16 touch about 10, 30 and 75 % of them; the Zipf exponent is 0.9.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Gamma};

use super::dist::{Scatter, Zipf};
use super::fileset::{DISCARD, FileSet, INODES, ROOM, config, drop_every};
use super::param::{Param, Values};
use super::run::{FileSteps, Rng};
use crate::layout::{Config, FileSystem, Ino, LayoutError};

const MANY: u64 = 1 << 26;

const FILES: Param = Param::count("files", 25_000, (1, MANY), "files of a set (Loris V-B3)");
const SIZE: Param = Param::bytes(
    "size",
    32 << 10,
    (1024, 64 << 20),
    "mean file size (Loris V-B3)",
);
const WIDTH: Param = Param::count(
    "width",
    20,
    (2, 1 << 16),
    "entries of a directory (Loris V-B2, V-B3; OODT 4.3.5)",
);
const LOOPS: Param = Param::count(
    "loops",
    20_000,
    (0, 1 << 40),
    "rounds of the workload (the papers run half an hour; assumed)",
);
const PREPARE: Param = Param::switch(
    "prepare",
    true,
    "the trace begins with the making of the files; 0: it finds them made",
);
const JOURNAL: Param = Param::bytes("journal", 0, (0, 64 << 20), "journal; 0 is ext2");
const CACHE: Param = Param::bytes("cache", 64 << 20, (0, 1 << 40), "page cache (assumed)");
const DROP: Param = Param::seconds(
    "drop",
    0.0,
    (0.0, 1e6),
    "write back and empty the caches this often; 0: never (OODT 4.1: 1)",
);
const SYNC: Param = Param::switch("sync", false, "mounted with the sync option (OODT 4.1)");
const REQUEST: Param = Param::bytes("request", 512 << 10, (4 << 10, 4 << 20), "largest request");
const SETS: Param = Param::count(
    "sets",
    1,
    (1, 16),
    "sets of files made; the first is read (Loris V-B4: 2)",
);
const ZIPF: Param = Param::real(
    "zipf",
    0.0,
    (0.0, 5.0),
    "Zipf exponent of the choice of files; 0 is uniform (Loris V-B3)",
);
const SHIFTS: Param = Param::count(
    "shifts",
    0,
    (0, MANY),
    "times the popularity moves to other files of the set during the run",
);
const READS: Param = Param::count(
    "reads",
    10,
    (0, 1000),
    "whole-file reads of a round (Loris V-B3, OODT 4.2.4)",
);
const LOG: Param = Param::bytes(
    "log",
    16 << 10,
    (0, 16 << 20),
    "bytes appended to the log in a round (Loris V-B3, OODT 4.2.4)",
);
const APPEND: Param = Param::bytes(
    "append",
    16 << 10,
    (1, 64 << 20),
    "bytes of an append (Filebench's model file)",
);
const GAMMA: Param = Param::real(
    "gamma",
    0.0,
    (0.0, 1000.0),
    "shape of the Gamma choice of files; 0 is uniform (GreenDM 6.2.5: 1, 4, 16)",
);

/// Loris' web server.
pub(super) const WEB: &[Param] = &[
    FILES, SIZE, WIDTH, READS, LOG, LOOPS, SETS, ZIPF, SHIFTS, PREPARE, JOURNAL, CACHE, SYNC, DROP,
    REQUEST, INODES, ROOM,
];

/// Loris' web server with Zipf.
pub(super) const WEB_ZIPF: &[Param] = &[
    FILES,
    SIZE,
    WIDTH,
    READS,
    LOG,
    LOOPS,
    SETS.or(2.0),
    ZIPF.or(0.9),
    SHIFTS,
    PREPARE,
    JOURNAL,
    CACHE,
    SYNC,
    DROP,
    REQUEST,
    INODES,
    ROOM,
];

/// OODT's web server.
pub(super) const WEB_OODT: &[Param] = &[
    FILES.or(10_000.0),
    SIZE.or(16_384.0),
    WIDTH,
    READS,
    LOG,
    LOOPS,
    SETS,
    ZIPF,
    SHIFTS,
    PREPARE,
    JOURNAL,
    CACHE,
    SYNC.or(1.0),
    DROP.or(1.0),
    REQUEST,
];

/// Loris' file server.
pub(super) const FILE: &[Param] = &[
    FILES.or(10_000.0),
    SIZE.or(131_072.0),
    WIDTH,
    APPEND,
    LOOPS,
    GAMMA,
    PREPARE,
    JOURNAL,
    CACHE,
    SYNC,
    DROP,
    REQUEST,
    DISCARD,
    INODES,
    ROOM,
];

/// GreenDM's file server.
pub(super) const FILE_GREENDM: &[Param] = &[
    FILES.or(50_000.0),
    SIZE.or(131_072.0),
    WIDTH,
    APPEND,
    LOOPS,
    GAMMA.or(1.0),
    PREPARE,
    JOURNAL.or(33_554_432.0),
    CACHE.or(1_073_741_824.0),
    SYNC,
    DROP,
    REQUEST,
];

/// File sizes: Filebench's Gamma of shape 1.5.
const SIZE_SHAPE: f64 = 1.5;

fn sizes(mean: u64) -> Result<Gamma<f64>, LayoutError> {
    Gamma::new(SIZE_SHAPE, mean as f64 / SIZE_SHAPE).map_err(|_| LayoutError::Config("file size"))
}

fn file_system(v: &Values, data: f64, files: u64, device: u32) -> Result<FileSystem, LayoutError> {
    FileSystem::new(Config {
        journal_bytes: v.count("journal"),
        sync: v.on("sync"),
        drop_every: drop_every(v),
        max_request: (v.count("request") / 4096 * 4096) as u32,
        device,
        ..config(v, data, files)
    })
}

/// The web server.
pub(super) struct Web {
    fs: FileSystem,
    sets: Vec<FileSet>,
    rng: Rng,
    sizes: Gamma<f64>,
    files: u64,
    reads: u64,
    log_bytes: u64,
    log: Ino,
    loops: u64,
    shift_every: u64,
    done: u64,
    zipf: Option<Zipf>,
    scatter: Scatter,
    /// Offset of the popular files within the set.
    offset: u64,
    keep: bool,
    running: bool,
}

impl Web {
    pub fn new(v: &Values, device: u32) -> Result<Web, LayoutError> {
        let (files, sets, size) = (v.scaled("files", 1), v.count("sets"), v.count("size"));
        let loops = v.scaled("loops", 0);
        let log = loops as f64 * v.real("log");
        let mut fs = file_system(v, (files * sets * size) as f64 + log, files * sets, device)?;
        if !v.on("prepare") {
            fs.make_image();
        }
        let width = v.count("width");
        let made: Result<Vec<FileSet>, LayoutError> = (0..sets)
            .map(|_| FileSet::tree(&mut fs, files, width))
            .collect();
        let top = fs.root();
        let log = fs.create(top)?;
        let s = v.real("zipf");
        Ok(Web {
            sets: made?,
            log,
            fs,
            rng: Rng::seed_from_u64(v.seed),
            sizes: sizes(size)?,
            files,
            reads: v.count("reads"),
            log_bytes: v.count("log"),
            loops,
            shift_every: loops / (v.count("shifts") + 1) + 1,
            done: 0,
            zipf: (s > 0.0).then(|| Zipf::new(files, s)),
            scatter: Scatter::new(files),
            offset: 0,
            keep: v.on("prepare"),
            running: false,
        })
    }

    /// Creates the next file. Returns `false` when all files exist.
    fn prepare(&mut self) -> Result<bool, LayoutError> {
        let Some(set) = self
            .sets
            .iter_mut()
            .find(|s| (s.files.len() as u64) < self.files)
        else {
            return Ok(false);
        };
        let directory = set.directories[set.files.len() % set.directories.len()];
        let size = self.sizes.sample(&mut self.rng).max(1.0) as u64;
        set.add_in(&mut self.fs, directory, size)?;
        Ok(true)
    }

    fn pick(&mut self) -> u64 {
        match &self.zipf {
            None => self.rng.random_range(0..self.files),
            Some(zipf) => (self.scatter.place(zipf.rank(&mut self.rng)) + self.offset) % self.files,
        }
    }
}

impl FileSteps for Web {
    fn fs(&mut self) -> &mut FileSystem {
        &mut self.fs
    }

    fn step(&mut self) -> Result<bool, LayoutError> {
        if !self.running {
            self.running = !self.prepare()?;
            if !self.keep {
                self.fs.forget_output();
                if self.running {
                    self.fs.forget_io();
                }
            }
            return Ok(true);
        }
        if self.done == self.loops {
            return Ok(false);
        }
        self.done += 1;
        if self.done.is_multiple_of(self.shift_every) {
            self.offset = self.rng.random_range(0..self.files);
        }
        for _ in 0..self.reads {
            let at = self.pick() as usize;
            let file = self.sets[0].files[at];
            let size = self.fs.size(file);
            self.fs.read(file, 0, size)?;
        }
        self.fs.append(self.log, self.log_bytes)?;
        Ok(true)
    }
}

/// The file server.
pub(super) struct FileServer {
    fs: FileSystem,
    set: FileSet,
    rng: Rng,
    sizes: Gamma<f64>,
    choice: Option<Gamma<f64>>,
    files: u64,
    append: u64,
    left: u64,
    keep: bool,
    running: bool,
}

impl FileServer {
    pub fn new(v: &Values, device: u32) -> Result<FileServer, LayoutError> {
        let (files, size, append) = (v.scaled("files", 1), v.count("size"), v.count("append"));
        // In the long run, each file gets one append before it is deleted.
        let mut fs = file_system(v, (files * (size + 2 * append)) as f64 * 1.2, files, device)?;
        if !v.on("prepare") {
            fs.make_image();
        }
        let set = FileSet::tree(&mut fs, files, v.count("width"))?;
        let shape = v.real("gamma");
        let choice = (shape > 0.0)
            .then(|| Gamma::new(shape, files as f64 / 32.0))
            .transpose();
        Ok(FileServer {
            fs,
            set,
            rng: Rng::seed_from_u64(v.seed),
            sizes: sizes(size)?,
            choice: choice.map_err(|_| LayoutError::Config("Gamma shape"))?,
            files,
            append,
            left: v.scaled("loops", 0),
            keep: v.on("prepare"),
            running: false,
        })
    }

    fn size(&mut self) -> u64 {
        self.sizes.sample(&mut self.rng).max(1.0) as u64
    }

    /// Draws an index in the set from the distribution of choice.
    fn pick(&mut self) -> usize {
        let n = self.set.files.len();
        match &self.choice {
            None => self.rng.random_range(0..n),
            Some(gamma) => gamma.sample(&mut self.rng) as usize % n,
        }
    }

    /// Draws a file from the distribution of choice.
    fn any(&mut self) -> Ino {
        let at = self.pick();
        self.set.files[at]
    }

    fn round(&mut self) -> Result<(), LayoutError> {
        // The new file takes the index of the deleted one, so the popularity of each index is constant.
        let at = self.pick();
        let old = self.set.files[at];
        self.fs.unlink(old)?;
        let directory = self.set.directories[at % self.set.directories.len()];
        let size = self.size();
        let new = self.fs.create(directory)?;
        self.set.files[at] = new;
        self.fs.write(new, 0, size)?;
        let file = self.any();
        self.fs.append(file, self.append)?;
        let file = self.any();
        let size = self.fs.size(file);
        self.fs.read(file, 0, size)?;
        let file = self.any();
        self.fs.stat(file)
    }
}

impl FileSteps for FileServer {
    fn fs(&mut self) -> &mut FileSystem {
        &mut self.fs
    }

    fn step(&mut self) -> Result<bool, LayoutError> {
        if !self.running {
            let made = self.set.files.len();
            if (made as u64) < self.files {
                let directory = self.set.directories[made % self.set.directories.len()];
                let size = self.size();
                self.set.add_in(&mut self.fs, directory, size)?;
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
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        self.round()?;
        Ok(true)
    }
}

/// Parameters of both servers side by side (Loris V-E).
pub(super) const MIXED: &[Param] = &[
    Param::count(
        "files",
        10_000,
        (1, MANY),
        "files of the file server (Loris V-E: as alone)",
    ),
    Param::count(
        "web_files",
        25_000,
        (1, MANY),
        "files of the web server (Loris V-E: as alone)",
    ),
    Param::count("loops", 10_000, (0, 1 << 40), "rounds of each workload"),
    SETS,
    PREPARE,
    CACHE,
    DISCARD,
    INODES,
    ROOM,
];

/// The file server on device 0 and the web server on device 1 (Loris V-E: two volumes).
pub(super) fn mixed(v: &Values) -> Result<(FileServer, Web), LayoutError> {
    let with = |params: &'static [Param], files: &str, seed: u64| {
        let mut of = Values::defaults(params, v.scale);
        of.seed = v.seed.wrapping_add(seed);
        for (at, p) in params.iter().enumerate() {
            match p.name {
                "files" => of.set(at, v.real(files)),
                "loops" | "prepare" | "cache" | "sets" | "discard" | "inodes" | "room" => {
                    of.set(at, v.real(p.name));
                }
                _ => {}
            }
        }
        of
    };
    Ok((
        FileServer::new(&with(FILE, "files", 0), 0)?,
        Web::new(&with(WEB, "web_files", 1), 1)?,
    ))
}
