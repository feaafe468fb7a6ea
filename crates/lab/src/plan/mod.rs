//! How much flash in front of a disk is worth its money: one table of the disk alone, of hybrids, and of flash alone.
//!
//! ```text
//!   trace ─► a full run of each row ─► latency, power, writes to flash ─► money.rs: dollars, years of flash life
//!                                 └──► windows.rs: intervals ─► advice.rs: one sentence
//! ```
//! Every row is a run of [`crate::sim`] and nothing else, so `isotherm sim` gives the same figures; [`Row::command`] is its command line.

mod advice;
mod money;
mod windows;

use isotherm_models::Sheet;
use serde::Serialize;

use crate::LabError;
use crate::compare::alone;
use crate::policy_spec::PolicySpec;
use crate::pool::parallel;
use crate::sim::{Device, Observe, Report, Run, Setup, Source, Tier, TimeMode, touched};
use crate::size::Size;
use windows::Windows;

pub use money::Money;

/// Fewest bins of time of a run, from which the windows are made.
const BINS: u32 = 256;
/// Sizes of the fast tier if none are given, in parts per million of the touched data.
pub const SHARES: [u32; 5] = [10_000, 20_000, 50_000, 100_000, 200_000];

/// What is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// The fast and the slow device.
    pub devices: [Device; 2],
    /// What names them on a command line: presets, or files of sheets.
    pub names: [String; 2],
    /// The prices of these whole drives in dollars, in place of those of their sheets.
    pub prices: [Option<f64>; 2],
    /// Sizes of the fast tier, ascending.
    pub sizes: Vec<Size>,
    /// The policy of the hybrids.
    pub policy: PolicySpec,
    /// Extent size in bytes.
    pub extent_bytes: u32,
    /// Bytes that the volume must hold; `None`: up to the last byte that the trace touches.
    pub data_bytes: Option<u64>,
    /// Growth of the data and of the work a year, 0.2 for 20 %.
    pub growth: f64,
    /// Years for which it is bought, 1 to 20.
    pub years: f64,
    /// Dollars per kilowatt hour.
    pub electricity_usd: f64,
    /// Most requests of the trace.
    pub limit: Option<u64>,
}

/// A device of the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Priced {
    /// Preset or sheet.
    pub name: String,
    /// Capacity of a whole drive.
    pub capacity_bytes: u64,
    /// Price of a whole drive; `None`: the sheet has none with date and source, and none was given.
    pub price_usd: Option<f64>,
    /// The date of the price, or `given`.
    pub price_date: Option<String>,
    /// The source of the price, or `given`.
    pub price_source: Option<String>,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// The trace.
    pub trace: String,
    /// The policy of the hybrids.
    pub policy: String,
    /// Extent size.
    pub extent_bytes: u32,
    /// Seconds from the first to the last request.
    pub trace_s: f64,
    /// Bytes that the trace touches, in whole extents. Sizes of the fast tier are shares of these.
    pub touched_bytes: u64,
    /// Bytes that the volume must hold, today.
    pub data_bytes: u64,
    /// The fast device.
    pub fast: Priced,
    /// The slow device.
    pub slow: Priced,
    /// Growth of data and work a year.
    pub growth: f64,
    /// Years for which it is bought.
    pub years: f64,
    /// Dollars per kilowatt hour.
    pub electricity_usd_per_kwh: f64,
    /// The disk alone, the hybrids by ascending size, flash alone.
    #[cfg_attr(feature = "schema", schemars(length(min = 3)))]
    pub rows: Vec<Row>,
    /// Index in `rows` of the one that is advised.
    pub advised: usize,
    /// The advice, one sentence.
    pub advice: String,
    /// What the advice does not know, one sentence.
    pub uncertainty: String,
}

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Only the slow device.
    DiskAlone,
    /// Both.
    Hybrid,
    /// Only the fast device.
    FlashAlone,
}

/// One choice.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Row {
    /// `disk alone`, `5%`, `flash alone`.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// Bytes of flash, today.
    pub flash_bytes: u64,
    /// Flash drives to buy.
    pub flash_drives: u32,
    /// Disks to buy.
    pub disk_drives: u32,
    /// Share of accesses that find their extent on flash; `None` for one device alone.
    pub fast_hit_ratio: Option<f64>,
    /// Mean latency of reads and writes.
    pub latency_mean_s: f64,
    /// Half of the 95 % interval of the mean, from the parts of the trace; `None` if it has too few requests for ten parts.
    pub latency_mean_error_s: Option<f64>,
    /// Median latency.
    pub latency_p50_s: f64,
    /// 99th percentile.
    pub latency_p99_s: f64,
    /// 99.9th percentile.
    pub latency_p999_s: f64,
    /// Mean power of the drives.
    pub power_w: f64,
    /// Years until the flash is worn by the trace's writes; `None` without flash, without writes to it, or if its sheet states no limit.
    pub flash_life_years: Option<f64>,
    /// Dollars; `None` if a device of the row has no price.
    pub money: Option<Money>,
    /// The command that runs this row alone.
    pub command: String,
}

/// A run to make.
struct Job {
    name: String,
    kind: Kind,
    setup: Setup,
    command: String,
}

/// Plays the trace on each choice. Uses all cores. `done` is told how many of the rows have been played.
///
/// # Errors
/// The trace cannot be read, has no times, or does not fit the devices.
pub fn plan(
    question: &Question,
    source: &dyn Source,
    done: &(dyn Fn(usize, usize) + Sync),
) -> Result<Plan, LabError> {
    question.check()?;
    let shift = question.extent_bytes.trailing_zeros();
    let first = touched(source, shift, question.limit)?;
    let jobs = question.jobs(&source.name())?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let count = std::sync::atomic::AtomicUsize::new(0);
    let reports = parallel(threads, &jobs, |j| {
        let report = Run::new(&j.setup, source).touched(&first).full();
        let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        done(n, jobs.len());
        report
    });
    let reports = reports.into_iter().collect::<Result<Vec<_>, _>>()?;
    let trace_s = reports
        .iter()
        .filter_map(|r| r.elapsed_s)
        .fold(f64::INFINITY, f64::min);
    if !trace_s.is_finite() || trace_s < 1.0 {
        return Err(LabError::setup(format!(
            "{}: its requests span less than a second, so nothing can be said about power and years: a plan needs a trace with times",
            source.name()
        )));
    }
    let span = first.extents.max().map_or(0, |m| (m + 1) << shift);
    let windows = Windows::new(&reports);
    let mut plan = Plan {
        trace: source.name(),
        policy: question.policy.to_string(),
        extent_bytes: question.extent_bytes,
        trace_s,
        touched_bytes: first.extents.len() << shift,
        data_bytes: question.data_bytes.unwrap_or(span),
        fast: question.priced(0, &reports)?,
        slow: question.priced(1, &reports)?,
        growth: question.growth,
        years: question.years,
        electricity_usd_per_kwh: question.electricity_usd,
        rows: Vec::new(),
        advised: 0,
        advice: String::new(),
        uncertainty: String::new(),
    };
    for (i, (job, report)) in jobs.into_iter().zip(&reports).enumerate() {
        let row = row(question, &plan, job, report, windows.error(i))?;
        plan.rows.push(row);
    }
    advice::advise(&mut plan, &windows);
    Ok(plan)
}

fn row(
    question: &Question,
    plan: &Plan,
    job: Job,
    report: &Report,
    error: Option<f64>,
) -> Result<Row, LabError> {
    let known = |v: Option<f64>| v.unwrap_or(0.0);
    let flash_bytes = match job.kind {
        Kind::DiskAlone => 0,
        Kind::Hybrid => report.fast_bytes,
        Kind::FlashAlone => plan.data_bytes,
    };
    let bought = money::Bought::of(question, plan, job.kind, flash_bytes, report)?;
    Ok(Row {
        name: job.name,
        kind: job.kind,
        flash_bytes,
        flash_drives: bought.drives[0],
        disk_drives: bought.drives[1],
        fast_hit_ratio: (job.kind == Kind::Hybrid).then_some(report.fast_hit_ratio),
        latency_mean_s: known(report.latency_mean_s),
        latency_mean_error_s: error,
        latency_p50_s: known(report.latency_p50_s),
        latency_p99_s: known(report.latency_p99_s),
        latency_p999_s: known(report.latency_p999_s),
        power_w: bought.power_w,
        flash_life_years: bought.flash_life_years,
        money: bought.money(question, plan),
        command: job.command,
    })
}

impl Question {
    /// The default pair, sizes and settings for a policy.
    ///
    /// # Errors
    /// A sheet in the tree is invalid; a test makes sure that none is.
    pub fn usual(policy: PolicySpec) -> Result<Question, LabError> {
        let device = |name| Device::preset(name).map_err(|e| LabError::setup(e.to_string()));
        Ok(Question {
            devices: [device(FAST)?, device(SLOW)?],
            names: [FAST.to_owned(), SLOW.to_owned()],
            prices: [None, None],
            sizes: SHARES.map(Size::Share).to_vec(),
            policy,
            extent_bytes: 64 << 10,
            data_bytes: None,
            growth: 0.0,
            years: 5.0,
            electricity_usd: 0.30,
            limit: None,
        })
    }

    /// Checks what does not depend on the trace.
    ///
    /// # Errors
    /// The message names the setting and its range.
    pub fn check(&self) -> Result<(), LabError> {
        let within = |name: &str, v: f64, least: f64, most: f64| {
            if (least..=most).contains(&v) {
                return Ok(());
            }
            Err(LabError::setup(format!(
                "{name}: must be within {least} and {most}, not {v}"
            )))
        };
        within("growth", self.growth, -0.5, 10.0)?;
        within("years", self.years, 1.0, 20.0)?;
        within("electricity", self.electricity_usd, 0.0, 100.0)?;
        for (name, p) in ["price of the fast drive", "price of the slow drive"]
            .into_iter()
            .zip(self.prices)
        {
            within(name, p.unwrap_or(1.0), 0.01, 1e9)?;
        }
        if self.sizes.is_empty() || self.sizes.len() > 64 {
            return Err(LabError::setup("sizes: give 1 to 64 of them"));
        }
        Ok(())
    }

    fn jobs(&self, trace: &str) -> Result<Vec<Job>, LabError> {
        let [fast, slow] = &self.devices;
        let whole = Size::Share(1_000_000);
        let mut base =
            Setup::pair(self.policy.clone(), whole).map_err(|e| LabError::setup(e.to_string()))?;
        base.tiers = vec![
            Tier::new(fast.clone(), whole),
            Tier::new(slow.clone(), whole),
        ];
        base.extent_bytes = self.extent_bytes;
        base.time = TimeMode::Trace { acceleration: 1.0 };
        base.limit = self.limit;
        base.observe = Observe {
            time_bins: BINS,
            address_bins: 0,
        };
        let limit = self
            .limit
            .map_or(String::new(), |n| format!(" --limit {n}"));
        let same = format!("--extent {} --time trace{limit}", self.extent_bytes);
        let single = |tier: usize, name: &str, kind| Job {
            name: name.to_owned(),
            kind,
            setup: alone(&base, tier),
            command: format!(
                "isotherm sim {trace} --policy linear --full --tier {} {same}",
                self.names[tier]
            ),
        };
        let mut jobs = vec![single(1, "disk alone", Kind::DiskAlone)];
        for &size in &self.sizes {
            let mut setup = base.clone();
            setup.tiers[0].size = size;
            jobs.push(Job {
                name: size.to_string(),
                kind: Kind::Hybrid,
                setup,
                command: format!(
                    "isotherm sim {trace} --policy {} --fast-size {size} --fast {} --slow {} {same}",
                    self.policy, self.names[0], self.names[1]
                ),
            });
        }
        jobs.push(single(0, "flash alone", Kind::FlashAlone));
        Ok(jobs)
    }

    /// The device number `which`, with the price that counts.
    fn priced(&self, which: usize, reports: &[Report]) -> Result<Priced, LabError> {
        let sheet = self.sheet(which, reports)?;
        let own = sheet
            .price_usd
            .zip(sheet.price_date.clone())
            .zip(sheet.price_source.clone());
        let (usd, date, source) = match (self.prices[which], own) {
            (Some(usd), _) => (Some(usd), Some("given".into()), Some("given".into())),
            (None, Some(((usd, date), source))) => (Some(usd), Some(date), Some(source)),
            (None, None) => (None, None, None),
        };
        Ok(Priced {
            name: sheet.name.clone(),
            capacity_bytes: sheet.capacity(),
            price_usd: usd,
            price_date: date,
            price_source: source,
        })
    }

    /// The sheet of device number `which`: that of the run of the device alone.
    fn sheet(&self, which: usize, reports: &[Report]) -> Result<&Sheet, LabError> {
        let alone = [reports.last(), reports.first()][which];
        let bytes = alone
            .and_then(|r| r.usage.as_ref())
            .and_then(|u| u.members.values().next())
            .map_or(0, |m| m.bytes);
        self.devices[which].sheet_for(bytes)
    }
}

/// The default pair, both with a price: drives of today.
pub const FAST: &str = "sata-enterprise";
/// See [`FAST`].
pub const SLOW: &str = "exos-18tb";
