//! Pages in a real browser: no errors, no requests, every chart drawn, and hovering shows the name of a configuration. If there is no
//! chromium, the test is skipped with a message; `make report-check` installs it and fails instead. Screenshots stay in `target/tmp`.

#[path = "reports/sample.rs"]
#[allow(dead_code)] // each test uses a part of it
mod sample;

use std::path::{Path, PathBuf};
use std::process::Command;

use isotherm_report::{CostCurve, Page, Plot, plan_page, run_page};
use scraper::{Html, Selector};
use serde_json::Value;

/// Runs before any other script: records errors.
const LISTEN: &str = "<script>window.wrong = [];
addEventListener('error', (e) => wrong.push('error: ' + e.message));
addEventListener('unhandledrejection', (e) => wrong.push('rejected: ' + e.reason));
addEventListener('securitypolicyviolation', (e) => wrong.push('policy: ' + e.blockedURI));
for (const k of ['error', 'warn']) console[k] = (...a) => wrong.push(k + ': ' + a.join(' '));
</script>";

/// Runs after all other scripts: hovers, inspects, and leaves the findings in the page.
const LOOK: &str = "<script>addEventListener('load', () => setTimeout(() => {
const seen = { charts: [], tips: [] };
for (const host of document.querySelectorAll('[data-chart]')) {
  let dots = 0;
  for (const canvas of host.querySelectorAll('canvas')) {
    const p = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    for (let i = 3; i < p.length; i += 4) if (p[i] > 0) dots++;
  }
  seen.charts.push({ kind: host.dataset.drawn || '', shapes: host.querySelectorAll('svg path').length, letters: host.querySelectorAll('svg text').length, dots });
  if (host.dataset.drawn === 'scatter') {
    echarts.getInstanceByDom(host).dispatchAction({ type: 'showTip', seriesIndex: 0, dataIndex: 0 });
    const tip = host.querySelector('.tip b');
    seen.tips.push(tip ? tip.textContent : '');
  }
}
const before = document.documentElement.dataset.theme;
document.getElementById('theme').click();
seen.themes = [before, document.documentElement.dataset.theme];
document.querySelectorAll('figure .tools button').forEach((b) => b.click());
document.querySelectorAll('select').forEach((s) => { s.value = '0'; s.dispatchEvent(new Event('change')); });
seen.front = document.querySelectorAll('.front li').length;
seen.wrong = wrong;
seen.loaded = performance.getEntriesByType('resource').map((r) => r.name);
const out = document.createElement('pre');
out.id = 'seen';
out.textContent = JSON.stringify(seen);
document.body.append(out);
}, 300));</script>";

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let all = std::env::split_paths(&path)
        .flat_map(|d| ["chromium", "chromium-browser", "google-chrome"].map(|n| d.join(n)));
    all.into_iter().find(|p| p.is_file())
}

/// Runs chromium on a file; returns its output.
fn chromium(program: &Path, file: &Path, more: &[String]) -> String {
    let home = tempfile::tempdir().expect("a directory");
    let out = Command::new(program)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--no-first-run",
        ])
        // Requests that get past the page's policy must reach no host either.
        .arg("--host-resolver-rules=MAP * ~NOTFOUND")
        .arg("--virtual-time-budget=5000")
        .arg(format!("--user-data-dir={}", home.path().display()))
        .args(more)
        .arg(format!("file://{}", file.display()))
        .output()
        .expect("chromium starts");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn look(program: &Path, name: &str, page: &Page) -> Value {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let html = page.html();
    let file = dir.join(format!("{name}.html"));
    std::fs::write(&file, &html).expect("written");
    let probed = html
        .replacen("<title>", &format!("{LISTEN}<title>"), 1)
        .replacen("</body>", &format!("{LOOK}</body>"), 1);
    let probe = dir.join(format!("{name}.probed.html"));
    std::fs::write(&probe, probed).expect("written");
    let dom = Html::parse_document(&chromium(program, &probe, &["--dump-dom".to_owned()]));
    let seen = Selector::parse("#seen").expect("a selector");
    let seen: String = dom.select(&seen).flat_map(|s| s.text()).collect();
    let seen: Value = serde_json::from_str(&seen)
        .unwrap_or_else(|e| panic!("{name}: the page's script did not end: {e}"));
    for (theme, features) in [
        ("light", "--blink-settings=preferredColorScheme=1"),
        ("dark", "--blink-settings=preferredColorScheme=0"),
    ] {
        let shot = dir.join(format!("{name}-{theme}.png"));
        let more = [
            format!("--screenshot={}", shot.display()),
            "--window-size=1400,4600".to_owned(),
            features.to_owned(),
        ];
        chromium(program, &file, &more);
        assert!(
            std::fs::metadata(&shot).is_ok_and(|m| m.len() > 20_000),
            "{name}: an empty screenshot"
        );
    }
    seen
}

/// What is wider than its place: the page, tables that must fit, and text in a table that lies over other text. The page is in a frame,
/// since a window has a least width.
const MEASURE: &str = "<script>addEventListener('load', () => setTimeout(() => {
const frame = document.querySelector('iframe'), inner = frame.contentDocument, root = inner.documentElement;
const over = (e) => e.scrollWidth - e.clientWidth;
const cells = [...inner.querySelectorAll('main > .scroll td, main > .scroll th')];
const out = document.createElement('pre');
out.id = 'seen';
out.textContent = JSON.stringify({
  page: root.scrollWidth - frame.clientWidth, tables: [...inner.querySelectorAll('main > .scroll')].map(over),
  cells: cells.filter((c) => over(c) > 1).map((c) => c.textContent),
  captions: [...inner.querySelectorAll('main > .scroll caption')].filter((c) => {
    const range = inner.createRange();
    range.selectNodeContents(c);
    return range.getBoundingClientRect().right > frame.clientWidth;
  }).length, wide: inner.querySelectorAll('main table.wide').length,
});
document.body.append(out);
}, 600));</script>";

/// The measures of a page in a frame of that width.
fn measured(program: &Path, name: &str, page: &Page, width: u32) -> Value {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let text = page.html().replace('&', "&amp;").replace('"', "&quot;");
    let file = dir.join(format!("{name}-{width}.html"));
    let html = format!(
        "<!DOCTYPE html><meta charset=utf-8><body><iframe style=\"width:{width}px;height:2000px;border:0\" srcdoc=\"{text}\"></iframe>{MEASURE}"
    );
    std::fs::write(&file, html).expect("written");
    let dom = chromium(program, &file, &["--dump-dom".to_owned()]);
    let dom = Html::parse_document(&dom);
    let seen = Selector::parse("#seen").expect("a selector");
    let seen: String = dom.select(&seen).flat_map(|s| s.text()).collect();
    serde_json::from_str(&seen).unwrap_or_else(|e| panic!("{name} at {width}: {e}: {seen}"))
}

fn needed() -> Option<PathBuf> {
    let found = browser();
    if found.is_none() {
        assert!(
            std::env::var_os("ISOTHERM_NEED_CHROMIUM").is_none(),
            "there is no chromium"
        );
        eprintln!("skipped: there is no chromium here (make report-check installs it)");
    }
    found
}

/// On a screen of 1280 pixels tables are whole; on a phone a table may scroll in its place, and the page is as wide as the screen.
#[test]
fn pages_fit_the_screen() {
    let Some(program) = needed() else { return };
    let pages = [
        ("fit-run", run_page(&sample::run("greendm"), &[])),
        ("fit-compare", sample::comparison_page()),
        ("fit-plan", plan_page(&sample::plan())),
    ];
    for (name, page) in &pages {
        for width in [1280, 390] {
            let seen = measured(&program, name, page, width);
            assert!(
                seen["page"].as_i64() <= Some(0),
                "{name} at {width}: {seen}"
            );
            assert_eq!(seen["cells"], serde_json::json!([]), "{name} at {width}");
            assert_eq!(seen["captions"], 0, "{name} at {width}");
            let tables = seen["tables"].as_array().expect("tables");
            let cut = tables.iter().any(|t| t.as_i64() > Some(0));
            assert!(!cut || width < 1280, "{name} at {width}: {seen}");
            assert!(
                !tables.is_empty() && seen["wide"].as_u64() > Some(0),
                "{name}: {seen}"
            );
        }
    }
}

#[test]
fn pages_work_in_a_browser() {
    let Some(program) = needed() else { return };
    let cost = CostCurve {
        name: "greendm".to_owned(),
        once_usd: 116.0,
        per_run_usd: 0.02,
    };
    let pages = [
        ("report-run", run_page(&sample::run("greendm"), &[cost])),
        ("report-compare", sample::comparison_page()),
        ("report-reproduce", sample::reproduction_page()),
        ("report-odd", sample::every_chart("</script><b>odd</b>")),
    ];
    for (name, page) in &pages {
        let seen = look(&program, name, page);
        assert_eq!(seen["wrong"], serde_json::json!([]), "{name}");
        assert_eq!(seen["loaded"], serde_json::json!([]), "{name}");
        assert_ne!(seen["themes"][0], seen["themes"][1], "{name}");
        let charts = seen["charts"].as_array().expect("charts");
        assert_eq!(charts.len(), page.charts().count(), "{name}");
        for (chart, seen) in page.charts().zip(charts) {
            let n = |key: &str| seen[key].as_u64().unwrap_or(0);
            match &chart.plot {
                Plot::Heat(_) => assert!(n("dots") > 5000, "{name}: {}: {seen}", chart.title),
                _ => assert!(
                    n("shapes") > 8 && n("letters") > 4,
                    "{name}: {}: {seen}",
                    chart.title
                ),
            }
        }
        // Hovering over the first point of the first group must show its name.
        let scatters = page.charts().filter_map(|c| match &c.plot {
            Plot::Scatter(s) => Some(s),
            _ => None,
        });
        let tips: Vec<&str> = seen["tips"]
            .as_array()
            .expect("tips")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let names: Vec<&str> = scatters.map(|s| s.points[0].name.as_str()).collect();
        assert_eq!(tips.len(), names.len(), "{name}");
        for (tip, point) in tips.iter().zip(&names) {
            assert!(tip.starts_with(point), "{name}: {tip} instead of {point}");
        }
        assert!(
            names.is_empty() || seen["front"].as_u64() > Some(0),
            "{name}: the front is listed"
        );
    }
    // Pictures are written beside the pages, for inspection by people.
    for (name, page) in &pages {
        for (i, c) in page.charts().enumerate() {
            let png = c.png(900, 420, 1.0).expect("a picture");
            std::fs::write(
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{i}.png")),
                png,
            )
            .expect("written");
        }
    }
}
