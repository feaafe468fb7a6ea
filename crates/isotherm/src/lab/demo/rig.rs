//! Resources that must be released: a served volume, a loop device, a mount, a control group. Each is released when it is dropped.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use isotherm_answers::Stats;

use super::process::{Guard, Stop, command, insist, run};
use super::workdir::mounts_below;
use crate::Failure;

/// Time limit for `serve` to print `ready`, and to end.
const TIMEOUT: Duration = Duration::from_secs(60);

fn complain(result: Result<(), String>) {
    if let Err(e) = result {
        eprintln!("isotherm: left behind: {e}");
    }
}

/// `isotherm serve … --block-file`, started as a user would start it.
pub struct Served {
    isotherm: PathBuf,
    volume: PathBuf,
    mount: PathBuf,
    child: Option<Guard>,
}

impl Served {
    /// Starts it and waits until it is ready.
    pub fn start(
        isotherm: &Path,
        volume: &Path,
        mount: &Path,
        stop: &Stop,
    ) -> Result<Served, Failure> {
        stop.check()?;
        let log = volume.with_extension("log");
        let failed = |e: &std::io::Error| Failure::file(&log, "write", e);
        let file = File::create(&log).map_err(|e| failed(&e))?;
        let again = file.try_clone().map_err(|e| failed(&e))?;
        fs::create_dir_all(mount).map_err(|e| Failure::file(mount, "make the directory", &e))?;
        let mut serve = command(isotherm);
        serve
            .arg("serve")
            .arg(volume)
            .arg("--block-file")
            .arg(mount)
            .stdout(file)
            .stderr(again);
        let child = serve
            .spawn()
            .map_err(|e| Failure::file(isotherm, "start", &e))?;
        let mut served = Served {
            isotherm: isotherm.into(),
            volume: volume.into(),
            mount: mount.into(),
            child: Some(Guard(child)),
        };
        let begun = Instant::now();
        loop {
            stop.check()?;
            let said = fs::read_to_string(&log).unwrap_or_default();
            if said.lines().any(|l| l == "ready") {
                return Ok(served);
            }
            if served.has_ended() || begun.elapsed() > TIMEOUT {
                return Err(Failure::failed(format!(
                    "isotherm serve did not get ready: {}",
                    said.trim()
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn has_ended(&mut self) -> bool {
        self.child
            .as_mut()
            .is_none_or(|c| !matches!(c.0.try_wait(), Ok(None)))
    }

    /// The block file.
    pub fn file(&self) -> PathBuf {
        self.mount.join("v")
    }

    /// `isotherm stats --json`.
    pub fn stats(&self) -> Result<Stats, Failure> {
        let asked = command(&self.isotherm)
            .arg("stats")
            .arg(&self.volume)
            .arg("--json")
            .output();
        let asked = asked.map_err(|e| Failure::file(&self.isotherm, "start", &e))?;
        serde_json::from_slice(&asked.stdout).map_err(|e| {
            let said = String::from_utf8_lossy(&asked.stderr);
            Failure::failed(format!("isotherm stats: {} ({e})", said.trim()))
        })
    }

    /// Runs `isotherm stop`, and waits for the end.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.end().map_err(Failure::Failed)
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let running = matches!(child.0.try_wait(), Ok(None));
        let asked = if running {
            insist(
                &self.isotherm.to_string_lossy(),
                &[OsStr::new("stop"), self.volume.as_os_str()],
            )
        } else {
            Ok(())
        };
        let begun = Instant::now();
        while asked.is_ok() && begun.elapsed() < TIMEOUT && matches!(child.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let ended = child.0.try_wait();
        drop(child);
        if !mounts_below(&self.mount).is_empty() {
            insist("umount", &[OsStr::new("-l"), self.mount.as_os_str()])?;
        }
        asked?;
        match ended {
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => {
                let said =
                    fs::read_to_string(self.volume.with_extension("log")).unwrap_or_default();
                Err(format!("isotherm serve: {status}: {}", said.trim()))
            }
            _ => Err("isotherm serve did not end and was killed".into()),
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        complain(self.end());
    }
}

/// A loop device over the block file, without a page cache of its own.
pub struct Loop {
    device: Option<PathBuf>,
}

impl Loop {
    /// Attaches the next free loop device.
    pub fn attach(file: &Path, stop: &Stop, dir: &Path) -> Result<Loop, Failure> {
        let mut c = command("losetup");
        c.args(["--direct-io=on", "--find", "--show"]).arg(file);
        let said = run(&mut c, "", stop, dir, &mut || {})?;
        let device = said.lines().map(str::trim).find(|l| l.starts_with("/dev/"));
        let device = device
            .ok_or_else(|| Failure::failed(format!("losetup: no device in `{}`", said.trim())))?;
        Ok(Loop {
            device: Some(device.into()),
        })
    }

    /// `/dev/loopN`.
    pub fn device(&self) -> &Path {
        self.device.as_deref().unwrap_or(Path::new(""))
    }

    /// Detaches it.
    pub fn detach(mut self) -> Result<(), Failure> {
        self.end().map_err(Failure::Failed)
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(device) = self.device.take() else {
            return Ok(());
        };
        insist("losetup", &[OsStr::new("-d"), device.as_os_str()])
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        complain(self.end());
    }
}

/// A mounted file system.
pub struct Mounted {
    dir: Option<PathBuf>,
}

impl Mounted {
    /// Mounts it. Freed blocks are discarded, so that the volume knows which blocks hold no data.
    pub fn mount(device: &Path, dir: &Path, stop: &Stop, work: &Path) -> Result<Mounted, Failure> {
        fs::create_dir_all(dir).map_err(|e| Failure::file(dir, "make the directory", &e))?;
        let mut c = command("mount");
        c.args(["-t", "ext4", "-o", "noatime,discard"])
            .arg(device)
            .arg(dir);
        // The value exists before the mount does, so that the mount is undone if it is interrupted.
        let mounted = Mounted {
            dir: Some(dir.into()),
        };
        run(&mut c, "", stop, work, &mut || {})?;
        Ok(mounted)
    }

    /// Unmounts it, which writes everything back.
    pub fn unmount(mut self) -> Result<(), Failure> {
        self.end().map_err(Failure::Failed)
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(dir) = self.dir.take() else {
            return Ok(());
        };
        if mounts_below(&dir).is_empty() {
            return Ok(());
        }
        insist("umount", &[dir.as_os_str()])
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        complain(self.end());
    }
}

/// A control group with a memory limit.
pub struct MemoryGroup {
    dir: PathBuf,
}

impl MemoryGroup {
    /// Created in cgroup v2 or v1, whichever has the memory controller.
    ///
    /// # Errors
    /// A message that says why none can be created.
    pub fn new(bytes: u64) -> Result<MemoryGroup, String> {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mut why = "no memory controller is mounted".to_owned();
        for line in table.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [_, point, kind, options, ..] = words[..] else {
                continue;
            };
            let point = Path::new(point);
            let limit = match kind {
                "cgroup" if options.split(',').any(|o| o == "memory") => "memory.limit_in_bytes",
                "cgroup2" => {
                    let has =
                        fs::read_to_string(point.join("cgroup.controllers")).unwrap_or_default();
                    if !has.split_whitespace().any(|c| c == "memory") {
                        continue;
                    }
                    // The controller may already be delegated. If this fails, setting the limit below reports the reason.
                    let _ = fs::write(point.join("cgroup.subtree_control"), "+memory");
                    "memory.max"
                }
                _ => continue,
            };
            let dir = point.join(format!("isotherm-demo-{}", std::process::id()));
            match fs::create_dir(&dir) {
                Ok(()) => {
                    let group = MemoryGroup { dir };
                    match fs::write(group.dir.join(limit), bytes.to_string()) {
                        Ok(()) => return Ok(group),
                        Err(e) => why = format!("{}: {e}", group.dir.join(limit).display()),
                    }
                }
                Err(e) => why = format!("{}: {e}", dir.display()),
            }
        }
        Err(why)
    }

    /// The file to which a process writes its id to join the group.
    pub fn procs(&self) -> PathBuf {
        self.dir.join("cgroup.procs")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        complain(insist("rmdir", &[self.dir.as_os_str()]));
    }
}
