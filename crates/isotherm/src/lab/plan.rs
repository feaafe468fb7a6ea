//! `isotherm plan`: how much flash in front of a disk is worth its money.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use isotherm_lab::plan::{Plan, Priced, Question, Row, plan};
use isotherm_lab::sim::Device;
use isotherm_report::{Unit, plan_page};

use crate::Failure;
use crate::lab::args::PlanArgs;
use crate::lab::sim::{failed, file};
use crate::table::table;

/// `isotherm plan`.
///
/// # Errors
/// The trace cannot be read, has no times, or does not fit the devices.
pub fn run(args: &PlanArgs) -> Result<(), Failure> {
    let device = |name: &str| Device::preset(name).map_err(|e| Failure::usage(e.to_string()));
    let question = Question {
        devices: [device(&args.fast)?, device(&args.slow)?],
        names: [args.fast.clone(), args.slow.clone()],
        prices: [args.price_fast, args.price_slow],
        sizes: args.fast_size.clone(),
        policy: args.policy.clone(),
        extent_bytes: args.extent,
        data_bytes: args.data,
        growth: args.growth,
        years: args.years,
        electricity_usd: args.electricity,
        limit: args.limit,
    };
    question
        .check()
        .map_err(|e| Failure::usage(e.to_string()))?;
    let source = file(&args.read, &args.trace)?;
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(args.fast_size.len() as u64 + 2)
    } else {
        ProgressBar::hidden()
    };
    if let Ok(style) = ProgressStyle::with_template("{bar:40} {pos}/{len} rows, {eta} left") {
        bar.set_style(style);
    }
    let done = |n: usize, _all: usize| bar.set_position(n as u64);
    let answer = plan(&question, &source, &done).map_err(|e| failed(&e))?;
    bar.finish_and_clear();
    if args.page.wanted() {
        args.page.write(&plan_page(&answer))?;
    }
    args.json.print(&answer, || text(&answer))
}

fn text(p: &Plan) -> String {
    let rows: Vec<Vec<String>> = p.rows.iter().map(cells).collect();
    let head: [&str; 13] = [
        "",
        "flash",
        "drives",
        "hits",
        "mean",
        "p50",
        "p99",
        "p99.9",
        "power",
        "purchase",
        "energy",
        "total",
        "flash lasts",
    ];
    let about = format!(
        "{}: {} of data, {} of it touched in {}; policy {}, extents of {}\n",
        p.trace,
        Unit::BYTES.text(p.data_bytes as f64),
        Unit::BYTES.text(p.touched_bytes as f64),
        Unit::SECONDS.text(p.trace_s),
        p.policy,
        Unit::BYTES.text(f64::from(p.extent_bytes))
    );
    let (flash, disk) = (priced(&p.fast), priced(&p.slow));
    let money = format!(
        "flash: {flash}\ndisk: {disk}\n{} years, electricity ${}/kWh, growth {:.0} % a year; \
         drives: flash + disk; total: purchase, energy, and flash in the place of worn flash\n\n",
        p.years,
        p.electricity_usd_per_kwh,
        p.growth * 100.0
    );
    let table = table(&head, &rows);
    format!("{about}{money}{table}\n{}\n{}\n", p.advice, p.uncertainty)
}

/// A device with its price, in words.
fn priced(d: &Priced) -> String {
    let size = Unit::BYTES.text(d.capacity_bytes as f64);
    match (d.price_usd, &d.price_date, &d.price_source) {
        (Some(usd), Some(date), Some(source)) if date != "given" => {
            format!("{}, {size}, ${usd} ({date}: {source})", d.name)
        }
        (Some(usd), ..) => format!("{}, {size}, ${usd} (as given)", d.name),
        (None, ..) => format!(
            "{}, {size}, without a price: --price-fast and --price-slow give one",
            d.name
        ),
    }
}

fn cells(r: &Row) -> Vec<String> {
    let or = |v: Option<String>| v.unwrap_or_else(|| "-".to_owned());
    let usd = |f: fn(&isotherm_lab::plan::Money) -> f64| {
        or(r.money.as_ref().map(|m| Unit::USD.text(f(m))))
    };
    let error = r
        .latency_mean_error_s
        .map_or(String::new(), |e| format!(" ± {}", Unit::SECONDS.text(e)));
    vec![
        r.name.clone(),
        or((r.flash_bytes > 0).then(|| Unit::BYTES.text(r.flash_bytes as f64))),
        format!("{}+{}", r.flash_drives, r.disk_drives),
        or(r.fast_hit_ratio.map(|v| Unit::SHARE.text(v))),
        Unit::SECONDS.text(r.latency_mean_s) + &error,
        Unit::SECONDS.text(r.latency_p50_s),
        Unit::SECONDS.text(r.latency_p99_s),
        Unit::SECONDS.text(r.latency_p999_s),
        Unit::WATTS.text(r.power_w),
        usd(|m| m.purchase_usd),
        usd(|m| m.energy_usd),
        usd(|m| m.total_usd),
        or(r.flash_life_years.map(years)),
    ]
}

/// Years, which are not told beyond a century.
fn years(v: f64) -> String {
    match v {
        v if v > 100.0 => "> 100 y".to_owned(),
        v if v < 0.1 => format!("{:.1} days", v * 365.25),
        v => format!("{v:.1} y"),
    }
}
