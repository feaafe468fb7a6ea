//! Runs and pages that the tests of the reports examine.

use std::path::Path;

use isotherm_lab::compare;
use isotherm_lab::plan::{Plan, Question};
use isotherm_lab::sim::{self, Device, Observe, Report, Setup, Tier, TraceFile};
use isotherm_report::{
    Axis, BarSeries, Bars, Better, Chart, Claim, Comparison, CostCurve, Entry, Experiment, Heat,
    Layer, Line, LineStyle, Lines, Metric, Page, Plot, Point, Scatter, Unit, Verdict, compare_page,
    metrics, reproduce_page, values,
};

fn trace() -> TraceFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/linux-mysql.load.zst");
    TraceFile {
        label: "linux-mysql.load.zst".to_owned(),
        options: isotherm_traces::Options::default(),
        path,
    }
}

fn setup(policy: &str, share: &str) -> Setup {
    let policy = policy.parse().expect("a policy");
    let mut setup = Setup::pair(policy, share.parse().expect("a size")).expect("presets");
    setup.limit = Some(20_000);
    setup.observe = Observe {
        time_bins: 100,
        address_bins: 64,
    };
    setup
}

/// A part of a real trace under a policy.
pub fn run(policy: &str) -> Report {
    sim::run(&setup(policy, "10%"), &trace()).expect("a run")
}

/// The same without devices.
pub fn hit_only(policy: &str) -> Report {
    sim::hit_only(&setup(policy, "10%"), &trace()).expect("a run")
}

/// A plan for a part of a real trace.
pub fn plan() -> Plan {
    let mut question = Question::usual("benefit".parse().expect("a policy")).expect("presets");
    question.limit = Some(3000);
    isotherm_lab::plan::plan(&question, &trace(), &|_, _| ()).expect("a plan")
}

/// The comparison of two policies on a part of a real trace, under another name of the trace.
pub fn compared(label: &str, priced: bool) -> compare::Comparison {
    let mut base = setup("lru", "10%");
    base.limit = Some(3000);
    if priced {
        base.tiers = ["sata-enterprise", "exos-18tb"]
            .map(|name| Tier::new(Device::preset(name).expect("a preset"), base.tiers[0].size))
            .to_vec();
    }
    let policies = ["lru", "greendm"].map(|p| p.parse().expect("a policy"));
    let source = TraceFile {
        label: label.to_owned(),
        ..trace()
    };
    compare::compare(&base, &policies, &source, false).expect("a comparison")
}

/// Policies × sizes on a part of a real trace. The prices are made up.
pub fn comparison_page() -> Page {
    let mut entries = Vec::new();
    let mut cost = Vec::new();
    for policy in ["greendm", "linear", "mylinear", "hot-dst-recency"] {
        for share in ["5%", "10%", "25%"] {
            let r = sim::run(&setup(policy, share), &trace()).expect("a run");
            let curve = CostCurve {
                name: format!("{policy}, {share}"),
                once_usd: 20.0 + r.fast_bytes as f64 / 1e7,
                per_run_usd: r.energy_j.unwrap_or(0.0) / 3.6e6 * 0.2,
            };
            entries.push(Entry {
                policy: r.policy.clone(),
                setting: share.to_owned(),
                values: values(&r, Some(&curve)),
                field: String::new(),
                reference: false,
            });
            if share == "10%" {
                cost.push(curve);
            }
        }
    }
    compare_page(&Comparison {
        title: "Four policies on a MySQL trace".to_owned(),
        subtitle: "20 000 requests of linux-mysql.load.zst, closed loop".to_owned(),
        notes: vec!["Prices are examples.".to_owned()],
        metrics: metrics(),
        x: 10,
        y: 1,
        entries,
        cost,
    })
}

/// Claims with each verdict.
pub fn reproduction_page() -> Page {
    let claim = |text: &str, paper: &str, ours: &str, verdict| Claim {
        text: text.to_owned(),
        paper: paper.to_owned(),
        ours: ours.to_owned(),
        verdict,
        why: String::new(),
    };
    let chart = every_chart("plain")
        .charts()
        .find(|c| matches!(c.plot, Plot::Bars(_)))
        .cloned();
    reproduce_page(&[
        Experiment {
            id: "greendm-7.2".to_owned(),
            title: "Worked TCO example".to_owned(),
            set_up: "Section 7.2".to_owned(),
            claims: vec![
                claim("Time factor 1", "$122.42", "$122.51", Verdict::Fails),
                claim(
                    "By the paper's formulas",
                    "$122.5082",
                    "$122.5082",
                    Verdict::Holds,
                ),
            ],
            charts: chart.into_iter().collect(),
            ..Experiment::default()
        },
        Experiment {
            id: "dss-fs".to_owned(),
            title: "find, tar, fsck".to_owned(),
            substitutes: "The image is not to be had.".to_owned(),
            claims: vec![claim("find", "48 → 13 s", "–", Verdict::Open)],
            ..Experiment::default()
        },
    ])
}

/// One chart of each kind, with every name in it `name`, with gaps, zeros and values that cannot be drawn.
#[expect(clippy::too_many_lines, reason = "one scenario")]
pub fn every_chart(name: &str) -> Page {
    let text = || name.to_owned();
    let mut page = Page::new(name, name);
    let mut add = |plot| {
        page.chart(Chart {
            title: text(),
            note: text(),
            plot,
        });
    };
    let line = |n: i32| Line {
        name: format!("{name} {n}"),
        points: (0..40)
            .map(|i| {
                let v = f64::from(i * i + n * 50);
                (f64::from(i) * 60.0, if i == 20 { f64::NAN } else { v })
            })
            .collect(),
    };
    for style in [LineStyle::Straight, LineStyle::Stacked] {
        add(Plot::Lines(Lines {
            x: Axis::new(name, Unit::SECONDS),
            y: Axis::new(name, Unit::BYTES_PER_S),
            series: (0..8).map(line).collect(),
            style,
        }));
    }
    let samples = |k: f64| {
        (1..200)
            .map(|i| 1e-5 * k * f64::from(i * i))
            .collect::<Vec<_>>()
    };
    add(Plot::Lines(Lines {
        x: Axis::log("Latency", Unit::SECONDS),
        y: Axis::new("Share of requests", Unit::SHARE),
        series: vec![
            Line::cdf(name, &samples(1.0), 60),
            Line::cdf("other", &samples(0.1), 60),
        ],
        style: LineStyle::Steps,
    }));
    add(Plot::Lines(Lines {
        x: Axis::log(name, Unit::COUNT),
        y: Axis::log(name, Unit::USD),
        series: vec![Line {
            name: text(),
            points: vec![(0.0, 1.0), (1.0, -1.0), (10.0, 10.0), (1000.0, 1e6)],
        }],
        style: LineStyle::Straight,
    }));
    for (stacked, lying) in [(false, false), (true, false), (false, true)] {
        let series = |i: i32| BarSeries {
            name: format!("{name} {i}"),
            values: (0..5)
                .map(|c| (c != 2).then(|| f64::from(c * 7 + i)))
                .collect(),
        };
        add(Plot::Bars(Bars {
            x_label: text(),
            categories: (0..5).map(|c| format!("{name} {c}")).collect(),
            y: Axis::new(name, Unit::WATTS),
            series: (0..5).map(series).collect(),
            stacked,
            lying,
        }));
    }
    let layer = |n: u64| Layer {
        name: format!("{name} {n}"),
        columns: (0..30)
            .map(|x| (0..20).map(|y| (x * y * n) % 17).collect())
            .collect(),
    };
    add(Plot::Heat(Heat {
        x: Axis::new(name, Unit::SECONDS),
        x_bin: 2.0,
        y: Axis::new(name, Unit::BYTES),
        y_bin: 1_048_576.0,
        label: text(),
        layers: (1..3).map(layer).collect(),
    }));
    let metric = |label: &str, better| Metric {
        axis: Axis::new(label, Unit::JOULES),
        better,
    };
    let point = |i: i32| Point {
        name: format!("{name} {i}"),
        group: format!("{name} {}", i % 11),
        reference: i % 11 == 3,
        values: vec![
            Some(f64::from((i * 37) % 41)),
            (i != 4).then(|| f64::from((i * 53) % 29)),
        ],
    };
    add(Plot::Scatter(Scatter {
        metrics: vec![metric(name, Better::Higher), metric("other", Better::Lower)],
        x: 0,
        y: 1,
        points: (0..24).map(point).collect(),
    }));
    page
}
