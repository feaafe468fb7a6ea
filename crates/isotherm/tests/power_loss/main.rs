//! FLUSH and FUA with io_uring, O_DIRECT and fdatasync, on members that drop unflushed data.
//!
//! Power is lost at a random write or flush, and the volume is opened again on the data that survived. Every cell must hold a value that is
//! at least as new as the last FLUSH (or FUA write) that covered it. Then the test proves that it can fail: it must notice an engine that
//! leaves out one device's fdatasync, or that of the journal. `ISOTHERM_SEEDS=N` runs more seeds, `ISOTHERM_SEED=X` repeats one.

mod directed;
mod rack;
mod tailed;

use isotherm_core::engine::Mutant;
use isotherm_core::{IoError, RequestOp};
use isotherm_hostile::Rng;
use isotherm_hostile::disk::Disk;
use isotherm_hostile::truth::{self, CELL, Change, Expect, Truth};
use isotherm_live::config::{IoConfig, Size};
use isotherm_live::port::{Buffer, Completion, IoRequest, Port};
use isotherm_live::{MemberConfig, OpenMode, Volume, VolumeConfig};
use rack::Rack;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};

const EXTENT: u64 = 16 << 10;
const BLOCK: usize = 4096;
const CELLS_PER_BLOCK: usize = BLOCK / CELL;
/// 16 slots in addition to the metadata, so that most of the volume is on the slow member.
const FAST: usize = (1 << 20) + 16 * EXTENT as usize;
const SLOW: usize = (1 << 20) + 40 * EXTENT as usize;

enum Pending {
    Read {
        from: usize,
        expect: Expect,
    },
    Change {
        from: usize,
        to: usize,
        version: u64,
        fua: bool,
    },
    Flush {
        moment: u64,
    },
}

type Reply = (u64, Result<(), IoError>, Option<Buffer>);

/// Counts of the events in a run, so that a test can check that something happened.
#[derive(Debug, Default)]
struct Did {
    lost_power: u64,
    writes: u64,
    flushes: u64,
    flushed: Vec<u64>,
    forced: u64,
}

struct Run {
    rng: Rng,
    truth: Option<Truth>,
    mutant: Option<Mutant>,
    did: Did,
    /// Whether it is a cache volume, which promises nothing about discarded blocks.
    caching: bool,
}

fn config(members: &Path, policy: &str) -> VolumeConfig {
    let member = |i: u8| MemberConfig {
        path: members.join(i.to_string()),
        tier: i,
        ..MemberConfig::default()
    };
    VolumeConfig {
        name: "v".into(),
        uuid: None,
        extent: Size(EXTENT),
        policy: policy.into(),
        qos: Vec::new(),
        io: IoConfig {
            buffers: Size(8 << 20),
            move_buffers: 4,
            commit_interval_s: 0.02,
            ..IoConfig::default()
        },
        members: vec![member(0), member(1)],
    }
}

/// Three lives of one volume, each ended by a power failure. An error is a fault of the volume. If something that the test itself needs
/// fails, it panics, so that this is never taken for a caught mutant.
fn run(seed: u64, mutant: Option<Mutant>) -> Result<Did, String> {
    let dir = tempfile::tempdir().unwrap();
    let members = dir.path().join("members");
    std::fs::create_dir(&members).unwrap();
    let volume = dir.path().join("v");
    let mut run = Run {
        rng: Rng::new(seed),
        truth: None,
        mutant,
        did: Did::default(),
        caching: false,
    };
    let policy = ["greendm", "hot-dst-recency", "lru"][run.rng.below(3) as usize];
    // The disk of a cache volume has a head and a tail.
    let slow = SLOW + if policy == "lru" { 8 << 20 } else { 0 };
    let mut disks = vec![Disk::new(FAST), Disk::new(slow)];
    for life in 0..3 {
        let rack = Rack::mount(disks, &members, run.rng.draw()).unwrap();
        if life == 0 {
            let made = Volume::create(&volume, config(&members, policy), true).unwrap();
            run.caching = made.caching;
        }
        run.live(&rack, &volume)?;
        let (flushed, forced) = rack.flushes();
        run.did.flushed = flushed
            .iter()
            .zip(run.did.flushed.iter().chain([&0, &0]))
            .map(|(a, b)| a + b)
            .collect();
        run.did.forced += forced;
        disks = rack.into_disks().unwrap();
    }
    let rack = Rack::mount(disks, &members, 0).unwrap();
    let server = open(&volume)?.serve().unwrap();
    run.verify(&server.port())?;
    server.stop().map_err(|e| e.to_string())?;
    drop(rack);
    Ok(run.did)
}

fn open(volume: &Path) -> Result<Volume, String> {
    Volume::open(volume, OpenMode::ReadWrite)
        .map_err(|e| format!("opening after the power failure: {e}"))
}

impl Run {
    fn live(&mut self, rack: &Rack, volume: &Path) -> Result<(), String> {
        let opened = open(volume)?;
        let bytes = opened.volume_bytes();
        let server = opened.serve().unwrap();
        let port = server.port();
        if let Some(m) = self.mutant {
            server
                .handle()
                .call(move |engine, _| engine.unrecorded().break_rule(m))
                .ok_or("the engine is gone")?;
        }
        match self.truth {
            None => self.truth = Some(Truth::new(bytes)),
            Some(_) => self.verify(&port)?,
        }
        rack.cut_after(self.rng.below(400));
        let result = self.work(rack, &port);
        rack.cut();
        self.did.lost_power += 1;
        // Without power the last writes cannot be made durable, and `stop` reports this, unless there was nothing to write.
        let _ = server.stop();
        result
    }

    fn truth(&mut self) -> &mut Truth {
        self.truth
            .as_mut()
            .expect("set when the volume is first opened")
    }

    /// Clients with several requests in progress, until power is lost or they have made enough requests.
    fn work(&mut self, rack: &Rack, port: &Arc<dyn Port>) -> Result<(), String> {
        let (send, receive) = mpsc::channel::<Reply>();
        let mut flying: BTreeMap<u64, Pending> = BTreeMap::new();
        let mut number = 0;
        while !rack.is_dead() || !flying.is_empty() {
            while flying.len() < 8 && number < 600 && !rack.is_dead() {
                number += 1;
                if let Some(p) = self.request(number, port, &send) {
                    flying.insert(number, p);
                }
            }
            if flying.is_empty() {
                break;
            }
            // Answers that have arrived are processed before the next FLUSH is issued, because it must cover them.
            let first = receive.recv().map_err(|e| e.to_string())?;
            for (number, result, buf) in std::iter::once(first).chain(receive.try_iter()) {
                let p = flying.remove(&number).ok_or("answered twice")?;
                self.settle(&p, result, buf.as_deref(), rack)?;
            }
        }
        Ok(())
    }

    fn settle(
        &mut self,
        p: &Pending,
        result: Result<(), IoError>,
        data: Option<&[u8]>,
        rack: &Rack,
    ) -> Result<(), String> {
        if let (Err(e), false) = (result, rack.is_dead()) {
            return Err(format!("a request failed with {e:?} while there was power"));
        }
        match *p {
            Pending::Read { from, ref expect } if result.is_ok() => {
                self.truth()
                    .check_read(from, expect, data.ok_or("a read without its buffer")?)?;
            }
            Pending::Read { .. } => {}
            Pending::Change {
                from,
                to,
                version,
                fua,
            } => {
                self.truth().answered(from, to, version, result.is_ok());
                if fua && result.is_ok() {
                    self.truth().forced(from, to);
                }
            }
            Pending::Flush { moment } => {
                if result.is_ok() {
                    self.truth().flushed(moment);
                    self.did.flushes += 1;
                }
            }
        }
        Ok(())
    }

    #[expect(clippy::too_many_lines, reason = "one scenario")]
    fn request(
        &mut self,
        number: u64,
        port: &Arc<dyn Port>,
        send: &mpsc::Sender<Reply>,
    ) -> Option<Pending> {
        let send = send.clone();
        let done = Completion::new(move |result, buf| {
            // The receiver is gone if the run ended with an error.
            let _ = send.send((number, result, buf));
        });
        let kind = self.rng.below(20);
        if kind < 2 {
            let moment = self.truth().moment();
            port.submit(IoRequest::flush(), done);
            return Some(Pending::Flush { moment });
        }
        let cells = self.truth().cells();
        // Mostly whole blocks, sometimes unaligned ranges.
        let (mut from, mut len) = if self.rng.one_in(4) {
            (
                self.rng.below(cells as u64) as usize,
                1 + self.rng.below(100) as usize,
            )
        } else {
            let blocks = (cells / CELLS_PER_BLOCK) as u64;
            let hot = if self.rng.one_in(2) {
                blocks / 8
            } else {
                blocks
            };
            (
                self.rng.below(hot) as usize * CELLS_PER_BLOCK,
                CELLS_PER_BLOCK * (1 + self.rng.below(6) as usize),
            )
        };
        from = from.min(cells - 1);
        len = len.min(cells - from);
        let mut to = from + len;
        if kind < 6 {
            let expect = self.truth().expect(from, to);
            let buf = port.buffer((from * CELL) as u64, (len * CELL) as u32);
            port.submit(
                IoRequest::read((from * CELL) as u64, (len * CELL) as u32, buf),
                done,
            );
            return Some(Pending::Read { from, expect });
        }
        let zero = kind >= 17;
        if kind == 17 {
            // Of a discard, only whole blocks are sure to be zeros afterwards.
            (from, to) = (
                from.next_multiple_of(CELLS_PER_BLOCK),
                to / CELLS_PER_BLOCK * CELLS_PER_BLOCK,
            );
        }
        if from >= to || self.truth().is_busy(from, to) {
            return None;
        }
        let (offset, len) = ((from * CELL) as u64, ((to - from) * CELL) as u32);
        let fua = self.rng.one_in(if zero { 4 } else { 10 });
        let change = match kind {
            17 if self.caching => Change::Forget,
            17.. => Change::Zero,
            _ => Change::Write,
        };
        let version = self.truth().issue(from, to, change);
        self.did.writes += 1;
        if zero {
            let op = match kind {
                17 => RequestOp::Discard,
                18 => RequestOp::WriteZeroes { keep: false },
                _ => RequestOp::WriteZeroes { keep: true },
            };
            port.submit(IoRequest::new(op, offset, len).with_fua(fua), done);
        } else {
            let mut buf = port.buffer(offset, len);
            for (c, b) in (from..to).zip(buf.chunks_exact_mut(CELL)) {
                b.copy_from_slice(&truth::content(c, version));
            }
            port.submit(IoRequest::write(offset, len, buf).with_fua(fua), done);
        }
        Some(Pending::Change {
            from,
            to,
            version,
            fua,
        })
    }

    /// After a power failure: every cell must hold one of its permitted values.
    fn verify(&mut self, port: &Arc<dyn Port>) -> Result<(), String> {
        for at in (0..port.volume_bytes()).step_by(EXTENT as usize) {
            let (send, receive) = mpsc::channel();
            let buf = port.buffer(at, EXTENT as u32);
            let done = Completion::new(move |result, buf| {
                let _ = send.send((result, buf));
            });
            port.submit(IoRequest::read(at, EXTENT as u32, buf), done);
            let (result, buf): (Result<(), IoError>, Option<Buffer>) =
                receive.recv().map_err(|e| e.to_string())?;
            result.map_err(|e| format!("read at {at} after recovery: {e:?}"))?;
            let buf = buf.ok_or("a read without its buffer")?;
            for (i, b) in buf.chunks_exact(CELL).enumerate() {
                self.truth().check_crashed(at as usize / CELL + i, b)?;
            }
        }
        Ok(())
    }
}

fn seeds(default: u64) -> std::ops::Range<u64> {
    let var = |n: &str| std::env::var(n).ok().and_then(|v| v.parse::<u64>().ok());
    match (var("ISOTHERM_SEED"), var("ISOTHERM_SEEDS")) {
        (Some(s), _) => s..s + 1,
        (None, n) => 0..n.unwrap_or(default),
    }
}

/// Members are files in a FUSE mount, so the test needs FUSE.
fn can_mount() -> bool {
    let ok = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .is_ok();
    if !ok {
        println!("skipped: /dev/fuse cannot be opened (run as root, or load the fuse module)");
    }
    ok
}

#[test]
fn what_was_flushed_survives_the_loss_of_power() {
    if !can_mount() {
        return;
    }
    let mut sum = Did::default();
    for seed in seeds(12) {
        let did = run(seed, None).unwrap_or_else(|e| panic!("ISOTHERM_SEED={seed}: {e}"));
        sum.lost_power += did.lost_power;
        sum.writes += did.writes;
        sum.flushes += did.flushes;
        sum.forced += did.forced;
        sum.flushed = did
            .flushed
            .iter()
            .zip(sum.flushed.iter().chain([&0, &0]))
            .map(|(a, b)| a + b)
            .collect();
    }
    println!("{sum:?}");
    assert!(sum.flushes > 0 && sum.writes > 0 && sum.flushed.iter().all(|&f| f > 0));
}

#[test]
fn an_engine_that_leaves_out_a_flush_is_caught() {
    if !can_mount() {
        return;
    }
    for mutant in [
        Mutant::FlushForgetsFast,
        Mutant::FlushForgetsSlow,
        Mutant::SkipJournalFlush,
        Mutant::ForgetFua,
        Mutant::ZeroesForgetFua,
    ] {
        let how = seeds(60).find_map(|seed| run(seed, Some(mutant)).err().map(|e| (seed, e)));
        let (seed, e) = how.unwrap_or_else(|| panic!("nobody noticed {mutant:?}"));
        println!("{mutant:?}: caught at seed {seed}: {e}");
    }
}

/// The same for the rules below the engine. A rule is removed for a whole process, so this program runs itself again.
#[test]
fn a_world_that_leaves_out_a_flush_is_caught() {
    if !can_mount() {
        return;
    }
    let random = "what_was_flushed_survives_the_loss_of_power";
    let first = "directed::a_new_volume_and_its_first_life_survive_the_loss_of_power";
    let zeros = "directed::zeros_and_discards_with_fua_survive_the_loss_of_power";
    let tail = "tailed::what_was_flushed_to_a_disk_with_a_tail_survives_the_loss_of_power";
    for (mutant, test) in [
        ("FlushNothing", random),
        ("DropDsync", zeros),
        ("MediaFlushNothing", first),
        ("FlushDataAlone", tail),
        ("ZeroRangeForFua", zeros),
        ("KeepZeroEnds", zeros),
    ] {
        let me = std::env::current_exe().unwrap();
        let mut again = Command::new(me);
        again.args(["--exact", test]);
        again.env("ISOTHERM_LIVE_MUTANT", mutant);
        let out = again.env("ISOTHERM_SEEDS", "60").output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout);
        let how = said.lines().find(|l| l.contains("ISOTHERM_SEED="));
        let how = how.unwrap_or_else(|| panic!("nobody noticed {mutant}: {said}"));
        println!("{mutant}: caught: {how}");
    }
}
