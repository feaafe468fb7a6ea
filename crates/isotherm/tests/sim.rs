//! `isotherm sim` as users call it.

mod common;

use common::Place;

const TRACE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../fixtures/windows-shared-server.load.zst"
);

fn sim(place: &Place, rest: &str) -> serde_json::Value {
    place.json(&format!("sim {TRACE} --fast-size 10% {rest}"), "sim")
}

#[test]
fn every_key_is_there_and_runs_repeat() {
    let place = Place::new();
    let call = "--policy greendm --depth 4 --time-bins 20 --address-bins 16 --host-power 30";
    let (a, b) = (sim(&place, call), sim(&place, call));
    assert_eq!(a["digest"], b["digest"]);
    let series = a["series"]["requests"].as_array().expect("bins");
    let sum: u64 = series.iter().filter_map(serde_json::Value::as_u64).sum();
    assert_eq!(Some(sum), a["requests"].as_u64());
    assert!(a["energy_j"].as_f64() > a["usage"]["host_j"].as_f64());
    let deeper = sim(&place, "--policy greendm --depth 5");
    assert_ne!(a["digest"], deeper["digest"]);
}

#[test]
fn tiers_by_preset_and_the_trace_s_clock() {
    let place = Place::new();
    let call = format!(
        "sim {TRACE} --policy greendm --tier nvme-tlc:2% --tier intel-320-300:10% --tier exos-18tb --time trace --accelerate 100 --standby 0,0,5 --warm-up 100"
    );
    let r = place.json(&call, "sim");
    let members = r["usage"]["members"].as_object().expect("members");
    assert_eq!(members.len(), 3);
    assert_eq!(members["tier2"]["preset"], "exos-18tb");
    assert!(r["wear_eu"]["tier0"].as_f64() > Some(0.0));
}

#[test]
fn volumes_side_by_side_touch_what_each_touches() {
    let place = Place::new();
    let one = sim(&place, "--policy linear --hit-only");
    let call = format!("sim {TRACE} {TRACE} --side-by-side --policy greendm --fast-size 10%");
    let two = place.json(&call, "sim");
    assert_eq!(
        two["touched_extents"].as_u64(),
        one["touched_extents"].as_u64().map(|n| 2 * n)
    );
    assert_eq!(
        two["accesses"].as_u64(),
        one["accesses"].as_u64().map(|n| 2 * n)
    );
}

#[test]
fn a_drive_that_is_too_small_is_refused_by_name() {
    let place = Place::new();
    let call = format!("sim {TRACE} --policy greendm --fast ocz-40 --fast-size 100G");
    let said = place.fails(&call);
    assert!(
        said.contains("ocz-40") && said.contains("larger device"),
        "{said}"
    );
}
