//! `isotherm sim` from the command line.

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
fn a_volume_lies_where_it_is_told_to() {
    let place = Place::new();
    let seconds = |v: &serde_json::Value| v["elapsed_s"].as_f64().expect("seconds");
    let sim = |span: &str| {
        let call = format!("sim gen:uniform,requests=400 --policy linear --fast-size 10% {span}");
        place.json(&call, "sim")
    };
    let (spread, packed) = (sim(""), sim("--span 0"));
    assert_eq!(spread["usage"]["members"]["slow"]["span"], "full");
    assert_eq!(packed["usage"]["members"]["slow"]["span"], "0");
    // Random reads of 1 GB: if the data is not spread over the whole drive, the arm is faster.
    assert!(seconds(&packed) < seconds(&spread));
}

#[test]
fn clients_take_the_time_that_they_are_given() {
    let place = Place::new();
    let seconds = |client: &str, depth: u32| {
        let trace = "gen:uniform,requests=500,span=64M";
        let call = format!("sim {trace} --policy linear --tier nvme-tlc --depth {depth} {client}");
        place.json(&call, "sim")["elapsed_s"]
            .as_f64()
            .expect("seconds")
    };
    // 499 pauses of a single client, and a fourth of them for each of four.
    let one = seconds("--client-us 1000", 1) - seconds("", 1);
    assert!((one - 0.499).abs() < 0.01, "{one}");
    let four = seconds("--client-us 1000", 4) - seconds("", 4);
    assert!((four - 0.125).abs() < 0.01, "{four}");
    let out = place.run(&format!(
        "sim {TRACE} --fast-size 10% --time trace --client-us 5"
    ));
    let refused = String::from_utf8_lossy(&out.stderr);
    assert!(refused.contains("closed loop"), "{refused}");
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn samples_estimate_hits_by_size_and_state_their_error() {
    let place = Place::new();
    let trace = "gen:zipf,requests=100000,span=512M";
    let call = format!("sim {trace} --policy lru --fast-size 5%,20% --hit-only --sample 0.1");
    let text = place.ok(&call);
    assert!(text.contains("+-95%"), "{text}");
    let all: serde_json::Value =
        serde_json::from_str(&place.ok(&format!("{call} --json"))).expect("JSON");
    let runs = all.as_array().expect("a run a size");
    assert_eq!(runs.len(), 2);
    for run in runs {
        assert_eq!(run["requests"].as_u64(), Some(100_000));
        assert!(
            run["sample"]["fast_hit_ratio_error"].as_f64() < Some(0.05),
            "{}",
            run["sample"]
        );
    }
    assert!(runs[0]["fast_hit_ratio"].as_f64() < runs[1]["fast_hit_ratio"].as_f64());
    let wrong = place.run(&format!(
        "sim {trace} --policy lru --fast-size 5% --sample 0.1"
    ));
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("--hit-only"));
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

/// Runs a command whose standard input is a pipe with these bytes.
fn piped(place: &Place, call: &str, bytes: &'static [u8]) -> std::process::Output {
    use std::io::Write;
    use std::process::Stdio;
    let mut command = place.command(call);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut input = child.stdin.take().expect("a pipe");
    let writer = std::thread::spawn(move || {
        // The program may end before it has read everything.
        let _ = input.write_all(bytes);
    });
    let out = child.wait_with_output().expect("it ends");
    writer.join().expect("written");
    out
}

#[test]
fn a_trace_may_come_through_a_pipe() {
    let place = Place::new();
    // A format whose unit of time is found in a first pass over the whole file, and more than one buffer of it.
    let line = |i: u64| format!("{} 0 {} 8 1\n", i * 7_001_000, i % 3_000 * 8);
    let lines: String = (0..120_000).map(line).collect();
    std::fs::write(place.path("t"), &lines).expect("written");
    let bytes: &'static [u8] = lines.leak().as_bytes();
    let rest = "--policy lru --fast-size 10% --hit-only --json";
    let digest = |text: &[u8]| -> serde_json::Value {
        let v: serde_json::Value = serde_json::from_slice(text).expect("JSON");
        assert_eq!(v["requests"], 120_000);
        v["digest"].clone()
    };
    let of_file = digest(place.ok(&format!("sim t {rest}")).as_bytes());
    for name in ["-", "/dev/stdin"] {
        let out = piped(&place, &format!("sim {name} {rest}"), bytes);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.status.success() && said.contains("a pipe"), "{said}");
        assert_eq!(digest(&out.stdout), of_file);
    }
    let out = piped(&place, "trace info - --json", bytes);
    let info: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(info["requests"], 120_000);
    let duration = info["duration_s"].as_f64().expect("a time");
    assert!(
        (duration - 119_999.0 * 0.007_001).abs() < 1e-6,
        "{duration}"
    );
}

#[test]
fn a_trace_that_no_device_could_follow_is_doubted_before_the_run() {
    let place = Place::new();
    let line = |i: u64| format!("{i}00000 0 8 8 1\n");
    let lines: String = (0..500).rev().map(line).collect();
    std::fs::write(place.path("t"), lines).expect("written");
    let out = place.run("sim t --policy lru --fast-size 10% --time trace");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    assert!(
        said.contains("WARNING: t: in the first 500 requests: 499 of 500 times"),
        "{said}"
    );
    // So is a size whose unit was forgotten.
    for (size, noted) in [("10", true), ("10%", false), ("8K", false)] {
        let out = place.run(&format!("sim t --policy lru --hit-only --fast-size {size}"));
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(
            said.contains("NOTE: --fast-size 10 is 10 bytes"),
            noted,
            "{said}"
        );
    }
    let text = place.ok("trace info t");
    assert!(
        text.lines()
            .any(|l| l.split_whitespace().eq(["time_went_back", "499"])),
        "{text}"
    );
    // The suggestion for --columns can be typed as it is printed, also if it begins with a dash.
    let own = "a;17;read;4096;512\nb;18;write;8192;512\n";
    std::fs::write(place.path("own"), own).expect("written");
    let said = place.fails("trace info own");
    let columns = "-,time,op,offset_bytes,length_bytes";
    assert!(said.contains(&format!("--columns {columns}")), "{said}");
    place.ok(&format!("trace info own --columns {columns}"));
}
