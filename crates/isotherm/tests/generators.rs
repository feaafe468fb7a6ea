//! Generators on the command line: they are accepted wherever a trace is expected.

mod common;

use common::Place;

const POSTMARK: &str = "gen:postmark,files=400,transactions=800";

#[test]
fn a_generator_stands_for_a_trace() {
    let place = Place::new();
    let info = place.json(&format!("trace info {POSTMARK} --plot p.svg"), "trace-info");
    assert_eq!(info["format"], "generated");
    assert_eq!(info["reuse"]["sampling_rate"], 1.0);
    let svg = std::fs::read_to_string(place.path("p.svg")).expect("drawn");
    // The cells of the heat map, the bars of the sizes, and the curve of hit ratios.
    assert!(svg.matches("<rect").count() > 30 && svg.contains("<polyline"));
    assert!(svg.contains("gen:postmark"));

    let written = place.json(
        &format!("trace convert {POSTMARK} --to parquet --out p.parquet"),
        "trace-convert",
    );
    assert_eq!(written["requests"], info["requests"]);
    let part = place.json("trace info p.parquet --limit 5", "trace-info");
    assert_eq!(part["requests"], 5);
    let again = place.json("trace info p.parquet", "trace-info");
    for key in [
        "requests",
        "bytes_read",
        "bytes_written",
        "unique_4k",
        "by_class",
        "sizes",
        "reuse",
    ] {
        assert_eq!(again[key], info[key], "{key}");
    }

    let sim = |trace: &str| {
        let call = format!("sim {trace} --policy greendm --fast-size 10% --hit-only --json");
        let value: serde_json::Value = serde_json::from_str(&place.ok(&call)).expect("JSON");
        ["requests", "accesses", "fast_hit_ratio", "promotions"].map(|k| value[k].clone())
    };
    assert_eq!(sim(POSTMARK), sim("p.parquet"));
}

#[test]
fn wrong_generators_are_wrong_usage() {
    let place = Place::new();
    for (call, wants) in [
        ("trace info gen:postmrk", "nearest: `postmark`"),
        ("trace info gen:zipf,expnent=1", "nearest: `exponent`"),
        (
            "sim gen:zipf,x=1 --policy greendm --fast-size 1M --hit-only",
            "has no parameter `x`",
        ),
        ("trace convert gen:zipf,reads=2 --out z", "from 0 to 1"),
    ] {
        let out = place.run(call);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{call}: {said}");
        assert!(said.contains(wants), "{call}: {said}");
    }
    assert!(place.names().is_empty());
    let list = place.ok("trace generators");
    assert!(
        list.contains("gen:web-search")
            && list.contains("GreenDM Table 6.3")
            && list.contains("1055236")
    );
}
