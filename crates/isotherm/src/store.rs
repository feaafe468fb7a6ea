//! The process `isotherm-store` of a volume whose slow member is an object store (`VOLUME.store`): made, started, watched, ended.
//!
//! ```text
//! VOLUME.store ─► isotherm-store run ─► DIR/disk, a member as any other
//!                       └ systemd: isotherm-store@NAME.service, for a volume of /etc/isotherm; else it is started here
//! ```
//! It is a process of its own, which goes on if this one is killed: the next one finds it by the lock on its spool. If it is killed, it is
//! started again, and the volume goes on (`live/src/world/returning.rs`).

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use isotherm_control::store::{is_served, told};
use isotherm_live::config::StoreConfig;
use rustix::process::{Pid, Signal, kill_process};

use crate::patience::each_time;
use crate::{Failure, place, programs};

const PROGRAM: &str = "isotherm-store";
/// Interval at which the process is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Pause before a process that has ended is started again; it doubles up to the second time.
const AGAIN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(60));
/// Time for the last uploads at the end.
const ENDS: Duration = Duration::from_secs(100);
/// Where systemd is, if it runs.
const SYSTEMD: &str = "/run/systemd/system";

/// A process that serves the store. Dropping the value ends it, if it was started here.
pub struct Running {
    config: StoreConfig,
    watch: Option<(Arc<AtomicBool>, JoinHandle<Option<Child>>)>,
    child: Option<Child>,
}

fn failed(e: &dyn std::fmt::Display) -> Failure {
    Failure::failed(e.to_string())
}

/// The description of the volume's store, if it has one.
///
/// # Errors
/// It cannot be read.
pub fn of(volume: &Path) -> Result<Option<StoreConfig>, Failure> {
    StoreConfig::load(&StoreConfig::place(volume)).map_err(|e| failed(&e))
}

/// Runs `isotherm-store WORDS` to its end. Returns what it printed.
///
/// # Errors
/// It is not installed, or has failed; it has said on standard error why.
pub fn ask(words: &[&std::ffi::OsStr]) -> Result<Vec<u8>, Failure> {
    let program = programs::installed(PROGRAM).map_err(|e| failed(&e))?;
    let ran = Command::new(&program)
        .args(words)
        .stdin(Stdio::null())
        .output();
    let out = ran.map_err(|e| Failure::file(&program, "start", &e))?;
    if out.status.success() {
        return Ok(out.stdout);
    }
    let said = String::from_utf8_lossy(&out.stderr);
    Err(failed(&said.trim().trim_start_matches("isotherm-store: ")))
}

fn spawn(program: &Path, file: &Path, options: &[&str]) -> Result<Child, Failure> {
    Command::new(program)
        .arg("run")
        .arg(file)
        .args(options)
        // The service manager would take its words for the server's.
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // Ctrl-C is for this process, which ends the other when the volume has ended.
        .process_group(0)
        .spawn()
        .map_err(|e| Failure::file(program, "start", &e))
}

/// Whether the volume's store is a service of the system.
fn unit(volume: &Path) -> Option<String> {
    let registered = volume.parent() == Some(Path::new(place::SYSTEM_CONFIG));
    (registered && Path::new(SYSTEMD).exists()).then(|| {
        format!(
            "{PROGRAM}@{}.service",
            volume.file_name().unwrap_or_default().display()
        )
    })
}

fn start_unit(unit: &str) -> Result<(), Failure> {
    let ran = Command::new("systemctl").args(["start", unit]).output();
    let out = ran.map_err(|e| failed(&format!("{unit}: not started: systemctl: {e}")))?;
    if out.status.success() {
        return Ok(());
    }
    Err(failed(&format!(
        "{unit}: not started: {}; see `journalctl -u {unit}`",
        String::from_utf8_lossy(&out.stderr).trim()
    )))
}

/// Makes sure that the store of `volume` is served, if it has one: by its service, or by a process that is ended with the result.
///
/// # Errors
/// The process cannot be started, or has ended; it has said why.
pub fn start(volume: &Path) -> Result<Option<Running>, Failure> {
    let Some(config) = of(volume)? else {
        return Ok(None);
    };
    if let Some(unit) = unit(volume) {
        // The service of the volume has started the other one already, and waits for the member.
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            start_unit(&unit)?;
            wait(&config, None)?;
        }
        return Ok(None);
    }
    start_here(volume, config, &[]).map(Some)
}

/// As [`start`], without the service, with these options of `isotherm-store run`.
///
/// # Errors
/// As for [`start`].
pub fn start_here(
    volume: &Path,
    config: StoreConfig,
    options: &[&str],
) -> Result<Running, Failure> {
    let program = programs::installed(PROGRAM).map_err(|e| failed(&e))?;
    let served = is_served(&config);
    // If it cannot be made, the program says what is there.
    let _ = place::make_dir(&config.dir);
    let mut child = if served {
        None
    } else {
        Some(spawn(&program, &StoreConfig::place(volume), options)?)
    };
    wait(&config, child.as_mut())?;
    Ok(Running {
        config,
        watch: None,
        child,
    })
}

/// Waits until the disk is there.
fn wait(config: &StoreConfig, mut child: Option<&mut Child>) -> Result<(), Failure> {
    let disk = config.disk();
    let url = config.url.clone();
    let _said = each_time(move || {
        crate::log::note(format_args!(
            "isotherm: waiting for {PROGRAM} to show the disk of {url}"
        ));
    });
    while !(is_served(config) && std::fs::metadata(&disk).is_ok()) {
        let ended = child.as_mut().and_then(|c| c.try_wait().transpose());
        if let Some(status) = ended.transpose().map_err(|e| failed(&e))? {
            return Err(failed(&format!(
                "{}: {PROGRAM} has ended ({status}) and said why above",
                config.url
            )));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Whether this process is a program of that name.
fn is_store(process: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{process}/exe"));
    let name = program.ok();
    let name = name.as_deref().and_then(Path::file_name);
    // A program that was replaced by another version has ` (deleted)` behind its name.
    name.is_some_and(|n| n.as_encoded_bytes().starts_with(PROGRAM.as_bytes()))
}

impl Running {
    /// From now on a process that ends is started again, and the last one is ended with this value, whoever started it.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn watch(&mut self, volume: &Path) -> Result<(), Failure> {
        let program = programs::installed(PROGRAM).map_err(|e| failed(&e))?;
        let over = Arc::<AtomicBool>::default();
        let (ends, config) = (Arc::clone(&over), self.config.clone());
        let (file, child) = (StoreConfig::place(volume), self.child.take());
        let thread = std::thread::Builder::new().name(PROGRAM.into());
        let thread = thread.spawn(move || watch(&program, &file, &config, child, &ends));
        self.watch = Some((over, thread.map_err(|e| failed(&e))?));
        Ok(())
    }
}

fn watch(
    program: &Path,
    file: &Path,
    config: &StoreConfig,
    mut child: Option<Child>,
    over: &AtomicBool,
) -> Option<Child> {
    let (mut pause, mut begun) = (AGAIN.0, Instant::now());
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        // A process of an earlier server is not this one's child.
        let status = match &mut child {
            Some(running) => match running.try_wait() {
                Ok(Some(status)) => status.to_string(),
                _ => continue,
            },
            None if is_served(config) => continue,
            None => "by itself".into(),
        };
        if begun.elapsed() > AGAIN.1 {
            pause = AGAIN.0;
        }
        tracing::error!("{PROGRAM} has ended ({status}): it is started again; what needs it waits");
        let until = Instant::now() + pause;
        while Instant::now() < until && !over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        (pause, begun) = ((pause * 2).min(AGAIN.1), Instant::now());
        child = match spawn(program, file, &[]) {
            Ok(child) => Some(child),
            Err(e) => {
                tracing::error!("{e}");
                None
            }
        };
    }
    child
}

impl Drop for Running {
    fn drop(&mut self) {
        let watched = self.watch.take();
        let mut child = self.child.take();
        let serves = watched.is_some();
        if let Some((over, thread)) = watched {
            over.store(true, Ordering::Relaxed);
            // A panic there was printed already.
            child = thread.join().ok().flatten();
        }
        let other = told(&self.config)
            .filter(|t| serves && t.serving)
            .map(|t| t.process)
            // One that has just begun has not told yet, and the number may be another's by now.
            .filter(|p| is_store(*p));
        let own = child.as_ref().map(Child::id);
        let Some(pid) = own
            .or(other)
            .and_then(|p| Pid::from_raw(i32::try_from(p).ok()?))
        else {
            return;
        };
        // It may end at this moment, which is what is wanted.
        let _ = kill_process(pid, Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < ENDS {
            let gone = match &mut child {
                Some(child) => !matches!(child.try_wait(), Ok(None)),
                None => !is_served(&self.config),
            };
            if gone {
                return;
            }
            std::thread::sleep(LOOK);
        }
        tracing::warn!("{PROGRAM} still uploads, and ends by itself");
    }
}
