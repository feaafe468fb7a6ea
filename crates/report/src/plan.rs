//! The page of `plan`: the advice, the curve over the size of the flash, and the table.

use super::chart::{Axis, Chart, Line, LineStyle, Lines, Plot};
use super::page::{Page, Tile};
use super::table::{Cell, Table};
use super::unit::Unit;
use isotherm_lab::plan::{Kind, Plan, Priced, Row};

/// Makes the page.
pub fn plan_page(p: &Plan) -> Page {
    let mut page = Page::new(
        "How much flash is worth its money",
        format!(
            "{}, {} long: {} of data, {} of it touched; {} in front of {}, policy {}",
            super::names::short(&p.trace),
            Unit::SECONDS.text(p.trace_s),
            Unit::BYTES.text(p.data_bytes as f64),
            Unit::BYTES.text(p.touched_bytes as f64),
            p.fast.name,
            p.slow.name,
            p.policy
        ),
    );
    page.text(&p.advice).text(&p.uncertainty);
    page.tiles(tiles(p));
    page.heading("The choices").table(table(p));
    page.heading("Over the size of the flash");
    page.chart(latency(p));
    // A price that is not known is not drawn as nothing.
    if p.rows.iter().all(|r| r.money.is_some()) {
        page.chart(money(p));
    }
    page.heading("What this rests on");
    for text in basis(p) {
        page.text(text);
    }
    page
}

fn tiles(p: &Plan) -> Vec<Tile> {
    let Some(row) = p.rows.get(p.advised) else {
        return Vec::new();
    };
    let tile = |label: &str, value: String, note: String| Tile {
        label: label.to_owned(),
        value,
        note,
    };
    let mut all = vec![
        tile("Advised", row.name.clone(), flash(row)),
        tile(
            "Mean latency",
            Unit::SECONDS.text(row.latency_mean_s),
            row.latency_mean_error_s
                .map_or(String::new(), |e| format!("± {}", Unit::SECONDS.text(e))),
        ),
        tile("Power", Unit::WATTS.text(row.power_w), String::new()),
    ];
    all.extend(row.money.map(|m| {
        let note = format!("of it {} at once", Unit::USD.text(m.purchase_usd));
        let label = format!("{} years", p.years);
        tile(&label, Unit::USD.text(m.total_usd), note)
    }));
    all
}

fn flash(row: &Row) -> String {
    if row.flash_bytes == 0 {
        "no flash".to_owned()
    } else {
        Unit::BYTES.text(row.flash_bytes as f64)
    }
}

/// A column: its head, and its cell of a row.
type Column = (&'static str, fn(&Row) -> Cell);

fn table(p: &Plan) -> Table {
    let mut columns: Vec<Column> = vec![
        ("Flash", |r| match r.flash_bytes {
            0 => Cell::Empty,
            n => Cell::Number(n as f64, Unit::BYTES),
        }),
        ("Drives", |r| {
            Cell::Written(format!("{} + {}", r.flash_drives, r.disk_drives))
        }),
        ("Hits", |r| Cell::number(r.fast_hit_ratio, Unit::SHARE)),
        ("Mean", |r| Cell::Number(r.latency_mean_s, Unit::SECONDS)),
        ("p50", |r| Cell::Number(r.latency_p50_s, Unit::SECONDS)),
        ("p99", |r| Cell::Number(r.latency_p99_s, Unit::SECONDS)),
        ("p99.9", |r| Cell::Number(r.latency_p999_s, Unit::SECONDS)),
        ("Power", |r| Cell::Number(r.power_w, Unit::WATTS)),
    ];
    if p.rows.iter().any(|r| r.money.is_some()) {
        let money: [Column; 4] = [
            ("Purchase", |r| usd(r.money.map(|m| m.purchase_usd))),
            ("Electricity", |r| usd(r.money.map(|m| m.energy_usd))),
            ("New flash", |r| usd(r.money.map(|m| m.replacement_usd))),
            ("Total", |r| usd(r.money.map(|m| m.total_usd))),
        ];
        columns.extend(money);
    }
    columns.push(("Flash lasts, years", |r| match r.flash_life_years {
        None => Cell::Empty,
        Some(y) if y > 100.0 => Cell::Written("> 100".to_owned()),
        Some(y) if y < 0.1 => Cell::Written(format!("{y:.4}")),
        Some(y) => Cell::Written(format!("{y:.1}")),
    }));
    let rows = p.rows.iter().enumerate().map(|(i, r)| {
        let name = if i == p.advised {
            format!("{} *", r.name)
        } else {
            r.name.clone()
        };
        let mut row = vec![Cell::text(name)];
        row.extend(columns.iter().map(|(_, cell)| cell(r)));
        row
    });
    let rows: Vec<_> = rows.collect();
    let mut heads = vec!["Choice".to_owned()];
    heads.extend(columns.iter().map(|(head, _)| (*head).to_owned()));
    Table {
        caption: "The advised choice is marked with *. Drives: flash + disk. Latencies are of reads and writes."
            .to_owned(),
        columns: heads,
        rows,
    }
}

fn usd(v: Option<f64>) -> Cell {
    Cell::number(v, Unit::USD)
}

/// Shares of the touched data, for the hybrids.
fn points(p: &Plan, of: impl Fn(&Row) -> f64) -> Vec<(f64, f64)> {
    let hybrids = p.rows.iter().filter(|r| r.kind == Kind::Hybrid);
    let share = |r: &Row| r.flash_bytes as f64 / p.touched_bytes.max(1) as f64;
    hybrids.map(|r| (share(r), of(r))).collect()
}

/// The hybrids as a curve, one device alone as a level line.
fn curve(p: &Plan, of: impl Fn(&Row) -> f64 + Copy) -> Vec<Line> {
    let hybrids = points(p, of);
    let ends = [hybrids.first(), hybrids.last()];
    let mut lines = vec![Line {
        name: "hybrid".to_owned(),
        points: hybrids.clone(),
    }];
    for r in p.rows.iter().filter(|r| r.kind != Kind::Hybrid) {
        lines.push(Line {
            name: r.name.clone(),
            points: ends.iter().flatten().map(|e| (e.0, of(r))).collect(),
        });
    }
    lines
}

const ACROSS: &str = "Flash, share of touched data";

fn latency(p: &Plan) -> Chart {
    let wide = {
        let all = || p.rows.iter().map(|r| r.latency_mean_s);
        all().fold(0.0, f64::max) > 100.0 * all().fold(f64::INFINITY, f64::min).max(1e-9)
    };
    let label = "Mean latency";
    let y = if wide {
        Axis::log(label, Unit::SECONDS)
    } else {
        Axis::new(label, Unit::SECONDS)
    };
    Chart::new(
        label,
        "Less is better. One device alone is a level line.",
        Plot::Lines(Lines {
            x: Axis::log(ACROSS, Unit::SHARE),
            y,
            series: curve(p, |r| r.latency_mean_s),
            style: LineStyle::Straight,
        }),
    )
}

fn money(p: &Plan) -> Chart {
    let label = format!("Cost of {} years", p.years);
    Chart::new(
        &label,
        "Purchase, electricity, and flash in the place of worn flash.",
        Plot::Lines(Lines {
            x: Axis::log(ACROSS, Unit::SHARE),
            y: Axis::new(&label, Unit::USD),
            series: curve(p, |r| r.money.map_or(0.0, |m| m.total_usd)),
            style: LineStyle::Straight,
        }),
    )
}

fn basis(p: &Plan) -> [String; 3] {
    let priced = |d: &Priced| match (d.price_usd, &d.price_date, &d.price_source) {
        (Some(usd), Some(date), Some(source)) => format!(
            "{} at ${usd} for {} ({date}, {source})",
            d.name,
            Unit::BYTES.text(d.capacity_bytes as f64)
        ),
        _ => format!("{} without a price, so that money is left out", d.name),
    };
    [
        format!(
            "Prices: {}; {}; electricity ${}/kWh.",
            priced(&p.fast),
            priced(&p.slow),
            p.electricity_usd_per_kwh
        ),
        format!(
            "Whole drives are bought, for the data after {} years at {:.0} % of growth a year. They draw the power of the run, and idle \
             power for each drive beyond the first. The work is that of the trace, all the time.",
            p.years,
            p.growth * 100.0
        ),
        "Latencies are simulated with models of the drives, and nothing else of the machine."
            .to_owned(),
    ]
}
