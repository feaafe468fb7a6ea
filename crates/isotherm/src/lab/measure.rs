//! `devices measure`: a bounded series of reads (and writes, if requested) on a device, and a sheet that is fitted to it.
//!
//! Reads bypass the page cache if the file system allows it. Each run ends after its share of the time or of the operations. Nothing is
//! written without `--destructive`, and then only to a device or file that has no other user and belongs to no volume.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use isotherm_core::random::SplitMix64;
use isotherm_live::contents;
use isotherm_live::device::{Device, OpenHow};
use isotherm_models::fit::{Measured, Writes, fit};
use isotherm_models::measure::Comparison;
use rustix::fs::{Mode, OFlags};
use serde::Serialize;

use crate::Failure;
use crate::lab::args::MeasureArgs;
use crate::table::table;

/// Number of runs with reads; with writes there are as many again.
const RUNS: f64 = 6.0;
/// Operations in flight when a rate is measured.
const DEPTH: u32 = 32;
/// Blocks are aligned to this, a multiple of the sector size of every device.
const ALIGN: usize = 4096;
/// Most latencies that a thread of a run stores.
const WAITS_MAX: usize = 1 << 18;
/// If a residual exceeds this, the figures are inconsistent.
const RESIDUAL_DOUBTED: f64 = 0.25;
/// A smaller device is refused, because its figures are meaningless.
const SMALLEST: u64 = 16 << 20;

/// The device under test.
struct Target {
    file: File,
    bytes: u64,
}

/// One run.
struct Series {
    write: bool,
    len: usize,
    /// Whether offsets are uniform over `from..from + span`; otherwise they are sequential.
    random: bool,
    from: u64,
    span: u64,
    depth: u32,
    time: Duration,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default)]
struct Outcome {
    /// Mean of the middle half of the latencies. The mean of all would include the moments in which the machine did something else.
    typical_us: f64,
    iops: f64,
    mb_s: f64,
}

/// A buffer with an aligned start.
struct Buffer {
    bytes: Vec<u8>,
    at: usize,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Buffer {
        let bytes = vec![0x5a; len + ALIGN];
        let at = bytes.as_ptr().align_offset(ALIGN);
        Buffer { bytes, at, len }
    }
    fn get(&mut self) -> &mut [u8] {
        &mut self.bytes[self.at..self.at + self.len]
    }
}

impl Target {
    fn open(path: &Path, destructive: bool) -> Result<(Target, bool), Failure> {
        let refuse = |e: std::io::Error| Failure::failed(format!("{}: {e}", path.display()));
        std::fs::metadata(path).map_err(refuse)?;
        let flags = OFlags::CLOEXEC
            | if destructive {
                OFlags::RDWR
            } else {
                OFlags::RDONLY
            };
        let open = |f| rustix::fs::open(path, f, Mode::empty());
        let (fd, direct) = match open(flags | OFlags::DIRECT) {
            Ok(fd) => (fd, true),
            Err(rustix::io::Errno::INVAL) => (open(flags).map_err(|e| refuse(e.into()))?, false),
            Err(e) => return Err(refuse(e.into())),
        };
        let mut file = File::from(fd);
        let bytes = file.seek(SeekFrom::End(0)).map_err(refuse)? / ALIGN as u64 * ALIGN as u64;
        if bytes < SMALLEST {
            return Err(Failure::usage(format!(
                "{}: {bytes} bytes are too few to measure, at least {SMALLEST} are needed",
                path.display()
            )));
        }
        Ok((Target { file, bytes }, direct))
    }

    fn run(&self, s: &Series) -> std::io::Result<Outcome> {
        let blocks = (s.span / s.len as u64).max(1);
        let begun = Instant::now();
        let issued = AtomicU64::new(0);
        let work = |seed: u64| -> std::io::Result<(u64, Vec<u64>)> {
            let (mut random, mut buffer) = (SplitMix64::new(seed), Buffer::new(s.len));
            let (mut finished, mut waited) = (0, Vec::new());
            while begun.elapsed() < s.time {
                let i = issued.fetch_add(1, Ordering::Relaxed);
                let block = if s.random {
                    random.below(blocks)
                } else {
                    i % blocks
                };
                let offset = s.from + block * s.len as u64;
                let before = Instant::now();
                if s.write {
                    self.file.write_all_at(buffer.get(), offset)?;
                } else {
                    self.file.read_exact_at(buffer.get(), offset)?;
                }
                finished += 1;
                if waited.len() < WAITS_MAX {
                    waited.push(before.elapsed().as_nanos() as u64);
                }
            }
            Ok((finished, waited))
        };
        let (finished, mut waited) = std::thread::scope(|scope| {
            let spawned: Vec<_> = (0..u64::from(s.depth))
                .map(|i| scope.spawn(move || work(1 + i)))
                .collect();
            let mut all = (0, Vec::new());
            for t in spawned {
                let ended = t.join();
                let early = || Err(std::io::Error::other("a thread ended early"));
                let (finished, waited) = ended.unwrap_or_else(|_| early())?;
                all.0 += finished;
                all.1.extend(waited);
            }
            Ok::<_, std::io::Error>(all)
        })?;
        let iops = finished.max(1) as f64 / begun.elapsed().as_secs_f64();
        waited.sort_unstable();
        let middle = &waited[waited.len() / 4..waited.len() - waited.len() / 4];
        let sum: u64 = middle.iter().sum();
        Ok(Outcome {
            typical_us: sum as f64 / 1e3 / middle.len().max(1) as f64,
            iops,
            mb_s: iops * s.len as f64 / 1e6,
        })
    }

    /// The whole series: random at depth 1, over a hundredth of the device, and at depth; sequential in 4 KiB, and in 128 KiB at the outer
    /// and at the inner end.
    fn series(&self, write: bool, time: Duration) -> std::io::Result<[Outcome; 6]> {
        let part = (self.bytes / 100).max(4 << 20) / (128 << 10) * (128 << 10);
        let all = Series {
            write,
            len: 4096,
            random: true,
            from: 0,
            span: self.bytes,
            depth: 1,
            time,
        };
        let large = |from: u64, span: u64| Series {
            len: 128 << 10,
            random: false,
            depth: 4,
            from,
            span,
            ..all
        };
        let end = (self.bytes - part) / ALIGN as u64 * ALIGN as u64;
        Ok([
            self.run(&all)?,
            self.run(&Series { span: part, ..all })?,
            self.run(&Series {
                depth: DEPTH,
                ..all
            })?,
            self.run(&Series {
                random: false,
                ..all
            })?,
            self.run(&large(0, self.bytes))?,
            self.run(&large(end, part))?,
        ])
    }

    /// Mean time of a flush after a write.
    fn flushes(&self, time: Duration) -> std::io::Result<f64> {
        let (begun, mut n, mut us) = (Instant::now(), 0u32, 0.0);
        let mut buffer = Buffer::new(4096);
        while begun.elapsed() < time {
            self.file
                .write_all_at(buffer.get(), u64::from(n % 1024) * 4096)?;
            let before = Instant::now();
            self.file.sync_data()?;
            us += before.elapsed().as_secs_f64() * 1e6;
            n += 1;
        }
        Ok(us / f64::from(n.max(1)))
    }
}

/// Claims the device or file that may be written to, so that no other program uses it meanwhile. A member of a volume is refused, served or
/// not: `--destructive` permits the loss of this device's data, and not of the data on the other members of its volume.
fn hold(path: &Path) -> Result<Device, Failure> {
    let how = OpenHow {
        fresh: true,
        ..OpenHow::default()
    };
    let device = Device::open(path, how).map_err(|e| Failure::failed(e.to_string()))?;
    let found = contents::find_formats(&device)
        .map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?;
    let member = |c: &&contents::Content| c.what.starts_with("a member of a volume");
    match found.iter().find(member) {
        None => Ok(device),
        Some(c) => Err(Failure::failed(format!(
            "{}: is {}: measure it without --destructive, or erase it first",
            path.display(),
            c.what
        ))),
    }
}

/// `isotherm devices measure`.
///
/// # Errors
/// The device cannot be opened, read or written, it is in use, or its figures do not make a valid sheet.
pub fn run(args: &MeasureArgs) -> Result<(), Failure> {
    let path = &args.path;
    let _held = args.destructive.then(|| hold(path)).transpose()?;
    let (target, direct) = Target::open(path, args.destructive)?;
    if !direct {
        crate::log::note(format_args!(
            "NOTE: {}: cannot be read past the page cache, so memory is measured with it",
            path.display()
        ));
    }
    let measured = measure(&target, args)?;
    let (sheet, residuals) =
        fit(&args.name, &measured).map_err(|e| Failure::failed(e.to_string()))?;
    crate::json::to_file(&args.out, &sheet)?;
    let figures = residuals.iter().map(|r| MeasuredFigure {
        figure: r.published.what.name(),
        depth: r.published.depth,
        measured: r.published.value,
        modelled: r.modelled,
        error: r.error(),
    });
    let answer = Answer {
        path: path.to_string_lossy().into_owned(),
        bytes: target.bytes,
        direct,
        destructive: args.destructive,
        sheet: args.out.to_string_lossy().into_owned(),
        figures: figures.collect(),
    };
    if residuals.iter().any(|r| r.error().abs() > RESIDUAL_DOUBTED) {
        crate::log::note(format_args!(
            "NOTE: a residual is over {:.0} %: the figures do not belong to one device, as on a machine that is busy with other work; \
             measure again, or longer (--seconds)",
            RESIDUAL_DOUBTED * 100.0
        ));
    }
    args.json.print(&answer, || {
        let rows: Vec<_> = residuals.iter().map(as_row).collect();
        let head = ["figure", "depth", "measured", "by the sheet", "residual"];
        format!(
            "{}\nwritten to {}; `isotherm sim --fast {}` and `paced` take it in place of a preset\n",
            table(&head, &rows),
            args.out.display(),
            args.out.display()
        )
    })
}

/// `isotherm devices measure PATH --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Answer {
    /// The device.
    path: String,
    /// Its size.
    #[cfg_attr(test, schemars(range(min = 1)))]
    bytes: u64,
    /// Whether it was read past the page cache.
    direct: bool,
    /// Whether it was written to.
    destructive: bool,
    /// The sheet that was written.
    sheet: String,
    /// The figures.
    #[cfg_attr(test, schemars(length(min = 3)))]
    figures: Vec<MeasuredFigure>,
}

/// A measured figure and that of the model.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct MeasuredFigure {
    /// What is measured.
    figure: &'static str,
    /// Requests at a time.
    #[cfg_attr(test, schemars(range(min = 1)))]
    depth: u32,
    /// The measured figure.
    measured: f64,
    /// That of the model.
    modelled: f64,
    /// Its relative error.
    error: f64,
}

/// The series of reads and, if they are allowed, of writes.
fn measure(target: &Target, args: &MeasureArgs) -> Result<Measured, Failure> {
    let time = Duration::from_secs_f64(args.seconds / RUNS);
    let failed = |e: std::io::Error| Failure::failed(format!("{}: {e}", args.path.display()));
    let [random, short, deep, sequential, outer, inner] =
        target.series(false, time).map_err(failed)?;
    let writes = if args.destructive {
        let [random, _, deep, sequential, outer, _] = target.series(true, time).map_err(failed)?;
        Some(Writes {
            random_us: random.typical_us,
            random_iops: deep.iops,
            sequential_us: sequential.typical_us,
            mb_s: outer.mb_s,
            flush_us: target.flushes(time).map_err(failed)?,
        })
    } else {
        None
    };
    Ok(Measured {
        capacity: target.bytes,
        random_read_us: random.typical_us,
        short_read_us: short.typical_us,
        random_read_iops: deep.iops,
        depth: DEPTH,
        sequential_read_us: sequential.typical_us,
        outer_mb_s: outer.mb_s,
        inner_mb_s: inner.mb_s,
        writes,
    })
}

fn as_row(r: &Comparison) -> Vec<String> {
    vec![
        r.published.what.name().to_owned(),
        r.published.depth.to_string(),
        format!("{:.2}", r.published.value),
        format!("{:.2}", r.modelled),
        format!("{:+.1}%", r.error() * 100.0),
    ]
}
