//! `isotherm compare`: compares policies on a trace.

use isotherm_lab::compare::{Bounds, Comparison, compare};
use isotherm_report::{comparison_page, comparison_sizes_page};

use crate::Failure;
use crate::lab::args::CompareArgs;
use crate::lab::sim::{failed, file, say_extent, say_size, setup};
use crate::table::table;

/// `isotherm compare`.
///
/// # Errors
/// A trace cannot be read or does not fit the options.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let Some(first) = args.policies.first() else {
        return Err(Failure::usage("--policies: name at least one"));
    };
    let mut base = setup(&args.world, first)?;
    let sizes = &args.world.fast_size;
    let mut all = Vec::new();
    for trace in &args.traces {
        let source = file(&args.read, trace)?;
        for i in 0..sizes.len().max(1) {
            if let (Some(size), Some(tier)) = (sizes.get(i), base.tiers.first_mut()) {
                tier.size = *size;
            }
            let c = compare(&base, &args.policies, &source, args.world.hit_only);
            all.push(c.map_err(|e| failed(&e))?);
        }
    }
    if args.page.wanted() {
        args.page.write(&if sizes.len() > 1 {
            comparison_sizes_page(&all)
        } else {
            comparison_page(&all)
        })?;
    }
    let text = || all.iter().map(text).collect::<Vec<_>>().join("\n");
    if let [one] = &all[..] {
        args.json.print(one, text)?;
    } else {
        args.json.print(&all, text)?;
    }
    say_extent(&args.world);
    say_size(&args.world);
    Ok(())
}

fn text(c: &Comparison) -> String {
    let or = |v: Option<f64>, f: fn(f64) -> String| v.map_or_else(|| "-".to_owned(), f);
    let mut rows: Vec<Vec<String>> = c
        .rows
        .iter()
        .map(|r| {
            let share = |v: f64| format!("{v:.4}");
            let (hits, served) = (r.report.fast_hit_ratio, r.report.fast_served_ratio);
            vec![
                r.name.clone(),
                or(Some(hits).filter(|_| !r.is_alone()), share),
                or(r.hit_regret, share),
                or(Some(served).filter(|_| !r.has_no_fast_tier()), share),
                or(r.report.elapsed_s, |v| format!("{v:.3}")),
                or(r.report.latency_mean_s, |v| format!("{:.3}", v * 1e3)),
                or(r.report.latency_p99_s, |v| format!("{:.3}", v * 1e3)),
                or(r.report.energy_j, |v| format!("{v:.1}")),
                (r.report.promotions + r.report.demotions + r.report.fetches + r.report.writebacks)
                    .to_string(),
                format!("{:.3}", r.cost_s),
                or(r.cost_regret, |v| format!("{:.1}%", v * 100.0)),
                r.bound.unwrap_or("-").to_owned(),
            ]
        })
        .collect();
    rows.extend(bounds(&c.bounds));
    let head: [&str; COLUMNS] = [
        "policy",
        "hits",
        "hit regret",
        "served",
        "elapsed s",
        "mean ms",
        "p99 ms",
        "J",
        "moves",
        "cost s",
        "cost regret",
        "over the best",
    ];
    // One device alone keeps no map, so it is always full.
    let full = c.rows.iter().any(|r| r.report.full && !r.is_alone());
    let mut text = format!(
        "{}, extent {}, fast {} bytes{}\n",
        c.trace,
        c.extent_bytes,
        c.fast_bytes,
        if full {
            ", volume full from the start"
        } else {
            ""
        }
    );
    text += &table(&head, &rows);
    for why in &c.left_out {
        text += "left out: ";
        text += why;
        text.push('\n');
    }
    text
}

/// Columns of the table.
const COLUMNS: usize = 12;

/// The rows of the bounds, below those of the policies.
fn bounds(b: &Bounds) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let costs = [
        ("best tiering", Some(b.tiering_cost_s)),
        ("best caching", Some(b.caching_cost_s)),
        ("best write-back cache", Some(b.write_back_cost_s)),
        ("best mixed", b.mixed_cost_s),
    ];
    for (name, cost) in costs {
        let Some(cost) = cost else { continue };
        let mut row = vec!["-".to_owned(); COLUMNS];
        name.clone_into(&mut row[0]);
        row[1] = format!("{:.4}", b.hit_ratio);
        row[9] = format!("{cost:.3}");
        rows.push(row);
    }
    if let Some(latency) = b.latency_mean_s {
        let mut row = vec!["-".to_owned(); COLUMNS];
        "best latency of a cache".clone_into(&mut row[0]);
        row[5] = format!("{:.3}", latency * 1e3);
        rows.push(row);
    }
    rows
}
