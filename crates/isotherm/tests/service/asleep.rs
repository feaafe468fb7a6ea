//! A disk that sleeps under `benefit`: only requests of a user wake it.

use serde_json::{Value, json};

use crate::common::Served;
use crate::machine::{Machine, has, wait_for};

/// Commands of qemu-io against the volume; each must succeed.
fn io(m: &Machine, uri: &str, commands: &[String]) {
    let mut args = vec!["-f", "raw"];
    for c in commands {
        args.extend(["-c", c]);
    }
    args.push(uri);
    let out = m.0.tool("qemu-io", &args);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && !text.contains("failed"), "{text}");
}

fn disk(m: &Machine) -> Value {
    m.status("v")["members"][1].clone()
}

/// A volume whose disk sleeps, below a cache with copies in it.
fn asleep(m: &Machine) -> (Served, String) {
    let etc = m.0.path("etc").display().to_string();
    m.ok(&format!(
        "create {etc}/v --fast {etc}/f:16M --slow {etc}/s:64M --paced slow=wd5000aaks --sleep 2s"
    ));
    let nbd = m.0.path("n").display().to_string();
    let served = m.serve(&format!("v --nbd unix:{nbd}"));
    // A disk that sleeps after 2 s would soon use up its starts.
    m.ok("set v sleep_starts_per_day=1000000");
    let uri = format!("nbd+unix:///?socket={nbd}");
    io(m, &uri, &["write -P 7 0 8M".into(), "flush".into()]);
    // Random reads until a part of the data is worth a copy.
    wait_for("copies", || {
        let reads =
            (0..48u64).map(|i| format!("read {} 4k", ((i * 5 % 8) << 20) + ((i / 8) << 12)));
        io(m, &uri, &reads.collect::<Vec<_>>());
        m.status("v")["copies"]["extents"].as_u64() >= Some(8)
    });
    wait_for("the disk sleeps", || disk(m)["asleep"] == json!(true));
    (served, uri)
}

#[test]
fn moves_of_benefit_wait_for_a_disk_that_sleeps() {
    if !has("qemu-io") {
        return;
    }
    let m = Machine::new();
    let (served, uri) = asleep(&m);
    // The first dirty block of a session is stated on the disk, which may wake it once.
    io(
        &m,
        &uri,
        &[format!("write -P 8 {} 4k", 1 << 20), "flush".into()],
    );
    wait_for("the disk sleeps again", || {
        disk(&m)["asleep"] == json!(true)
    });
    let before = disk(&m)["sleep"]["wake_ups"].clone();
    // Writes to copies, made durable, over a longer time than any after which benefit cleans.
    for i in 0..4 {
        let at = (1 << 20) + (i << 12);
        io(&m, &uri, &[format!("write -P 9 {at} 4k"), "flush".into()]);
        std::thread::sleep(std::time::Duration::from_secs(2));
    }
    let status = m.status("v");
    assert_eq!(
        status["members"][1]["sleep"]["wake_ups"], before,
        "{status}"
    );
    assert_eq!(status["members"][1]["asleep"], json!(true), "{status}");
    assert!(
        status["copies"]["dirty_bytes"].as_u64() > Some(0),
        "{status}"
    );
    // The knob causes this: without it the same work wakes the disk.
    m.ok("set v sleep_hold_s=0");
    wait_for("woken by what was held", || {
        disk(&m)["sleep"]["wake_ups"].as_u64() > before.as_u64()
    });
    assert_eq!(disk(&m)["sleep"]["last_wake"]["by"], json!("move"));
    assert_eq!(served.terminate(), Some(0));
}
