//! A volume as part of a machine: found by name, monitored, mounted, ended in order; and what happens if it is not ended in order.

mod asleep;
mod chromium;
mod cockpit;
#[path = "../common/mod.rs"]
mod common;
mod figures;
mod growth;
mod journal;
mod list;
mod machine;
mod planted;
mod prometheus;
mod tasks;
mod web;

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use common::{Place, Served, fits, unmount};
use machine::{LIMIT, Machine, has_loops, loops, wait_for};
use serde_json::{Value, json};

#[test]
fn volumes_are_found_by_name_from_anywhere() {
    let m = Machine::new();
    assert!(m.ok("list").starts_with("no volumes"));
    m.create("one");
    m.create("two");
    let list = m.json("list", "list");
    assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");
    assert_eq!(list[0]["state"], json!("stopped"));
    let nbd = m.0.path("nbd").display().to_string();
    let served = m.serve(&format!("one --nbd unix:{nbd}"));
    assert!(m.0.path("run/one.sock").exists() && !m.0.path("etc/one.sock").exists());
    assert_eq!(m.status("one")["state"], json!("serving"));
    // The path refers to the same volume.
    let path = m.0.path("etc/one").display().to_string();
    assert_eq!(m.status(&path)["pid"], json!(served.child.id()));
    assert_eq!(m.json("list", "list")[0]["state"], json!("serving"));
    // A volume of that name in the working directory has precedence.
    let here = m.0.path("away").display().to_string();
    m.ok(&format!("create {here}/one --slow {here}/s:64M"));
    assert_eq!(m.status("one")["state"], json!("stopped"));
    std::fs::remove_file(m.0.path("away/one.toml")).expect("removed");
    // A server that hangs must not delay a query for all volumes.
    served.signal("STOP");
    let list = m.json("list", "list");
    served.signal("CONT");
    assert_eq!(list[0]["state"], json!("unreachable"), "{list}");
    m.ok("stop one");
    assert_eq!(m.json("list", "list")[0]["state"], json!("stopped"));
    // After a kill, the files that it left behind do not disturb other volumes.
    m.serve(&format!("two --nbd unix:{nbd}")).kill();
    assert_eq!(m.json("list", "list")[1]["state"], json!("stopped"));
    let again = m.serve(&format!("two --nbd unix:{nbd}"));
    assert_eq!(again.terminate(), Some(0));
    assert!(!m.0.path("run/two.sock").exists());
}

#[test]
fn volumes_served_elsewhere_and_broken_ones_are_listed_too() {
    let m = Machine::new();
    m.create("fine");
    std::fs::write(m.0.path("etc/broken.toml"), "polcy = \"lru\"\n").expect("written");
    let away = m.0.path("away").display().to_string();
    m.ok(&format!("create {away}/v --slow {away}/s:64M"));
    let served = m.serve("v --nbd unix:n");
    let list = m.json("list", "list");
    let states: Vec<_> = list
        .as_array()
        .expect("a list")
        .iter()
        .map(|v| (v["name"].as_str(), v["state"].as_str()))
        .collect();
    assert_eq!(
        states,
        [
            (Some("v"), Some("serving")),
            (Some("broken"), Some("unusable")),
            (Some("fine"), Some("stopped"))
        ]
    );
    assert!(
        list[1]["note"]
            .as_str()
            .is_some_and(|n| n.contains("did you mean `policy`")),
        "{list}"
    );
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn members_are_assembled_by_identity() {
    let m = Machine::new();
    m.create("v");
    let stranger = m.0.path("etc/v.slow");
    let away = m.0.path("moved");
    std::fs::rename(&stranger, &away).expect("moved");
    // Not in the neighbourhood: neither the description nor the hints contain the place.
    let nested = m.0.path("mnt/deep");
    std::fs::create_dir(&nested).expect("made");
    std::fs::rename(&away, nested.join("x")).expect("moved");
    let seen = m.json("assemble", "assemble");
    assert_eq!(
        (
            &seen[0]["state"],
            seen[0]["missing"].as_array().map(Vec::len)
        ),
        (&json!("incomplete"), Some(1))
    );
    // `serve --wait` continues as soon as the member is attached again, under another name.
    let mut waiting = m.command("serve v --nbd unix:n --wait 300");
    let mut child = waiting
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut err = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let mut line = String::new();
    std::io::BufRead::read_line(&mut err, &mut line).expect("read");
    assert!(
        line.contains("waiting up to 300 s") && line.contains("v.slow"),
        "{line}"
    );
    assert!(!m.0.path("run/v.sock").exists());
    std::fs::rename(nested.join("x"), m.0.path("etc/other-name")).expect("moved");
    wait_for("it serves", || {
        m.run("status v").status.success() && m.0.path("run/v.sock").exists()
    });
    wait_for("it is served", || {
        m.status("v")["state"] == json!("serving")
    });
    let mut served = Served { child };
    assert_eq!(m.json("assemble", "assemble")[0]["state"], json!("served"));
    m.ok("stop v");
    wait_for("it ends", || served.has_ended());
    // The service starts it, once, and only if one of its members was named.
    let bin = m.0.path("bin");
    std::fs::create_dir(&bin).expect("made");
    let log = m.0.path("log");
    let noting = format!("echo \"$@\" >>{}", log.display());
    common::executable::script(&noting, &bin.join("systemctl"), 0o755);
    let path = format!(
        "{}:{}",
        bin.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let fast = m.0.path("etc/v.fast").display().to_string();
    let out = m
        .command(&format!("assemble --start {fast} --json"))
        .env("PATH", path)
        .output()
        .expect("runs");
    let seen: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    fits(&seen, "assemble");
    assert_eq!(seen[0]["state"], json!("started"));
    assert_eq!(
        std::fs::read_to_string(&log).expect("asked"),
        "start --no-block isotherm@v.service\n"
    );
    let empty = m.0.path("nothing");
    std::fs::write(&empty, vec![0; 1 << 20]).expect("written");
    assert_eq!(
        m.json(&format!("assemble {}", empty.display()), "assemble"),
        json!([])
    );
}

/// Nothing waits at boot for flash that was taken out.
#[test]
fn a_volume_without_flash_is_complete() {
    let m = Machine::new();
    m.create("v");
    m.ok("cache v remove");
    let seen = m.json("assemble", "assemble");
    assert_eq!(
        (&seen[0]["state"], &seen[0]["missing"]),
        (&json!("complete"), &json!([]))
    );
    let served = m.serve("v --nbd unix:n --wait 300");
    assert_eq!(m.status("v")["degraded"], json!(false));
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn the_service_manager_is_told() {
    let m = Machine::new();
    m.create("v");
    let path = m.0.path("notify");
    let socket = UnixDatagram::bind(&path).expect("bound");
    socket.set_read_timeout(Some(LIMIT)).expect("set");
    let mut heard = String::new();
    let mut hear = |what: &str| {
        let mut b = [0; 1024];
        while !heard.contains(what) {
            let n = socket
                .recv(&mut b)
                .unwrap_or_else(|e| panic!("{what} was not told: {e}: {heard}"));
            heard.push_str(&String::from_utf8_lossy(&b[..n]));
            heard.push('\n');
        }
    };
    let mut command = m.command("serve v --nbd unix:n");
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "400000");
    let served = Place::wait_ready(command, "v");
    hear("READY=1");
    hear("STATUS=serving");
    hear("WATCHDOG=1");
    assert_eq!(served.terminate(), Some(0));
    hear("STOPPING=1");
}

#[test]
fn a_device_under_a_stable_name_comes_and_goes() {
    if !has_loops() {
        return;
    }
    let m = Machine::new();
    m.create("v");
    let served = m.serve("v --loop");
    let link = m.0.path("dev/v");
    let device = std::fs::canonicalize(&link).expect("a device");
    assert_eq!(
        m.status("v")["device"],
        json!({"path": device, "link": link})
    );
    assert_eq!(m.json("list", "list")[0]["device"]["link"], json!(link));
    let open = std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&link)
        .expect("opens");
    let out = m.run("stop v");
    assert_eq!(out.status.code(), Some(1));
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(words.contains("is in use"), "{words}");
    assert!(link.exists(), "it stays");
    drop(open);
    // Another volume of the same name must not take the link.
    let away = m.0.path("away").display().to_string();
    m.ok(&format!("create {away}/v --slow {away}/s:64M"));
    let out = m.run("serve v --loop --block-file ../mnt");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("another volume of this name"));
    std::fs::remove_file(m.0.path("away/v.toml")).expect("removed");
    // After a kill, the next server releases the device that was left behind.
    served.kill();
    let again = m.serve("v --loop");
    let now = std::fs::canonicalize(&link).expect("a device");
    let head = std::fs::File::open(&now).and_then(|mut f| f.read_exact(&mut [0; 4096]));
    assert!(head.is_ok(), "{head:?}");
    m.ok("stop v");
    drop(again);
    wait_for("no device is left", || {
        loops(&m.0.path("run").display().to_string()).is_empty()
    });
    assert!(std::fs::symlink_metadata(&link).is_err());
    assert!(!m.0.path("run/v.mnt").exists());
}

/// Over ublk where this kernel has it, else over a loop device.
#[test]
fn a_device_by_the_best_means_of_this_kernel_is_found_by_name() {
    if !has_loops() {
        return;
    }
    let m = Machine::new();
    m.create("v");
    let served = m.serve("v --device");
    let link = m.0.path("dev/v");
    let device = std::fs::canonicalize(&link).expect("a device");
    let status = m.status("v");
    assert_eq!(status["device"], json!({"path": device, "link": link}));
    let is_ublk = device.to_string_lossy().starts_with("/dev/ublkb");
    let fronts = status["front_ends"].to_string();
    assert_eq!(fronts.contains("ublk:"), is_ublk, "{fronts}");
    let size = std::fs::File::open(&device).and_then(|mut d| d.seek(SeekFrom::End(0)));
    assert_eq!(size.ok(), status["volume_bytes"].as_u64());
    m.ok("stop v");
    drop(served);
    wait_for("the link to go", || {
        std::fs::symlink_metadata(&link).is_err()
    });
    let out = m.run("serve v --device --loop");
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn mount_serves_and_mounts_and_a_file_is_explained() {
    if !has_loops() {
        return;
    }
    let m = Machine::new();
    m.create("v");
    let first = m.serve("v --loop");
    let made = m.0.tool("mkfs.ext4", &["-q", "dev/v"]);
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    m.ok("stop v");
    drop(first);
    // As mount(8) calls its helper, while the volume is not served.
    let helper = m.0.path("mount.isotherm");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_isotherm"), &helper).expect("linked");
    let mut call = Command::new(&helper);
    m.set(&mut call);
    let mnt = m.0.path("mnt");
    let out = call
        .arg("v")
        .arg(&mnt)
        .args(["-o", "rw,noatime"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(out.expect("runs").success());
    let pid = m.status("v")["pid"].to_string();
    let file = mnt.join("data");
    std::fs::write(&file, vec![7; 3 << 20]).expect("written");
    let why = m.json(&format!("why v --file {}", file.display()), "why-file");
    assert_eq!(why["mapped_bytes"], json!(3 << 20));
    let by_tier = why["bytes_by_tier"].as_object().expect("tiers");
    assert_eq!(
        by_tier.values().filter_map(Value::as_u64).sum::<u64>(),
        3 << 20
    );
    assert!(
        m.ok(&format!("why v --file {}", file.display()))
            .contains("3.00 MiB of it in")
    );
    let out = m.run("why v --file /proc/self/status");
    assert_eq!(out.status.code(), Some(1));
    let out = m.run("stop v");
    assert!(String::from_utf8_lossy(&out.stderr).contains("unmount what is on it first"));
    unmount(&mnt);
    m.ok("stop v");
    wait_for("it ends", || {
        !Path::new("/proc").join(&pid).join("exe").exists()
    });
    let checked = m.ok("check v");
    assert!(!checked.is_empty());
    let line = m.ok("fstab v /srv/a_dir");
    assert!(
        line.contains("/dev/isotherm/v  /srv/a_dir  auto  defaults,nofail,x-systemd.requires=isotherm@v.service,x-systemd.device-timeout=20min  0  2\n"),
        "{line}"
    );
    assert_eq!(m.run("fstab v relative").status.code(), Some(2));
}
