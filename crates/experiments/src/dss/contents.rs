//! dss-2: the contents of the cache, and the bytes read and written, by class.

use isotherm_traces::generate::Mix;

use super::bench::{CONFIGURATIONS, TRANSACTIONS, bench, inputs, phase, three};
use super::show::{by_class, groups, share};
use crate::outcome::{Row, Table};
use crate::{Ctx, Outcome};
use isotherm_lab::LabError;

/// Contents are like the traffic if every group of classes differs by at most this, in percentage points.
const LIKE: f64 = 15.0;

/// See the module.
#[expect(clippy::too_many_lines, reason = "claims in the paper's order")]
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let bench = bench(ctx, Mix::File, super::FILE_SCALE)?;
    inputs(out, &bench);
    let reports = three(ctx, &bench)?;
    let phases = reports.iter().map(|r| phase(r, TRANSACTIONS));
    let [none, lru, lru_s] = &phases.collect::<Vec<_>>()[..] else {
        return Ok(());
    };
    let written = by_class(lru, |c| c.written);
    let read = by_class(lru, |c| c.read);
    let mut traffic = written.clone();
    for (c, n) in &read {
        *traffic.entry(*c).or_insert(0) += n;
    }
    let row = |label: String, cells| Row::new(label, cells);
    out.tables.push(Table::new(
        "figure 2: by class",
        vec![
            row("blocks written".to_owned(), groups(&written)),
            row("blocks read".to_owned(), groups(&read)),
            row(
                format!("contents, {}", CONFIGURATIONS[1]),
                groups(&lru.cached_bytes),
            ),
            row(
                format!("contents, {}", CONFIGURATIONS[2]),
                groups(&lru_s.cached_bytes),
            ),
        ],
    ));

    let (a, b) = (&lru.cached_bytes, &lru_s.cached_bytes);
    let off = super::show::GROUPS
        .iter()
        .map(|g| (share(a, g.1.clone()) - share(&traffic, g.1.clone())).abs())
        .fold(0.0, f64::max);
    let why = format!(
        "no group of classes is more than {off:.1} points from its share of the traffic (like: {LIKE})"
    );
    out.judge("like-traffic", off <= LIKE, why);
    let large = share(a, 11..=18);
    let why = format!(
        "files over 64 KB: {large:.1} % of the contents, over 1 MB: {:.1} %",
        share(a, 13..=18)
    );
    out.judge("large", large > 90.0, why);
    let (small, meta) = (share(a, 8..=10), share(a, 1..=7));
    let why = format!("files to 64 KB {small:.1} %, metadata {meta:.2} %");
    out.judge("sliver", meta < 1.0 && small < share(a, 11..=12), why);
    let (w, r) = (share(&written, 13..=18), share(&read, 13..=18));
    let why = format!("over 1 MB: {w:.1} % of the blocks written, {r:.1} % of those read");
    out.judge("traffic", w > 50.0 && r > 50.0, why);
    let bytes =
        |p: &isotherm_lab::sim::Phase| (by_class(p, |c| c.written), by_class(p, |c| c.read));
    let same = bytes(lru) == bytes(lru_s) && bytes(lru) == bytes(none);
    out.judge("same", same, "bytes by class of the three runs compared");
    let (small_s, meta_s) = (share(b, 8..=10), share(b, 1..=7));
    out.judge(
        "small-40",
        small_s > 40.0,
        format!("files of 64 KB and less: {small_s:.1} % of the contents"),
    );
    let why = format!("LRU-S {meta_s:.2} %, LRU {meta:.2} %");
    out.judge("metadata", meta_s >= 1.0 && meta_s > meta, why);
    let hit = |p: &isotherm_lab::sim::Phase, classes: std::ops::RangeInclusive<u8>| {
        let of = p.classes.range(classes).map(|x| x.1);
        let (hit, all) = of.fold((0, 0), |s, c| (s.0 + c.fast_read, s.1 + c.read));
        super::show::percent(hit as f64, all as f64)
    };
    let (small_hits, large_hits) = (hit(lru_s, 1..=10), hit(lru_s, 13..=18));
    let why = format!(
        "LRU-S serves {small_hits:.1} % of the blocks read of metadata and files to 64 KB, {large_hits:.1} % of those over 1 MB"
    );
    out.judge("pinned", small_hits > 90.0 && small_hits > large_hits, why);
    Ok(())
}
