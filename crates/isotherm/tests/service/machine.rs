//! A simulated machine: directories for descriptions, sockets and devices, and the helpers of tests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{Place, Served, fits, patiently};

/// A limit that any machine meets; only a failure reaches it.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The directories of a simulated machine.
pub struct Machine(pub Place);

impl Machine {
    pub fn new() -> Machine {
        let place = Place::new();
        for dir in ["etc", "away", "mnt"] {
            std::fs::create_dir(place.path(dir)).expect("made");
        }
        Machine(place)
    }

    /// The command, to be run in a directory that has nothing to do with the volume.
    pub fn command(&self, call: &str) -> Command {
        let mut c = self.0.command(call);
        c.current_dir(self.0.path("away"));
        self.set(&mut c);
        c
    }

    pub fn set(&self, c: &mut Command) {
        c.env("ISOTHERM_CONFIG_DIR", self.0.path("etc"))
            .env("ISOTHERM_RUNTIME_DIR", self.0.path("run"))
            .env("ISOTHERM_DEVICE_DIR", self.0.path("dev"));
    }

    pub fn run(&self, call: &str) -> Output {
        self.command(call).output().expect("the program starts")
    }

    pub fn ok(&self, call: &str) -> String {
        let out = patiently(call, || self.run(call));
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "`{call}`: {stderr}");
        String::from_utf8(out.stdout).expect("text")
    }

    pub fn json(&self, call: &str, schema: &str) -> Value {
        let value = serde_json::from_str(&self.ok(&format!("{call} --json"))).expect("JSON");
        fits(&value, schema);
        value
    }

    pub fn create(&self, name: &str) {
        let dir = self.0.path("etc").display().to_string();
        self.ok(&format!(
            "create {dir}/{name} --fast {dir}/{name}.fast:16M --slow {dir}/{name}.slow:64M"
        ));
    }

    pub fn serve(&self, call: &str) -> Served {
        Place::wait_ready(self.command(&format!("serve {call}")), call)
    }

    pub fn status(&self, name: &str) -> Value {
        self.json(&format!("status {name}"), "status")
    }
}

/// Removes everything that a failed test left mounted or attached, so that the machine is as before.
impl Drop for Machine {
    fn drop(&mut self) {
        let mnt = self.0.path("mnt");
        let _ = Command::new("umount")
            .arg("-l")
            .arg(&mnt)
            .stderr(Stdio::null())
            .status();
        let run = self.0.path("run").display().to_string();
        for device in loops(&run) {
            let _ = Command::new("losetup").arg("-d").arg(device).status();
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        for line in mounts.lines().filter(|l| l.contains(&run)) {
            let _ = Command::new("umount")
                .arg("-l")
                .args(line.split(' ').nth(1))
                .status();
        }
    }
}

/// Loop devices over files below `dir`.
pub fn loops(dir: &str) -> Vec<PathBuf> {
    let all = std::fs::read_dir("/sys/block")
        .into_iter()
        .flatten()
        .flatten();
    let shows = |p: &Path| {
        std::fs::read_to_string(p.join("loop/backing_file")).is_ok_and(|b| b.starts_with(dir))
    };
    all.filter(|d| shows(&d.path()))
        .map(|d| Path::new("/dev").join(d.file_name()))
        .collect()
}

pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether loop devices, FUSE and root are available; prints what is missing.
pub fn has_loops() -> bool {
    let root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|o| o.stdout == b"0\n");
    let fine = root && Path::new("/dev/loop-control").exists() && Path::new("/dev/fuse").exists();
    if !fine {
        eprintln!("skipped: needs root, /dev/loop-control and /dev/fuse");
    }
    fine
}

pub fn has(program: &str) -> bool {
    let there = Command::new("sh")
        .args(["-c", &format!("command -v {program}")])
        .output();
    let there = there.is_ok_and(|o| o.status.success());
    if !there {
        eprintln!("skipped: {program} is not installed");
    }
    there
}

pub fn get(address: &str, path: &str) -> String {
    let mut peer = TcpStream::connect(address).expect("connects");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    peer.set_read_timeout(Some(LIMIT)).expect("set");
    peer.write_all(request.as_bytes()).expect("written");
    let mut text = String::new();
    peer.read_to_string(&mut text).expect("read");
    text
}

/// A port of this machine that was free a moment ago.
pub fn free_port() -> u16 {
    let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    socket.local_addr().expect("an address").port()
}
