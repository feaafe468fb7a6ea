//! The workloads of Loris V-C and V-E, as the disk below the page cache sees them.

use std::collections::HashMap;

use isotherm_traces::{Op, Record};

use crate::work::Work;
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;
use isotherm_lab::sim::Memory;

/// Loris has no inode cache in addition to its 64 MB of cache (III-C: names and attributes are files as well). MINIX keeps a few hundred
/// open files.
const INODES: u32 = 256;
/// Requests in flight. The paper does not state it; MINIX passes requests through its stack to the drive one at a time.
const DEPTH: u32 = 1;
/// Added to the classes of the web server's files, except for large files, to distinguish them from the file server's.
pub const WEB_CLASS: u8 = 20;
/// The first class of files over 1 MiB, which are sieved in both volumes.
pub const LARGE: u8 = 13;

/// A workload.
pub struct Load {
    /// The name in the paper.
    pub name: &'static str,
    /// Its requests. The measured part begins after `warm_up`.
    pub work: Work,
    /// Requests of the preparation (Loris V-B: not measured).
    pub warm_up: u64,
    /// The largest number of extents that hold data at the same time: the working set.
    pub extents: u64,
    /// Extent size, bytes.
    pub extent: u32,
    /// Whether it ends after a fixed number of transactions, so that the time is measured (Postmark). Otherwise requests per second are
    /// measured.
    pub timed: bool,
}

/// Postmark's settings (Loris V-C1): files of 4 to 28 KB.
///
/// # Errors
/// The generator fails.
pub fn postmark(ctx: &Ctx<'_>) -> Result<Load, LabError> {
    let spec = spec(ctx, "postmark-loris,delete=0,discard=1,room=32K");
    load("Postmark", &spec, 32 << 10, true)
}

/// The file server (V-C2). Without `discards` the disk is not told about deleted data.
///
/// # Errors
/// The generator fails.
pub fn file_server(ctx: &Ctx<'_>, discards: bool) -> Result<Load, LabError> {
    let spec = spec(ctx, "file-server,loops=20000,discard=1,room=256K");
    let mut load = load("file server", &spec, 256 << 10, false)?;
    if !discards {
        let all = load.work.memory.records.iter().enumerate();
        let gone = |r: &Record| r.op == Op::Discard;
        let before = all.filter(|(i, r)| (*i as u64) < load.warm_up && gone(r));
        load.warm_up -= before.count() as u64;
        let kept = load.work.memory.records.iter().filter(|r| !gone(r));
        load.work.memory = Memory::new("file server without discards", kept.copied().collect());
        load.work.name.push_str(" without discards");
    }
    Ok(load)
}

/// The web server (V-C3).
///
/// # Errors
/// The generator fails.
pub fn web(ctx: &Ctx<'_>) -> Result<Load, LabError> {
    let spec = spec(ctx, "web-server,room=64K");
    load("web server", &spec, 64 << 10, false)
}

/// The web server with Zipf's law and shifting locality (V-C4).
///
/// # Errors
/// The generator fails.
pub fn zipf(ctx: &Ctx<'_>) -> Result<Load, LabError> {
    let spec = spec(ctx, "web-server-zipf,room=64K");
    load("web server, Zipf", &spec, 64 << 10, false)
}

/// File server and web server on two volumes (V-E). The web server has a second set of files, which displaces the first set from flash.
///
/// # Errors
/// The generator fails.
pub fn mixed(ctx: &Ctx<'_>) -> Result<Load, LabError> {
    let spec = spec(ctx, "mixed,loops=20000,cache=32M,sets=2,discard=1,room=64K");
    let mut load = load("mixed", &spec, 64 << 10, false)?;
    // Both volumes finish their preparation before either is measured, and both end at the same time.
    let mut parts: [Vec<Record>; 4] = Default::default();
    let mut running = [None; 2];
    for r in &*load.work.memory.records {
        let d = r.device as usize & 1;
        if running[d].is_none() && begins(r) {
            running[d] = Some(r.time.0);
        }
        let part = match running[d] {
            None => d,
            Some(_) => 2 + d,
        };
        let mut r = *r;
        r.time.0 -= running[d].unwrap_or(0);
        if d == 1 && (1..LARGE).contains(&r.class) {
            r.class += WEB_CLASS;
        }
        parts[part].push(r);
    }
    let last = |part: &Vec<Record>| part.last().map_or(0, |r| r.time.0);
    let until = last(&parts[2]).min(last(&parts[3]));
    let [prep, web_prep, mut run, web_run] = parts;
    let mut records = prep;
    records.extend(web_prep);
    load.warm_up = records.len() as u64;
    run.extend(web_run);
    run.retain(|r| r.time.0 <= until);
    run.sort_by_key(|r| (r.time, r.device));
    records.extend(run);
    // Records get consecutive times, because times in a trace rise. A closed loop uses their order only.
    for (i, r) in records.iter_mut().enumerate() {
        r.time.0 = i as u64;
    }
    load.extents = working_set(&records, load.extent);
    load.work.memory = Memory::new("mixed", records);
    load.work.name.push_str(" side by side");
    Ok(load)
}

fn spec(ctx: &Ctx<'_>, generator: &str) -> String {
    let scale = ctx.scale_or(super::SCALE);
    let inodes = (f64::from(INODES) * scale).max(16.0) as u32;
    format!(
        "gen:{generator},inodes={inodes},scale={scale},seed={}",
        ctx.seed
    )
}

fn load(name: &'static str, spec: &str, extent: u32, timed: bool) -> Result<Load, LabError> {
    let work = Work::generate(spec, None, DEPTH)?;
    let records = &work.memory.records;
    let warm_up = records.iter().position(begins).unwrap_or(0) as u64;
    Ok(Load {
        name,
        warm_up,
        extents: working_set(records, extent),
        extent,
        timed,
        work,
    })
}

/// The preparation only creates files, so it ends before the first read or delete.
fn begins(r: &Record) -> bool {
    r.op == Op::Discard || r.op == Op::Read && r.class >= 8
}

/// The largest number of extents that hold data at the same time.
pub fn working_set(records: &[Record], extent: u32) -> u64 {
    let shift = extent.ilog2();
    // One bit per block of 4 KiB of an extent, set if the block holds data. An extent of up to 256 KiB has at most 64.
    let mut live: HashMap<(u32, u64), u64> = HashMap::new();
    let mut most = 0;
    for r in records.iter().filter(|r| r.len > 0) {
        for e in r.offset >> shift..=(r.end() - 1) >> shift {
            let base = e << shift;
            let from = (r.offset.max(base) - base) >> 12;
            let to = (r.end().min(base + u64::from(extent)) - base).div_ceil(4096);
            let mask = (u64::MAX >> (64 - (to - from).clamp(1, 64))) << from.min(63);
            let key = (r.device, e);
            if r.op == Op::Discard {
                if let Some(blocks) = live.get_mut(&key) {
                    *blocks &= !mask;
                    if *blocks == 0 {
                        live.remove(&key);
                    }
                }
            } else {
                *live.entry(key).or_default() |= mask;
            }
        }
        most = most.max(live.len() as u64);
    }
    most
}

impl Load {
    /// The preparation alone, all of it measured.
    pub fn preparation(&self) -> Load {
        let records = &self.work.memory.records[..self.warm_up as usize];
        let work = Work {
            name: format!("{}, preparation", self.work.name),
            memory: Memory::new(&self.work.memory.label, records.to_vec()),
            phases: Vec::new(),
            ..self.work
        };
        Load {
            work,
            warm_up: 0,
            ..*self
        }
    }

    /// Adds a description of the workload to the outcome.
    pub fn describe(&self, out: &mut Outcome) {
        let measured = self.work.memory.records.len() as u64 - self.warm_up;
        out.inputs.push(format!(
            "{}: {}; {} requests after {} of preparation, {} in flight, working set {} extents of {} KiB",
            self.name,
            self.work.name,
            measured,
            self.warm_up,
            self.work.depth,
            self.extents,
            self.extent >> 10
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::Nanos;

    #[test]
    fn the_working_set_is_what_is_held_at_once() {
        let r =
            |op, block: u64, blocks: u32| Record::new(Nanos(0), op, block * 4096, blocks * 4096);
        let all = [
            r(Op::Write, 0, 8),
            r(Op::Discard, 0, 3),
            r(Op::Write, 8, 1),
            r(Op::Discard, 3, 1),
            r(Op::Write, 4, 4),
            r(Op::Write, 15, 1),
        ];
        // Expected extents of 16 KiB with data after each step: 0 and 1; 0 and 1; 0, 1, 2; 1, 2; 1, 2; 1, 2, 3.
        assert_eq!(working_set(&all, 16 << 10), 3);
        assert_eq!(working_set(&all, 256 << 10), 1);
    }

    #[test]
    fn workloads_begin_with_their_preparation() {
        let quiet = |_: &str| {};
        let ctx = Ctx {
            scale: Some(0.01),
            ..Ctx::new(&quiet)
        };
        for load in [
            postmark(&ctx).unwrap(),
            file_server(&ctx, true).unwrap(),
            web(&ctx).unwrap(),
            zipf(&ctx).unwrap(),
            mixed(&ctx).unwrap(),
        ] {
            let (before, after) = load.work.memory.records.split_at(load.warm_up as usize);
            assert!(before.len() > 20 && after.len() > 200, "{}", load.name);
            // The records with their original classes restored.
            let own = |r: &Record| Record {
                class: r.class - if r.class > WEB_CLASS { WEB_CLASS } else { 0 },
                ..*r
            };
            assert!(!before.iter().map(own).any(|r| begins(&r)), "{}", load.name);
        }
        let (with, without) = (
            file_server(&ctx, true).unwrap(),
            file_server(&ctx, false).unwrap(),
        );
        let discards = |l: &Load| {
            let all = l.work.memory.records.iter();
            all.filter(|r| r.op == Op::Discard).count()
        };
        assert!(discards(&with) > 100 && discards(&without) == 0);
        assert!(
            with.work.name != without.work.name,
            "cells are told apart by it"
        );
    }
}
