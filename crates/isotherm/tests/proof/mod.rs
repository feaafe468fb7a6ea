//! A volume that the program serves, kills and serves again; loop devices, mounts and control groups that are removed at the end of the
//! test in any case. Every wait has a limit; if it is reached, the test fails.
// Each test program uses only a part of this module.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest duration of one step: far more than any needs, so a step that reaches it hangs.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Whether these programs are installed and, with `root`, the user is root. Prints what is missing.
pub fn able(programs: &[&str], root: bool) -> bool {
    let missing: Vec<&str> = programs.iter().filter(|p| !has(p)).copied().collect();
    if !missing.is_empty() {
        println!("skipped: not installed: {}", missing.join(", "));
        return false;
    }
    if root && !rustix::process::geteuid().is_root() {
        println!("skipped: needs root, for loop devices and mounts");
        return false;
    }
    if root && !Path::new("/dev/loop-control").exists() {
        println!("skipped: this system has no loop devices");
        return false;
    }
    true
}

fn has(program: &str) -> bool {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&dirs)
        .chain(["/sbin".into(), "/usr/sbin".into()])
        .any(|d| d.join(program).exists())
}

/// The seed of this run: `ISOTHERM_SEED`, else a fixed one. Prints it.
pub fn seed() -> u64 {
    let seed = std::env::var("ISOTHERM_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1);
    println!("ISOTHERM_SEED={seed}");
    seed
}

/// Waits for `child`, at most [`PATIENCE`].
pub fn wait(child: &mut Child, what: &str) -> std::process::ExitStatus {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().expect("waited") {
            return status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!("`{what}` hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a program to its end.
pub fn output(command: &mut Command) -> Output {
    let what = format!("{command:?}");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{what}: {e}"));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let collect = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // A broken pipe ends the text.
            let _ = pipe.map(|mut p| p.read_to_end(&mut bytes));
            bytes
        })
    };
    let out = collect(out.map(|p| Box::new(p) as _));
    let err = collect(err.map(|p| Box::new(p) as _));
    let status = wait(&mut child, &what);
    Output {
        status,
        stdout: out.join().expect("collected"),
        stderr: err.join().expect("collected"),
    }
}

/// Runs a program that must succeed; returns standard output. The directories of the system come first on the path, because nbdsh needs the
/// system's Python and not another one.
pub fn run(program: &str, args: &[&str]) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("/usr/sbin:/usr/bin:/sbin:/bin:{path}");
    let out = output(Command::new(program).args(args).env("PATH", path));
    assert!(
        out.status.success(),
        "{program} {args:?}: {}\n{}{}",
        out.status,
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// Shape of a volume.
pub struct Shape {
    /// Bytes of the fast member, with a unit.
    pub fast: &'static str,
    /// Bytes of the slow member, with a unit.
    pub slow: &'static str,
    /// Extent size.
    pub extent: &'static str,
    /// Policy.
    pub policy: &'static str,
    /// Lines of the `[io]` table.
    pub io: &'static str,
    /// Whether the members are loop devices, over files in memory if there is room for them. Else they are files of the test directory.
    pub devices: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            fast: "48M",
            slow: "256M",
            extent: "64K",
            policy: "greendm",
            io: "buffers = \"16M\"\nmove_buffers = 8\ncommit_interval_s = 0.2",
            devices: false,
        }
    }
}

/// A volume in a directory of its own.
pub struct Place {
    dir: tempfile::TempDir,
    serving: Option<Child>,
    mnt: PathBuf,
    /// The control group in which the server is started.
    pub group: Option<PathBuf>,
    /// Loop devices that are members; detached after the server has ended.
    _members: Vec<Loop>,
    _below: Option<tempfile::TempDir>,
}

impl Place {
    /// Creates the volume `v`.
    pub fn new(shape: &Shape) -> Place {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (below, devices) = if shape.devices {
            let (below, devices) = loop_members(shape);
            (Some(below), devices)
        } else {
            (None, Vec::new())
        };
        let member = |name: &str, tier: usize, size: &str| match devices.get(tier) {
            Some(device) => format!("[[members]]\npath = \"{}\"\ntier = {tier}\n", device.0),
            None => format!("[[members]]\npath = \"{name}\"\ntier = {tier}\nsize = \"{size}\"\n"),
        };
        let toml = format!(
            "name = \"v\"\nextent = \"{}\"\npolicy = \"{}\"\n[io]\n{}\n{}{}",
            shape.extent,
            shape.policy,
            shape.io,
            member("fast", 0, shape.fast),
            member("slow", 1, shape.slow)
        );
        std::fs::write(dir.path().join("new.toml"), toml).expect("written");
        let mnt = dir.path().join("mnt");
        std::fs::create_dir(&mnt).expect("made");
        let place = Place {
            dir,
            serving: None,
            mnt,
            group: None,
            _members: devices,
            _below: below,
        };
        let made = output(&mut place.isotherm("create v --config new.toml"));
        assert!(
            made.status.success(),
            "create: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        place
    }
    /// A path in the directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    /// The program, which will run in the directory.
    pub fn isotherm(&self, call: &str) -> Command {
        let mut c = match &self.group {
            None => Command::new(env!("CARGO_BIN_EXE_isotherm")),
            Some(group) => in_group(group, env!("CARGO_BIN_EXE_isotherm")),
        };
        c.args(call.split_whitespace()).current_dir(self.dir.path());
        c
    }
    /// Serves the volume until it is killed, stopped or dropped.
    pub fn serve(&mut self, front_end: &str) {
        let mut child = self
            .isotherm(&format!("serve v {front_end}"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut err = child.stderr.take().expect("piped");
        let words = std::thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            text
        });
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        out.read_line(&mut line).expect("read");
        if line != "ready\n" {
            let _ = child.kill();
            let _ = child.wait();
            panic!("serve: {}", words.join().expect("read"));
        }
        self.serving = Some(child);
    }
    /// Serves the block file; returns its path.
    pub fn serve_file(&mut self) -> PathBuf {
        self.serve("--block-file mnt");
        self.mnt.join("v")
    }
    /// Whether the server is still running.
    pub fn is_serving(&mut self) -> bool {
        self.serving
            .as_mut()
            .is_some_and(|c| matches!(c.try_wait(), Ok(None)))
    }
    /// kill -9. The mount that the server leaves behind is removed, too.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.serving.take() {
            child.kill().expect("killed");
            child.wait().expect("waited");
        }
        self.clear_mount();
    }
    fn clear_mount(&self) {
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let ours = self.mnt.display().to_string();
        if mounts.lines().any(|l| l.split(' ').nth(1) == Some(&ours)) {
            let _ = Command::new("umount").arg("-l").arg(&self.mnt).status();
        }
    }
    /// Ends the server in order; this must succeed.
    pub fn stop(&mut self) {
        let out = output(&mut self.isotherm("stop v"));
        assert!(
            out.status.success(),
            "stop: {}",
            String::from_utf8_lossy(&out.stderr)
        );
        if let Some(mut child) = self.serving.take() {
            assert!(wait(&mut child, "serve").success());
        }
    }
    /// `isotherm check`, which must find no problem.
    pub fn check(&self) {
        let out = output(&mut self.isotherm("check v"));
        assert!(
            out.status.success(),
            "check: {}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(mut child) = self.serving.take() {
            let _ = child.kill();
            // A server that hangs in the kernel waits for its own mount. A forced unmount ends all its requests, and so releases every
            // waiting process. It reports "busy" nevertheless.
            if !matches!(child.try_wait(), Ok(Some(_))) {
                let _ = Command::new("umount")
                    .arg("-f")
                    .arg(&self.mnt)
                    .stderr(Stdio::null())
                    .status();
            }
            let _ = child.wait();
        }
        self.clear_mount();
    }
}

/// Loop devices of the sizes of the members, fast and slow, and the directory of the files below them. The files have all their space from the
/// beginning. They are in memory where there is room, so that no other work on the disk delays them.
fn loop_members(shape: &Shape) -> (tempfile::TempDir, Vec<Loop>) {
    let fill = |dir: tempfile::TempDir| {
        for (name, size) in [("fast", shape.fast), ("slow", shape.slow)] {
            let mut fill = Command::new("fallocate");
            fill.args(["-l", size]).arg(dir.path().join(name));
            if !output(&mut fill).status.success() {
                return None;
            }
        }
        Some(dir)
    };
    let below = tempfile::tempdir_in("/dev/shm").ok().and_then(fill);
    let below = below.or_else(|| tempfile::tempdir().ok().and_then(fill));
    let below = below.expect("room for the members");
    let over = |name| Loop::over(&below.path().join(name));
    let devices = ["fast", "slow"].map(over).into();
    (below, devices)
}

/// A loop device over a file, such as the block file; detached when dropped.
pub struct Loop(pub String);

impl Loop {
    /// Attaches the file with direct I/O, so that nothing is cached twice.
    pub fn over(file: &Path) -> Loop {
        let file = file.to_str().expect("text");
        Loop(
            run("losetup", &["--direct-io=on", "--find", "--show", file])
                .trim()
                .to_owned(),
        )
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
        // Detaching ends when the last user is gone; the next step needs an unused block file.
        let file = format!("/sys/block/{}/loop", self.0.trim_start_matches("/dev/"));
        for _ in 0..200 {
            if !Path::new(&file).exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A mounted file system; unmounted when dropped, if necessary by force.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts `device`.
    pub fn new(device: &str, dir: PathBuf) -> Mounted {
        let _ = std::fs::create_dir(&dir);
        run("mount", &[device, dir.to_str().expect("text")]);
        Mounted(dir)
    }
    /// Unmounts in order.
    pub fn unmount(self) {
        let at = self.0.to_str().expect("text");
        // A process that another test starts has, until it runs its program, the open files of this one.
        let busy = || !output(Command::new("umount").arg(at)).status.success();
        for _ in 0..100 {
            if !busy() {
                return std::mem::forget(self);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        run("umount", &[at]);
        std::mem::forget(self);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// `program`, started inside a control group.
pub fn in_group(group: &Path, program: &str) -> Command {
    let mut c = Command::new("sh");
    let procs = group.join("cgroup.procs");
    c.args(["-c", "echo $$ > \"$0\" && exec \"$@\""])
        .arg(procs)
        .arg(program);
    c
}
