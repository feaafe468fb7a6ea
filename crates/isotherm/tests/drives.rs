//! What drives say of themselves: a program in the place of smartctl answers for loop devices.

mod common;

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use common::Place;
use common::loop_device::LoopDevice;
use serde_json::{Value, json};

const WORN: &str = r#"{"model_name":"Example 980","smart_status":{"passed":true},"nvme_smart_health_information_log":{"critical_warning":0,"percentage_used":7,"media_errors":0},"temperature":{"current":41}}"#;
const FAILS: &str = r#"{"model_name":"Example 18T","smart_status":{"passed":false},"ata_smart_attributes":{"table":[{"id":197,"name":"Current_Pending_Sector","value":100,"raw":{"value":8}}]},"temperature":{"current":33}}"#;

/// A volume on two loop devices, which answer as two files in the directory say; without loop devices `None`.
fn volume(place: &Place) -> Option<[LoopDevice; 2]> {
    for (name, mib) in [("f", 16), ("s", 64)] {
        let file = std::fs::File::create(place.path(name)).expect("made");
        file.set_len(mib << 20).expect("sized");
    }
    let fast = LoopDevice::over(place, &[], "f")?;
    let slow = LoopDevice::over(place, &[], "s")?;
    place.ok(&format!(
        "create v --fast {} --slow {} --policy lru,write-mode=write-through-all",
        fast.0, slow.0
    ));
    Some([fast, slow])
}

/// A script that only this user can change.
fn executable(place: &Place, name: &str, script: &str) -> PathBuf {
    let at = place.path(name);
    common::executable::script(script, &at, 0o700);
    at
}

/// The program answers with the content of a file that has the name of the device, and notes its words.
fn smartctl(place: &Place) -> PathBuf {
    let dir = place.path("").display().to_string();
    let script =
        format!("echo \"$*\" >>{dir}asked\nfor last; do :; done\n. {dir}drive.${{last##*/}}");
    executable(place, "smartctl", &script)
}

/// What the drive answers: text, and an exit code.
fn says(place: &Place, drive: &LoopDevice, text: &str, code: u8) {
    let script = format!("cat <<'END'\n{text}\nEND\nexit {code}\n");
    let name = drive.0.trim_start_matches("/dev/");
    std::fs::write(place.path(&format!("drive.{name}")), script).expect("written");
}

fn with(mut command: Command, smartctl: &std::path::Path) -> Command {
    command.env("ISOTHERM_SMARTCTL", smartctl);
    command
}

fn wait_for(what: &str, mut is: impl FnMut() -> bool) {
    for _ in 0..1200 {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("waited in vain for {what}");
}

fn scrape(at: std::net::SocketAddr) -> String {
    let mut peer = std::net::TcpStream::connect(at).expect("connected");
    peer.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        .expect("sent");
    let mut text = String::new();
    peer.read_to_string(&mut text).expect("read");
    text
}

fn doctor(place: &Place, program: &std::path::Path) -> (Value, Option<i32>) {
    let out = with(place.command("doctor v --json"), program)
        .output()
        .expect("runs");
    let answer: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    common::fits(&answer, "doctor");
    (answer, out.status.code())
}

fn whats(answer: &Value) -> String {
    let all = answer["findings"].as_array().expect("a list").iter();
    let words = |f: &Value| {
        format!(
            "{}: {}\n",
            f["level"].as_str().unwrap_or(""),
            f["what"].as_str().unwrap_or("")
        )
    };
    all.map(words).collect()
}

#[test]
fn a_drive_that_fails_is_told_everywhere() {
    let place = Place::new();
    let Some([fast, slow]) = volume(&place) else {
        return;
    };
    let program = smartctl(&place);
    says(&place, &fast, WORN, 0);
    says(&place, &slow, FAILS, 8);
    let at = place.path("").display().to_string();
    let hook = executable(&place, "hook", &format!("echo \"$*\" >>{at}told"));
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let (metrics, hook) = (free.expect("a free port"), hook.display());
    let call = format!("v --nbd unix:n --on-event {hook} --metrics {metrics}");
    let served = Place::wait_ready(
        with(place.command(&format!("serve {call}")), &program),
        &call,
    );
    wait_for("the drives to be asked", || {
        place.status()["members"][1]["drives"].is_array()
    });
    status_tells(&place);
    let stats = place.json("stats v", "stats");
    assert_eq!(stats["members"][1]["drives"][0]["temperature_c"], json!(33));
    let text = scrape(metrics);
    for (name, drive, value) in [
        ("wear_percent", (0, &fast.0), 7),
        ("failing", (1, &slow.0), 1),
    ] {
        let (member, device) = drive;
        let sample = format!(
            "isotherm_drive_{name}{{member=\"{member}\",tier=\"{member}\",device=\"{device}\"}} {value}"
        );
        assert!(text.contains(&sample), "{sample} in {text}");
    }
    // The states of `--on-event` are those that they always were.
    let told = || std::fs::read_to_string(place.path("told")).unwrap_or_default();
    wait_for("the event", || told() == "v degraded\n");
    let (answer, code) = doctor(&place, &program);
    let said = whats(&answer);
    assert_eq!(code, Some(1), "{said}");
    let fails = format!("wrong: {}: says that it fails\n", slow.0);
    assert!(said.contains(&fails), "{said}");
    assert!(
        said.contains("Example 980, 7 % of the write endurance used, 41 °C"),
        "{said}"
    );
    // No disk was woken for any of this.
    let asked = std::fs::read_to_string(place.path("asked")).expect("read");
    let gently = |l: &str| l.starts_with("--json=c -a -n standby /dev/");
    assert!(
        asked.lines().count() >= 4 && asked.lines().all(gently),
        "{asked}"
    );
    place.end(served);
}

fn status_tells(place: &Place) {
    let status = place.status();
    let drive = |m: usize| status["members"][m]["drives"][0].clone();
    assert_eq!(
        (&drive(0)["used_percent"], &drive(0)["temperature_c"]),
        (&json!(7), &json!(41))
    );
    assert_eq!(
        (&drive(1)["passed"], &drive(1)["pending_sectors"]),
        (&json!(false), &json!(8))
    );
    assert_eq!(status["health"]["state"], json!("degraded"));
    let cause = &status["health"]["causes"][0];
    assert_eq!(
        (&cause["kind"], &cause["member"]),
        (&json!("drive"), &json!(1))
    );
    let page = place.ok("status v");
    assert!(
        page.contains("7 % of the write endurance used, 41 °C"),
        "{page}"
    );
}

#[test]
fn drives_that_sleep_hang_or_talk_nonsense_hold_up_nothing() {
    let place = Place::new();
    let Some([fast, slow]) = volume(&place) else {
        return;
    };
    let program = smartctl(&place);
    says(
        &place,
        &fast,
        r#"{"smartctl":{"messages":[{"string":"Device is in STANDBY mode, exit(2)"}],"exit_status":2}}"#,
        2,
    );
    says(&place, &slow, "no JSON", 0);
    let served = Place::wait_ready(with(place.command("serve v --nbd unix:n"), &program), "v");
    wait_for("the drives to be asked", || {
        place.status()["members"][1]["drives"].is_array()
    });
    let status = place.status();
    assert_eq!(status["members"][0]["drives"][0]["asleep"], json!(true));
    let why = status["members"][1]["drives"][0]["not_known"]
        .as_str()
        .expect("a reason");
    assert!(why.contains("no answer that can be read"), "{why}");
    assert_eq!(status["health"]["state"], json!("well"));
    place.end(served);
    // The server starts, answers and ends while a drive does not answer.
    let name = fast.0.trim_start_matches("/dev/");
    std::fs::write(place.path(&format!("drive.{name}")), "exec sleep 1000\n").expect("written");
    std::fs::remove_file(place.path("asked")).expect("removed");
    let served = Place::wait_ready(with(place.command("serve v --nbd unix:n"), &program), "v");
    wait_for("the question", || place.path("asked").exists());
    assert!(place.status()["members"][0].get("drives").is_none());
    place.end(served);
}

/// A program that others could change is not run, and its absence is no error.
#[test]
fn without_a_program_nothing_is_known_and_nothing_is_wrong() {
    let place = Place::new();
    let Some([_fast, _slow]) = volume(&place) else {
        return;
    };
    let program = smartctl(&place);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o722);
    std::fs::set_permissions(&program, mode).expect("set");
    for (at, why) in [
        (program.as_path(), "others could change"),
        (&place.path("none"), "smartmontools"),
    ] {
        let mut serve = with(place.command("serve v --nbd unix:n"), at);
        serve.env("ISOTHERM_LOG", "info");
        let served = Place::wait_ready(serve, "v");
        let (answer, code) = doctor(&place, at);
        assert!(answer["not_known"].to_string().contains(why), "{answer}");
        assert_eq!(code, Some(0), "{answer}");
        let status = place.status();
        assert_eq!(
            (
                &status["health"]["state"],
                status["members"][0].get("drives")
            ),
            (&json!("well"), None)
        );
        place.ok("stop v");
        let (code, log) = served.end();
        assert!(code == Some(0) && log.contains(why), "{log}");
    }
    assert!(!place.path("asked").exists());
}
