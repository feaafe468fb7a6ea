//! Compares the engine, with all data on the fast tier, with the raw file through io_uring.
//!
//! ```text
//! cargo bench -p isotherm-live --bench engine -- DIR… [rounds=15] [seconds=0.2] [policy=greendm]
//! ```
//!
//! One generator in this process drives both in turn on the same file, the volume's fast member, with the same direct I/O, registered file
//! and memory, ring flags and batching (new requests for all completed ones are submitted together in one call). Prints for each case the
//! median operations per second of both and the median of the ratios within each round.

use io_uring::{IoUring, opcode, types};
use isotherm_core::random::SplitMix64;
use isotherm_core::{ExtentId, Nanos, RequestOp};
use isotherm_live::buffers::{Buffer, Region};
use isotherm_live::config::{IoConfig, Size};
use isotherm_live::inbox::{Done, Submission};
use isotherm_live::port::{IoRequest, Port};
use isotherm_live::{Handle, MemberConfig, OpenMode, Session, Volume, VolumeConfig};
use rustix::fs::OFlags;
use std::error::Error;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
/// Size of the range that is used. It is smaller than the fast tier.
const SPAN: u64 = 512 * MIB;
const FAST: u64 = 1024 * MIB;

type Outcome<T> = Result<T, Box<dyn Error>>;

#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    write: bool,
    random: bool,
    len: u32,
    depth: usize,
    /// Lowest ratio that the design requires.
    bar: f64,
}

const fn random(name: &'static str, write: bool, depth: usize) -> Case {
    Case {
        name,
        write,
        random: true,
        len: 4096,
        depth,
        bar: 0.90,
    }
}

const fn sequential(name: &'static str, write: bool) -> Case {
    Case {
        name,
        write,
        random: false,
        len: MIB as u32,
        depth: 8,
        bar: 0.95,
    }
}

const CASES: [Case; 6] = [
    random("4 KiB random read, QD 1", false, 1),
    random("4 KiB random read, QD 32", false, 32),
    random("4 KiB random write, QD 1", true, 1),
    random("4 KiB random write, QD 32", true, 32),
    sequential("1 MiB sequential read, QD 8", false),
    sequential("1 MiB sequential write, QD 8", true),
];

/// Addresses of the requests, in the same sequence for both sides.
struct Addresses {
    case: Case,
    random: SplitMix64,
    /// The next address of a sequential case.
    next: u64,
}

impl Addresses {
    fn new(case: Case) -> Addresses {
        Addresses {
            case,
            random: SplitMix64::new(1),
            next: 0,
        }
    }

    fn next(&mut self) -> u64 {
        let len = u64::from(self.case.len);
        if !self.case.random {
            let at = self.next;
            self.next = (at + len) % SPAN;
            return at;
        }
        self.random.below(SPAN / len) * len
    }
}

/// The raw side.
struct Raw {
    ring: IoUring,
    memory: Arc<Region>,
    base: u64,
    _file: File,
}

impl Raw {
    fn new(path: &Path, base: u64) -> Outcome<Raw> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .custom_flags(OFlags::DIRECT.bits() as i32);
        let file = options.open(path)?;
        isotherm_live::device::allow_inline(&file);
        let ring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .setup_cqsize(2048)
            .build(256)?;
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let memory = Region::new(64 * MIB as usize)?;
        // The io-uring crate takes libc's type.
        let parts = [libc::iovec {
            iov_base: memory.base().cast(),
            iov_len: memory.bytes(),
        }];
        // SAFETY: the region is dropped after the ring (field order), and each operation ends before `run` returns.
        unsafe { ring.submitter().register_buffers(&parts)? };
        Ok(Raw {
            ring,
            memory,
            base,
            _file: file,
        })
    }

    fn submit(&mut self, case: Case, slot: u64, at: u64) {
        let buf = self
            .memory
            .base()
            .wrapping_add(slot as usize * case.len as usize);
        let entry = if case.write {
            opcode::WriteFixed::new(types::Fixed(0), buf, case.len, 0)
                .offset(self.base + at)
                .build()
        } else {
            opcode::ReadFixed::new(types::Fixed(0), buf, case.len, 0)
                .offset(self.base + at)
                .build()
        };
        // SAFETY: the slot's memory is used by one operation at a time; the queue holds more than the largest depth.
        unsafe { self.ring.submission().push(&entry.user_data(slot)) }.expect("room for the depth");
    }

    /// Operations per second.
    fn run(&mut self, case: Case, time: Duration) -> Outcome<f64> {
        let mut addresses = Addresses::new(case);
        for slot in 0..case.depth as u64 {
            self.submit(case, slot, addresses.next());
        }
        let (begun, mut done, mut open) = (Instant::now(), 0u64, case.depth);
        let mut ended = Vec::with_capacity(64);
        let mut elapsed = Duration::ZERO;
        while open > 0 {
            self.ring.submit_and_wait(1)?;
            let entries = self.ring.completion();
            ended.extend(entries.map(|c| (c.user_data(), c.result())));
            if elapsed < time {
                elapsed = begun.elapsed();
            }
            for (slot, result) in ended.drain(..) {
                if result != case.len as i32 {
                    return Err(format!("raw I/O: {result}").into());
                }
                if elapsed < time {
                    done += 1;
                    self.submit(case, slot, addresses.next());
                } else {
                    open -= 1;
                }
            }
        }
        Ok(done as f64 / elapsed.as_secs_f64())
    }
}

/// The engine's side.
struct Ours {
    session: Session,
    handle: Handle,
}

impl Ours {
    fn submit(&mut self, case: Case, at: u64, buf: Buffer) {
        let op = if case.write {
            RequestOp::Write
        } else {
            RequestOp::Read
        };
        self.session.submit(Submission {
            request: IoRequest::new(op, at, case.len).with_buffer(Some(buf)),
            done: Done::Ticket(0),
        });
    }

    fn run(&mut self, case: Case, time: Duration) -> Outcome<f64> {
        let mut addresses = Addresses::new(case);
        for _ in 0..case.depth {
            let buf = self.handle.buffer(0, case.len);
            let at = addresses.next();
            self.submit(case, at, buf);
        }
        let (begun, mut done, mut open) = (Instant::now(), 0u64, case.depth);
        let mut ended = Vec::with_capacity(64);
        let mut elapsed = Duration::ZERO;
        while open > 0 {
            self.session.step(None);
            ended.append(self.session.world().ended());
            if elapsed < time {
                elapsed = begun.elapsed();
            }
            for e in ended.drain(..) {
                e.result
                    .map_err(|e| format!("I/O through the engine: {e:?}"))?;
                let buf = e.buf.ok_or("a request came back without its buffer")?;
                if elapsed < time {
                    done += 1;
                    let at = addresses.next();
                    self.submit(case, at, buf);
                } else {
                    open -= 1;
                }
            }
        }
        Ok(done as f64 / elapsed.as_secs_f64())
    }

    /// Write the whole span once.
    fn fill(&mut self) -> Outcome<()> {
        let case = sequential("", true);
        for at in (0..SPAN).step_by(MIB as usize) {
            let mut buf = self.handle.buffer(at, case.len);
            buf.fill((at / MIB) as u8 | 1);
            self.submit(case, at, buf);
            while self.session.world().ended().is_empty() {
                self.session.step(None);
            }
            for e in self.session.world().ended().drain(..) {
                e.result.map_err(|e| format!("filling: {e:?}"))?;
            }
        }
        Ok(())
    }

    /// First byte of the span on the fast member, where it lies in one piece.
    fn base(&self) -> Outcome<u64> {
        let space = self.session.engine().space();
        let extent = u64::from(space.geo.extent_bytes());
        let mut base = None;
        for e in 0..(SPAN / extent) as u32 {
            let slot = space.map.home(ExtentId(e)).ok_or("an extent is unmapped")?;
            let (member, at) = space.geo.locate(slot);
            if member.0 != 0 {
                return Err("not everything is on the fast tier".into());
            }
            base.get_or_insert(at);
        }
        base.ok_or_else(|| "nothing is mapped".into())
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    f64::midpoint(values[n / 2], values[(n - 1) / 2])
}

#[expect(clippy::too_many_lines, reason = "one table, row by row")]
fn bench(
    dir: &Path,
    rounds: usize,
    time: Duration,
    policy: &str,
    only: &str,
    side: &str,
) -> Outcome<bool> {
    let scratch = tempfile::Builder::new().prefix("engine.").tempdir_in(dir)?;
    let member = |name: &str, tier, size| MemberConfig {
        path: scratch.path().join(name),
        tier,
        size: Some(Size(size)),
        ..MemberConfig::default()
    };
    let config = VolumeConfig {
        name: "v".into(),
        uuid: None,
        extent: Size(65536),
        policy: policy.into(),
        qos: Vec::new(),
        io: IoConfig::default(),
        members: vec![member("fast", 0, FAST), member("slow", 1, 2 * FAST)],
    };
    let path = scratch.path().join("v");
    Volume::create(&path, config, false)?;
    let (session, handle) = Session::here(Volume::open(&path, OpenMode::ReadWrite)?)?;
    let mut ours = Ours { session, handle };
    ours.fill()?;
    let mut raw = Raw::new(&scratch.path().join("fast"), ours.base()?)?;
    println!("{} ({policy})", dir.display());
    let mut all_met = true;
    for case in CASES.into_iter().filter(|c| c.name.contains(only)) {
        let (mut a, mut b, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        // The first round warms up and does not count. The sides take turns in going first, so that neither always runs after the other.
        for round in 0..=rounds {
            let (x, y) = if side == "ours" {
                (ours.run(case, time)?, f64::INFINITY)
            } else if side == "raw" {
                (0.0, raw.run(case, time)?)
            } else if round % 2 == 0 {
                let x = ours.run(case, time)?;
                (x, raw.run(case, time)?)
            } else {
                let y = raw.run(case, time)?;
                (ours.run(case, time)?, y)
            };
            if round > 0 {
                let on = if dir.starts_with("/dev/shm") {
                    "tmpfs"
                } else {
                    "disk"
                };
                keep(
                    &format!("{}, {on}", case.name),
                    round,
                    [("ours", x), ("raw", y)],
                )?;
                a.push(x);
                b.push(y);
                ratios.push(x / y);
            }
        }
        let ratio = median(&mut ratios);
        all_met &= ratio >= case.bar;
        println!(
            "{:<30} ours {:>9.0}/s   raw {:>9.0}/s   ratio {ratio:.3}   bar {:.2}  {}",
            case.name,
            median(&mut a),
            median(&mut b),
            case.bar,
            if ratio >= case.bar { "met" } else { "MISSED" }
        );
    }
    let slow = ours.session.engine().counters().members[1];
    if slow.reads + slow.writes != 0 {
        println!("  not all on the fast tier: {slow:?}");
    }
    ours.session.step(Some(Nanos(0)));
    drop(raw);
    ours.session.finish()?;
    Ok(all_met)
}

/// Writes a line for each value to the file that `bench/performance.py` names, if it runs this bench.
fn keep(case: &str, round: usize, values: [(&str, f64); 2]) -> Outcome<()> {
    let Some(path) = std::env::var_os("BENCH_KEEP") else {
        return Ok(());
    };
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    for (server, value) in values {
        writeln!(file, "{case}\t{server}\t{round}\t{value:.1}")?;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let (mut rounds, mut time, mut policy) = (15, Duration::from_millis(200), "greendm".to_owned());
    let (mut only, mut side) = (String::new(), String::new());
    let mut dirs = Vec::new();
    // Cargo adds `--bench`.
    for word in std::env::args().skip(1).filter(|w| w != "--bench") {
        match word.split_once('=') {
            Some(("rounds", n)) => rounds = n.parse::<usize>()?.max(1),
            Some(("seconds", n)) => time = Duration::from_secs_f64(n.parse()?),
            Some(("policy", p)) => p.clone_into(&mut policy),
            Some(("only", p)) => p.clone_into(&mut only),
            Some(("side", p)) => p.clone_into(&mut side),
            _ => dirs.push(word),
        }
    }
    if dirs.is_empty() {
        return Err(
            "usage: engine DIR… [rounds=N] [seconds=S] [policy=NAME] [only=WORDS]: DIR on disk, DIR on tmpfs".into(),
        );
    }
    for dir in dirs {
        bench(Path::new(&dir), rounds, time, &policy, &only, &side)?;
    }
    Ok(())
}
