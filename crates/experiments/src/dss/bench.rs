//! The servers of 5.2 as a workload, and the three configurations of 5.3 under it.
//!
//! ```text
//!  setup: the pool is created │ transactions │ find │ tar │ fsck      (file server)
//!                             ▲ measuring begins here
//! ```

use std::sync::Arc;

use isotherm_traces::Record;
use isotherm_traces::generate::{Mix, Server, Transaction};

use crate::cell::{Cell, Store, simulate};
use crate::{Ctx, Outcome, Work};
use isotherm_lab::LabError;
use isotherm_lab::sim::{Memory, Phase, Report};
use isotherm_lab::size::Size;

/// Preset of the cache's device (5.1).
pub const CACHE: &str = "intel-x25e-32";
/// Preset of the array of 5.1.
pub const DISK: &str = "raid1e-5";
/// The configurations that are compared, by the paper's names.
pub const CONFIGURATIONS: [&str; 3] = ["none", "LRU", "LRU-S"];

/// The substitute for the paper's disks, in words.
pub const ARRAY_WORDS: &str = "raid1e-5, five 7200-rpm disks as RAID-1E, the volume spread over all of it: the paper names neither the drives nor the size of a chunk";

/// The substitute for the prototype's cache, in words.
pub const MAP_WORDS: &str = "the prototype keeps its map in memory and never flushes: FLUSH costs nothing here, the journal's writes stay";

/// The settings of the syncer, in words.
pub const SYNCER_WORDS: &str = "watermarks of the free list at 10 and 20 % and one entry cleaned for each accessed, 128 together (the paper gives neither): sync_batch=128";

/// The substitute for the workload generator, in words.
pub const SERVER_WORDS: &str = "the in-house generator by one of Table 8's sizes on an ext3-like layout: whole files, directories chosen uniformly, page cache and journal scaled with the rest, blocks written under the size that their file had when they were added (4.2.1); one request in flight";

/// Index of the phase, in a file server's run, with the transactions.
pub const TRANSACTIONS: usize = 0;
/// Index of the phase in which find runs.
pub const FIND: usize = 1;
/// Index of the phase in which tar runs.
pub const TAR: usize = 2;
/// Index of the phase in which fsck runs.
pub const FSCK: usize = 3;

/// One directory in this many is archived. The paper archives "an SFS subdirectory" and does not state its size; 850 s at about 20 MB/s in
/// each direction are about a tenth of 184 GB.
const TAR_SHARE: usize = 10;

/// A server's run, in memory.
pub struct Bench {
    /// All requests. The setup comes first, and the phases begin after it.
    pub work: Work,
    /// Each transaction, with the number of requests before it.
    pub transactions: Vec<(Transaction, u64)>,
    /// Number of requests up to the end of the last transaction.
    end: u64,
    /// Bytes that the file system uses at the end of the transactions.
    pub used: u64,
    /// The scale of the run.
    pub scale: f64,
}

fn broken(e: isotherm_traces::layout::LayoutError) -> LabError {
    LabError::setup(format!("the generated file system: {e}"))
}

/// The run of a server. After the transactions, the file server runs the utilities.
pub fn bench(ctx: &Ctx<'_>, mix: Mix, usual: f64) -> Result<Arc<Bench>, LabError> {
    let scale = ctx.scale_or(usual);
    let name = format!("DSS {mix:?} server, scale {scale}, seed {}", ctx.seed);
    ctx.once(&name, || {
        (ctx.progress)(&format!("{name}: making the requests"));
        make(&name, mix, scale, ctx.seed)
    })
}

fn make(name: &str, mix: Mix, scale: f64, seed: u64) -> Result<Bench, LabError> {
    let mut server = Server::with(mix, scale, seed).map_err(broken)?;
    let mut records: Vec<Record> = Vec::new();
    while server.prepare().map_err(broken)? {
        server.file_system().drain(&mut records);
    }
    // The setup ends when its files are on the volume.
    server.file_system().sync();
    server.file_system().drain(&mut records);
    let mut phases = vec![records.len() as u64];
    let mut transactions = Vec::new();
    loop {
        let before = records.len() as u64;
        let Some(t) = server.transaction().map_err(broken)? else {
            break;
        };
        server.file_system().drain(&mut records);
        transactions.push((t, before));
    }
    server.file_system().sync();
    server.file_system().drain(&mut records);
    let end = records.len() as u64;
    let used = server.file_system().used_bytes();
    if mix == Mix::File {
        let directories = server.directories().len();
        let mut next = |server: &mut Server, records: &mut Vec<Record>| {
            server.file_system().drop_caches();
            server.file_system().drain(records);
            phases.push(records.len() as u64);
        };
        next(&mut server, &mut records);
        server.find().map_err(broken)?;
        server.file_system().drain(&mut records);
        next(&mut server, &mut records);
        server
            .tar(directories.div_ceil(TAR_SHARE))
            .map_err(broken)?;
        server.file_system().drain(&mut records);
        next(&mut server, &mut records);
        server.file_system().check();
        server.file_system().drain(&mut records);
    }
    let bytes = records.iter().map(Record::end).max().unwrap_or(0);
    Ok(Bench {
        work: Work {
            name: name.to_owned(),
            memory: Memory::new(name, records),
            bytes: bytes.next_multiple_of(4 << 20),
            depth: 1,
            phases,
        },
        transactions,
        end,
        used,
        scale,
    })
}

/// A configuration: no cache, or the cache with its policy. The cache holds `percent` of the `used` bytes.
pub fn cell(configuration: &str, used: u64, percent: f64, warm_up: u64) -> Cell {
    let policy = match configuration {
        "LRU" => "dss-lru,sync_batch=128",
        "LRU-S" => "dss-lru-s,sync_batch=128",
        _ => "mylinear",
    };
    let disk = Store::all(DISK).spread();
    let tiers = if configuration == "none" {
        vec![disk]
    } else {
        let cache = (used as f64 * percent / 100.0) as u64;
        vec![Store::new(CACHE, Size::Bytes(cache)), disk]
    };
    Cell {
        warm_up,
        flushes: false,
        ..Cell::hybrid(policy, tiers)
    }
}

/// The reports of the three configurations.
pub fn three(ctx: &Ctx<'_>, bench: &Bench) -> Result<Vec<Arc<Report>>, LabError> {
    // All phases are measured, so the warm-up ends where the first phase begins.
    let warm_up = bench.work.phases[0];
    let cells = CONFIGURATIONS.map(|c| cell(c, bench.used, 10.0, warm_up));
    simulate(ctx, &bench.work, &cells)
}

/// Adds the description of the run to the outcome.
pub fn inputs(out: &mut Outcome, bench: &Bench) {
    out.inputs.push(format!(
        "{}: {} requests, {} of them setup; {:.2} GB used, a tenth cached in extents of 4 KiB",
        bench.work.name,
        bench.work.memory.records.len(),
        bench.work.phases[0],
        bench.used as f64 / 1e9
    ));
    out.substitutes.push(ARRAY_WORDS.to_owned());
    out.substitutes.push(SERVER_WORDS.to_owned());
    out.substitutes.push(MAP_WORDS.to_owned());
    out.substitutes.push(SYNCER_WORDS.to_owned());
}

impl Bench {
    /// Seconds of each transaction in a run: from its first request to the last reply before the first request of the next transaction. A
    /// transaction that memory served takes zero.
    pub fn seconds(&self, report: &Report) -> Vec<f64> {
        let ends = self.transactions.iter().skip(1).map(|t| t.1);
        let ends = ends.chain([self.end]);
        let of = |(first, end): (u64, u64)| {
            let replies = report.replies.get(first as usize..end as usize);
            match replies.unwrap_or(&[]) {
                [] => 0.0,
                [one] => one.answered.saturating_sub(one.begun) as f64 / 1e9,
                [a, .., z] => z.answered.saturating_sub(a.begun) as f64 / 1e9,
            }
        };
        self.transactions
            .iter()
            .map(|t| t.1)
            .zip(ends)
            .map(of)
            .collect()
    }

    /// 95th percentile of the seconds for whole files of that size, read or written; `None` if there are none.
    pub fn p95(&self, seconds: &[f64], write: bool, size: u64) -> Option<f64> {
        let mut of: Vec<f64> = (self.transactions.iter().zip(seconds))
            .filter(|((t, _), _)| t.write == write && t.size == size)
            .map(|(_, s)| *s)
            .collect();
        of.sort_unstable_by(f64::total_cmp);
        let at = (of.len() as f64 * 0.95).ceil() as usize;
        of.get(at.saturating_sub(1)).copied()
    }

    /// The sizes of its files, in ascending order.
    pub fn sizes(&self) -> Vec<u64> {
        let mut sizes: Vec<u64> = self.transactions.iter().map(|(t, _)| t.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes
    }
}

/// A phase of a report; an empty phase if the run did not have it.
pub fn phase(report: &Report, at: usize) -> Phase {
    report.phases.get(at).cloned().unwrap_or_default()
}
