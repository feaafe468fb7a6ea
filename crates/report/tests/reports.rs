//! Pages and pictures of real and of artificial data: complete, self-contained, and safe against the names in them.

#[path = "reports/sample.rs"]
#[allow(dead_code)] // each test uses a part of it
mod sample;

use isotherm_report::{Chart, CostCurve, Page, Plot, comparison_page, plan_page, run_page};
use scraper::{Html, Selector};

/// A name that would end a script, an attribute and an element if it was not escaped.
const EVIL: &str =
    "</script><script>alert(1)</script><img src=x onerror=\"alert('2')\">&amp;\u{2028}<!--";

fn all(html: &Html, css: &str) -> usize {
    html.select(&Selector::parse(css).expect("a selector"))
        .count()
}

/// Properties of every page.
fn check(page: &Page) -> Html {
    let text = page.html();
    assert!(text.len() < 1_500_000, "{} bytes", text.len());
    let html = Html::parse_document(&text);
    assert!(html.errors.is_empty(), "{:?}", html.errors);
    // Three scripts, all inline, and nothing that loads other files.
    assert_eq!(all(&html, "script"), 3);
    for css in [
        "script[src]",
        "link",
        "img",
        "iframe",
        "object",
        "embed",
        "[style*=url]",
        "[onerror]",
    ] {
        assert_eq!(all(&html, css), 0, "{css}");
    }
    let style: String = html
        .select(&Selector::parse("style").expect("a selector"))
        .flat_map(|s| s.text())
        .collect();
    assert!(!style.contains("url(") && !style.contains("@import"));
    let policy = Selector::parse("meta[http-equiv=Content-Security-Policy]").expect("a selector");
    let policy = html
        .select(&policy)
        .next()
        .and_then(|m| m.attr("content"))
        .expect("a policy");
    assert!(
        policy.contains("default-src 'none'") && !policy.contains("http"),
        "{policy}"
    );
    // The drawn data is in the page as JSON, and every chart has a table with rows.
    let data = Selector::parse("script#data").expect("a selector");
    let data: String = html.select(&data).flat_map(|s| s.text()).collect();
    let data: serde_json::Value = serde_json::from_str(&data).expect("JSON in the page");
    let charts = page.charts().count();
    assert_eq!(data["charts"].as_array().map(Vec::len), Some(charts));
    assert_eq!(all(&html, "figure .chart"), charts);
    assert_eq!(all(&html, "figure details table"), charts);
    for c in page.charts() {
        assert!(!c.table().rows.is_empty(), "{}", c.title);
        let columns = c.table().columns.len();
        assert!(
            c.table().rows.iter().all(|r| r.len() == columns),
            "{}",
            c.title
        );
    }
    html
}

#[test]
fn the_page_of_a_real_run() {
    let report = sample::run("greendm");
    let cost = CostCurve {
        name: "greendm".to_owned(),
        once_usd: 116.0,
        per_run_usd: 0.02,
    };
    let page = run_page(&report, &[cost]);
    let html = check(&page);
    let titles: Vec<&str> = page.charts().map(|c| c.title.as_str()).collect();
    for t in [
        "Throughput",
        "Latency",
        "Power",
        "Moves",
        "Seek distance",
        "Heat over time",
        "Access frequency over addresses",
        "Request sizes and device operation sizes",
        "Wear by member",
        "Cost over the time factor",
    ] {
        assert!(titles.contains(&t), "{t} not in {titles:?}");
    }
    assert!(all(&html, "dl.tiles > div") >= 8);
    // The bars of sizes are shares: the sum of each series is the number of requests.
    let sizes = page
        .charts()
        .find(|c| c.title.starts_with("Request sizes"))
        .expect("sizes");
    let Plot::Bars(bars) = &sizes.plot else {
        panic!("bars")
    };
    for s in &bars.series {
        let sum: f64 = s.values.iter().flatten().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{}: {sum}", s.name);
    }
    // The heat map's counts must be those by tier.
    let heat = page
        .charts()
        .find(|c| c.title == "Heat over time")
        .expect("heat");
    let Plot::Heat(heat) = &heat.plot else {
        panic!("heat")
    };
    let of = report
        .series
        .as_ref()
        .and_then(|s| s.heat.as_ref())
        .expect("heat");
    for (layer, by_tier) in heat.layers.iter().zip(&of.by_tier) {
        let cells: u64 = layer.columns.iter().flatten().sum();
        assert_eq!(cells, by_tier.iter().sum::<u64>(), "{}", layer.name);
    }
}

#[test]
fn a_run_without_time_has_a_page_too() {
    let report = sample::hit_only("lru");
    let page = run_page(&report, &[]);
    check(&page);
    assert_eq!(page.charts().count(), 0);
}

#[test]
fn comparisons_and_reproductions() {
    let page = sample::comparison_page();
    let html = check(&page);
    assert!(
        page.charts()
            .any(|c| matches!(&c.plot, Plot::Scatter(s) if !s.front(s.x, s.y).is_empty()))
    );
    assert!(all(&html, "td b") >= 8, "the best of each column");
    let page = sample::reproduction_page();
    let html = check(&page);
    assert_eq!(
        all(&html, "td.v.holds") + all(&html, "td.v.fails") + all(&html, "td.v.open"),
        3
    );
}

/// A drive without a price does not count as free of charge, and the axes at first are no costs in any case.
#[test]
fn no_costs_are_drawn_without_prices() {
    let first = |page: &Page| {
        let plot = page.charts().find_map(|c| match &c.plot {
            Plot::Scatter(s) => Some(s.metrics[s.x].axis.label.clone()),
            _ => None,
        });
        plot.expect("a trade-off")
    };
    let free = comparison_page(&[sample::compared("web.csv", false)]);
    check(&free);
    assert!(!free.html().contains("Cost of"), "no cost axis");
    let priced = comparison_page(&[sample::compared("web.csv", true)]);
    assert!(priced.html().contains("Cost of one run"));
    assert_eq!(
        [first(&free), first(&priced)],
        ["Bytes moved", "Bytes moved"]
    );
}

#[test]
fn labels_are_names_of_traces_and_tell_them_apart() {
    let two = [
        "/a/long/way/to/mon/web_0.csv.zst",
        "/a/long/way/to/mon/usr_1.csv.zst",
    ];
    let page = comparison_page(&two.map(|name| sample::compared(name, false))).html();
    assert!(page.contains("web_0") && page.contains("usr_1") && !page.contains("/a/long"));
}

#[test]
fn an_axis_says_that_it_is_logarithmic() {
    let page = plan_page(&sample::plan());
    check(&page);
    let svg = page
        .charts()
        .next()
        .expect("a chart")
        .svg(900, 420)
        .expect("drawn");
    assert!(svg.contains("share of touched data (log)"), "{svg}");
}

#[test]
fn names_stay_names() {
    for page in [sample::comparison_page(), sample::reproduction_page()] {
        check(&page);
    }
    let page = sample::every_chart(EVIL);
    let html = check(&page);
    let heading = Selector::parse("h1").expect("a selector");
    let text: String = html.select(&heading).flat_map(|h| h.text()).collect();
    assert_eq!(text, EVIL);
    for c in page.charts() {
        let svg = c.svg(800, 400).expect("a picture");
        roxmltree::Document::parse(&svg).expect("XML");
    }
}

#[test]
fn pictures_are_whole() {
    let page = run_page(&sample::run("greendm"), &[]);
    let odd = sample::every_chart("plain");
    for c in page.charts().chain(odd.charts()) {
        picture(c);
    }
    assert!(odd.charts().next().is_some_and(|c| c.svg(10, 10).is_err()));
}

fn picture(c: &Chart) {
    let svg = c.svg(900, 420).expect("a picture");
    let doc = roxmltree::Document::parse(&svg).expect("XML");
    assert!(doc.descendants().all(|n| n.attribute("href").is_none()));
    let drawn = doc
        .descendants()
        .filter(|n| ["polyline", "rect", "circle", "polygon"].contains(&n.tag_name().name()));
    assert!(drawn.count() > 3, "{}", c.title);
    // Every coordinate must be a finite place inside the picture, or just outside where a line is cut.
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{}", c.title);
    let png = c.png(900, 420, 2.0).expect("a PNG");
    assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
    assert_eq!(png[16..24], [0, 0, 7, 8, 0, 0, 3, 0x48], "1800 × 840");
}

/// Letters need the font in the tree: without a font the same picture has fewer shades than with it.
#[test]
fn png_has_letters() {
    use resvg::{tiny_skia, usvg};
    let page = sample::every_chart("plain");
    let c = page.charts().next().expect("a chart");
    let png = c.png(900, 420, 1.0).expect("a PNG");
    let with = tiny_skia::Pixmap::decode_png(&png).expect("a PNG");
    let tree = usvg::Tree::from_str(&c.svg(900, 420).expect("SVG"), &usvg::Options::default())
        .expect("SVG");
    let mut without = tiny_skia::Pixmap::new(900, 420).expect("pixels");
    resvg::render(
        &tree,
        tiny_skia::Transform::identity(),
        &mut without.as_mut(),
    );
    let dark = |p: &tiny_skia::Pixmap| p.pixels().iter().filter(|p| p.red() < 128).count();
    assert!(
        dark(&with) > dark(&without) + 500,
        "{} {}",
        dark(&with),
        dark(&without)
    );
}
