//! The classes of a served volume: registered ranges, and ext4 on the block file, mounted and busy, whose classes must be those of a fresh
//! examination of the whole volume.

mod common;
mod proof;

use isotherm_classify::classes::{self, Source};
use isotherm_classify::layout::Layout;
use isotherm_classify::{Layers, Watch};
use proof::{Loop, Mounted, Place, Shape, able, output, run};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

fn json(place: &Place, call: &str) -> Value {
    let out = output(&mut place.isotherm(call));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{call}: {err}");
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn fails(place: &Place, call: &str) -> String {
    let out = output(&mut place.isotherm(call));
    assert!(!out.status.success(), "{call} succeeded");
    String::from_utf8(out.stderr).expect("text")
}

/// The class of each 4 KiB of a served volume of `bytes` bytes.
fn live(place: &Place, bytes: u64) -> Vec<u8> {
    let file = place.path("ranges.json");
    let call = format!("classes export v {}", file.display());
    assert!(output(&mut place.isotherm(&call)).status.success());
    let text = std::fs::read_to_string(&file).expect("written");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let mut out = vec![0; (bytes >> 12) as usize];
    for r in all["ranges"].as_array().expect("a list") {
        let from = r["offset"].as_u64().unwrap() >> 12;
        let n = r["bytes"].as_u64().unwrap() >> 12;
        let class = classes::parse(r["class"].as_str().unwrap()).expect("a class");
        out[from as usize..(from + n) as usize].fill(class);
    }
    out
}

/// The same from a fresh examination through the block file.
fn fresh(device: &str, bytes: u64) -> Vec<u8> {
    let mut file = std::fs::File::open(device).expect("opens");
    let mut layers = Layers::new(bytes);
    let mut layout = Layout::default();
    layout.read(&mut file, &mut layers, &Watch::default());
    assert_eq!(layout.trouble, None);
    while !layers.is_settled() {
        layers.settle(1 << 20);
    }
    let map = layers.shared();
    assert_eq!(layers.class_at(Source::Layout, 0), classes::SUPERBLOCK);
    (0..bytes >> 12).map(|b| map.block(b).class()).collect()
}

/// Writes 4 KiB to the block file, and flushes.
fn write_block(file: impl AsRef<std::path::Path>, at: u64) {
    use std::os::unix::fs::FileExt;
    let f = std::fs::File::options().write(true).open(file);
    let f = f.expect("opens");
    f.write_all_at(&[1; 4096], at).expect("written");
    f.sync_all().expect("flushed");
}

/// Waits for a limited time until the classes of the served volume are `theirs`, and returns the share of blocks that have the same.
fn equal_in_the_end(place: &Place, theirs: &[u8]) -> f64 {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let equal = share_equal(&live(place, (theirs.len() as u64) << 12), theirs);
        if equal >= 0.999 || Instant::now() > until {
            return equal;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits until the layout of a new file system was examined.
fn examined(place: &Place) {
    let until = Instant::now() + Duration::from_secs(60);
    while live(place, 256 << 20)[..2] != [1, 2] {
        assert!(Instant::now() < until, "the layout is not looked at");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Creates and removes files of many sizes.
fn churn(dir: &Path, round: u64) {
    let mut random = isotherm_core::random::SplitMix64::new(round);
    for i in 0..400u64 {
        let x = random.draw();
        let at = dir.join(format!("d{}", x >> 60));
        std::fs::create_dir_all(&at).expect("made");
        let path = at.join(format!("f{}", (x >> 33) % 300));
        if x >> 62 == 0 {
            // Most of the earlier files are removed.
            let _ = std::fs::remove_file(&path);
        } else {
            let size = [800, 9000, 60_000, 400_000][(i % 4) as usize] * ((x >> 40) % 16) / 16;
            std::fs::write(&path, vec![round as u8; size as usize]).expect("written");
        }
    }
}

fn share_equal(a: &[u8], b: &[u8]) -> f64 {
    let same = a.iter().zip(b).filter(|(a, b)| a == b).count();
    same as f64 / a.len() as f64
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn ranges_are_registered_switched_and_counted() {
    if !able(&["fusermount3"], false) {
        return;
    }
    let mut place = Place::new(&Shape {
        policy: "dss-lru-s",
        ..Shape::default()
    });
    let file = place.serve_file();
    let write = |at: u64| write_block(&file, at);
    let show = json(
        &place,
        "classes set v bytes/1M-2M=db-index bytes/2M-3M=40 --json",
    );
    assert_eq!(show["by_class"]["25"]["volume_bytes"], 1 << 20);
    for at in [1 << 20, (1 << 20) + 4096, 2 << 20, 5 << 20] {
        write(at);
    }
    let show = json(&place, "classes show v --json");
    let requests = |show: &Value, c: &str| show["by_class"][c]["requests"].as_u64();
    assert_eq!(
        (requests(&show, "25"), requests(&show, "40")),
        (Some(2), Some(1))
    );
    assert_eq!(show["by_class"]["25"]["bytes_written"], 8192);
    assert_eq!(show["by_class"]["25"]["fast_bytes"], 8192);
    let source = |show: &Value, name: &str| {
        let all = show["sources"].as_array().expect("a list").clone();
        all.into_iter()
            .find(|s| s["source"] == name)
            .expect("listed")
    };
    assert_eq!(source(&show, "ranges")["requests"], 3);
    common::fits(&show, "classes");
    let stats = json(&place, "stats v --json");
    common::fits(&stats, "stats");
    assert_eq!(stats["by_class"]["25"]["requests"], 2);
    let status = json(&place, "status v --json");
    common::fits(&status, "status");
    assert_eq!(status["fast_bytes_by_class"]["db-index"], 8192);
    // A source that is off gives no classes, and stays off.
    json(&place, "classes set v ranges=off --json");
    write(1 << 20);
    assert_eq!(
        requests(&json(&place, "classes show v --json"), "25"),
        Some(2)
    );
    json(&place, "classes set v guess=on --json");
    place.stop();
    place.serve_file();
    assert_eq!(
        source(&json(&place, "classes show v --json"), "ranges")["on"],
        false
    );
    // Guesses stay on. Nobody knows anything about this write: it is taken for a file of 4 KiB.
    write(7 << 20);
    let show = json(&place, "classes show v --json");
    assert_eq!(requests(&show, "8"), Some(1));
    let guess = source(&show, "guess");
    assert_eq!(
        (&guess["on"], &guess["requests"]),
        (&true.into(), &1.into())
    );
    json(&place, "classes set v guess=off --json");
    let kept = json(&place, "classes show v --json");
    assert_eq!(kept["by_class"]["40"], Value::Null, "it is off");
    let kept = json(&place, "classes set v ranges=on --json");
    assert_eq!(kept["by_class"]["40"]["volume_bytes"], 1 << 20);
    json(&place, "classes set v bytes/1M-2M=7 --json");
    write(1 << 20);
    assert_eq!(
        requests(&json(&place, "classes show v --json"), "7"),
        Some(1)
    );
    // The class is in a trace, too. An invalid request changes nothing.
    assert!(fails(&place, "classes set v bytes/1M-900G=7").contains("beyond the volume"));
    assert!(fails(&place, "classes set v bytes/1M-2M=64").contains("0 to 63"));
    assert!(fails(&place, "classes set v nobody=off").contains("there are front-end"));
    std::fs::write(place.path("bad.json"), "{\"ranges\": [{\"offset\": 1}]}").expect("written");
    assert!(fails(&place, "classes import v bad.json").contains("missing field"));
    std::fs::write(
        place.path("good.json"),
        "{\"ranges\": [{\"offset\": 0, \"bytes\": 8192, \"class\": \"journal\"}]}",
    )
    .expect("written");
    json(&place, "classes import v good.json --json");
    let classes = live(&place, 256 << 20);
    assert_eq!(
        (&classes[..3], classes[256]),
        (&[7, 7, 0][..], 0),
        "it replaces what was said"
    );
    // One extent holds a block of the journal and one of no class; the block between them is not on flash.
    assert_eq!(json(&place, "status v --json")["mixed_fast_share"], 0.0);
    write(0);
    write(8192);
    let show = json(&place, "classes show v --json");
    common::fits(&show, "classes");
    assert_eq!(show["mixed_fast_extents"], 1);
    let share = 1.0 / show["fast_extents"].as_f64().expect("a number");
    assert_eq!(show["mixed_fast_share"].as_f64(), Some(share));
    let stats = json(&place, "stats v --json");
    assert_eq!(stats["mixed_fast_share"].as_f64(), Some(share));
    // Rows of the policy's table, given by hand and by a class file of Open CAS.
    let rows = |place: &Place| json(place, "classes show v --json")["rows"].clone();
    json(&place, "classes set v 1-7+pin 8+max=30 --json");
    json(&place, "classes set v 8+max=40 --json");
    assert_eq!(rows(&place), serde_json::json!(["1-7+pin", "8+max=40"]));
    assert!(fails(&place, "classes set v 8+max=400").contains("class"));
    std::fs::write(
        place.path("ioclass-config.csv"),
        "IO class id,IO class name,Eviction priority,Allocation\n0,unclassified,22,0.00\n1,metadata&done,0,1.00\n\
         5,lba:ge:2048&lba:lt:4096,3,0.50\n6,pid:eq:7,1,1.00\n",
    )
    .expect("written");
    let imported = json(&place, "classes import v ioclass-config.csv --json");
    assert_eq!(
        (
            imported["ranges"].as_u64(),
            imported["left_out"][0]["line"].as_u64()
        ),
        (Some(1), Some(5))
    );
    assert_eq!(rows(&place)[1], "35+priority=1+admit=always+max=50");
    assert_eq!(live(&place, 256 << 20)[256..258], [35, 35]);
    // The default policy takes the same rows.
    json(&place, "set v policy=benefit --json");
    assert_eq!(rows(&place), serde_json::json!([]));
    json(&place, "classes set v 1-7+pin 8+max=40 --json");
    assert_eq!(rows(&place), serde_json::json!(["1-7+pin", "8+max=40"]));
    let why = json(&place, "why v 0 --json")["why"].to_string();
    assert!(why.contains("its class"), "{why}");
    json(&place, "set v policy=lru --json");
    assert!(fails(&place, "classes set v 8+max=40").contains("has no table of classes"));
    place.stop();
    place.check();
}

/// The extent keeps its class, because a block that is not on flash is in a journal all the time. Another block, which is on flash, becomes
/// part of a journal and then of a film: the copy moves between the lists of `dss-lru-s` at once, without an access.
#[test]
fn a_block_on_flash_changes_its_class_without_an_access() {
    if !able(&["fusermount3"], false) {
        return;
    }
    let mut place = Place::new(&Shape {
        policy: "dss-lru-s",
        ..Shape::default()
    });
    let file = place.serve_file();
    let why = |place: &Place| {
        let why = json(place, "why v 8204K --json")["why"].clone();
        let why = why.as_str().expect("text").to_owned();
        why.split(';').next().expect("a part").to_owned()
    };
    json(
        &place,
        "classes set v bytes/8M-8196K=7 bytes/8196K-9M=14 --json",
    );
    write_block(&file, 8204 << 10);
    let film = why(&place);
    assert!(
        film.contains("a copy") && film.ends_with("priority 7"),
        "{film}"
    );
    for (class, priority) in [("7", 0), ("14", 7), ("9", 2), ("14", 7)] {
        json(
            &place,
            &format!("classes set v bytes/8204K-8208K={class} --json"),
        );
        let now = why(&place);
        assert!(
            now.ends_with(&format!("priority {priority}")),
            "{class}: {now}"
        );
    }
    place.stop();
    place.check();
}

#[test]
fn promises_are_shown_kept_for_the_next_start_and_taken_back() {
    let mut place = Place::new(&Shape {
        policy: "lru",
        ..Shape::default()
    });
    place.serve("--nbd unix:n");
    let none = json(&place, "status v --json");
    assert_eq!(none["qos"], serde_json::json!([]));
    let set = "classes set v 1-7+floor=5M+latency=20ms 13-18+ceiling=50M depth=8 --json";
    let show = json(&place, set);
    common::fits(&show, "classes");
    let rows = |v: &Value| -> Vec<String> {
        let all = v["qos"].as_array().expect("a list").iter();
        all.map(|r| r["row"].as_str().unwrap_or("rest").to_owned())
            .collect()
    };
    assert_eq!(
        rows(&show),
        ["1-7+floor=5M+latency=20ms", "13-18+ceiling=50M", "rest"]
    );
    assert_eq!(show["qos"][0]["floor_bytes_per_s"], 5 << 20);
    assert_eq!(show["qos"][0]["floor_held"], Value::Null);
    // A later value replaces an earlier one, and the other values stay.
    json(&place, "classes set v 3+share=400 --json");
    place.stop();
    place.serve("--nbd unix:n");
    let status = json(&place, "status v --json");
    common::fits(&status, "status");
    assert_eq!(
        rows(&status)[..3],
        [
            "1-2,4-7+floor=5M+latency=20ms",
            "13-18+ceiling=50M",
            "3+share=400"
        ]
    );
    let stats = json(&place, "stats v --json");
    common::fits(&stats, "stats");
    assert_eq!(rows(&stats).len(), 4);
    let toml = std::fs::read_to_string(place.path("v.toml")).expect("written");
    assert!(toml.contains("depth=8"), "{toml}");
    for (bad, why) in [
        ("8+floor=fast", "floor: "),
        ("8+floor=2M+ceiling=1M", "above the ceiling"),
        ("8+latency=20", "a time such as 20ms"),
        ("8+floor=1M+pin", "no promise is called `pin`"),
        ("depth=0", "1 to 4096"),
    ] {
        let error = fails(&place, &format!("classes set v {bad}"));
        assert!(error.contains(why), "{bad}: {error}");
    }
    let text = output(&mut place.isotherm("classes show v")).stdout;
    let text = String::from_utf8(text).expect("text");
    assert!(
        text.contains("qos 3+share=400: 0.00 MB/s, 0 at work, 0 held"),
        "{text}"
    );
    json(&place, "classes set v qos=none --json");
    assert_eq!(rows(&json(&place, "status v --json")), [] as [&str; 0]);
    place.stop();
    place.check();
}

#[test]
fn ext4_under_churn_has_the_classes_of_a_fresh_look() {
    if !able(&["mkfs.ext4", "losetup", "fsfreeze", "fusermount3"], true) {
        return;
    }
    let mut place = Place::new(&Shape {
        policy: "dss-lru-s",
        fast: "32M",
        slow: "256M",
        ..Shape::default()
    });
    let file = place.serve_file();
    let bytes = std::fs::metadata(&file).expect("there").len();
    let disk = Loop::over(&file);
    // A file system that is made while the volume is served must be noticed.
    run("mkfs.ext4", &["-q", "-F", "-b", "4096", &disk.0]);
    let mounted = Mounted::new(&disk.0, place.path("fs"));
    let dir = mounted.0.display().to_string();
    // On a fast machine all files would be written before the first examination of the layout.
    examined(&place);
    for round in 0..3 {
        churn(&mounted.0, round);
        run("sync", &["-f", &dir]);
    }
    // Freezing the file system writes the journal's contents to their places.
    run("fsfreeze", &["-f", &dir]);
    let theirs = fresh(&disk.0, bytes);
    let equal = equal_in_the_end(&place, &theirs);
    run("fsfreeze", &["-u", &dir]);
    println!("classes equal after churn: {:.3} %", equal * 100.0);
    assert!(equal >= 0.999, "{equal}");
    for c in [1, 2, 3, 4, 6, 7, 8, 9, 10, 11] {
        assert!(theirs.contains(&c), "class {c}");
    }
    let show = json(&place, "classes show v --json");
    println!("{show:#}");
    assert_eq!(show["layout"]["trouble"], Value::Null);
    let refreshes = show["layout"]["refreshes"].as_u64().unwrap();
    assert!(refreshes > 0 && show["layout"]["full_looks"].as_u64().unwrap() < 5);
    // Requests are classified when they arrive.
    let n = |c: &str| show["by_class"][c]["requests"].as_u64().unwrap_or(0);
    assert!(n("7") > 0 && n("4") > 0, "{show:#}");
    // Another program reads all of it: the classes of files follow from their sizes.
    mounted.unmount();
    let again = equal_in_the_end(&place, &fresh(&disk.0, bytes));
    assert!(again >= 0.999, "{again}");
    drop(disk);
    place.stop();
    place.check();
}

#[test]
fn files_are_classed_by_rule_and_attribute() {
    if !able(
        &[
            "mkfs.ext4",
            "losetup",
            "fusermount3",
            "filefrag",
            "setfattr",
            "sync",
        ],
        true,
    ) {
        return;
    }
    let mut place = Place::new(&Shape {
        policy: "dss-lru-s",
        ..Shape::default()
    });
    let disk = Loop::over(&place.serve_file());
    run("mkfs.ext4", &["-q", "-F", &disk.0]);
    let mounted = Mounted::new(&disk.0, place.path("fs"));
    let at = |name: &str| mounted.0.join(name);
    std::fs::create_dir(at("media")).expect("made");
    for (name, size) in [
        ("small", 3000),
        ("big", 3 << 20),
        ("media/film.mkv", 2 << 20),
        ("media/named.mkv", 200_000),
    ] {
        std::fs::write(at(name), vec![7; size]).expect("written");
    }
    let named = at("media/named.mkv").display().to_string();
    run(
        "setfattr",
        &["-n", "user.isotherm.class", "-v", "class-50", &named],
    );
    let dir = mounted.0.display().to_string();
    run("sync", &["-f", &dir]);
    std::fs::write(
        place.path("rules.toml"),
        "[[rule]]\nclass = \"class-40\"\nglob = \"media/*.mkv\"\n",
    )
    .expect("written");
    let walked = json(
        &place,
        "classify --fs fs --volume v --rules rules.toml --json",
    );
    assert_eq!(
        (walked["by_rule"].as_u64(), walked["by_attribute"].as_u64()),
        (Some(1), Some(1))
    );
    // Another program states where each file is.
    let classes = live(&place, 256 << 20);
    let first = |name: &str| {
        let text = run(
            "filefrag",
            &["-v", "-b4096", &at(name).display().to_string()],
        );
        let line = text
            .lines()
            .find(|l| l.trim_start().starts_with("0:"))
            .expect("an extent");
        let place = line.split(':').nth(2).expect("its place");
        let block: usize = place
            .split("..")
            .next()
            .expect("first")
            .trim()
            .parse()
            .expect("a number");
        classes[block]
    };
    let found = ["small", "big", "media/film.mkv", "media/named.mkv"].map(first);
    assert_eq!(found, [8, 13, 40, 50]);
    // Metadata keeps the class from the layout, once the layout was examined.
    examined(&place);
    // A file system on another device must not be taken for that of the volume.
    assert!(fails(&place, "classify --fs / --volume v").contains("neither the block file"));
    assert!(
        fails(&place, "classify --fs /proc --volume v")
            .contains("not mounted from one block device")
    );
    drop(mounted);
    drop(disk);
    place.stop();
}
