//! The recovery of a large map, and the cost of a FLUSH on it.
//!
//! ```text
//! cargo bench -p isotherm-live --bench recovery -- DIR [extents=10000000] [rounds=5]
//! ```
//!
//! A checkpoint that maps `extents` extents of 4 KiB is written into sparse files in DIR with the store's own code. Then the volume is
//! opened several times as after a crash, including direct reads, checksums, free lists and reverse map. Then small first writes, each with
//! its FLUSH, are made in turn on that volume and on one of a thousandth of the size. The cost must depend on the size of the change, not
//! of the volume.

use isotherm_core::store::checkpoint::{self, Header};
use isotherm_core::store::{BLOCK, HEADER, Superblock, record};
use isotherm_core::{ExtentId, Nanos, RequestOp, Slot};
use isotherm_live::config::{IoConfig, Size};
use isotherm_live::inbox::{Done, Submission};
use isotherm_live::port::{IoRequest, Port};
use isotherm_live::{Handle, MemberConfig, OpenMode, Session, Volume, VolumeConfig};
use std::error::Error;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Extents that stay unmapped, to be written first.
const SPARE: u32 = 4096;
const EXTENT: u64 = 4096;

fn create(dir: &Path, name: &str, extents: u32) -> Outcome<PathBuf> {
    let member = |tier: u8, size| MemberConfig {
        path: dir.join(format!("{name}.{tier}")),
        tier,
        size: Some(Size(size)),
        ..MemberConfig::default()
    };
    // Metadata needs some space besides the slots: two checkpoints of 16 to 32 bytes per extent.
    let slow = u64::from(extents + SPARE) * (EXTENT + 80) + (64 << 20);
    let config = VolumeConfig {
        name: name.into(),
        uuid: None,
        extent: Size(EXTENT),
        policy: "linear".into(),
        qos: Vec::new(),
        io: IoConfig::default(),
        members: vec![
            member(0, u64::from(extents) * 80 + (256 << 20)),
            member(1, slow),
        ],
    };
    let volume = dir.join(name);
    Volume::create(&volume, config, false)?;
    let mut files = Vec::new();
    for tier in 0..2u8 {
        let path = dir.join(format!("{name}.{tier}"));
        files.push(File::options().read(true).write(true).open(path)?);
    }
    write_checkpoint(&files, extents)?;
    Ok(volume)
}

/// Maps extent e to slot e on primary and mirror.
fn write_checkpoint(files: &[File], extents: u32) -> Outcome<()> {
    let mut block = [0; BLOCK];
    files[0].read_exact_at(&mut block, 0)?;
    let sb = Superblock::decode(&block).map_err(|e| format!("superblock: {e:?}"))?;
    if sb.extents < extents + SPARE {
        return Err(format!("only {} extents", sb.extents).into());
    }
    let geo = sb.geometry()?;
    let layout = sb.layout();
    files[0].read_exact_at(&mut block, layout.region_offset(layout.primary, 1))?;
    let first = Header::decode(&block, &sb.uuid).ok_or("the first checkpoint is not there")?;
    let number = first.number + 1;
    let mut map = isotherm_core::map::ExtentMap::new(&geo);
    for e in 0..extents {
        map.map(ExtentId(e), Slot(e), false);
    }
    let base = layout.region_offset(layout.primary, Header::region(number));
    let mut piece = Vec::with_capacity(1 << 20);
    let (mut e, mut blocks, mut at) = (0, 0, base + BLOCK as u64);
    while e < extents {
        block.fill(0);
        let mut used = HEADER;
        while e < extents
            && let Some(units) = record::encode(
                &map,
                ExtentId(e),
                Some(Slot(e)),
                &geo,
                None,
                &mut block[used..],
            )
        {
            used += units * 16;
            e += 1;
        }
        checkpoint::seal_data(&mut block, &sb.uuid, number, blocks);
        blocks += 1;
        piece.extend_from_slice(&block);
        if piece.len() == 1 << 20 || e == extents {
            for f in files {
                f.write_all_at(&piece, at)?;
            }
            at += piece.len() as u64;
            piece.clear();
        }
    }
    let header = Header {
        number,
        start: first.start,
        blocks,
        time: Nanos(0),
    };
    for f in files {
        f.write_all_at(&header.encode(&sb.uuid, &Vec::new()), base)?;
        f.sync_all()?;
    }
    Ok(())
}

fn drop_caches() {
    // Direct reads bypass the caches anyway, so a refusal changes nothing.
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
}

struct Served {
    session: Session,
    handle: Handle,
    next: u64,
    meta_bytes: u64,
}

impl Served {
    fn open(volume: &Path, extents: u32) -> Outcome<Served> {
        let (session, handle) = Session::here(Volume::open(volume, OpenMode::ReadWrite)?)?;
        let mut served = Served {
            session,
            handle,
            next: u64::from(extents),
            meta_bytes: 0,
        };
        // The first FLUSH includes work that opening the volume has left.
        served.write_and_flush()?;
        served.meta_bytes = served.meta();
        Ok(served)
    }

    fn meta(&self) -> u64 {
        let counters = self.session.engine().counters();
        counters.members.iter().map(|m| m.meta_bytes_written).sum()
    }

    fn ask(&mut self, op: RequestOp, offset: u64, len: u32) -> Outcome<()> {
        let buf = (op == RequestOp::Write).then(|| self.handle.buffer(offset, len));
        self.session.submit(Submission {
            request: IoRequest::new(op, offset, len).with_buffer(buf),
            done: Done::Ticket(0),
        });
        loop {
            if let Some(ended) = self.session.world().ended().pop() {
                return ended.result.map_err(|e| format!("{op:?}: {e:?}").into());
            }
            self.session.step(None);
        }
    }

    fn write_and_flush(&mut self) -> Outcome<Duration> {
        let at = self.next * EXTENT;
        self.next += 1;
        let begun = Instant::now();
        self.ask(RequestOp::Write, at, EXTENT as u32)?;
        self.ask(RequestOp::Flush, 0, 0)?;
        Ok(begun.elapsed())
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    f64::midpoint(values[n / 2], values[(n - 1) / 2])
}

/// Number of first writes with a FLUSH, and how many of them make a round.
const FLUSHES: usize = 100;
const FLUSH_ROUND: usize = 20;

/// Writes a line to the file that `bench/performance.py` names, if it runs this bench.
fn keep(case: &str, round: usize, value: f64) -> Outcome<()> {
    let Some(path) = std::env::var_os("BENCH_KEEP") else {
        return Ok(());
    };
    let mut file = File::options().append(true).create(true).open(path)?;
    writeln!(file, "{case}\tours\t{round}\t{value:.3}")?;
    Ok(())
}

fn main() -> Outcome<()> {
    let (mut extents, mut rounds, mut dir) = (10_000_000, 5usize, None);
    // Cargo adds `--bench`.
    for word in std::env::args().skip(1).filter(|w| w != "--bench") {
        match word.split_once('=') {
            Some(("extents", n)) => extents = n.parse::<u32>()?.max(1000),
            Some(("rounds", n)) => rounds = n.parse::<usize>()?.max(1),
            _ => dir = Some(word),
        }
    }
    let dir =
        dir.ok_or("usage: recovery DIR [extents=N] [rounds=N]: DIR on the disk to measure")?;
    let scratch = tempfile::Builder::new()
        .prefix("recovery.")
        .tempdir_in(dir)?;
    let large = create(scratch.path(), "large", extents)?;
    let small = create(scratch.path(), "small", extents / 1000)?;
    let mut rates = Vec::new();
    for _ in 0..rounds {
        drop_caches();
        let begun = Instant::now();
        let volume = Volume::open(&large, OpenMode::ReadWrite)?;
        let seconds = begun.elapsed().as_secs_f64();
        let report = volume.report();
        if report.mapped != extents || report.checkpoint_records != u64::from(extents) {
            return Err(format!("wrong map: {report:?}").into());
        }
        rates.push(f64::from(extents) / seconds);
        let rate = f64::from(extents) / seconds / 1e6;
        keep(
            &format!("million map entries recovered a second, of {extents}"),
            rates.len(),
            rate,
        )?;
    }
    let rate = median(&mut rates);
    println!(
        "recovery of {extents} extents: {:.2} M entries/s (slowest {:.2})   bar 5  {}",
        rate / 1e6,
        rates[0] / 1e6,
        if rate >= 5e6 { "met" } else { "MISSED" }
    );
    let mut a = Served::open(&large, extents)?;
    let mut b = Served::open(&small, extents / 1000)?;
    let (mut on_large, mut on_small) = (Vec::new(), Vec::new());
    for round in 1..=FLUSHES / FLUSH_ROUND {
        for _ in 0..FLUSH_ROUND {
            on_large.push(a.write_and_flush()?.as_secs_f64());
            on_small.push(b.write_and_flush()?.as_secs_f64());
        }
        for (all, extents) in [(&on_large, extents), (&on_small, extents / 1000)] {
            let mut last = all[all.len() - FLUSH_ROUND..].to_vec();
            let case = format!("µs for a first write and its FLUSH, {extents} extents");
            keep(&case, round, median(&mut last) * 1e6)?;
        }
    }
    let (x, y) = (median(&mut on_large), median(&mut on_small));
    println!(
        "small first write + FLUSH: {:.0} us with {extents} extents, {:.0} us with {}: ratio {:.2}; metadata written {} and {} bytes each",
        x * 1e6,
        y * 1e6,
        extents / 1000,
        x / y,
        (a.meta() - a.meta_bytes) / FLUSHES as u64,
        (b.meta() - b.meta_bytes) / FLUSHES as u64
    );
    a.session.finish()?;
    b.session.finish()?;
    Ok(())
}
