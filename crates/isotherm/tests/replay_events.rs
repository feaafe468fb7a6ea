//! Events files on the command line: recorded by `serve` and by `record`, replayed, altered, damaged.

mod common;

use std::io::BufRead;
use std::process::{Child, Stdio};

use common::{Place, Served, fits};
use isotherm_core::{Effect, OpKind, QUIET, RequestOp};
use isotherm_traces::events::{Call, Encoder, Reader, Writer};
use serde_json::{Value, json};

const NBD: &str = "nbd+unix:///?socket=n";

fn served(options: &str) -> (Place, Served) {
    let place = Place::new();
    place.ok("create v --fast f:8M --slow s:96M --policy greendm,LT=8,HT=24");
    let served = place.serve(&format!("v --nbd unix:n {options}"));
    (place, served)
}

/// Writes and reads more bytes than the fast tier holds.
fn work(place: &Place) {
    let data: Vec<u8> = (0..24u32 << 20).map(|i| (i >> 9) as u8 | 1).collect();
    std::fs::write(place.path("data"), data).expect("written");
    for args in [["--flush", "data", NBD], ["--flush", NBD, "back"]] {
        let out = place.tool("nbdcopy", &args);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{stderr}");
    }
}

fn record(place: &Place, call: &str) -> Child {
    let mut recorder = place
        .command(call)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut words = std::io::BufReader::new(recorder.stderr.take().expect("a pipe"));
    let mut line = String::new();
    words.read_line(&mut line).expect("says that it records");
    assert!(line.contains("recording the events"), "{line}");
    recorder
}

fn result(recorder: Child) -> Value {
    let out = recorder.wait_with_output().expect("ends");
    assert!(out.status.success());
    let result = serde_json::from_slice(&out.stdout).expect("JSON");
    fits(&result, "record-events");
    result
}

#[test]
fn a_served_life_is_decided_again_and_an_altered_one_is_not() {
    let (place, served) = served("--events run.events");
    let other = place.fails("record v --events --out w.events");
    assert!(other.contains("recorded already"), "{other}");
    assert!(!place.path("w.events").exists());
    place.ok("set v PT=2 move_bytes_per_s=500M");
    place.ok("classes set v 0+ceiling=100M+floor=1M 7+share=300 depth=4");
    work(&place);
    place.ok("stop v");
    let (code, stderr) = served.end();
    assert!(code == Some(0) && stderr.contains("run.events"), "{stderr}");
    let equal = place.json("replay-events run.events", "replay-events");
    assert_eq!(
        (&equal["equal"], &equal["difference"], &equal["ending"]),
        (&json!(true), &Value::Null, &json!("closed")),
        "{equal}"
    );
    assert!(equal["requests"].as_u64() > Some(100));
    assert!(place.ok("replay-events run.events").contains("equal"));

    let info = place.json("trace info run.events", "trace-info");
    assert_eq!(
        (&info["format"], &info["requests"]),
        (&json!("isotherm-events"), &equal["requests"])
    );
    assert!(info["latency_mean_s"].as_f64() > Some(0.0));

    // One request reads at another offset.
    let mut reader = Reader::open(&place.path("run.events")).expect("opens");
    let image = reader.image().clone();
    let out = std::fs::File::create(place.path("other.events")).expect("created");
    let mut writer = Writer::create(out, reader.origin(), &image).expect("written");
    let mut encoder = Encoder::new(Vec::new());
    let mut altered = None;
    while let Some(mut e) = reader.next().expect("whole") {
        let effects: Vec<Effect> = e.decisions.iter().map(|d| d.effect).collect();
        if let Call::Submit(r) = &mut e.call
            && r.op == RequestOp::Read
            && r.class & QUIET == 0
            && altered.is_none()
        {
            r.offset += 4096;
            altered = Some(e.number);
        }
        encoder.event(e.now, &e.call, &effects, |op| {
            let started = |d: &&isotherm_traces::events::Decision| d.effect == Effect::Start(*op);
            e.decisions.iter().find(started).map_or(0, |d| d.meta)
        });
        writer.events(&encoder.take(Vec::new())).expect("written");
    }
    writer
        .finish(reader.end().expect("there"))
        .expect("written");
    let out = place.run("replay-events other.events --json");
    assert_eq!(out.status.code(), Some(1));
    let differs: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    fits(&differs, "replay-events");
    let difference = &differs["difference"];
    assert_eq!(difference["event"].as_u64(), altered, "{differs}");
    assert_ne!(difference["recorded"], difference["replayed"]);
    let text = place.run("replay-events other.events");
    assert_eq!(text.status.code(), Some(1));
    let text = String::from_utf8(text.stdout).expect("text");
    assert!(
        text.contains("recorded: Start") && text.contains("replayed: Start"),
        "{text}"
    );
}

#[test]
fn the_lab_begins_where_the_recorded_volume_was() {
    let place = Place::new();
    place.ok("create v --fast f:8M --slow s:96M --policy linear");
    let served = place.serve("v --nbd unix:n");
    work(&place);
    // From here on there are only reads, of data that already has a place.
    let recorder = record(&place, "record v --events --out run.events --json");
    let read = place.tool("nbdcopy", &["--requests=4", NBD, "back"]);
    assert!(read.status.success());
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    result(recorder);
    let reads = place.json("trace info run.events", "trace-info");
    let mut hits = 0;
    let mut reader = Reader::open(&place.path("run.events")).expect("opens");
    while let Some(e) = reader.next().expect("whole") {
        for d in &e.decisions {
            // Without the reads by which the server itself learns the kinds of data.
            if let (Effect::Start(op), Call::Submit(r)) = (d.effect, &e.call)
                && r.class & QUIET == 0
                && op.kind == OpKind::Read
                && op.member.0 == 0
            {
                hits += u64::from(op.len);
            }
        }
    }
    assert!(hits > 4 << 20, "{hits}");
    // Without devices, the same volume gives the same places. A new volume would have none of the data.
    let lab = "sim run.events --as-recorded --tier ocz-40 --tier wd5000aaks --depth 4";
    let again = place.json(lab, "sim");
    assert_eq!(again["policy"], json!("linear"));
    assert_eq!(again["requests"], reads["requests"]);
    assert_eq!(again["fast_read_bytes"], json!(hits));
    assert!(again["elapsed_s"].as_f64() > Some(0.1), "{again}");
    // Another policy on the same data.
    let other = place.json(&format!("{lab} --policy greendm,PT=1"), "sim");
    assert_eq!(other["policy"], json!("greendm,PT=1"));
    assert!(other["promotions"].as_u64() > Some(0), "{other}");
    let short = place.fails("sim run.events --as-recorded --tier wd5000aaks");
    assert!(short.contains("members on its tiers"), "{short}");
    let wrong = place.fails("sim back --as-recorded --tier ocz-40 --tier wd5000aaks");
    assert!(
        wrong.contains("record --events") || wrong.contains("no known format"),
        "{wrong}"
    );
}

#[test]
fn recordings_of_a_running_volume_end_when_asked_or_full() {
    let (place, served) = served("");
    work(&place);
    let recorder = record(&place, "record v --events --out a.events --json");
    work(&place);
    let pid = recorder.id().to_string();
    assert!(place.tool("kill", &["-INT", &pid]).status.success());
    let asked = result(recorder);
    assert_eq!(asked["ending"], json!("asked"));
    assert!(asked["requests"].as_u64() > Some(100));
    let again = place.fails("record v --events --out a.events");
    assert!(again.contains("exists already"), "{again}");
    let full = record(&place, "record v --events --out b.events --limit 4K --json");
    work(&place);
    assert_eq!(result(full)["ending"], json!("asked"));
    let timed = place.json(
        "record v --events --out c.events --seconds 1",
        "record-events",
    );
    assert_eq!(timed["ending"], json!("asked"));
    let last = record(&place, "record v --events --out d.events --json");
    work(&place);
    place.ok("stop v");
    assert_eq!(served.end().0, Some(0));
    assert_eq!(result(last)["ending"], json!("closed"));
    for file in ["a", "b", "c", "d"] {
        let replayed = place.json(&format!("replay-events {file}.events"), "replay-events");
        assert_eq!(replayed["equal"], json!(true), "{file}: {replayed}");
    }
    assert_eq!(place.json("check v", "check")["ok"], json!(true));
}

#[test]
fn a_killed_server_leaves_what_it_wrote_and_wrong_files_are_told() {
    let (place, served) = served("--events run.events");
    work(&place);
    // Events are written within two seconds; the file grows by whole blocks.
    let size = || std::fs::metadata(place.path("run.events")).map_or(0, |m| m.len());
    // The number of events depends on the timing of calls, so the work is repeated until there are enough.
    while size() < 4096 {
        work(&place);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    work(&place);
    served.kill();
    let cut = place.fails("replay-events run.events");
    assert!(cut.contains("is cut short"), "{cut}");
    std::fs::write(place.path("text"), "no events").expect("written");
    assert!(place.fails("replay-events text").contains("no events file"));
    assert!(
        place
            .fails("replay-events nothing")
            .contains("cannot be read")
    );
    let refused = place.fails("serve v --nbd unix:m --events run.events");
    assert!(refused.contains("run.events"), "{refused}");
    let mut bytes = std::fs::read(place.path("run.events")).expect("read");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(place.path("bent"), bytes).expect("written");
    assert!(place.fails("replay-events bent").contains("is damaged"));
}
