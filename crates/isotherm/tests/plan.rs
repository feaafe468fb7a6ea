//! `plan`: its rows are those of full runs, its money follows from its prices, and its page says nothing about money without prices.

mod common;

use common::Place;
use serde_json::Value;

const TRACES: [&str; 3] = [
    "linux-mysql.load.zst",
    "pgbench.parquet",
    "dss-file.parquet",
];

fn trace(name: &str) -> String {
    format!("{}/../../fixtures/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn number(v: &Value, key: &str) -> f64 {
    v[key].as_f64().unwrap_or_else(|| panic!("{key}: {v}"))
}

/// Each row's command, run by itself, gives the row's figures within 5 %.
#[test]
fn rows_are_those_of_full_runs() {
    for name in TRACES {
        let place = Place::new();
        let plan = place.json(
            &format!("plan {} --limit 5000 --fast-size 2%,10%", trace(name)),
            "plan",
        );
        let rows = plan["rows"].as_array().expect("rows");
        assert_eq!(rows.len(), 4);
        for row in rows {
            let command = row["command"].as_str().expect("a command");
            let call = command.strip_prefix("isotherm ").expect("of this program");
            let full = place.json(call, "sim");
            for (mine, its) in [
                ("latency_mean_s", "latency_mean_s"),
                ("latency_p50_s", "latency_p50_s"),
                ("latency_p99_s", "latency_p99_s"),
                ("latency_p999_s", "latency_p999_s"),
                ("power_w", "mean_power_w"),
            ] {
                let (a, b) = (number(row, mine), number(&full, its));
                assert!(
                    b > 0.0 && (a / b - 1.0).abs() < 0.05,
                    "{name}: {command}: {mine} {a}, {b}"
                );
            }
        }
        let advice = plan["advice"].as_str().expect("advice");
        assert!(advice.contains("on average"), "{advice}");
        assert!(
            plan["uncertainty"]
                .as_str()
                .is_some_and(|u| u.contains("95 %")),
            "{plan}"
        );
    }
}

/// Purchase, electricity, worn flash and growth, calculated here a second time.
#[test]
fn money_follows_from_prices_and_growth() {
    let place = Place::new();
    let plan = |more: &str| {
        let call = format!(
            "plan {} --limit 5000 --fast-size 5% --data 40TB --price-fast 200 --price-slow 360 --electricity 0.2 {more}",
            trace(TRACES[0])
        );
        place.json(&call, "plan")
    };
    let near = |a: f64, b: f64| assert!((a / b - 1.0).abs() < 1e-6, "{a} {b}");
    let (p, grown) = (plan(""), plan("--growth 20%/y --years 4"));
    for (p, larger, years) in [(&p, 1.0, 5.0), (&grown, 1.2_f64.powi(4), 4.0)] {
        let drives =
            |bytes: f64, d: &str| (bytes * larger / number(&p[d], "capacity_bytes")).ceil();
        for row in p["rows"].as_array().expect("rows") {
            let disk = if row["kind"] == "flash-alone" {
                0.0
            } else {
                40e12
            };
            let flash = 200.0 * drives(number(row, "flash_bytes"), "fast");
            let money = &row["money"];
            let purchase = flash + 360.0 * drives(disk, "slow");
            near(number(money, "purchase_usd"), purchase);
            let hours = years * 365.25 * 24.0;
            let energy = number(row, "power_w") * hours / 1000.0 * 0.2;
            near(number(money, "energy_usd"), energy);
            let life = row["flash_life_years"].as_f64().unwrap_or(f64::INFINITY);
            let again = ((years / life).ceil() - 1.0).max(0.0) * flash;
            near(1.0 + number(money, "replacement_usd"), 1.0 + again);
            near(number(money, "total_usd"), purchase + energy + again);
        }
    }
    // 40 TB are 3 disks of 18 TB, and with growth 5; or 42 flash drives, each with its idle power of 1.3 W.
    let disks = |p: &Value| p["rows"][0]["disk_drives"].as_u64();
    assert_eq!((disks(&p), disks(&grown)), (Some(3), Some(5)));
    let flash = &p["rows"][2];
    assert_eq!(flash["flash_drives"].as_u64(), Some(42));
    assert!((54.0..60.0).contains(&number(flash, "power_w")), "{flash}");
    assert!(p["rows"][0]["flash_life_years"].is_null());
    assert!(number(&p["rows"][1], "flash_life_years") > 0.0);
}

#[test]
fn the_page_draws_no_money_without_prices() {
    let place = Place::new();
    let page = |more: &str| {
        place.ok(&format!(
            "plan {} --limit 3000 --fast-size 5%,10% --html p.html {more}",
            trace(TRACES[0])
        ));
        std::fs::read_to_string(place.path("p.html")).expect("written")
    };
    let priced = page("");
    for text in ["Cost of 5 years", "2024", "Electricity", "Uncertainty"] {
        assert!(priced.contains(text), "{text}");
    }
    let free = page("--fast intel-x25e-32 --slow wd5000aaks");
    for text in ["Cost of", "Electricity</th>", "Purchase"] {
        assert!(!free.contains(text), "{text}");
    }
    assert!(free.contains("money is left out"), "says so");
}

#[test]
fn wrong_questions_are_named() {
    let place = Place::new();
    let t = trace(TRACES[0]);
    // References without times span nothing.
    std::fs::write(
        place.path("refs.csv"),
        "time_ns,device,op,offset,length\n0,0,R,0,4096\n0,0,W,65536,4096\n",
    )
    .expect("written");
    for (call, code, word) in [
        (format!("plan {t} --growth much"), 2, "20%/y"),
        (format!("plan {t} --years 50"), 2, "years"),
        (format!("plan {t} --fast nvme-tl"), 2, "nvme-tlc"),
        ("plan refs.csv".to_owned(), 1, "times"),
    ] {
        let out = place.run(&call);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{call}: {stderr}");
        assert!(stderr.contains(word), "{call}: {stderr}");
    }
}
