//! One cell of GreenDM's evaluation: a drive under a workload, and the measures of chapter 6.
//!
//! Set-up (6.2.1): an Intel 320 of 300 GB and a Seagate ST32000641AS of 2 TB, whose middle is used. A quarter of the volume is on flash;
//! the disk spins down after 5 s (6.1.4); the whole volume is read once before measuring begins (6.2.3). Flash wear as in 6.1.5: bytes
//! written plus a tenth or a hundredth of the bytes read, divided by 36 500 GB.

use std::sync::{Arc, PoisonError};

use isotherm_core::Nanos;
use isotherm_models::enclosure::Host;
use isotherm_models::{DeviceModel, FlashState, Options, Span, sheet};

use super::unflushed::Unflushed;
use isotherm_traces::{Op, Record, TraceError};

use crate::Ctx;
use crate::work::Work;
use isotherm_lab::LabError;
use isotherm_lab::pool::try_parallel;
use isotherm_lab::sim::{
    Begin, Device, Model, Records, Report, Run, Setup, Source, Tier, TimeMode, touched,
};
use isotherm_lab::size::Size;

/// Preset of the flash drive.
pub const FLASH: &str = "intel-320-300";
/// Preset of the disk.
pub const DISK: &str = "st32000641as";
/// First byte of the used part of the disk: its middle (6.2.1).
const MIDDLE: u64 = 1_000_000_000_000;
/// Spin-down time-out (6.1.4).
const STANDBY_S: f64 = 5.0;

/// The rest of the machine. The thesis measures the power of the whole machine (a 2.66 GHz Core 2 Quad desktop with 4 GB) and does not
/// print it. These values are typical of the class, with one busy core.
pub const HOST: Host = Host {
    idle_w: 60.0,
    busy_w: 80.0,
};
/// Processor time of a request and of each device operation, typical of the class of machine.
const CPU_S_PER_OPERATION: f64 = 30e-6;
/// Bytes per second that the machine copies when extents move through memory.
const COPY_BYTES_PER_S: f64 = 1.5e9;

/// The substitute for the thesis' machine, in words.
pub const HOST_WORDS: &str = "host: 60 W idle and 20 W more while a core works, 30 us for each request and device operation and 1.5 GB/s for what moves; the thesis prints no watts, so this is typical of a 2008 desktop";

/// The drive that is measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Drive {
    /// The flash drive alone.
    Ssd,
    /// The disk alone.
    Hdd,
    /// Both, with a policy; the number is n if 1/n of the volume is on flash.
    Hybrid(String, u64),
}

/// A cell to measure.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The drive.
    pub drive: Drive,
    /// Extent size.
    pub extent: u32,
    /// Whether FLUSH takes its time; `false`: it is free (see `unflushed.rs`).
    pub flushes: bool,
    /// Whether the disk's write buffer is on, as drives are shipped.
    pub write_cache: bool,
}

/// The measures of a cell.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Megabytes per second of requests.
    pub mb_s: f64,
    /// Elapsed seconds.
    pub elapsed_s: f64,
    /// Joules of the machine and the drives.
    pub energy_j: f64,
    /// Mean watts of the machine and the drives.
    pub power_w: f64,
    /// Share of the time in which the disk was spun down.
    pub spun_down: f64,
    /// Start-stop cycles of the disk.
    pub start_stops: u64,
    /// Flash life used in eu, if ten reads count as one write.
    pub wear_10: f64,
    /// Flash life used in eu, if a hundred reads count as one write.
    pub wear_100: f64,
    /// Share of the accesses that the flash served.
    pub flash_hits: f64,
    /// The report of the run.
    pub report: Report,
}

/// A read of the whole volume in order, followed by a workload.
struct Scanned<'a> {
    work: &'a Work,
}

/// Bytes per read of the scan.
const SCAN: u32 = 1 << 20;

impl Scanned<'_> {
    fn reads(&self) -> u64 {
        self.work.bytes.div_ceil(u64::from(SCAN))
    }
}

struct ScannedReader {
    at: u64,
    reads: u64,
    rest: Box<dyn Records>,
}

impl Source for Scanned<'_> {
    fn name(&self) -> String {
        self.work.name.clone()
    }
    fn open(&self) -> Result<Box<dyn Records>, TraceError> {
        Ok(Box::new(ScannedReader {
            at: 0,
            reads: self.reads(),
            rest: self.work.memory.open()?,
        }))
    }
}

impl Records for ScannedReader {
    fn read_batch(&mut self, out: &mut Vec<Record>, max: usize) -> Result<usize, TraceError> {
        if self.at == self.reads {
            return self.rest.read_batch(out, max);
        }
        let n = (self.reads - self.at).min(max as u64);
        for i in self.at..self.at + n {
            let offset = i * u64::from(SCAN);
            out.push(Record::new(Nanos(0), Op::Read, offset, SCAN));
        }
        self.at += n;
        Ok(n as usize)
    }
}

/// Measures `cells` under `work` on all cores. A cell that was measured before in this session is not run again.
///
/// # Errors
/// A simulation fails.
pub fn measure(ctx: &Ctx<'_>, work: &Work, cells: &[Cell]) -> Result<Vec<Arc<Measured>>, LabError> {
    try_parallel(ctx.threads, cells, |cell| {
        let key = format!("{} {} {cell:?}", work.name, work.bytes);
        let memo = || ctx.memo.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(m) = memo().get(&key) {
            return Ok(m.clone());
        }
        (ctx.progress)(&format!(
            "{}: {}, extents of {} KiB",
            work.name,
            cell.drive.label(),
            cell.extent >> 10
        ));
        let m = Arc::new(one(work, cell)?);
        memo().insert(key, m.clone());
        Ok(m)
    })
}

impl Drive {
    /// The name that tables show.
    pub fn label(&self) -> String {
        match self {
            Drive::Ssd => "SSD".to_owned(),
            Drive::Hdd => "HDD".to_owned(),
            Drive::Hybrid(policy, _) => policy.clone(),
        }
    }
}

fn flash() -> Result<Device, LabError> {
    device(FLASH, Span::At { start: 0 }, None)
}

fn disk() -> Result<Device, LabError> {
    device(DISK, Span::At { start: MIDDLE }, Some(STANDBY_S))
}

fn device(name: &str, span: Span, standby_after_s: Option<f64>) -> Result<Device, LabError> {
    Ok(Device {
        model: Model::Sheet(Box::new(sheet(name)?)),
        options: Options {
            span,
            // At most 8 of 300 GB are used, so there is hardly any garbage collection.
            flash: FlashState::Rated,
            ..Options::default()
        },
        standby_after_s,
    })
}

fn one(work: &Work, cell: &Cell) -> Result<Measured, LabError> {
    let whole = Size::Share(1_000_000);
    let disk = || -> Result<Device, LabError> {
        let mut disk = disk()?;
        disk.options.write_cache = (!cell.write_cache).then_some(false);
        Ok(disk)
    };
    let (policy, tiers) = match &cell.drive {
        Drive::Ssd => ("mylinear", vec![Tier::new(flash()?, whole)]),
        Drive::Hdd => ("mylinear", vec![Tier::new(disk()?, whole)]),
        Drive::Hybrid(policy, share) => {
            let fast = Size::Bytes(work.bytes / share);
            (
                policy.as_str(),
                vec![Tier::new(flash()?, fast), Tier::new(disk()?, whole)],
            )
        }
    };
    let scanned = Scanned { work };
    let setup = Setup {
        tiers,
        extent_bytes: cell.extent,
        policy: policy.parse().map_err(LabError::Setup)?,
        time: TimeMode::Closed { depth: work.depth },
        warm_up: scanned.reads(),
        begin: Begin::default(),
        limit: None,
        seed: 0,
        host_w: 0.0,
        discards: true,
        observe: isotherm_lab::sim::Observe::default(),
        settings: Vec::new(),
        qos: isotherm_core::qos::Spec::default(),
    };
    let first = touched(&scanned, cell.extent.trailing_zeros(), None)?;
    let unflushed = |tier: u8, bytes: u64| -> Box<dyn DeviceModel> {
        let device = &setup.tiers[usize::from(tier)].devices[0];
        let options = Options {
            size: bytes,
            ..device.options
        };
        let sheet = device.sheet_for(bytes);
        match sheet.map(|s| s.model(&options)) {
            Ok(Ok(model)) => Box::new(Unflushed::new(model)),
            // The drives are much larger than any volume here.
            _ => unreachable!("a preset of the tree cannot be modelled"),
        }
    };
    let run = Run::new(&setup, &scanned).touched(&first);
    let report = if cell.flushes {
        run.full()?
    } else {
        run.models(&unflushed).full()?
    };
    Ok(figures(report))
}

fn figures(report: Report) -> Measured {
    let usage = report.usage.clone().unwrap_or_default();
    let elapsed_s = usage.elapsed_s;
    let (mut flash_read, mut flash_written, mut operations) = (0.0, 0.0, report.requests as f64);
    let (mut limit, mut drives_j, mut still_s, mut start_stops) = (f64::INFINITY, 0.0, 0.0, 0);
    let (mut flash, mut disk) = (false, false);
    for m in usage.members.values() {
        operations += (m.reads + m.writes) as f64;
        drives_j += m.energy_j;
        let sheet = sheet(&m.preset).ok();
        if let Some(ssd) = sheet.as_ref().and_then(|s| s.ssd.as_ref()) {
            flash_read = m.bytes_read as f64;
            // The thesis' prototype flushes its metadata from time to time and does not count it.
            flash_written = m.bytes_written.saturating_sub(m.meta_bytes_written) as f64;
            limit = ssd.write_limit_gb * 1e9;
            flash = true;
        } else {
            still_s = m.standby_s;
            start_stops = m.start_stops;
            disk = true;
        }
    }
    let busy_s = operations * CPU_S_PER_OPERATION + report.migrated_bytes as f64 / COPY_BYTES_PER_S;
    // The thesis measures the power of the machine with both drives in it. A drive that is not used is idle.
    let resting = |name: &str| {
        let s = sheet(name).ok();
        let disk_w = s
            .as_ref()
            .and_then(|s| s.hdd.as_ref())
            .map(|h| h.power.standby_w);
        let flash_w = s
            .as_ref()
            .and_then(|s| s.ssd.as_ref())
            .map(|s| s.power.idle_w);
        disk_w.or(flash_w).unwrap_or(0.0)
    };
    let absent_w =
        if flash { 0.0 } else { resting(FLASH) } + if disk { 0.0 } else { resting(DISK) };
    let energy_j = drives_j + absent_w * elapsed_s + HOST.energy_j(elapsed_s, busy_s);
    let wear = |reads_per_write: f64| (flash_written + flash_read / reads_per_write) / limit * 1e6;
    let per_s = |x: f64| if elapsed_s > 0.0 { x / elapsed_s } else { 0.0 };
    Measured {
        mb_s: per_s((report.bytes_read + report.bytes_written) as f64 / 1e6),
        elapsed_s,
        energy_j,
        power_w: per_s(energy_j),
        spun_down: per_s(still_s),
        start_stops,
        wear_10: wear(10.0),
        wear_100: wear(100.0),
        // A device alone counts as the fastest tier, whichever it is.
        flash_hits: if limit.is_finite() {
            report.fast_hit_ratio
        } else {
            0.0
        },
        report,
    }
}
