//! Drives a model with synthetic work in virtual time, to compare published figures with modelled ones.

use isotherm_core::Nanos;
use isotherm_core::random::SplitMix64;

use crate::check::SheetError;
use crate::model::{DeviceModel, ModelOp};
use crate::options::{FlashState, Options};
use crate::sheet::{Metric, Published, Sheet};
use crate::span::Span;
use crate::ssd::Rated;

/// Work for [`run`]: a closed loop with `depth` operations in flight.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// The operation, Read or Write.
    pub op: ModelOp,
    /// Bytes per operation.
    pub len: u32,
    /// Whether offsets are uniform over `span` and aligned to `len`; otherwise they are sequential from the first byte on.
    pub random: bool,
    /// Bytes of the member that the work covers.
    pub span: u64,
    /// Operations in flight.
    pub depth: u32,
    /// Total number of operations.
    pub count: u64,
    /// Seed of the random offsets.
    pub seed: u64,
}

/// The result of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Operations completed.
    pub done: u64,
    /// Virtual time from first start to last completion.
    pub seconds: f64,
    /// Operations a second.
    pub iops: f64,
    /// 10⁶ bytes a second.
    pub mb_s: f64,
    /// Mean microseconds from start to completion.
    pub mean_us: f64,
}

/// Runs `work` on `model`, starting at `now`. Returns the result and the time at the end, when all is done.
pub fn run(model: &mut dyn DeviceModel, mut now: Nanos, work: &Work) -> (Outcome, Nanos) {
    let begin = now;
    let mut random = SplitMix64::new(work.seed);
    let blocks = (work.span / u64::from(work.len.max(1))).max(1);
    let mut started = vec![Nanos(0); work.depth as usize];
    let mut idle: Vec<u64> = (0..u64::from(work.depth)).rev().collect();
    let mut done = Vec::with_capacity(work.depth as usize);
    let (mut issued, mut finished, mut waited) = (0u64, 0u64, 0u64);
    while finished < work.count {
        while issued < work.count {
            let Some(slot) = idle.pop() else { break };
            let block = if work.random {
                random.below(blocks)
            } else {
                issued % blocks
            };
            started[slot as usize] = now;
            model.start(now, slot, work.op, block * u64::from(work.len), work.len);
            issued += 1;
        }
        let Some(at) = model.next_event() else { break };
        now = now.max(at);
        done.clear();
        model.poll(now, &mut done);
        for slot in done.drain(..) {
            waited += now.since(started[slot as usize]).0;
            finished += 1;
            idle.push(slot);
        }
    }
    let seconds = now.since(begin).as_secs_f64();
    let iops = if seconds > 0.0 {
        finished as f64 / seconds
    } else {
        0.0
    };
    let outcome = Outcome {
        done: finished,
        seconds,
        iops,
        mb_s: iops * f64::from(work.len) / 1e6,
        mean_us: waited as f64 / 1e3 / finished.max(1) as f64,
    };
    (outcome, now)
}

/// One published figure and the figure that the model gives.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Preset.
    pub device: String,
    /// The figure.
    pub published: Published,
    /// State of the flash, for drives with flash.
    pub flash: Option<FlashState>,
    /// The modelled figure.
    pub modelled: f64,
}

impl Comparison {
    /// Modelled ÷ published - 1.
    pub fn error(&self) -> f64 {
        self.modelled / self.published.value - 1.0
    }
}

/// Measures each of the sheet's published figures on the sheet's model.
///
/// # Errors
/// The sheet does not make a model.
pub fn validate(sheet: &Sheet) -> Result<Vec<Comparison>, SheetError> {
    let mut out = Vec::with_capacity(sheet.published.len());
    for p in &sheet.published {
        let flash = p.flash.unwrap_or_else(|| state_of(sheet, p.what));
        let options = Options {
            write_cache: p.write_cache,
            flash,
            ..Options::default()
        };
        let modelled = match p.places {
            Some(places) => over_the_drive(sheet, p, &options, places)?,
            None => measure_figure(sheet.model(&options)?.as_mut(), p),
        };
        out.push(Comparison {
            device: sheet.name.clone(),
            published: p.clone(),
            flash: sheet.ssd.as_ref().and(Some(flash)),
            modelled,
        });
    }
    Ok(out)
}

/// Bytes of the part of the drive that each of several places covers.
const PLACE_BYTES: u64 = 16 << 30;

/// The mean of the figure at `places` places, the first at the first bytes and the last at the last ones.
fn over_the_drive(
    sheet: &Sheet,
    p: &Published,
    options: &Options,
    places: u32,
) -> Result<f64, SheetError> {
    let size = PLACE_BYTES.min(sheet.capacity());
    let most = u64::from(places.clamp(2, 64) - 1);
    let mut sum = 0.0;
    for i in 0..=most {
        let start = ((sheet.capacity() - size) / most * i) >> 20 << 20;
        let options = Options {
            size,
            span: Span::At { start },
            ..*options
        };
        sum += measure_figure(sheet.model(&options)?.as_mut(), p);
    }
    Ok(sum / (most + 1) as f64)
}

/// Manufacturers state the rates of fresh drives, except for a random write rate that the sheet calls steady.
fn state_of(sheet: &Sheet, what: Metric) -> FlashState {
    let ftl = sheet.ssd.as_ref().and_then(|s| s.ftl.as_ref());
    let steady = ftl.is_some_and(|f| f.rated == Rated::Steady);
    if steady && what == Metric::RandomWriteIops {
        FlashState::Preconditioned
    } else {
        FlashState::Fresh
    }
}

/// Measures one figure of a fresh model.
pub fn measure(model: &mut dyn DeviceModel, what: Metric, depth: u32) -> f64 {
    measure_work(model, what, depth, (None, None))
}

/// As [`measure`], with the span and the length of operations of a published figure.
fn measure_figure(model: &mut dyn DeviceModel, p: &Published) -> f64 {
    measure_work(model, p.what, p.depth, (p.span, p.length))
}

/// As [`measure`], with random work over the first `span` bytes only, and operations of `length` bytes.
fn measure_work(
    model: &mut dyn DeviceModel,
    what: Metric,
    depth: u32,
    (span, length): (Option<u64>, Option<u32>),
) -> f64 {
    use Metric as M;
    let op = match what {
        M::RandomReadIops | M::SequentialReadMbS | M::RandomReadUs | M::SequentialReadUs => {
            ModelOp::Read
        }
        M::RandomWriteIops | M::SequentialWriteMbS | M::RandomWriteUs | M::SequentialWriteUs => {
            ModelOp::Write
        }
    };
    let random = matches!(
        what,
        M::RandomReadIops | M::RandomWriteIops | M::RandomReadUs | M::RandomWriteUs
    );
    let usual = if matches!(what, M::SequentialReadMbS | M::SequentialWriteMbS) {
        128 << 10
    } else {
        4 << 10
    };
    let len = length.unwrap_or(usual);
    // Random figures need thousands of operations for an accuracy of a percent. Sequential writes must be many times larger than the
    // drive's buffer.
    let count = match what {
        _ if random => 20_000,
        M::SequentialWriteMbS => 80_000,
        _ => 4_000,
    };
    let work = Work {
        op,
        len,
        random,
        span: span
            .filter(|_| random)
            .unwrap_or(u64::MAX)
            .min(model.capacity()),
        depth,
        count,
        seed: 1,
    };
    let (outcome, _) = run(model, Nanos(0), &work);
    match what {
        M::RandomReadIops | M::RandomWriteIops => outcome.iops,
        M::SequentialReadMbS | M::SequentialWriteMbS => outcome.mb_s,
        _ => outcome.mean_us,
    }
}
