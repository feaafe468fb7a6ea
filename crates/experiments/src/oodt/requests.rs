//! Properties of the requests: figures 4b, 5b, 6b, 7a, 8b (sizes), 5c, 6c, 7c (fragments), 4c, 8a (kinds). Nothing is simulated.

use std::sync::Arc;

use isotherm_core::collector::AccessQueue;
use isotherm_core::policy::is_metadata;
use isotherm_traces::{Op, Record};

use super::work::{self, ALL, Kind};
use crate::Ctx;
use crate::greendm::judge::range;
use crate::outcome::{Cell as Figure, Outcome, Row, Table};
use crate::work::Work;
use isotherm_lab::LabError;
use isotherm_lab::sim::span;

/// log2 of a data block.
const BLOCK: u32 = 12;
/// The relative change up to which the number of fragments counts as hardly lower.
const HARDLY: f64 = 0.25;

/// The reads and writes of a workload.
fn data(work: &Work) -> impl Iterator<Item = &Record> {
    let all = work.memory.records.iter();
    all.filter(|r| matches!(r.op, Op::Read | Op::Write) && r.len > 0)
}

/// The number of requests for each size in blocks.
#[derive(Clone, Debug, Default)]
struct Sizes(std::collections::BTreeMap<u64, u64>);

impl Sizes {
    fn note(&mut self, blocks: u64) {
        *self.0.entry(blocks).or_default() += 1;
    }
    fn count(&self) -> f64 {
        self.0.values().sum::<u64>() as f64
    }
    /// Mean size in KiB.
    fn mean(&self) -> f64 {
        let blocks: u64 = self.0.iter().map(|(b, n)| b * n).sum();
        blocks as f64 * 4.0 / self.count()
    }
    /// Largest size in KiB.
    fn largest(&self) -> f64 {
        self.0.keys().last().map_or(f64::NAN, |b| *b as f64 * 4.0)
    }
    /// The percentage of the requests whose size in blocks is in the range.
    fn share(&self, blocks: impl std::ops::RangeBounds<u64>) -> f64 {
        self.0.range(blocks).map(|x| x.1).sum::<u64>() as f64 / self.count() * 100.0
    }
    /// Sizes of the requests as they arrive.
    fn plain(work: &Work) -> Sizes {
        let mut sizes = Sizes::default();
        for r in data(work) {
            let (from, to) = span(r, BLOCK);
            sizes.note(to - from + 1);
        }
        sizes
    }
    /// Sizes of the requests as they leave the access queue.
    fn queued(work: &Work) -> Sizes {
        let mut sizes = Sizes::default();
        let mut queue = AccessQueue::default();
        for r in data(work) {
            let (from, to) = span(r, BLOCK);
            for b in from..=to {
                let left = queue.access(b as u32, r.op == Op::Write, is_metadata(r.class));
                if let Some(p) = left {
                    sizes.note(u64::from(p.end - p.start) + 1);
                }
            }
        }
        while let Some(p) = queue.pop() {
            sizes.note(u64::from(p.end - p.start) + 1);
        }
        sizes
    }
    fn row(&self, label: String, mean: Option<crate::Printed>) -> Row {
        let cells = vec![
            Figure::new("mean", "KB", self.mean()).beside(mean),
            Figure::new("largest", "KB", self.largest()),
            Figure::new("1 block", "%", self.share(..=1)),
            Figure::new("2 to 3", "%", self.share(2..=3)),
            Figure::new("4 to 7", "%", self.share(4..=7)),
            Figure::new("8 to 32", "%", self.share(8..=32)),
            Figure::new("over 32", "%", self.share(33..)),
        ];
        Row::new(label, cells)
    }
}

fn works(ctx: &Ctx<'_>, kinds: &[Kind]) -> Result<Vec<Arc<Work>>, LabError> {
    kinds.iter().map(|k| work::work(ctx, *k)).collect()
}

/// Sizes with and without the queue.
///
/// # Errors
/// A generator fails.
pub fn sizes(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    work::own_scales(ctx, out);
    let works = works(ctx, &ALL)?;
    work::describe(out, &ALL, &works);
    let (mut rows, mut shifts, mut all) = (Vec::new(), Vec::new(), true);
    for (kind, work) in ALL.iter().zip(&works) {
        let (plain, queued) = (Sizes::plain(work), Sizes::queued(work));
        let mean = format!("{} mean", kind.key());
        rows.push(plain.row(format!("{}, requests", kind.name()), out.printed(&mean)));
        rows.push(queued.row(format!("{}, after the queue", kind.name()), None));
        if out.printed(&mean).is_some() {
            range(out, &mean, [plain.mean()], "KB");
        }
        all &= queued.mean() > plain.mean();
        shifts.push(format!(
            "{} {:.1} to {:.1}",
            kind.name(),
            plain.mean(),
            queued.mean()
        ));
        match kind {
            Kind::Postmark => range(out, "postmark max", [plain.largest()], "KB"),
            Kind::Tpch => range(out, "tpch 4K", [plain.share(..=1)], "%"),
            Kind::Iozone => {
                let v = plain.share(33..);
                out.judge("iozone large", v > 50.0, format!("{v:.0} % of them"));
            }
            Kind::Web => {
                let v = plain.share(51..);
                let why = format!("{v:.2} % of them; the largest {:.0} KB", plain.largest());
                out.judge("webserver large", v > 0.0, why);
            }
            Kind::Tpcc => {}
        }
    }
    out.tables
        .push(Table::new("Requests by size, in blocks of 4 KB", rows));
    out.judge("queue", all, format!("mean KB: {}", shifts.join(", ")));
    Ok(())
}

/// The percentage of the requests that a block size splits, and the mean number of fragments per request.
fn fragments(work: &Work, shift: u32) -> (f64, f64) {
    let (mut all, mut cut, mut pieces) = (0u64, 0u64, 0u64);
    for r in data(work) {
        let (from, to) = span(r, shift);
        all += 1;
        cut += u64::from(to > from);
        pieces += to - from + 1;
    }
    (cut as f64 / all as f64 * 100.0, pieces as f64 / all as f64)
}

/// Block sizes as powers of two.
const SHIFTS: [u32; 4] = [12, 13, 14, 15];

/// Fragments as a function of block size.
///
/// # Errors
/// A generator fails.
pub fn fragmented(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    work::own_scales(ctx, out);
    let kinds = [Kind::Tpcc, Kind::Tpch, Kind::Iozone];
    let works = works(ctx, &kinds)?;
    work::describe(out, &kinds, &works);
    out.inputs
        .push("fragmented: the request crosses a boundary of data blocks".to_owned());
    let found: Vec<[(f64, f64); 4]> = works
        .iter()
        .map(|w| SHIFTS.map(|s| fragments(w, s)))
        .collect();
    let rows = |unit: &'static str, f: fn(&(f64, f64)) -> f64| {
        let row = |(kind, v): (&Kind, &[(f64, f64); 4])| {
            let cells = SHIFTS
                .iter()
                .zip(v)
                .map(|(s, v)| Figure::new(&format!("{} KiB", (1 << s) >> 10), unit, f(v)));
            Row::new(kind.name(), cells.collect())
        };
        kinds.iter().zip(&found).map(row).collect::<Vec<_>>()
    };
    out.tables.push(Table::new(
        "Fragmented requests by block size",
        rows("%", |v| v.0),
    ));
    out.tables.push(Table::new(
        "Pieces of a request by block size",
        rows("", |v| v.1),
    ));
    let by = |i: usize| {
        let v = &found[i];
        format!(
            "{:.1}, {:.1}, {:.1}, {:.1} %",
            v[0].0, v[1].0, v[2].0, v[3].0
        )
    };
    let fewer = |i: usize| 1.0 - found[i][3].0 / found[i][0].0;
    for (key, i) in [("tpcc", 0), ("iozone", 2)] {
        out.judge(key, fewer(i) <= HARDLY, by(i));
    }
    let less = (0..4).all(|s| found[1][s].0 < found[0][s].0 / 2.0);
    out.judge("tpch", less, format!("{}; TPC-C {}", by(1), by(0)));
    let pieces = found[2].map(|v| v.1);
    out.judge(
        "pieces",
        pieces.windows(2).all(|w| w[1] < w[0]),
        format!(
            "{:.1}, {:.1}, {:.1}, {:.1}",
            pieces[0], pieces[1], pieces[2], pieces[3]
        ),
    );
    Ok(())
}

/// Percentages of the requests: data read, data write, metadata read, metadata write.
fn kinds(work: &Work) -> [f64; 4] {
    let mut n = [0u64; 4];
    for r in data(work) {
        let metadata = usize::from(is_metadata(r.class));
        n[2 * metadata + usize::from(r.op == Op::Write)] += 1;
    }
    let all = n.iter().sum::<u64>() as f64;
    n.map(|n| n as f64 / all * 100.0)
}

/// Kinds of requests as a function of the number of files.
///
/// # Errors
/// A generator fails.
pub fn by_files(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    work::own_scales(ctx, out);
    let mut metadata = Vec::new();
    for (kind, files) in [
        (Kind::Postmark, [10_000, 20_000, 40_000, 80_000]),
        (Kind::Web, [2_500, 5_000, 10_000, 20_000]),
    ] {
        let mut rows = Vec::new();
        let mut of = Vec::new();
        for n in files {
            // There are twice as many transactions as files. The web server's run has the same length for few files as for many.
            let with = match kind {
                Kind::Postmark => format!(",files={n},transactions={}", 2 * n),
                _ => format!(",files={n}"),
            };
            let work = Work::generate(&kind.spec(ctx, &with), None, 1)?;
            let k = kinds(&work);
            of.push((k[0] + k[2], k[2] + k[3]));
            let printed = |what: &str| {
                let here = kind == Kind::Web && n == 10_000;
                here.then(|| out.printed(what)).flatten()
            };
            let cells = vec![
                Figure::new("data read", "%", k[0]),
                Figure::new("data written", "%", k[1]),
                Figure::new("metadata read", "%", k[2]),
                Figure::new("metadata written", "%", k[3]),
                Figure::new("read", "%", k[0] + k[2]).beside(printed("webserver read")),
                Figure::new("metadata", "%", k[2] + k[3]).beside(printed("webserver metadata")),
            ];
            rows.push(Row::new(format!("{n} files"), cells));
            out.inputs.push(format!("{}: {}", kind.name(), work.name));
        }
        out.tables.push(Table::new(
            format!("{}: kinds of requests", kind.name()),
            rows,
        ));
        metadata.push(of);
    }
    let words = |of: &[(f64, f64)]| {
        let all: Vec<String> = of.iter().map(|v| format!("{:.1}", v.1)).collect();
        format!("{} % metadata", all.join(", "))
    };
    let (postmark, web) = (&metadata[0], &metadata[1]);
    out.judge(
        "postmark falls",
        postmark.windows(2).all(|w| w[1].1 < w[0].1),
        words(postmark),
    );
    out.judge(
        "postmark turns",
        postmark[0].1 > 50.0 && postmark[3].1 < 50.0,
        words(postmark),
    );
    out.judge(
        "webserver rises",
        web.windows(2).all(|w| w[1].1 > w[0].1),
        words(web),
    );
    range(out, "webserver read", [web[2].0], "%");
    range(out, "webserver metadata", [web[2].1], "%");
    Ok(())
}
