//! `isotherm reproduce` from the command line.

mod common;

use common::{Place, fits};
use serde_json::Value;

/// Experiments that need no run, one claim after the other.
const ARITHMETIC: &str = "greendm-2.1 greendm-4.4 greendm-4.norm greendm-7.2";

fn claims(value: &Value) -> Vec<&Value> {
    let each = value["experiments"].as_array().expect("experiments");
    each.iter()
        .flat_map(|e| e["claims"].as_array().expect("claims"))
        .collect()
}

#[test]
fn arithmetic_comes_out_exactly() {
    let place = Place::new();
    let r = place.json(&format!("reproduce {ARITHMETIC}"), "reproduce");
    let all = claims(&r);
    assert!(all.len() >= 18, "{}", all.len());
    for c in &all {
        assert!(c["exact"] == true && c["verdict"] == "holds", "{c}");
    }
    assert_eq!(r["summary"]["holds"].as_u64(), Some(all.len() as u64));
    let example = &r["experiments"][3];
    let total = &example["tables"][0]["rows"][0]["cells"][4];
    assert_eq!(total["paper"]["low"].as_f64(), Some(122.4219));
    assert!((total["ours"].as_f64().expect("ours") - 122.5082).abs() < 1e-9);
}

#[test]
fn a_simulated_figure_has_its_cells_and_a_reasoned_verdict_on_every_claim() {
    let place = Place::new();
    let call = "reproduce greendm-6.5a --scale 0.01 --seed 3";
    let (a, b) = (place.json(call, "reproduce"), place.json(call, "reproduce"));
    let e = &a["experiments"][0];
    assert_eq!(e["id"], "greendm-6.5");
    assert_eq!(e["scale"].as_f64(), Some(0.01));
    // Linear, HDD, SSD and three by three configurations of GreenDM.
    let rows = e["tables"][0]["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 12);
    let names = |r: &Value| -> Vec<Value> {
        let cells = r["cells"].as_array().expect("cells");
        cells.iter().map(|c| c["name"].clone()).collect()
    };
    assert!(rows.iter().all(|r| names(r) == names(&rows[0])));
    let speed = |i: usize| rows[i]["cells"][0]["ours"].as_f64().expect("a figure");
    assert!(speed(2) > speed(0) && speed(2) > speed(1), "SSD is fastest");
    for c in claims(&a) {
        let why = c["why"].as_str().expect("why");
        assert!(why.len() > 5 && !why.contains("did not come to it"), "{c}");
    }
    assert_eq!(a["experiments"][0]["tables"], b["experiments"][0]["tables"]);
    // The trace is absent: the output states this, and the substitute.
    let said = e["substitutes"].to_string();
    assert!(
        said.contains("gen:web-search") && said.contains("ISOTHERM_TRACES"),
        "{said}"
    );
}

#[test]
fn seeds_are_run_side_by_side_and_spread() {
    let place = Place::new();
    let r = place.json(
        "reproduce greendm-6.5a --scale 0.01 --seeds 2 --seed 4",
        "reproduce",
    );
    let e = &r["experiments"][0];
    assert_eq!(e["seeds"].to_string(), "[4,5]");
    for c in claims(&r) {
        let v = &c["evidence"];
        assert!(v["seeds"] == 2 || c["verdict"] == "cannot-be-judged", "{c}");
        if let Some(figures) = v["figures"].as_array() {
            assert!(figures.len() >= 2 && v["printed"].is_object(), "{c}");
        }
    }
    let cells = e["tables"].to_string();
    assert!(cells.contains("spread"), "{cells}");
    let said = place.ok("reproduce greendm-6.5a --scale 0.01");
    assert!(said.contains("--seeds 5"), "{said}");
}

#[test]
fn the_list_names_what_is_here_and_what_is_not() {
    let place = Place::new();
    let list: Value = serde_json::from_str(&place.ok("reproduce list --json")).expect("JSON");
    fits(&list, "reproduce-list");
    let of = |id: &str| {
        let all = list.as_array().expect("a list");
        all.iter().find(|e| e["id"] == id).expect(id).clone()
    };
    assert_eq!(of("greendm-6.7")["in_this_build"], true);
    for paper in ["oodt-4a", "loris-14", "hro-8", "dss-3"] {
        of(paper);
    }
    assert!(place.ok("reproduce").contains("greendm-9.1-9.3"));
}

#[test]
fn unknown_experiments_are_wrong_usage_and_name_the_nearest() {
    let place = Place::new();
    for (call, needle) in [
        ("reproduce greendm-6.55", "nearest: `greendm-6.5`"),
        ("reproduce greendm-7.2 grendm-2.1", "nearest: `greendm-2.1`"),
        ("reproduce list greendm-7.2", "stands alone"),
        ("reproduce greendm-7.2 --scale 0", "from 0.001 to 10"),
    ] {
        let out = place.run(call);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{call}: {said}");
        assert!(said.contains(needle), "{call}: {said}");
        assert!(out.stdout.is_empty(), "{call}");
    }
}

/// The pages must show the contents of `bench/reproduce/results.json`, with every experiment and claim of this build, and experiments that
/// need no run must have the results that are there.
#[test]
fn pages_show_the_results_and_the_results_are_of_this_build() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| std::fs::read_to_string(root.join(name)).expect(name);
    let results: Value =
        serde_json::from_str(&read("bench/reproduce/results.json")).expect("results.json");
    let escaped = |v: &Value| {
        let text = v.as_str().expect("text");
        text.replace('|', "\\|")
            .replace('*', "\\*")
            .replace('\n', " ")
    };
    let mut expected = std::collections::BTreeMap::<&str, Vec<String>>::new();
    for e in results["experiments"].as_array().expect("experiments") {
        let id = e["id"].as_str().expect("id");
        let page = match id.split('-').next() {
            Some("greendm") => "docs/reproduce.md",
            Some("oodt") => "docs/reproduce-oodt.md",
            Some("loris") => "docs/reproduce-loris.md",
            Some("hro") => "docs/reproduce-hro.md",
            _ => "docs/reproduce-dss.md",
        };
        for c in e["claims"].as_array().expect("claims") {
            let verdict = match c["verdict"].as_str().expect("verdict") {
                "does-not-hold" => "**does not**",
                "cannot-be-judged" => "cannot be judged",
                other => other,
            };
            let star = if c["exact"] == true { "\\* " } else { "" };
            let row = format!(
                "| `{id}` | {star}{} | {verdict} | {} |",
                escaped(&c["text"]),
                escaped(&c["figures"])
            );
            expected.entry(page).or_default().push(row);
        }
    }
    for (page, rows) in expected {
        let text = read(page);
        let table = text.split("| experiment | claim | verdict").nth(1);
        let shown: Vec<&str> = table.expect(page).trim().lines().skip(2).collect();
        assert_eq!(shown, rows, "{page}: run bench/reproduce/tables.py");
    }
    let place = Place::new();
    let list: Value = serde_json::from_str(&place.ok("reproduce list --json")).expect("JSON");
    let known = results["experiments"].as_array().expect("experiments");
    for e in list.as_array().expect("a list") {
        let kept = known.iter().find(|k| k["id"] == e["id"]);
        let not_run = results["not_run"].as_array().expect("not_run");
        if kept.is_none() && not_run.contains(&e["id"]) {
            continue;
        }
        let claims = kept.map(|k| k["claims"].as_array().expect("claims").len() as u64);
        assert!(
            claims >= e["claims"].as_u64(),
            "{}: not in results.json",
            e["id"]
        );
    }
    let run = place.json(&format!("reproduce {ARITHMETIC}"), "reproduce");
    for e in run["experiments"].as_array().expect("experiments") {
        let kept = known.iter().find(|k| k["id"] == e["id"]).expect("kept");
        let of = |e: &Value| -> Vec<[Value; 3]> {
            let all = e["claims"].as_array().expect("claims");
            let three = |c: &Value| ["text", "verdict", "figures"].map(|k| c[k].clone());
            all.iter().map(three).collect()
        };
        assert_eq!(of(e), of(kept), "{}: run it again", e["id"]);
    }
}

/// Recordings of mounts take the place of the generators; a second recording of each load takes that of a second seed.
#[test]
fn recordings_are_judged_in_place_of_generators() {
    let place = Place::new();
    let fixture = |name: &str| {
        let from = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/");
        let file = format!("{from}loris-{name}.parquet");
        std::fs::copy(file, place.path(&format!("{name}.parquet"))).expect("copied");
    };
    fixture("mail");
    fixture("web");
    let two = "reproduce hro-7 --recording mail=mail.parquet --recording mail=web.parquet";
    let r = place.json(two, "reproduce");
    let e = &r["experiments"][0];
    assert_eq!(e["seeds"].to_string(), "[1,2]");
    for c in claims(&r) {
        assert_eq!(c["evidence"]["seeds"], 2, "{c}");
    }
    for (call, said) in [
        ("reproduce dss-2 --recording mail=mail.parquet", "dss-2"),
        (
            "reproduce hro-6 --recording mail=mail.parquet --recording mail=web.parquet --recording office=web.parquet",
            "as many recordings",
        ),
        (
            "reproduce hro-6 --recording music=mail.parquet",
            "NAME is one of",
        ),
        (
            "reproduce hro-6 --recording mail=mail.parquet --seeds 2",
            "--seeds",
        ),
    ] {
        let out = place.run(call);
        assert_eq!(out.status.code(), Some(2), "{call}");
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(text.contains(said), "{call}: {text}");
    }
    let missing = place.fails("reproduce loris-14 --recording file=web.parquet");
    assert!(missing.contains("web=FILE"), "{missing}");
}
