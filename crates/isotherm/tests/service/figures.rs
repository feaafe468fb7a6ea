//! The figures of a volume, and that a query for them wakes no disk.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::machine::{Machine, free_port, get, has, wait_for};

#[test]
fn figures_are_readable_and_exact() {
    let m = Machine::new();
    m.create("v");
    let socket = m.0.path("metrics");
    let served = m.serve(&format!(
        "v --nbd unix:n --metrics unix:{}",
        socket.display()
    ));
    let page = m.ok("stats v");
    assert!(page.lines().count() <= 15, "{page}");
    for word in [
        "v: Serving well for",
        "tier 0 ",
        "tier 1 ",
        "moves ",
        "dirty ",
        "queue ",
    ] {
        assert!(page.contains(word), "{word}: {page}");
    }
    let all = m.ok("stats v --all");
    assert!(
        all.lines().count() > 150 && all.contains("moves.promotions.proposed  0\n"),
        "{all}"
    );
    m.json("stats v", "stats");
    let plain = m.ok("top v --plain --count 2 --every 0.1");
    assert_eq!(plain.matches("v: Serving well").count(), 2, "{plain}");
    assert!(plain.contains("the last "), "{plain}");
    assert!(m.ok("top --plain --count 1").contains("Serving well"));
    for call in ["top v --plain --every 0.1", "stats v --watch=0.1"] {
        ends_with_its_reader(m.command(call), call);
    }
    let mut peer = std::os::unix::net::UnixStream::connect(&socket).expect("connects");
    peer.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")
        .expect("written");
    let mut text = String::new();
    peer.read_to_string(&mut text).expect("read");
    assert!(
        text.contains("isotherm_tier_bytes{tier=\"0\"}") && text.ends_with("# EOF\n"),
        "{text}"
    );
    assert_eq!(served.terminate(), Some(0));
    assert!(!socket.exists());
    let out = m.run("serve v --nbd unix:n --metrics 0.0.0.0:9100");
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("other machines could connect"));
}

/// The command must end when its reader does, as before `| head -1`.
fn ends_with_its_reader(mut command: Command, call: &str) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut byte = [0];
    let mut out = child.stdout.take().expect("a pipe");
    out.read_exact(&mut byte).expect("something is printed");
    drop(out);
    let ended = (0..600).any(|_| {
        std::thread::sleep(Duration::from_millis(100));
        child.try_wait().expect("a child").is_some()
    });
    if !ended {
        child.kill().expect("killed");
    }
    assert!(ended, "`{call}` goes on though nobody reads");
}

/// No query wakes a sleeping disk; the cause of a wake-up is reported.
#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn questions_let_disks_sleep() {
    if !has("nbdcopy") || !has("qemu-io") {
        return;
    }
    let m = Machine::new();
    let etc = m.0.path("etc").display().to_string();
    let out = m.run(&format!("create {etc}/x --slow {etc}/x:64M --sleep 1s"));
    assert_eq!(out.status.code(), Some(2), "one tier");
    m.ok(&format!(
        "create {etc}/v --fast {etc}/f:16M --slow {etc}/s:64M --paced slow=wd5000aaks --sleep 1s --policy greendm"
    ));
    let (nbd, port) = (m.0.path("n").display().to_string(), free_port());
    let served = m.serve(&format!("v --nbd unix:{nbd} --metrics 127.0.0.1:{port}"));
    // The data sheet allows one start in most of an hour. It is used up if a second passes before the first write, or between two.
    m.ok("set v sleep_starts_per_day=1000000");
    let data = m.0.path("data");
    // More data than the fast tier holds, so that a part of it is on the disk.
    std::fs::write(&data, vec![5; 40 << 20]).expect("written");
    let uri = format!("nbd+unix:///?socket={nbd}");
    let put = m.0.tool(
        "nbdcopy",
        &["--flush", "--", &data.display().to_string(), &uri],
    );
    assert!(
        put.status.success(),
        "{}",
        String::from_utf8_lossy(&put.stderr)
    );
    let disk = |status: &Value| status["members"][1]["sleep"].clone();
    let sleeps = || {
        let status = m.status("v");
        status["members"][1]["asleep"] == json!(true)
    };
    // The written data is recorded and moved first; there is no work left once nothing has woken the disk for a while.
    wait_for("the disk sleeps on", || {
        let before = disk(&m.status("v"));
        std::thread::sleep(Duration::from_secs(2));
        sleeps() && disk(&m.status("v"))["wake_ups"] == before["wake_ups"]
    });
    let before = disk(&m.status("v"));
    assert!(before["asleep_s"].as_f64().is_some(), "{before}");
    for _ in 0..3 {
        m.ok("list");
        m.ok("status v");
        m.ok("stats v");
        m.ok("top v --plain --count 1");
        m.ok("why v 0");
        m.ok("why v 20M");
        m.ok("assemble");
        let body = get(&format!("127.0.0.1:{port}"), "/metrics");
        assert!(
            body.contains("isotherm_member_asleep{member=\"1\",tier=\"1\"} 1"),
            "{body}"
        );
    }
    let after = disk(&m.status("v"));
    assert_eq!(after["wake_ups"], before["wake_ups"], "{after}");
    assert!(
        after["asleep_s"].as_f64() > before["asleep_s"].as_f64(),
        "{before} {after}"
    );
    let on_disk = |at: &u64| {
        let why = m.json(&format!("why v {at}"), "why");
        why["tier"] == json!(1) && why["copy"].is_null()
    };
    let at = (0..40)
        .map(|i| i << 20)
        .find(on_disk)
        .expect("something lies on the disk");
    let read = ["-r", "-f", "raw", "-c", &format!("read {at} 4096"), &uri];
    let got = m.0.tool("qemu-io", &read);
    assert!(
        got.status.success(),
        "{}",
        String::from_utf8_lossy(&got.stderr)
    );
    let woken = disk(&m.status("v"));
    assert!(
        woken["wake_ups"].as_u64() > before["wake_ups"].as_u64(),
        "{woken}"
    );
    // The read itself, or the promotion that serves it.
    match woken["last_wake"]["by"].as_str() {
        Some("read") => assert_eq!(woken["last_wake"]["offset"], json!(at), "{woken}"),
        by => assert_eq!(by, Some("move"), "{woken}"),
    }
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn create_refuses_wrong_data_sheets() {
    let m = Machine::new();
    let etc = m.0.path("etc").display().to_string();
    let create = |name: &str, options: &str| {
        m.run(&format!(
            "create {etc}/{name} --fast {etc}/{name}f:16M --slow {etc}/{name}s:64M {options}"
        ))
    };
    for (options, word) in [
        ("--sheet slow=exos-18t", "exos-18tb"),
        ("--sheet exos-18tb", "TIER=SHEET"),
        ("--sheet 3=exos-18tb", "tiers 0 to 1"),
        ("--sheet slow=gone.toml", "gone.toml"),
        ("--sheet slow=exos-18tb --paced slow=exos-18tb", "paced"),
    ] {
        let out = create("x", options);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(
            !out.status.success() && said.contains(word),
            "{options}: {said}"
        );
        assert!(!m.0.path("etc/xf").exists(), "{options}");
    }
}

/// A volume on real devices shows what their data sheets state; without a sheet it is served all the same.
#[test]
fn data_sheets_of_real_devices_give_energy_and_limits() {
    let m = Machine::new();
    let etc = m.0.path("etc").display().to_string();
    let own = m.0.path("etc").join("own.toml");
    let sheet = include_str!("../../../models/presets/exos-18tb.toml");
    std::fs::write(&own, sheet).expect("written");
    let made = m.ok(&format!(
        "create {etc}/v --fast {etc}/f:16M --slow {etc}/s:64M --sheet fast=sata-enterprise --sheet slow={}",
        own.display()
    ));
    assert!(made.contains("data sheet sata-enterprise"), "{made}");
    let served = m.serve("v --nbd unix:n");
    let stats = m.json("stats v", "stats");
    assert_eq!(stats["paced"], json!(false));
    for member in 0..2 {
        let figures = &stats["members"][member];
        assert_eq!(figures["energy_estimated"], json!(true), "{figures}");
        assert!(
            figures["energy_j"].as_f64().is_some_and(|j| j > 0.0),
            "{figures}"
        );
    }
    assert!(
        stats["mean_power_w"]
            .as_f64()
            .is_some_and(|w| (6.0..14.0).contains(&w)),
        "{stats}"
    );
    let status = m.status("v");
    let disk = &status["members"][1];
    assert_eq!(disk["sheet"], json!(own.display().to_string()), "{disk}");
    assert_eq!(
        disk["sleep"]["start_stop_limit"],
        json!(600_000.0),
        "{disk}"
    );
    assert!(m.ok("status v").contains("data sheet sata-enterprise"));
    let budget = |limit: &str| {
        m.ok(&format!("set v power_limit_w={limit}"));
        m.json("stats v", "stats")["power_budget"]["limit_w"].clone()
    };
    assert_eq!(
        [budget("12"), budget("0"), budget("9.5")],
        [json!(12.0), Value::Null, json!(9.5)]
    );
    assert_eq!(served.terminate(), Some(0));
    // The sheet is gone: no reason not to serve the data.
    std::fs::remove_file(&own).expect("removed");
    let served = m.serve("v --nbd unix:n");
    let stats = m.json("stats v", "stats");
    assert_eq!(
        [&stats["power_budget"], &stats["energy_j"]],
        [&Value::Null; 2]
    );
    assert_eq!(stats["members"][0]["energy_estimated"], json!(true));
    let refused = m.run("set v power_limit_w=8");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("the data sheet of every member is known"),
        "{said}"
    );
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_bare_call_shows_the_short_help() {
    let m = Machine::new();
    // `script` provides a terminal; without one, the call is wrong usage (tests/usage.rs).
    let mut call = Command::new("script");
    call.args(["-qec", env!("CARGO_BIN_EXE_isotherm"), "/dev/null"]);
    m.set(&mut call);
    let out = call.output().expect("script is installed");
    assert_eq!(out.status.code(), Some(2));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        text.lines().count() <= 16 && text.contains("isotherm COMMAND --help"),
        "{text}"
    );
}

#[test]
fn man_pages_and_completions_are_made_for_every_command() {
    let m = Machine::new();
    m.ok("generate out");
    let dir = m.0.path("away/out");
    for file in [
        "man/isotherm.1",
        "man/isotherm-serve.1",
        "man/isotherm-classes-set.1",
        "completions/isotherm.bash",
        "completions/_isotherm",
        "completions/isotherm.fish",
    ] {
        let text = std::fs::read_to_string(dir.join(file)).unwrap_or_default();
        assert!(text.contains("isotherm"), "{file}");
    }
    let page = std::fs::read_to_string(dir.join("man/isotherm-serve.1")).expect("a page");
    assert!(
        page.contains("isotherm\\-serve") && page.contains("\\-\\-loop"),
        "{page}"
    );
    let bash = Command::new("bash")
        .arg("-n")
        .arg(dir.join("completions/isotherm.bash"))
        .status();
    assert!(
        bash.is_ok_and(|s| s.success()),
        "bash takes its completions"
    );
}
