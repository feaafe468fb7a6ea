//! `cost` and `devices validate`: figures, schemas and wrong calls.

mod common;

use common::{Place, fits};
use serde_json::Value;

fn near(got: &Value, want: f64) {
    let got = got.as_f64().expect("a number");
    assert!(
        (got - want).abs() < 1e-6 * want.max(1.0),
        "{got} instead of {want}"
    );
}

#[test]
fn the_worked_example_costs_what_its_formulas_say() {
    let place = Place::new();
    let v = place.json("cost --example greendm-7.2", "cost");
    near(&v["costs"][0]["total_usd"], 122.5082);
    near(&v["costs"][1]["total_usd"], 719.30);
    near(&v["costs"][1]["time_factor"], 100.0);
    let text = place.ok("cost --example greendm-7.2");
    for needle in [
        "122.5082", "719.3000", "122.4219", "710.67", "14.0800", "0.7282",
    ] {
        assert!(text.contains(needle), "{needle}: {text}");
    }
}

#[test]
fn the_same_example_from_options() {
    let place = Place::new();
    let call = "cost --device ssd=intel-320-300:1 --device hdd=st32000641as --used-gb ssd=8 --used-gb hdd=24 \
                --written-gb ssd=365 --start-stops hdd=10 --power-w 100 --hours 80 --service 100 --cents \
                --time-factor 1,10,100";
    let v = place.json(call, "cost");
    near(&v["costs"][0]["total_usd"], 122.5082);
    near(&v["costs"][2]["total_usd"], 719.30);
    near(&v["energy_j"], 8.0 * 3.6e6);
    // Four devices cost four times as much as one, and each of them wears.
    let four = place.json(
        "cost --device hdd=st32000641as:4 --start-stops hdd=300 --energy-j 3.6e6 --hours 1",
        "cost",
    );
    near(&four["costs"][0]["purchase_usd"], 800.0);
    near(&four["costs"][0]["wear_usd"], 0.8);
    assert_eq!(four["costs"][0]["members"][3]["name"], "hdd4");
}

#[test]
fn a_tariff_of_ones_own() {
    let place = Place::new();
    let toml = "name = 'flat'\ndescription = 'one price'\n[[period]]\nname = 'all day'\nshare = 1.0\n\
                [[class]]\nenergy_usd_per_kwh = [0.5]\npower_usd_per_kw = [10.0]\n";
    std::fs::write(place.path("flat.toml"), toml).expect("written");
    let v = place.json(
        "cost --device ssd=nvme-tlc --energy-j 7.2e6 --power-w 2000 --tariff flat.toml",
        "cost",
    );
    near(&v["costs"][0]["energy_usd"], 1.0);
    near(&v["costs"][0]["power_usd"], 20.0);
    near(&v["elapsed_s"], 3600.0);
}

#[test]
fn figures_4_4_and_2_1() {
    let place = Place::new();
    let v = place.json("cost shelves", "cost-shelves");
    let systems = v["systems"].as_array().expect("a list");
    let spun = |c: &str, s: &str| {
        let of = systems
            .iter()
            .find(|x| x["controller"] == c && x["shelf"] == s);
        of.expect("listed")["shelves_spun_down"].as_u64()
    };
    assert_eq!(
        (spun("dd860", "es30"), spun("dd990", "es20")),
        (Some(13), Some(19))
    );
    let half = |x: &&Value| x["most_saved_spun_down"].as_f64() > Some(0.5);
    assert_eq!(systems.iter().filter(half).count(), 2);
    assert!(place.ok("cost shelves").contains("dd860+es30"));
    let v = place.json("cost capacity", "cost-capacity");
    near(&v[0]["difference_usd_per_tb"], 51.2);
}

#[test]
fn models_are_tried_against_published_figures() {
    let place = Place::new();
    let v = place.json("devices validate wd5000aaks smr-8tb", "devices-validate");
    let figures = v["figures"].as_array().expect("a list");
    assert!(figures.len() >= 6 && v["wrong"] == 0, "{v:#}");
    assert!(figures.iter().all(|f| f["holds"] == true));
    let text = place.ok("devices validate wd5000aaks");
    assert!(
        text.contains("Loris, Table I") && text.contains("112.0"),
        "{text}"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn wrong_calls() {
    let place = Place::new();
    std::fs::write(place.path("bad.toml"), "name = 'x'\n").expect("written");
    let enough = "--energy-j 1 --hours 1";
    for (call, code, needle) in [
        ("cost".to_owned(), 2, "--device"),
        ("cost --device ssd".to_owned(), 2, "NAME=PRESET"),
        ("cost --device ssd=nvme-tlc:0".to_owned(), 2, "NAME=PRESET"),
        ("cost --device ssd=nvme-tlc".to_owned(), 2, "two of"),
        (
            "cost --device s=nvme-tlc --energy-j 1 --hours 1 --power-w 1".to_owned(),
            2,
            "two of",
        ),
        (
            "cost --device s=nvme-tlc --energy-j 1 --power-w 0".to_owned(),
            2,
            "above 0",
        ),
        (
            "cost --device s=nvme-tlc --energy-j=-1".to_owned(),
            2,
            "--energy-j",
        ),
        (format!("cost --device s=nvme-tl {enough}"), 2, "nvme-tlc"),
        (
            format!("cost --device s=maxtor-250 {enough}"),
            2,
            "--price s=USD",
        ),
        (
            format!("cost --device s=remote {enough}"),
            2,
            "--used-gb s=GB",
        ),
        (
            format!("cost --device s=nvme-tlc --price t=1 {enough}"),
            2,
            "`t`",
        ),
        (
            format!("cost --device s=nvme-tlc --used-gb s=9999 {enough}"),
            2,
            "only",
        ),
        (
            format!("cost --device s=nvme-tlc --start-stops s=1 {enough}"),
            2,
            "--wear-eu",
        ),
        (
            format!("cost --device s=nvme-tlc --tariff lipa {enough}"),
            2,
            "lipa-2013",
        ),
        (
            format!("cost --device s=nvme-tlc --tariff no.toml {enough}"),
            1,
            "no.toml",
        ),
        (
            format!("cost --device s=nvme-tlc --tariff bad.toml {enough}"),
            1,
            "bad.toml",
        ),
        (
            format!("cost --device s=nvme-tlc --time-factor 0 {enough}"),
            2,
            "time-factor",
        ),
        (
            "cost --example greendm-7.2 --hours 1".to_owned(),
            2,
            "cannot be used",
        ),
        ("cost capacity --ratio 0.5".to_owned(), 2, "from 1 on"),
        ("devices validate wd5000aak".to_owned(), 2, "wd5000aaks"),
        ("devices --json validate".to_owned(), 2, "--json"),
    ] {
        let out = place.run(&call);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(
            out.status.code() == Some(code)
                && stderr.lines().count() == 1
                && stderr.contains(needle),
            "`{call}`: {:?} {stderr} (wanted {code}, {needle})",
            out.status.code()
        );
    }
    // The JSON goes to a file.
    place.ok("cost shelves --json=shelves.json");
    let text = std::fs::read_to_string(place.path("shelves.json")).expect("read");
    fits(&serde_json::from_str(&text).expect("JSON"), "cost-shelves");
}

/// A file, which is possible on every machine; without --destructive its bytes must not change.
#[test]
fn a_device_is_measured_and_its_sheet_stands_for_a_preset() {
    let place = Place::new();
    let data: Vec<u8> = (0..32u32 << 20).map(|i| (i / 4096 % 251) as u8).collect();
    std::fs::write(place.path("disk.img"), &data).expect("written");
    let v = place.json(
        "devices measure disk.img --seconds 0.6 --out mine.toml",
        "devices-measure",
    );
    assert_eq!(v["bytes"], 32 << 20);
    let figures = v["figures"].as_array().expect("figures");
    assert!(
        figures.iter().all(|f| f["measured"].as_f64() > Some(0.0)),
        "{v:#}"
    );
    assert!(
        std::fs::read(place.path("disk.img")).expect("read") == data,
        "only read"
    );
    let sheet = std::fs::read_to_string(place.path("mine.toml")).expect("a sheet");
    assert!(
        sheet.contains("# residual of") && sheet.contains("fitted = true"),
        "{sheet}"
    );
    let out = place.run("devices validate mine.toml --json");
    let v: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(v["independent"], 0, "what was fitted does not count");
    place.ok("devices measure disk.img --seconds 0.6 --destructive --out mine.toml");
    assert!(
        std::fs::read(place.path("disk.img")).expect("read") != data,
        "written"
    );
    // A member of a volume holds others' data as well.
    place.ok("create v --slow member:64M --policy linear");
    let before = std::fs::read(place.path("member")).expect("read");
    let out = place.run("devices measure member --seconds 0.6 --destructive");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("a member of a volume (`v`)"));
    assert!(
        std::fs::read(place.path("member")).expect("read") == before,
        "untouched"
    );
    let out = place.run("devices measure none.img");
    assert_ne!(out.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&out.stderr).contains("none.img"));
}
