//! `compare` and `sweep` from the command line.

mod common;

use common::Place;
use serde_json::Value;

const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../fixtures/windows-shared-server.load.zst"
);

/// More data than the buffer of a disk holds: only then are writes slower on a disk.
const MYSQL: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../fixtures/linux-mysql.load.zst"
);

#[test]
fn compare_adds_the_baselines_and_no_policy_beats_the_bounds() {
    let place = Place::new();
    let call = format!(
        "compare {MYSQL} --limit 3000 --policies lru,greendm,PT=2,hot-dst-recency --fast-size 10% --html page.html"
    );
    let c = place.json(&call, "compare");
    let rows = c["rows"].as_array().expect("rows");
    let names: Vec<&str> = rows.iter().filter_map(|r| r["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "lru",
            "greendm,PT=2",
            "hot-dst-recency",
            "linear",
            "hdd-only",
            "ssd-only"
        ]
    );
    for r in rows {
        assert!(r["cost_regret"].as_f64().is_none_or(|x| x >= -1e-9), "{r}");
    }
    let elapsed = |name: &str| {
        let row = rows.iter().find(|r| r["name"] == name);
        row.and_then(|r| r["report"]["elapsed_s"].as_f64())
            .expect("there")
    };
    assert!(elapsed("ssd-only") < elapsed("hdd-only"));
    let page = std::fs::read_to_string(place.path("page.html")).expect("written");
    for name in ["hdd-only", "ssd-only", "greendm,PT=2", "Belady"] {
        assert!(page.contains(name), "{name}");
    }
    place.json(
        &format!("compare {TRACE} --policies lru --fast-size 10% --hit-only"),
        "compare",
    );
}

/// A timed comparison does not call the volume full because single devices are, and a table has no two columns of one name.
#[test]
fn the_table_says_what_was_run() {
    let place = Place::new();
    let call = format!("compare {TRACE} --policies lru,greendm --fast-size 10% --limit 300");
    let text = place.ok(&call);
    assert!(!text.contains("volume full"), "{text}");
    let head = text.lines().nth(1).expect("a table");
    let columns: Vec<&str> = head.split("  ").filter(|c| !c.is_empty()).collect();
    for (i, c) in columns.iter().enumerate() {
        assert!(!columns[..i].contains(c), "{c} twice: {head}");
    }
    let last = |name: &str| {
        let line = text.lines().find(|l| l.starts_with(name)).expect(name);
        line.split_whitespace().last().map(str::to_owned)
    };
    assert_eq!(last("greendm").as_deref(), Some("tiering"));
    assert!(["caching", "write-back"].contains(&last("lru").expect("named").as_str()));
    let full = place.ok(&format!("{call} --full"));
    assert!(full.contains("volume full from the start"), "{full}");
}

#[test]
fn several_sizes_make_one_page_with_curves() {
    let place = Place::new();
    let sizes = "--fast-size 5%,20%,50% --hit-only --html page.html";
    let page = || {
        let page = std::fs::read_to_string(place.path("page.html")).expect("written");
        assert!(page.contains("Miss ratio"), "{page}");
        page
    };
    let runs = place.ok(&format!(
        "sim {MYSQL} --limit 3000 --policy lru {sizes} --json"
    ));
    let runs: Value = serde_json::from_str(&runs).expect("JSON");
    assert_eq!(runs.as_array().map(Vec::len), Some(3));
    let one = page();
    for r in runs.as_array().expect("runs") {
        let miss = 1.0 - r["fast_hit_ratio"].as_f64().expect("a ratio");
        let shown = format!("{:.1}", miss * 100.0);
        assert!(one.contains(&shown), "{shown} is not on the page");
    }
    let call = format!("compare {MYSQL} --limit 3000 --policies lru,fifo {sizes} --json");
    let all: Value = serde_json::from_str(&place.ok(&call)).expect("JSON");
    let bytes = |i: usize| all[i]["fast_bytes"].as_u64().expect("a size");
    assert!(bytes(0) < bytes(1) && bytes(1) < bytes(2));
    let page = page();
    assert!(page.contains("MIN") && page.contains("fifo"));
    // Several traces at one size are still no page.
    let two = format!("sim {TRACE} {TRACE} --policy lru --fast-size 5% --hit-only --html no.html");
    let refused = place.run(&two);
    assert_eq!(refused.status.code(), Some(2));
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(why.contains("--fast-size 1%,2%,5%"), "{why}");
}

const GRID: &str = r#"
policies = ["linear", "greendm"]
fast_size = ["5%", "20%"]
extent = "64K"
time = ["closed", "trace"]
depth = [1, 4]
accelerate = 50
limit = 2000
[params.greendm]
PT = [1, 3]
"#;

#[test]
fn a_sweep_resumes_and_its_cells_run_alone_are_the_same() {
    let place = Place::new();
    let grid = format!("traces = [{TRACE:?}]{GRID}");
    std::fs::write(place.path("g.toml"), &grid).expect("written");
    let first = place.json("sweep g.toml --out r", "sweep");
    // 3 policies, 2 sizes, 3 clocks.
    assert_eq!((&first["cells"], &first["run"]), (&18.into(), &18.into()));
    let text = std::fs::read_to_string(place.path("r/cells.json")).expect("written");
    let cells: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    assert_eq!(cells.len(), 18);
    // Only cells that are missing are run again; the tables are the same except for the times of the runs.
    let key = cells[7]["key"].as_str().expect("a key");
    std::fs::remove_file(place.path(&format!("r/cells/{key}.json"))).expect("there");
    let second = place.json("sweep g.toml --out r --threads 1", "sweep");
    assert_eq!((&second["kept"], &second["run"]), (&17.into(), &1.into()));
    for c in cells.iter().step_by(5) {
        let args: Vec<&str> = c["args"]
            .as_array()
            .expect("arguments")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let alone = place.json(&args.join(" "), "sim");
        assert_eq!(alone["digest"], c["report"]["digest"], "{args:?}");
        assert_eq!(alone["energy_j"], c["report"]["energy_j"], "{args:?}");
    }
    assert!(
        place
            .path("r/results.parquet")
            .metadata()
            .expect("there")
            .len()
            > 1000
    );
}

#[test]
fn wrong_grids_are_refused_by_name() {
    let place = Place::new();
    for (text, needle) in [
        ("trace = \"x\"", "nearest: `traces`"),
        ("traces = \"x\"", "are needed"),
        (
            "traces = \"x\"\npolicies = \"grendm\"",
            "nearest: `greendm`",
        ),
        (
            "traces = \"x\"\npolicies = \"greendm\"\nparams.lru.PT = 1",
            "params.lru",
        ),
        (
            "traces = \"x\"\npolicies = \"greendm\"\nparams.greendm.PTT = 1",
            "nearest: `PT`",
        ),
        (
            "traces = \"x\"\npolicies = \"linear\"\nextent = \"5K\"",
            "extent",
        ),
        (
            "traces = \"x\"\npolicies = \"linear\"\nfast = \"ocz\"",
            "ocz",
        ),
        (
            "traces = \"x\"\npolicies = \"linear\"\ntime = \"open\"",
            "time",
        ),
        ("traces = \"missing\"\npolicies = \"linear\"", "missing"),
    ] {
        std::fs::write(place.path("g.toml"), text).expect("written");
        let said = place.fails("sweep g.toml --out r");
        assert!(said.contains(needle), "{text}: {said}");
    }
}

#[test]
fn a_sweep_runs_again_what_depends_on_a_file_that_was_replaced() {
    let place = Place::new();
    let line = |t: u64, block: u64| format!("{t} 0 {:07} 8 1\n", 8 * block);
    let trace = |shift: u64| {
        (0..400)
            .map(|i| line(i * 9000, i % 90 + shift))
            .collect::<String>()
    };
    let (one, other) = (trace(100), trace(200));
    assert_eq!(one.len(), other.len(), "the sizes must not tell them apart");
    std::fs::write(place.path("t"), &one).expect("written");
    let sheet = place.ok("devices show intel-x25e-32");
    std::fs::write(place.path("mine.toml"), &sheet).expect("written");
    // A policy that is named twice is one cell.
    let grid = "traces = \"t\"\npolicies = [\"lru\", \"fifo\", \"lru\"]\nfast = \"mine.toml\"\nfast_size = \"100%\"";
    std::fs::write(place.path("g.toml"), grid).expect("written");
    let sweep = || place.json("sweep g.toml --out r --threads 2", "sweep");
    let figures = || {
        let text = std::fs::read_to_string(place.path("r/cells.json")).expect("written");
        let cells: Vec<Value> = serde_json::from_str(&text).expect("JSON");
        let elapsed = cells.iter().map(|c| c["report"]["elapsed_s"].as_f64());
        elapsed.map(|e| e.expect("a time")).collect::<Vec<_>>()
    };
    assert_eq!(sweep()["run"], 2);
    assert_eq!(sweep()["run"], 0);
    let before = figures();
    assert_eq!(before.len(), 2);
    let slower = sheet
        .replace("write_us = 85.0 ", "write_us = 900.0 ")
        .replace("read_us = 75.0 ", "read_us = 950.0 ");
    assert_ne!(slower, sheet);
    std::fs::write(place.path("mine.toml"), slower).expect("written");
    assert_eq!(sweep()["run"], 2, "the data sheet was replaced");
    assert!(figures()[0] > before[0], "{before:?} {:?}", figures());
    std::fs::write(place.path("t"), other).expect("written");
    assert_eq!(sweep()["run"], 2, "the trace was replaced");
    assert_eq!(sweep()["run"], 0);
}

#[test]
fn a_disk_alone_is_not_served_from_flash() {
    let place = Place::new();
    let text = place.ok(&format!(
        "compare {TRACE} --policies lru --fast-size 10% --html page.html"
    ));
    let row = |name: &str| -> Vec<String> {
        let line = text.lines().find(|l| l.starts_with(name)).expect(name);
        line.split_whitespace().map(str::to_owned).collect()
    };
    // The columns are policy, hits, regret, served.
    assert_eq!(row("hdd-only")[1..4], ["-", "-", "-"]);
    assert_eq!(row("ssd-only")[1..4], ["-", "-", "1.0000"]);
    assert_ne!(row("lru")[3], "-");
    let page = std::fs::read_to_string(place.path("page.html")).expect("written");
    let line = page.split("<tr").find(|r| r.contains("<td>hdd-only"));
    assert!(line.is_some_and(|l| !l.contains("100 %")), "{line:?}");
}
