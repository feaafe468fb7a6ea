//! IOzone's 13 tests, one after the other on one file (OODT 4.2.3, 4.3.4).
//!
//! Calibrated: mostly sequential, and most requests are longer than 32 pages (figure 7a). Assumed: sizes of file and record, one pass over
//! the file per test (OODT runs each test for a fixed time), a stride of 17 records as is IOzone's default.

use rand::{RngExt, SeedableRng};

use super::fileset::{config, drop_every};
use super::param::{Param, Values};
use super::run::{FileSteps, Rng};
use crate::layout::{Config, FileSystem, Ino, LayoutError};

/// Parameters.
pub(super) const IOZONE: &[Param] = &[
    Param::bytes(
        "file",
        512 << 20,
        (1 << 20, 4 << 30),
        "bytes of the file (assumed)",
    ),
    Param::bytes(
        "record",
        1 << 20,
        (4 << 10, 64 << 20),
        "bytes of a record (assumed)",
    ),
    Param::count("rounds", 1, (1, 1 << 20), "times all tests run"),
    Param::count(
        "stride",
        17,
        (1, 1 << 20),
        "records from one strided read to the next (IOzone's default)",
    ),
    Param::bytes(
        "cache",
        64 << 20,
        (0, 1 << 40),
        "page cache, smaller than the file so that tests reach the disk (assumed)",
    ),
    Param::seconds(
        "drop",
        1.0,
        (0.0, 1e6),
        "write back and empty the caches this often; 0: never (OODT 4.1)",
    ),
    Param::bytes(
        "request",
        256 << 10,
        (4 << 10, 4 << 20),
        "largest request (OODT figure 7a: most over 32 pages)",
    ),
];

/// The operation of a test on each record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Test {
    /// A new file is written (write, fwrite).
    Write,
    /// The file is written again (rewrite, frewrite).
    Rewrite,
    /// The file is read (read, reread, fread, freread).
    Read,
    RandomRead,
    RandomWrite,
    BackwardRead,
    /// One record is written over and over.
    RecordRewrite,
    StrideRead,
}

/// The 13 tests in IOzone's order.
const TESTS: [Test; 13] = [
    Test::Write,
    Test::Rewrite,
    Test::Read,
    Test::Read,
    Test::RandomRead,
    Test::RandomWrite,
    Test::BackwardRead,
    Test::RecordRewrite,
    Test::StrideRead,
    Test::Write,
    Test::Rewrite,
    Test::Read,
    Test::Read,
];

/// The workload.
pub(super) struct Iozone {
    fs: FileSystem,
    file: Option<Ino>,
    rng: Rng,
    records: u64,
    record: u64,
    stride: u64,
    tests: usize,
    test: usize,
    at: u64,
}

impl Iozone {
    pub fn new(v: &Values) -> Result<Iozone, LayoutError> {
        let record = v.count("record");
        let records = (v.scaled("file", 1) / record).max(1);
        let fs = FileSystem::new(Config {
            journal_bytes: 0,
            drop_every: drop_every(v),
            max_request: (v.count("request") / 4096 * 4096) as u32,
            ..config(v, (records * record) as f64 * 2.0, 1)
        })?;
        Ok(Iozone {
            fs,
            file: None,
            rng: Rng::seed_from_u64(v.seed),
            records,
            record,
            stride: v.count("stride"),
            tests: TESTS.len() * v.count("rounds") as usize,
            test: 0,
            at: 0,
        })
    }

    /// The file of the current test. A write test begins with a new one.
    fn file(&mut self, test: Test) -> Result<Ino, LayoutError> {
        if test == Test::Write
            && self.at == 0
            && let Some(old) = self.file.take()
        {
            self.fs.unlink(old)?;
        }
        if let Some(file) = self.file {
            return Ok(file);
        }
        let root = self.fs.root();
        let file = self.fs.create(root)?;
        self.file = Some(file);
        Ok(file)
    }
}

impl FileSteps for Iozone {
    fn fs(&mut self) -> &mut FileSystem {
        &mut self.fs
    }

    fn step(&mut self) -> Result<bool, LayoutError> {
        if self.test == self.tests {
            return Ok(false);
        }
        let test = TESTS[self.test % TESTS.len()];
        let file = self.file(test)?;
        let n = self.records;
        let record = match test {
            Test::Write | Test::Rewrite | Test::Read => self.at,
            Test::RandomRead | Test::RandomWrite => self.rng.random_range(0..n),
            Test::BackwardRead => n - 1 - self.at,
            Test::RecordRewrite => n / 2,
            Test::StrideRead => self.at * self.stride % n,
        };
        let offset = record * self.record;
        match test {
            Test::Write | Test::Rewrite | Test::RandomWrite | Test::RecordRewrite => {
                self.fs.write(file, offset, self.record)?;
            }
            _ => self.fs.read(file, offset, self.record)?,
        }
        self.at += 1;
        if self.at == n {
            // IOzone closes and syncs the file after each test.
            self.fs.fsync(file)?;
            (self.at, self.test) = (0, self.test + 1);
        }
        Ok(true)
    }
}
