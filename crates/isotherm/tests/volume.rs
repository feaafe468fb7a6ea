//! A volume from creation to its end, with common protocol tools.

mod common;

use std::os::unix::fs::{FileExt, PermissionsExt};

use common::nbd::{copy_in, holds, noise};
use common::{Place, fits};
use serde_json::{Value, json};

fn create(place: &Place) -> Value {
    place.json(
        "create v --fast f:32M --slow s:128M --policy greendm,PT=2",
        "create",
    )
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn a_life_over_nbd() {
    let place = Place::new();
    let made = create(&place);
    assert_eq!(place.json("status v", "status")["state"], json!("stopped"));
    let served = place.serve("v --nbd unix:n");
    assert_eq!(
        std::fs::metadata(place.path("v.sock"))
            .expect("there")
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    // More data than the fast tier holds, so that homes are on both tiers and moves happen.
    let data = noise(1, 60 << 20);
    copy_in(&place, &data);
    holds(&place, &data);
    let status = place.json("status v", "status");
    assert_eq!(
        (&status["state"], &status["volume_bytes"]),
        (&json!("serving"), &made["volume_bytes"])
    );
    let stats = place.json("stats v", "stats");
    assert_eq!(stats["bytes_written"], json!(data.len()));
    assert!(
        stats["fast_hit_ratio"]
            .as_f64()
            .is_some_and(|r| r > 0.0 && r < 1.0),
        "{}",
        stats["fast_hit_ratio"]
    );
    assert!(stats["demotions"].as_u64() > Some(0));
    let why = place.json("why v 1M", "why");
    assert_eq!((&why["extent"], &why["mapped"]), (&json!(16), &json!(true)));
    assert!(place.fails("why v 1T").contains("beyond the volume"));
    assert!(place.fails("check v").contains("being served"));
    assert!(place.fails("serve v --nbd unix:m").contains("in use"));
    let set = place.json("set v PT=5 move_bytes_per_s=1G", "set");
    assert_eq!(set["params"]["PT"], json!(5.0));
    let budgets = "set v wear_bytes_per_day=100G wear_burst_h=6 sleep_hold_s=600 sleep_hold_bytes=8M moves_max=4";
    let set = place.json(budgets, "set");
    assert_eq!(
        set["params"]["wear_bytes_per_day"],
        json!((100u64 << 30) as f64)
    );
    assert!(place.fails("set v wear_burst_h=0").contains("hours"));
    assert_eq!(
        place.json("stats v", "stats")["wear_budget"]["burst_bytes"],
        json!((100u64 << 30) / 4)
    );
    assert!(place.fails("set v PT=6 PTT=1").contains("nearest: `PT`"));
    assert_eq!(
        place.json("status v", "status")["params"]["PT"],
        json!(5.0),
        "all or none"
    );
    let stopped = place.json("stop v", "stop");
    assert_eq!(stopped["state"], json!("stopped"));
    let (code, stderr) = served.end();
    assert!(code == Some(0) && !stderr.contains("recovered"), "{stderr}");
    let check = place.json("check v", "check");
    assert_eq!(
        (&check["ok"], &check["was_clean"]),
        (&json!(true), &json!(true))
    );
    let served = place.serve("v --nbd unix:n");
    holds(&place, &data);
    let params = place.json("status v", "status")["params"].clone();
    for (key, value) in [
        ("PT", 5.0),
        ("wear_bytes_per_day", (100u64 << 30) as f64),
        ("wear_burst_h", 6.0),
        ("sleep_hold_s", 600.0),
        ("sleep_hold_bytes", f64::from(8 << 20)),
        ("moves_max", 4.0),
    ] {
        assert_eq!(params[key], json!(value), "{key} is kept");
    }
    assert_eq!(served.terminate(), Some(0));
    assert!(!place.path("v.sock").exists() && !place.path("n").exists());
}

#[test]
fn what_was_flushed_survives_a_kill() {
    let place = Place::new();
    create(&place);
    for round in 1..4 {
        let served = place.serve("v --nbd unix:n");
        let data = noise(round, 48 << 20);
        copy_in(&place, &data);
        served.kill();
        // Recovery starts at once, although a dead control socket and a dead NBD socket exist.
        let again = place.serve("v --nbd unix:n");
        holds(&place, &data);
        assert_eq!(
            place.json("status v", "status")["recovery"]["was_clean"],
            json!(false)
        );
        place.ok("stop v");
        let (code, stderr) = again.end();
        assert_eq!(code, Some(0));
        assert!(stderr.contains("recovered"), "{stderr}");
        assert_eq!(place.json("check v", "check")["ok"], json!(true));
    }
}

#[test]
fn requests_are_recorded_as_a_trace() {
    let place = Place::new();
    create(&place);
    let _served = place.serve("v --nbd unix:n");
    let recorder = place
        .command("record v --out t.parquet --json")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn();
    let mut recorder = recorder.expect("starts");
    let mut words = std::io::BufReader::new(recorder.stderr.take().expect("a pipe"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut words, &mut line).expect("says that it records");
    assert!(line.contains("recording"), "{line}");
    let second = place.fails("record v --out u.parquet --seconds 1");
    assert!(second.contains("recorded already"), "{second}");
    copy_in(&place, &noise(9, 8 << 20));
    place.ok("stop v");
    let out = recorder.wait_with_output().expect("ends");
    assert!(out.status.success());
    let result: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    fits(&result, "record");
    let info = place.json("trace info t.parquet", "trace-info");
    assert_eq!(
        (&info["bytes_written"], &info["requests"]),
        (&json!(8 << 20), &result["requests"])
    );
    assert!(info["flushes"].as_u64() > Some(0) && info["latency_mean_s"].as_f64() > Some(0.0));
    let sim = place.json(
        "sim t.parquet --policy greendm --fast-size 10% --extent 64K --hit-only",
        "sim",
    );
    assert!(
        sim["accesses"].as_u64() >= Some(128),
        "8 MiB are 128 extents: {sim}"
    );
    assert!(!place.path("u.parquet").exists());
}

#[test]
fn damage_is_found_and_a_lost_description_rebuilt() {
    let place = Place::new();
    create(&place);
    place.json("check v", "check");
    let found = place.json("find s f", "find");
    assert_eq!(found[0]["description"]["policy"], json!("greendm,PT=2"));
    let toml = place.ok("find f s");
    std::fs::write(place.path("v.toml"), toml).expect("written");
    assert_eq!(place.json("check v", "check")["ok"], json!(true));
    // Both superblocks, and a checkpoint's header on each side: damage to any of them must be reported.
    for (file, at) in [("f", 100), ("s", 100)] {
        let f = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(place.path(file))
            .expect("opened");
        let mut byte = [0];
        f.read_exact_at(&mut byte, at).expect("read");
        f.write_all_at(&[byte[0] ^ 0x40], at).expect("written");
        let out = place.run("check v --json");
        assert_eq!(out.status.code(), Some(1), "{file} {at}");
        let answer: Value = serde_json::from_slice(&out.stdout).expect("JSON");
        fits(&answer, "check");
        assert!(
            answer["findings"][0]
                .as_str()
                .is_some_and(|t| t.contains("superblock")),
            "{answer}"
        );
        f.write_all_at(&byte, at).expect("written");
    }
    // Superblock and counter on one side, the checkpoint's header on the other: the damage must be repaired and reported, and none may be
    // left.
    for (file, at) in [("f", 100), ("f", 8192 + 50), ("s", 12_288 + 50)] {
        let f = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(place.path(file))
            .expect("opened");
        let mut byte = [0];
        f.read_exact_at(&mut byte, at).expect("read");
        f.write_all_at(&[byte[0] ^ 0x40], at).expect("written");
    }
    let before = place.run("check v --json");
    assert_eq!(before.status.code(), Some(1));
    let answer = place.json("check v --repair", "check");
    let mended = answer["mended"].as_array().expect("a list");
    assert_eq!((&answer["ok"], mended.len()), (&json!(true), 3), "{answer}");
    let again = place.json("check v", "check");
    assert_eq!((&again["ok"], &again["mended"]), (&json!(true), &json!([])));
    assert!(
        place
            .fails("create w --slow s")
            .contains("belongs to a volume already")
    );
}

#[test]
fn a_block_file_of_a_one_tier_volume() {
    if !std::path::Path::new("/dev/fuse").exists() {
        eprintln!("no /dev/fuse here: not tested");
        return;
    }
    let place = Place::new();
    place.ok("create v --slow s:64M --policy linear");
    std::fs::create_dir(place.path("mnt")).expect("made");
    let served = place.serve("v --block-file mnt");
    let file = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(place.path("mnt/v"))
        .expect("opened");
    let data = noise(3, 1 << 20);
    file.write_all_at(&data, 12345).expect("written");
    file.sync_all().expect("flushed");
    let mut back = vec![0; data.len()];
    file.read_exact_at(&mut back, 12345).expect("read");
    assert!(back == data);
    assert!(
        place.fails("stop v").contains("mnt/v"),
        "a file in use is not taken away by `stop`"
    );
    drop(file);
    // After a kill, a dead mount is left, which the next server removes.
    served.kill();
    let served = place.serve("v --block-file mnt");
    let file = std::fs::File::open(place.path("mnt/v")).expect("opened");
    file.read_exact_at(&mut back, 12345).expect("read");
    assert!(back == data);
    drop(file);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
}

#[test]
fn lists_fit_their_schemas() {
    let place = Place::new();
    for list in ["policies", "devices", "formats"] {
        place.json(list, list);
    }
    place.json("trace generators", "trace-generators");
    let text = place.ok("policies");
    assert!(text.lines().all(|l| l.chars().count() <= 100), "{text}");
    let one = place.ok("policies greendm");
    assert!(one.contains("MCML") && one.contains("source"), "{one}");
    assert!(one.lines().all(|l| l.chars().count() <= 100), "{one}");
    assert_eq!(
        place.json("policies greendm", "policies")[0]["name"],
        "greendm"
    );
}

/// A volume that is only read has no moves and no policy at work: nothing is set, neither now nor in the description.
#[test]
fn a_read_only_volume_takes_no_settings() {
    let place = Place::new();
    create(&place);
    let before = std::fs::read(place.path("v.toml")).expect("read");
    let served = place.serve("v --nbd unix:n --read-only");
    for set in [
        "PT=5",
        "moves_max=4",
        "policy=lru",
        "write-mode=write-around",
    ] {
        let why = place.fails(&format!("set v {set}"));
        assert!(why.contains("served read-only"), "{set}: {why}");
    }
    assert_eq!(served.terminate(), Some(0));
    assert!(std::fs::read(place.path("v.toml")).expect("read") == before);
    let served = place.serve("v --nbd unix:n");
    place.ok("set v PT=5");
    assert_eq!(served.terminate(), Some(0));
}
