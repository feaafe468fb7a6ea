//! The page of one run.

use super::chart::{Axis, BarSeries, Bars, Chart, Heat, Layer, Line, LineStyle, Lines, Plot};
use super::cost::{CostCurve, cost_chart};
use super::over_time::over_time;
use super::page::{Page, Tile};
use super::table::{Cell, Table};
use super::unit::Unit;
use isotherm_lab::sim::{Report, Series};

/// The axis of addresses: mostly a rank, since a run numbers the extents that the trace touches.
const ORDER: &str = "Touched data in the order of addresses";
/// Most columns of a heat map. More than a screen can show would only make the page larger.
const HEAT_COLUMNS_MAX: usize = 200;

/// The page of a run. `cost` has one curve for each set of prices to show, usually one.
pub fn run_page(report: &Report, cost: &[CostCurve]) -> Page {
    let mut page = Page::new(
        format!(
            "{} under {}",
            super::names::short(&report.trace),
            report.policy
        ),
        format!(
            "{} requests, extents of {}, fast tier of {}",
            super::unit::group(&report.requests.to_string()),
            Unit::BYTES.text(f64::from(report.extent_bytes)),
            Unit::BYTES.text(report.fast_bytes as f64)
        ),
    );
    page.tiles(tiles(report, cost));
    page.heading("Members").table(members(report));
    if let Some(series) = &report.series {
        page.heading("Over time");
        for c in over_time(series) {
            page.chart(c);
        }
        page.heading("Addresses");
        for c in addresses(series) {
            page.chart(c);
        }
        page.heading("Sizes");
        page.chart(sizes(series));
    } else {
        page.text("No series were kept in this run, so there is nothing over time.");
    }
    let by_class = super::by_class::charts(report);
    if !by_class.is_empty() {
        page.heading("By class");
        for c in by_class {
            page.chart(c);
        }
    }
    if report.usage.is_some() || !cost.is_empty() {
        page.heading("Energy, wear, cost");
        for c in totals(report) {
            page.chart(c);
        }
        if !cost.is_empty() {
            page.chart(cost_chart(cost));
        }
    }
    page.heading("Figures").table(figures(report));
    page
}

/// The figures at the head of the page, without those that the run does not have.
fn tiles(r: &Report, cost: &[CostCurve]) -> Vec<Tile> {
    let all = speed_tiles(r).into_iter().chain(resource_tiles(r, cost));
    all.flatten().collect()
}

fn tile(label: &str, value: Option<f64>, unit: Unit, note: String) -> Option<Tile> {
    value.map(|v| Tile {
        label: label.to_owned(),
        value: unit.text(v),
        note,
    })
}

fn speed_tiles(r: &Report) -> [Option<Tile>; 4] {
    let percentile =
        |name: &str, v: Option<f64>| v.map(|v| format!("{name} {}", Unit::SECONDS.text(v)));
    let latencies = [
        percentile("p50", r.latency_p50_s),
        percentile("p95", r.latency_p95_s),
        percentile("p99", r.latency_p99_s),
    ];
    let latencies: Vec<_> = latencies.into_iter().flatten().collect();
    let rate = r.throughput_bytes_per_s.map(|v| Unit::BYTES_PER_S.text(v));
    [
        tile(
            "Elapsed",
            r.elapsed_s,
            Unit::SECONDS,
            "simulated time".to_owned(),
        ),
        tile(
            "Throughput",
            r.throughput_iops,
            Unit::IOPS,
            rate.unwrap_or_default(),
        ),
        tile(
            "Mean latency",
            r.latency_mean_s,
            Unit::SECONDS,
            latencies.join(", "),
        ),
        tile(
            "Fast hits",
            Some(r.fast_hit_ratio),
            Unit::SHARE,
            format!("of {} accesses", Unit::COUNT.text(r.accesses as f64)),
        ),
    ]
}

fn resource_tiles(r: &Report, cost: &[CostCurve]) -> [Option<Tile>; 4] {
    let power = r
        .mean_power_w
        .map(|w| format!("{} on average", Unit::WATTS.text(w)));
    let worn = r.wear_eu.iter().flatten().max_by(|a, b| a.1.total_cmp(b.1));
    let cost = cost.first();
    let per_run = cost.map(|c| format!("of it {} a run", Unit::USD.text(c.per_run_usd)));
    [
        tile(
            "Energy",
            r.energy_j,
            Unit::JOULES,
            power.unwrap_or_default(),
        ),
        tile(
            "Wear",
            worn.map(|w| *w.1),
            Unit::EU,
            worn.map_or(String::new(), |w| w.0.clone()),
        ),
        tile(
            "Moved",
            Some(r.migrated_bytes as f64),
            Unit::BYTES,
            format!("{} up, {} down", r.promotions, r.demotions),
        ),
        tile(
            "Cost of one run",
            cost.map(|c| c.usd(1.0)),
            Unit::USD,
            per_run.unwrap_or_default(),
        ),
    ]
}

fn members(r: &Report) -> Table {
    let rows = r.usage.iter().flat_map(|u| &u.members).map(|(name, m)| {
        vec![
            Cell::text(name),
            Cell::Written(m.tier.to_string()),
            Cell::text(&m.preset),
            Cell::Number(m.bytes as f64, Unit::BYTES),
            Cell::Number(m.busy_s, Unit::SECONDS),
            Cell::Number(m.bytes_read as f64, Unit::BYTES),
            Cell::Number(m.bytes_written as f64, Unit::BYTES),
            Cell::Number(m.energy_j, Unit::JOULES),
            Cell::Number(m.mean_power_w, Unit::WATTS),
            Cell::Number(m.wear_eu, Unit::EU),
            Cell::Written(m.start_stops.to_string()),
        ]
    });
    Table {
        caption: String::new(),
        columns: [
            "Member",
            "Tier",
            "Device",
            "Used",
            "Busy",
            "Read",
            "Written",
            "Energy",
            "Mean power",
            "Wear",
            "Start-stops",
        ]
        .map(str::to_owned)
        .to_vec(),
        rows: rows.collect(),
    }
}

fn figures(r: &Report) -> Table {
    let n = |v: u64| Cell::Written(super::unit::group(&v.to_string()));
    let s = |v: Option<f64>| Cell::number(v, Unit::SECONDS);
    let rows = [
        ("Trace", Cell::text(&r.trace)),
        ("Policy", Cell::text(&r.policy)),
        ("Reads", n(r.reads)),
        ("Writes", n(r.writes)),
        ("Bytes read", Cell::Number(r.bytes_read as f64, Unit::BYTES)),
        (
            "Bytes written",
            Cell::Number(r.bytes_written as f64, Unit::BYTES),
        ),
        ("Extents touched", n(r.touched_extents)),
        ("Latency, mean", s(r.latency_mean_s)),
        ("Latency, median", s(r.latency_p50_s)),
        ("Latency, 95th percentile", s(r.latency_p95_s)),
        ("Latency, 99th percentile", s(r.latency_p99_s)),
        ("Promotions", n(r.promotions)),
        ("Demotions", n(r.demotions)),
        ("Fetches", n(r.fetches)),
        ("Evictions", n(r.evictions)),
        ("Write-backs", n(r.writebacks)),
        ("Moves refused", n(r.refused)),
        ("Seed", n(r.seed)),
        ("Digest", Cell::text(&r.digest)),
    ];
    Table {
        caption: String::new(),
        columns: vec!["Figure".to_owned(), "Value".to_owned()],
        rows: rows.map(|(k, v)| vec![Cell::text(k), v]).to_vec(),
    }
}

fn addresses(s: &Series) -> Vec<Chart> {
    let Some(h) = &s.heat else { return Vec::new() };
    let step = h.operations.len().div_ceil(HEAT_COLUMNS_MAX).max(1);
    // The bins are powers of two, so up to half of them may be beyond the volume's end.
    let used = |v: &Vec<u64>| v.iter().rposition(|n| *n > 0).map_or(0, |i| i + 1);
    let cells = h.by_tier.iter().map(used).max().unwrap_or(0).max(1);
    // The shares refer to the operations of their cell. They are converted back to counts, and neighbours in time are added.
    let count = |tier: &[Vec<f32>], t: usize, a: usize| {
        (h.operations[t][a] as f64 * f64::from(tier[t][a])).round() as u64
    };
    let column = |tier: &[Vec<f32>], from: usize| -> Vec<u64> {
        let times = from..(from + step).min(h.operations.len());
        (0..cells)
            .map(|a| times.clone().map(|t| count(tier, t, a)).sum())
            .collect()
    };
    let layer = |(i, tier): (usize, &Vec<Vec<f32>>)| Layer {
        name: format!("tier {i}"),
        columns: (0..h.operations.len())
            .step_by(step)
            .map(|t| column(tier, t))
            .collect(),
    };
    let heat = Heat {
        x: Axis::new("Time", Unit::SECONDS),
        x_bin: s.bin_s * step as f64,
        y: Axis::new(ORDER, Unit::BYTES),
        y_bin: h.bin_bytes as f64,
        label: "Operations".to_owned(),
        layers: h.share.iter().enumerate().map(layer).collect(),
    };
    let by_tier = h.by_tier.iter().enumerate().map(|(i, v)| {
        let values = v.iter().take(cells).map(|n| *n as f64);
        Line::regular(format!("tier {i}"), 0.0, h.bin_bytes as f64, values)
    });
    let frequency = Lines {
        x: Axis::new(ORDER, Unit::BYTES),
        y: Axis::new("Operations", Unit::COUNT),
        series: by_tier.collect(),
        style: LineStyle::Straight,
    };
    vec![
        Chart::new(
            "Heat over time",
            "Device operations for requests; the stronger, the more (logarithmic). Extents are in the order of their addresses; a policy \
             that does not mind gaps leaves out those that the trace never touches.",
            Plot::Heat(heat),
        ),
        Chart::new(
            "Access frequency over addresses",
            "Operations of the whole run by the place in the order of addresses and by the tier that served them (as GreenDM 6.4).",
            Plot::Lines(frequency),
        ),
    ]
}

/// Names of the size bins from 512 B on, without the empty bins at both ends.
fn sizes(s: &Series) -> Chart {
    let all: Vec<(String, &[u64])> = std::iter::once(("requests".to_owned(), &s.request_sizes[..]))
        .chain(
            s.operation_sizes
                .iter()
                .enumerate()
                .map(|(i, v)| (format!("operations on tier {i}"), &v[..])),
        )
        .collect();
    let used = |i: usize| all.iter().any(|(_, v)| v.get(i).is_some_and(|n| *n > 0));
    let bins = all.iter().map(|(_, v)| v.len()).max().unwrap_or(0);
    let from = (0..bins).find(|i| used(*i)).unwrap_or(0);
    let to = (0..bins).rev().find(|i| used(*i)).map_or(from, |i| i + 1);
    let series = all.iter().map(|(name, v)| {
        let sum = v.iter().sum::<u64>().max(1) as f64;
        BarSeries {
            name: name.clone(),
            values: (from..to)
                .map(|i| Some(v.get(i).copied().unwrap_or(0) as f64 / sum))
                .collect(),
        }
    });
    let bars = Bars {
        x_label: "Size, from".to_owned(),
        categories: (from..to)
            .map(|i| Unit::BYTES.text(f64::from(512_u32 << i)))
            .collect(),
        y: Axis::new("Share", Unit::SHARE),
        series: series.collect(),
        stacked: false,
        lying: false,
    };
    Chart::new(
        "Request sizes and device operation sizes",
        "What the trace asks for, and what the devices get once requests are cut at extents and neighbours are joined.",
        Plot::Bars(bars),
    )
}

fn totals(r: &Report) -> Vec<Chart> {
    let Some(u) = &r.usage else { return Vec::new() };
    let bars = |title: &str, note: &str, y: Axis, values: Vec<(String, f64)>| {
        let (categories, values): (Vec<_>, Vec<_>) = values.into_iter().unzip();
        let series = BarSeries {
            name: y.label.clone(),
            values: values.into_iter().map(Some).collect(),
        };
        let bars = Bars {
            x_label: "Member".to_owned(),
            categories,
            y,
            series: vec![series],
            stacked: false,
            lying: true,
        };
        Chart::new(title, note, Plot::Bars(bars))
    };
    let mut energy: Vec<_> = u
        .members
        .iter()
        .map(|(n, m)| (n.clone(), m.energy_j))
        .collect();
    if u.host_j > 0.0 {
        energy.push(("host".to_owned(), u.host_j));
    }
    let wear = u
        .members
        .iter()
        .map(|(n, m)| (n.clone(), m.wear_eu))
        .collect();
    vec![
        bars(
            "Energy by member",
            "Of the whole run.",
            Axis::new("Energy", Unit::JOULES),
            energy,
        ),
        bars(
            "Wear by member",
            "Life used, in eu: a millionth of a device's life.",
            Axis::new("Wear", Unit::EU),
            wear,
        ),
    ]
}
