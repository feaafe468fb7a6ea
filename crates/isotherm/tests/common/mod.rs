//! A test directory, and the program run in it.
// Each test program uses only a part of this module.
#![allow(dead_code)]

pub mod executable;
pub mod faulty;
pub mod loop_device;
pub mod nbd;
pub mod peer;
pub mod writer;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

/// A temporary directory to run in.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Place {
        Place(tempfile::tempdir().expect("a temporary directory"))
    }

    /// A directory in memory, if there is one with enough room, so that the test does not depend on a busy disk.
    pub fn in_memory() -> Place {
        const ROOM: u64 = 2 << 30;
        let room = |dir: &str| {
            let out = Command::new("df")
                .args(["-B1", "--output=avail", dir])
                .output();
            let text = out.map(|o| String::from_utf8_lossy(&o.stdout).into_owned());
            text.ok()?.lines().last()?.trim().parse::<u64>().ok()
        };
        match room("/dev/shm") {
            Some(free) if free >= ROOM => {
                Place(tempfile::tempdir_in("/dev/shm").expect("a temporary directory"))
            }
            _ => Place::new(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A path for the member of that name in a directory that is not searched for members.
    pub fn away(&self, name: &str) -> PathBuf {
        let dir = self.path("away");
        std::fs::create_dir_all(&dir).expect("made");
        dir.join(name)
    }

    /// The names in the directory, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.0.path())
            .expect("listed")
            .map(|e| e.expect("listed").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        names
    }

    pub fn command(&self, call: &str) -> Command {
        let mut c = Command::new(env!("CARGO_BIN_EXE_isotherm"));
        c.args(call.split_whitespace())
            .current_dir(self.0.path())
            .env_remove("ISOTHERM_TRACES");
        c
    }

    pub fn run(&self, call: &str) -> Output {
        self.command(call).output().expect("the program starts")
    }

    /// Runs a command that must succeed; returns standard output.
    pub fn ok(&self, call: &str) -> String {
        let out = patiently(call, || self.run(call));
        let (stderr, stdout) = (String::from_utf8_lossy(&out.stderr), &out.stdout);
        let stdout = String::from_utf8_lossy(stdout);
        assert!(out.status.success(), "`{call}`: {stderr}{stdout}");
        stdout.into_owned()
    }

    /// The command as it would run on another machine, which sees nothing of the processes here: the kernel states another boot. `None`, with a
    /// message, if that is not possible here.
    pub fn elsewhere(&self, call: &str) -> Option<Command> {
        const BOOT: &str = "/proc/sys/kernel/random/boot_id";
        let id = self.path(".boot-elsewhere");
        std::fs::write(&id, "11111111-2222-3333-4444-555555555555\n").expect("written");
        let script = format!("mount --bind \"$0\" {BOOT} && exec \"$@\"");
        let mut c = own_mounts();
        c.args(["sh", "-c", &script]);
        c.arg(id);
        let able = {
            let mut trial = Command::new("unshare");
            trial.args(c.get_args()).arg("true");
            trial.output().is_ok_and(|o| o.status.success())
        };
        if !able {
            println!("skipped: no mount namespaces for this user");
            return None;
        }
        c.arg(env!("CARGO_BIN_EXE_isotherm"));
        c.args(call.split_whitespace()).current_dir(self.0.path());
        Some(c)
    }

    /// Runs a command with `--json` that must succeed, and compares the answer with the command's schema.
    pub fn json(&self, call: &str, schema: &str) -> Value {
        let value: Value = serde_json::from_str(&self.ok(&format!("{call} --json"))).expect("JSON");
        fits(&value, schema);
        value
    }

    /// What `status v` shows.
    pub fn status(&self) -> Value {
        self.json("status v", "status")
    }

    /// The dirty bytes of `v`.
    pub fn dirty(&self) -> u64 {
        let bytes = self.status()["copies"]["dirty_bytes"].as_u64();
        bytes.expect("a number")
    }

    /// Creates `v`, a cache of 16 MiB before 64 MiB; returns its size in bytes.
    pub fn small_cache(&self) -> u64 {
        let made = self.json("create v --fast f:16M --slow s:64M --policy lru", "create");
        made["volume_bytes"].as_u64().expect("a size")
    }

    /// Whether a file begins as a member of a volume does.
    pub fn is_member(&self, name: &str) -> bool {
        let head = std::fs::read(self.path(name)).expect("read");
        head.starts_with(b"ISOTHERM")
    }

    /// Makes a file larger.
    pub fn enlarge(&self, name: &str, mib: u64) {
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(self.path(name));
        file.and_then(|f| f.set_len(mib << 20)).expect("enlarged");
    }

    /// Stops `v`, whose server ends well.
    pub fn end(&self, served: Served) {
        self.ok("stop v");
        assert_eq!(served.end().0, Some(0));
    }

    /// Runs a command that must fail; returns standard error.
    pub fn fails(&self, call: &str) -> String {
        // Where a refusal is missing, `serve` would have no end.
        let plain = self.command(call);
        let mut limited = Command::new("timeout");
        limited.args(["-k", "10", "300"]).arg(plain.get_program());
        limited.args(plain.get_args()).current_dir(self.0.path());
        limited.env_remove("ISOTHERM_TRACES");
        let out = limited.output().expect("the program starts");
        let code = out.status.code();
        assert_eq!(code, Some(1), "`{call}` succeeded, or had no end");
        String::from_utf8(out.stderr).expect("text")
    }

    /// Serves a volume until the value is dropped or stopped; returns when the volume is ready.
    pub fn serve(&self, call: &str) -> Served {
        Place::wait_ready(self.command(&format!("serve {call}")), call)
    }

    /// As [`Place::serve`], with SIGHUP in the state `hup` (`default`, `ignore`), independent of the state in the test itself.
    pub fn serve_with_hup(&self, hup: &str, call: &str) -> Served {
        let mut command = Command::new("env");
        command
            .arg(format!("--{hup}-signal=HUP"))
            .arg(env!("CARGO_BIN_EXE_isotherm"))
            .arg("serve")
            .args(call.split_whitespace())
            .current_dir(self.0.path());
        Place::wait_ready(command, call)
    }

    pub fn wait_ready(mut command: Command, call: &str) -> Served {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut out = std::io::BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        std::io::BufRead::read_line(&mut out, &mut line).expect("read");
        if line != "ready\n" {
            let mut why = String::new();
            std::io::Read::read_to_string(&mut child.stderr.take().expect("piped"), &mut why)
                .expect("text");
            panic!("`serve {call}`: {why}");
        }
        Served { child }
    }

    pub fn tool(&self, program: &str, args: &[&str]) -> Output {
        Command::new(program)
            .args(args)
            .current_dir(self.0.path())
            .output()
            .expect("the tool is installed")
    }
}

/// `unshare`, to be followed by a program that gets mounts of its own. Those of loop devices and of servers of ours are unmounted there, except
/// below the current directory: where mounts are not shared, a copy would keep the device, or the server, of another test in use after that
/// test has unmounted it.
pub fn own_mounts() -> Command {
    const SCRIPT: &str = r#"
        others='$(NF - 1) ~ "^(/dev/loop|isotherm:)" && index($5, here "/") != 1 { print $5 }'
        for at in $(awk -v here="$PWD" "$others" /proc/self/mountinfo); do umount -l "$at"; done 2>/dev/null
        exec "$@""#;
    let mut c = Command::new("unshare");
    c.args([
        "--mount",
        "--propagation",
        "slave",
        "sh",
        "-c",
        SCRIPT,
        "sh",
    ]);
    c
}

/// Runs a command. What a test has just unmounted is in use for a moment more if another test makes a mount namespace, which begins with a copy
/// of all mounts. So a `stop` that finds the volume in use is repeated, for some seconds.
pub fn patiently(call: &str, run: impl Fn() -> Output) -> Output {
    for _ in 0..50 {
        let out = run();
        let in_use = || String::from_utf8_lossy(&out.stderr).contains("in use");
        if !call.starts_with("stop ") || out.status.success() || !in_use() {
            return out;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    run()
}

/// Unmounts. A process that another test starts has, until it runs its program, the open files of this one.
pub fn unmount(at: &Path) {
    let mut said = String::new();
    for _ in 0..100 {
        let tried = Command::new("umount").arg(at).output().expect("umount");
        if tried.status.success() {
            return;
        }
        said = String::from_utf8_lossy(&tried.stderr).into_owned();
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("{said}");
}

/// Whether nobody has a block device claimed. A moment after a file system was unmounted, it can still be mounted in a mount namespace that
/// another test has just made.
pub fn is_unclaimed(device: &Path) -> bool {
    let mut how = std::fs::OpenOptions::new();
    std::os::unix::fs::OpenOptionsExt::custom_flags(
        how.read(true),
        rustix::fs::OFlags::EXCL.bits() as i32,
    );
    how.open(device).is_ok()
}

/// A serving process.
pub struct Served {
    pub child: Child,
}

impl Served {
    /// Kills the process, as a power failure would.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited");
    }

    /// Sends a signal by its name, such as TERM.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill")
            .args([&format!("-{name}"), &self.child.id().to_string()])
            .status();
        assert!(sent.expect("kill runs").success());
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("waited").is_some()
    }

    /// Sends SIGTERM and returns the exit code.
    pub fn terminate(mut self) -> Option<i32> {
        self.signal("TERM");
        self.child.wait().expect("waited").code()
    }

    /// Waits for the end and returns the exit code and standard error, unless the test has taken that.
    pub fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().expect("waited").code();
        let mut stderr = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            std::io::Read::read_to_string(&mut pipe, &mut stderr).expect("text");
        }
        (code, stderr)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // A failed test must not leave a process behind; a process that has ended already is no error.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Validates a value against `docs/json/NAME.schema.json`.
pub fn fits(value: &Value, name: &str) {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/json/{name}.schema.json"));
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(&file).expect("the schema")).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let errors: Vec<String> = validator
        .iter_errors(value)
        .map(|e| format!("{} at {}", e, e.instance_path))
        .collect();
    assert!(errors.is_empty(), "{name}: {errors:#?}");
}

pub fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
}
