//! Stand-ins for the three week-long file traces of HRO (section II-B, Table I).
//!
//! Calibrated on Table I: the shares of metadata operations, reads and writes, and the mean size of a read and of a write. On section IV:
//! the size of the file system image (5 % of it are 2.5, 12 and 7 GB). On figure 3: fewer than 3 % of the files are hot, and there are no
//! very large files.
//!
//! | | operations | metadata | read | write | MB read | MB written | image |
//! |---|---|---|---|---|---|---|---|
//! | office | 211 308 494 | 66 % | 24 % | 10 % | 833 135 | 242 376 | 240 GB |
//! | mail | 187 974 468 | 14 % | 65 % | 21 % | 845 123 | 313 987 | 50 GB |
//! | research | 29 550 778 | 75 % | 10 % | 15 % | 32 498 | 61 488 | 140 GB |
//!
//! Assumed: file sizes (Gamma of shape 0.5, many small and few large); Zipf choice of files with exponent 1.2; sixteen users whose accesses
//! interleave (II-A); one in four accesses is at a random place of its file (`own` lets files differ in that, as in figure 3c, and `burst`
//! lets a user make several accesses in a row: docs/reproduce-hro.md); nine of ten metadata operations are a stat, and the others are
//! listings, renames and replacements of a file; a write stays inside its file unless the file is shorter than the write; no access is
//! longer than the file. The default scale is 0.001: at 1 there are 10^7 to 10^8 operations.

use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Gamma};

use super::dist::{Scatter, Zipf};
use super::fileset::{FileSet, config};
use super::param::{Param, Values};
use super::run::{FileSteps, Rng};
use crate::layout::{Config, FileSystem, Ino, LayoutError};

const OPS: Param = Param::count("ops", 0, (0, 1 << 40), "file operations (HRO Table I)");
const META: Param = Param::real(
    "meta",
    0.0,
    (0.0, 1.0),
    "share of metadata operations (HRO Table I)",
);
const READ: Param = Param::real(
    "read",
    0.0,
    (0.0, 1.0),
    "share of reads; the rest are writes (HRO Table I)",
);
const READ_BYTES: Param = Param::bytes(
    "read_bytes",
    0,
    (1, 1 << 30),
    "mean bytes of a read (HRO Table I: MB read over reads)",
);
const WRITE_BYTES: Param = Param::bytes(
    "write_bytes",
    0,
    (1, 1 << 30),
    "mean bytes of a write (HRO Table I: MB written over writes)",
);
const IMAGE: Param = Param::bytes(
    "image",
    0,
    (1 << 20, 1 << 44),
    "bytes of all files (HRO IV: twenty times the SSD)",
);
const FILE: Param = Param::bytes(
    "file",
    64 << 10,
    (4 << 10, 1 << 30),
    "mean bytes of a file (assumed)",
);
const ZIPF: Param = Param::real(
    "exponent",
    1.2,
    (0.0, 5.0),
    "Zipf exponent of the choice of files (HRO figure 3a; assumed)",
);
const STREAMS: Param = Param::count(
    "streams",
    16,
    (1, 4096),
    "users whose accesses interleave (HRO II-A; assumed)",
);
const RANDOM: Param = Param::real(
    "random",
    0.25,
    (0.0, 1.0),
    "share of accesses at a random place of the file, over all files (assumed)",
);
const OWN: Param = Param::real(
    "own",
    0.0,
    (0.0, 1.0),
    "how far files differ in that: 0 not at all, 1 a file is read at random or in order and never both (assumed)",
);
const BURST: Param = Param::real(
    "burst",
    1.0,
    (1.0, 1e6),
    "mean accesses of a user in a row before another one's (assumed)",
);
const CACHE: Param = Param::bytes("cache", 2 << 30, (0, 1 << 40), "page cache (assumed)");

const MB: f64 = 1_048_576.0;

macro_rules! table_one {
    ($ops:expr, $meta:expr, $read:expr, $mb_read:expr, $mb_written:expr, $image:expr) => {
        &[
            OPS.or($ops),
            META.or($meta),
            READ.or($read),
            READ_BYTES.or($mb_read * MB / ($ops * $read)),
            WRITE_BYTES.or($mb_written * MB / ($ops * (1.0 - $meta - $read))),
            IMAGE.or($image * 1024.0 * MB),
            FILE,
            ZIPF,
            STREAMS,
            RANDOM,
            OWN,
            BURST,
            CACHE,
        ]
    };
}

/// The departmental office server.
pub(super) const OFFICE: &[Param] =
    table_one!(211_308_494.0, 0.66, 0.24, 833_135.0, 242_376.0, 240.0);
/// The campus mail server.
pub(super) const MAIL: &[Param] = table_one!(187_974_468.0, 0.14, 0.65, 845_123.0, 313_987.0, 50.0);
/// The research server.
pub(super) const RESEARCH: &[Param] =
    table_one!(29_550_778.0, 0.75, 0.10, 32_498.0, 61_488.0, 140.0);

/// Files per directory (assumed; HRO does not say).
const WIDTH: u64 = 50;

/// Which of the three weeks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Campus {
    /// The departmental office server.
    Office,
    /// The campus mail server.
    Mail,
    /// The research server.
    Research,
}

/// The use of a file: the fields of HRO's hash entry that determine its worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileUse {
    /// Bytes of the file at the end of the week.
    pub size: u64,
    /// Reads and writes.
    pub frequency: u64,
    /// The number of segments that the accesses form (Algorithm 1).
    pub randomness: u64,
}

/// The last access of a file, and the file's counts.
#[derive(Clone, Copy, Default)]
struct Last {
    write: bool,
    time: u64,
    end: u64,
    frequency: u64,
    randomness: u64,
}

/// Two accesses that are further apart than this are in different segments (Algorithm 1), in nanoseconds.
const WINDOW_NS: u64 = 500_000_000;

/// The current position of a user in a file.
#[derive(Clone, Copy, Default)]
struct Stream {
    file: usize,
    at: u64,
}

/// The workload. A caller that drives it directly also learns how its files were used.
pub struct Week {
    fs: FileSystem,
    set: FileSet,
    rng: Rng,
    sizes: Gamma<f64>,
    zipf: Zipf,
    scatter: Scatter,
    streams: Vec<Stream>,
    last: Vec<Last>,
    files: u64,
    total: u64,
    left: u64,
    meta: f64,
    read: f64,
    read_bytes: f64,
    write_bytes: f64,
    random: f64,
    own: f64,
    burst: f64,
    /// The user who makes the next access.
    user: usize,
    running: bool,
}

impl Week {
    /// A week of `scale` times the counts and sizes of the paper, with a page cache of half the server's 1 GB (Table III).
    ///
    /// # Errors
    /// The scale is out of bounds.
    pub fn with(campus: Campus, scale: f64, seed: u64) -> Result<Week, LayoutError> {
        if !(1e-6..=1.0).contains(&scale) {
            return Err(LayoutError::Config("scale (0.000001 to 1)"));
        }
        let params = match campus {
            Campus::Office => OFFICE,
            Campus::Mail => MAIL,
            Campus::Research => RESEARCH,
        };
        let mut v = Values::defaults(params, scale);
        v.seed = seed;
        if let Some(at) = params.iter().position(|p| p.name == CACHE.name) {
            v.set(at, f64::from(1u32 << 29));
        }
        Week::new(&v)
    }

    /// Does the next operation of the week, or creates the next file. Returns false when the week is over.
    ///
    /// # Errors
    /// The volume is full.
    pub fn next_operation(&mut self) -> Result<bool, LayoutError> {
        FileSteps::step(self)
    }

    /// The file system that it works on.
    pub fn file_system(&mut self) -> &mut FileSystem {
        &mut self.fs
    }

    /// Operations of the whole week.
    pub fn operations(&self) -> u64 {
        self.total
    }

    /// Operations that remain.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// The files, in the order of [`Week::uses`].
    pub fn files(&self) -> &[Ino] {
        &self.set.files
    }

    /// How each file was used so far.
    pub fn uses(&self) -> Vec<FileUse> {
        let of = |(last, &file): (&Last, &Ino)| FileUse {
            size: self.fs.size(file),
            frequency: last.frequency,
            randomness: last.randomness,
        };
        self.last.iter().zip(&self.set.files).map(of).collect()
    }

    fn note(&mut self, file: usize, write: bool, at: u64, len: u64) {
        let now = self.fs.now().0;
        let l = &mut self.last[file];
        let same = l.frequency > 0
            && l.write == write
            && now.saturating_sub(l.time) < WINDOW_NS
            && l.end == at;
        l.randomness += u64::from(!same);
        l.frequency += 1;
        (l.write, l.time, l.end) = (write, now, at + len);
    }

    pub(super) fn new(v: &Values) -> Result<Week, LayoutError> {
        let image = v.scaled("image", 1 << 20);
        let files = (image / v.count("file")).max(16);
        let mut fs = FileSystem::new(Config {
            // A small image has a small journal (as mke2fs makes it); otherwise most accesses would be to the journal.
            journal_bytes: (image / 32).clamp(1 << 20, 32 << 20) / 4096 * 4096,
            ..config(v, image as f64 * 1.3 + 64.0 * MB, files)
        })?;
        fs.make_image();
        let set = FileSet::tree(&mut fs, files, WIDTH)?;
        let shape = 0.5;
        Ok(Week {
            fs,
            set,
            rng: Rng::seed_from_u64(v.seed),
            sizes: Gamma::new(shape, v.real("file") / shape)
                .map_err(|_| LayoutError::Config("file size"))?,
            zipf: Zipf::new(files, v.real("exponent")),
            scatter: Scatter::new(files),
            streams: vec![Stream::default(); v.count("streams") as usize],
            last: vec![Last::default(); files as usize],
            files,
            total: v.scaled("ops", 0),
            left: v.scaled("ops", 0),
            meta: v.real("meta"),
            read: v.real("read"),
            read_bytes: v.real("read_bytes"),
            write_bytes: v.real("write_bytes"),
            random: v.real("random"),
            own: v.real("own"),
            burst: v.real("burst"),
            user: 0,
            running: false,
        })
    }

    fn pick(&mut self) -> usize {
        self.scatter.place(self.zipf.rank(&mut self.rng)) as usize
    }

    fn directory(&self, at: usize) -> Ino {
        self.set.directories[at % self.set.directories.len()]
    }

    fn size(&mut self) -> u64 {
        self.sizes.sample(&mut self.rng).max(512.0) as u64
    }

    fn metadata(&mut self) -> Result<(), LayoutError> {
        let at = self.pick();
        let file = self.set.files[at];
        match self.rng.random_range(0..100) {
            0..90 => self.fs.stat(file),
            90..96 => self.fs.readdir(self.directory(at)),
            96..98 => {
                let to = self.rng.random_range(0..self.set.directories.len());
                self.fs.rename(file, self.directory(to))
            }
            _ => {
                self.fs.unlink(file)?;
                let size = self.size();
                let new = self.fs.create(self.directory(at))?;
                self.set.files[at] = new;
                self.fs.write(new, 0, size)
            }
        }
    }

    /// The share of a file's accesses that are at a random place. Each file has its own share, which is constant for the week. The mean
    /// over all files is `random` for every value of `own`.
    fn randomness(&self, file: usize) -> f64 {
        // The golden section spreads the few random files evenly over the ranks.
        let place = (file as f64 * 0.618_033_988_749_894_9).fract();
        let all_or_nothing = f64::from(u8::from(place < self.random));
        self.random + self.own * (all_or_nothing - self.random)
    }

    /// The next access of the current user: it continues in the user's file or, at the end of that file, begins another one.
    fn access(&mut self, write: bool) -> Result<(), LayoutError> {
        let mean = if write {
            self.write_bytes
        } else {
            self.read_bytes
        };
        // The sizes of single accesses vary by a factor of 3 around the mean.
        let len = (mean * self.rng.random_range(0.5..1.5)) as u64;
        if self.burst <= 1.0 || self.rng.random::<f64>() * self.burst < 1.0 {
            self.user = self.rng.random_range(0..self.streams.len());
        }
        let user = self.user;
        let mut s = self.streams[user];
        if s.at >= self.fs.size(self.set.files[s.file]) {
            s = Stream {
                file: self.pick(),
                at: 0,
            };
        }
        let file = self.set.files[s.file];
        let size = self.fs.size(file);
        let at = if self.rng.random::<f64>() < self.randomness(s.file) && size > len {
            self.rng.random_range(0..=size - len)
        } else {
            let at = s.at;
            s.at += len;
            at
        };
        self.streams[user] = s;
        // Within the file, unless the file is shorter than the write, so that the image keeps its size.
        let at = if write {
            at.min(size.saturating_sub(len))
        } else {
            at
        };
        self.note(s.file, write, at, len);
        if write {
            self.fs.write(file, at, len)
        } else {
            self.fs.read(file, at, len)
        }
    }
}

impl FileSteps for Week {
    fn fs(&mut self) -> &mut FileSystem {
        &mut self.fs
    }

    fn step(&mut self) -> Result<bool, LayoutError> {
        if !self.running {
            let made = self.set.files.len();
            if (made as u64) < self.files {
                let size = self.size();
                let directory = self.directory(made);
                self.set.add_in(&mut self.fs, directory, size)?;
                self.fs.forget_output();
            } else {
                self.running = true;
                self.fs.forget_io();
            }
            return Ok(true);
        }
        if self.left == 0 {
            return Ok(false);
        }
        self.left -= 1;
        let kind = self.rng.random::<f64>();
        if kind < self.meta {
            self.metadata()?;
        } else {
            self.access(kind >= self.meta + self.read)?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each file that is used often enough to tell: the share of its accesses that begin a segment.
    fn shares(own: f64, burst: f64) -> Vec<f64> {
        let mut v = Values::defaults(MAIL, 0.0005);
        for (name, value) in [("own", own), ("burst", burst)] {
            let at = MAIL
                .iter()
                .position(|p| p.name == name)
                .expect("a parameter");
            v.set(at, value);
        }
        let mut week = Week::new(&v).expect("a week");
        let mut sink = Vec::new();
        while week.next_operation().expect("an operation") {
            week.file_system().drain(&mut sink);
            sink.clear();
        }
        let uses = week.uses();
        let often = uses.iter().filter(|u| u.frequency >= 50);
        often
            .map(|u| u.randomness as f64 / u.frequency as f64)
            .collect()
    }

    #[test]
    fn files_differ_in_randomness_and_users_come_in_bursts() {
        let spread = |of: &[f64]| {
            let mean = of.iter().sum::<f64>() / of.len() as f64;
            (of.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / of.len() as f64).sqrt()
        };
        let (alike, own) = (shares(0.0, 16.0), shares(1.0, 16.0));
        assert!(
            alike.len() > 20 && own.len() > 20,
            "{} {}",
            alike.len(),
            own.len()
        );
        assert!(
            spread(&own) > 1.5 * spread(&alike),
            "{} {}",
            spread(&own),
            spread(&alike)
        );
        // With single accesses in random order of users, hardly any access continues where the last access to its file ended.
        let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
        let mixed = shares(0.0, 1.0);
        assert!(
            mean(&mixed) > mean(&alike),
            "{} {}",
            mean(&mixed),
            mean(&alike)
        );
    }
}
