//! Tests of the text of a scrape.

use super::*;

fn health() -> Health {
    let mut health = crate::health::tests::of(isotherm_live::vitals::Vital::default());
    health.level = Level::Failing;
    health
}

#[test]
fn a_snapshot_is_openmetrics() {
    let mut h = Histogram::default();
    for us in [5, 80, 4_000, 90_000_000] {
        h.add(Nanos(us * 1000));
    }
    let sample = include_str!("../../answers/samples/stats.json");
    let mut stats: Stats = serde_json::from_str(sample).expect("figures");
    (stats.volume, stats.policy) = ("a\"b\\c\nd".into(), "lru,write-mode=x".into());
    (stats.reads, stats.energy_j) = (3, None);
    stats.members.truncate(1);
    stats.members[0].errors = 2;
    let text = text(Snapshot {
        stats,
        health: health(),
        silent_s: vec![12.5],
        degraded: true,
        read_only: false,
        asleep: vec![true],
        latency: vec![Latency::of("read", &h)],
    })
    .expect("text");
    for line in [
        r#"isotherm_volume_info{volume="a\"b\\c\nd",policy="lru",version=""#,
        r#"isotherm_requests_total{op="read"} 3"#,
        "isotherm_degraded 1",
        r#"isotherm_member_errors_total{member="0",tier="0"} 2"#,
        r#"isotherm_health{state="failing"} 1"#,
        r#"isotherm_health{state="well"} 0"#,
        r#"isotherm_member_silent_seconds{member="0",tier="0"} 12.5"#,
        r#"isotherm_member_asleep{member="0",tier="0"} 1"#,
        r#"isotherm_request_latency_seconds_bucket{le="0.0001",op="read"} 2"#,
        r#"isotherm_request_latency_seconds_bucket{le="+Inf",op="read"} 4"#,
        r#"isotherm_request_latency_seconds_count{op="read"} 4"#,
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("NaN") && !text.contains("energy"), "{text}");
    assert!(text.ends_with("# EOF\n"));
}
