//! Alert rules and dashboard against a real Prometheus.

use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::common::Served;
use crate::machine::{LIMIT, Machine, free_port, get, has, wait_for};

/// A real Prometheus scrapes a volume under load; every rule must be valid, and every query of the dashboard must have an answer.
#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn prometheus_answers_every_query_of_the_dashboard() {
    if !has("prometheus") || !has("promtool") || !has("nbdcopy") {
        return;
    }
    let m = Machine::new();
    m.create("v");
    let (volume, own) = (free_port(), free_port());
    let nbd = m.0.path("n").display().to_string();
    let _served = m.serve(&format!("v --nbd unix:{nbd} --metrics 127.0.0.1:{volume}"));
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    let rules = dist.join("prometheus/isotherm.rules.yml");
    let checked = m.0.tool(
        "promtool",
        &["check", "rules", &rules.display().to_string()],
    );
    assert!(
        checked.status.success(),
        "{}",
        String::from_utf8_lossy(&checked.stderr)
    );
    let tested = m.0.tool(
        "promtool",
        &[
            "test",
            "rules",
            &dist
                .join("prometheus/isotherm.test.yml")
                .display()
                .to_string(),
        ],
    );
    assert!(
        tested.status.success(),
        "{}{}",
        String::from_utf8_lossy(&tested.stdout),
        String::from_utf8_lossy(&tested.stderr)
    );
    let body = get(&format!("127.0.0.1:{volume}"), "/metrics");
    assert!(body.contains("application/openmetrics-text"), "{body}");
    let config = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nrule_files: [{}]\nscrape_configs:\n- job_name: isotherm\n  static_configs: [{{targets: ['127.0.0.1:{volume}']}}]\n",
        rules.canonicalize().expect("there").display()
    );
    std::fs::write(m.0.path("prometheus.yml"), config).expect("written");
    let child = Command::new("prometheus")
        .arg(format!(
            "--config.file={}",
            m.0.path("prometheus.yml").display()
        ))
        .arg(format!(
            "--storage.tsdb.path={}",
            m.0.path("tsdb").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{own}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("starts");
    let _prometheus = Served { child };
    let data = m.0.path("data");
    std::fs::write(&data, vec![5; 8 << 20]).expect("written");
    let uri = format!("nbd+unix:///?socket={nbd}");
    let load = || {
        let (d, u) = (data.display().to_string(), uri.as_str());
        let put = m.0.tool("nbdcopy", &["--flush", "--", &d, u]);
        assert!(
            put.status.success(),
            "{}",
            String::from_utf8_lossy(&put.stderr)
        );
        let got = m.0.tool("nbdcopy", &["--", u, "null:"]);
        assert!(
            got.status.success(),
            "{}",
            String::from_utf8_lossy(&got.stderr)
        );
    };
    let dashboard: Value = serde_json::from_str(
        &std::fs::read_to_string(dist.join("grafana/isotherm.json")).expect("the dashboard"),
    )
    .expect("JSON");
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let text = target["expr"].as_str().expect("a query");
            queries.push(
                text.replace("$__rate_interval", "30s")
                    .replace("$volume", "127.0.0.1:.*"),
            );
        }
    }
    assert!(queries.len() >= 12);
    let ready = || TcpStream::connect(("127.0.0.1", own)).is_ok();
    wait_for("Prometheus starts", ready);
    let mut left = queries;
    let begun = Instant::now();
    while !left.is_empty() {
        assert!(begun.elapsed() < LIMIT, "without an answer: {left:#?}");
        load();
        left.retain(|q| !has_answer(own, q));
        std::thread::sleep(Duration::from_millis(300));
    }
    // There must be no alert for a volume without problems.
    let alerts = query(own, "ALERTS{alertstate=\"firing\"}");
    assert_eq!(alerts["data"]["result"], json!([]), "{alerts}");
}

fn query(port: u16, text: &str) -> Value {
    let escaped: String = text
        .bytes()
        .map(|b| {
            if b.is_ascii_alphanumeric() {
                char::from(b).to_string()
            } else {
                format!("%{b:02X}")
            }
        })
        .collect();
    let answer = get(
        &format!("127.0.0.1:{port}"),
        &format!("/api/v1/query?query={escaped}"),
    );
    let body = answer.split("\r\n\r\n").nth(1).unwrap_or_default();
    let json = body
        .find('{')
        .and_then(|a| body.rfind('}').map(|b| &body[a..=b]));
    serde_json::from_str(json.unwrap_or_default()).unwrap_or(Value::Null)
}

/// Whether a query returns samples, none of them NaN. An invalid query is a failure at once.
fn has_answer(port: u16, text: &str) -> bool {
    let answer = query(port, text);
    assert_ne!(answer["status"], json!("error"), "{text}: {answer}");
    let samples = answer["data"]["result"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    for s in &samples {
        assert_ne!(s["value"][1], json!("NaN"), "{text}: {answer}");
    }
    !samples.is_empty()
}
