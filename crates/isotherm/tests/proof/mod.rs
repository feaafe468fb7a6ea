//! A volume served by the program, killed and served again; loop devices, mounts and control groups that go away with the
//! test, whatever its end. Everything that waits has a limit, which fails the test.
// Each test program uses a part of this.
#![allow(dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest that any one step may take. Far beyond what it does take: whatever reaches it hangs.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Are these programs there, and are we root? If not, says what is missing.
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

/// The seed of this run: `ISOTHERM_SEED`, else a fixed one; printed.
pub fn seed() -> u64 {
    let seed = std::env::var("ISOTHERM_SEED")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(1);
    println!("ISOTHERM_SEED={seed}");
    seed
}

/// Wait for `child`, at most [`PATIENCE`].
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

/// Run to the end.
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
            // A pipe that breaks ends the text.
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

/// Run a program, want success, return standard output. The system's own programs come first: nbdsh belongs to the
/// system's Python, not to whatever another is called first.
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
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            fast: "48M",
            slow: "256M",
            extent: "64K",
            policy: "greendm",
            io: "buffers = \"16M\"\nmove_buffers = 8\ncommit_interval_s = 0.2",
        }
    }
}

/// A volume in a directory of its own.
pub struct Place {
    dir: tempfile::TempDir,
    serving: Option<Child>,
    mnt: PathBuf,
    /// Control group that the server is started in.
    pub group: Option<PathBuf>,
}

impl Place {
    /// Creates the volume `v`.
    pub fn new(shape: &Shape) -> Place {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let toml = format!(
            "name = \"v\"\nextent = \"{}\"\npolicy = \"{}\"\n[io]\n{}\n[[members]]\npath = \"fast\"\ntier = 0\nsize = \"{}\"\n\
             [[members]]\npath = \"slow\"\ntier = 1\nsize = \"{}\"\n",
            shape.extent, shape.policy, shape.io, shape.fast, shape.slow
        );
        std::fs::write(dir.path().join("new.toml"), toml).expect("written");
        let mnt = dir.path().join("mnt");
        std::fs::create_dir(&mnt).expect("made");
        let place = Place {
            dir,
            serving: None,
            mnt,
            group: None,
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
    /// The program, to be run in the directory.
    pub fn isotherm(&self, call: &str) -> Command {
        let mut c = match &self.group {
            None => Command::new(env!("CARGO_BIN_EXE_isotherm")),
            Some(group) => in_group(group, env!("CARGO_BIN_EXE_isotherm")),
        };
        c.args(call.split_whitespace()).current_dir(self.dir.path());
        c
    }
    /// Serves until killed, stopped or dropped.
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
    /// Serves the block file; its path.
    pub fn serve_file(&mut self) -> PathBuf {
        self.serve("--block-file mnt");
        self.mnt.join("v")
    }
    /// Is the server still there?
    pub fn is_serving(&mut self) -> bool {
        self.serving
            .as_mut()
            .is_some_and(|c| matches!(c.try_wait(), Ok(None)))
    }
    /// kill -9. The mount that it leaves behind goes, too.
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
    /// Ends it in order; it must succeed.
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
    /// `isotherm check`, which must find nothing wrong.
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
            // A server that hangs in the kernel waits for its own mount; force ends every request of that, and so lets
            // go whoever waits. It says "busy" all the same.
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

/// A loop device over the block file; detached when dropped.
pub struct Loop(pub String);

impl Loop {
    /// With direct I/O, so that nothing is cached twice.
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
        // Detaching ends when the last user is gone; whoever comes next needs the block file unused.
        let file = format!("/sys/block/{}/loop", self.0.trim_start_matches("/dev/"));
        for _ in 0..200 {
            if !Path::new(&file).exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A mounted file system; unmounted when dropped, by force if need be.
pub struct Mounted(pub PathBuf);

impl Mounted {
    /// Mounts.
    pub fn new(device: &str, dir: PathBuf) -> Mounted {
        let _ = std::fs::create_dir(&dir);
        run("mount", &[device, dir.to_str().expect("text")]);
        Mounted(dir)
    }
    /// Unmounts in order.
    pub fn unmount(self) {
        run("umount", &[self.0.to_str().expect("text")]);
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
