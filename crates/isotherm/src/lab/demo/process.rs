//! The programs that the demo runs, and its interruption.

use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::Failure;

/// Interval at which a running program is polled. It is short because it is part of the measured time.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// A flag that is set when the demo should end.
#[derive(Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// From now on it is set by SIGINT, SIGTERM and SIGHUP.
    pub fn watch() -> Result<Stop, Failure> {
        let stop = Stop::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&stop.0))
                .map_err(|e| Failure::failed(format!("cannot watch for signals: {e}")))?;
        }
        Ok(stop)
    }

    /// Fails once it is set; to be called between steps.
    pub fn check(&self) -> Result<(), Failure> {
        if self.0.load(Ordering::Relaxed) {
            return Err(Failure::failed(
                "interrupted; what the demo had started is stopped and removed",
            ));
        }
        Ok(())
    }
}

/// Whether there is such a program.
pub fn find(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(Into::into);
    std::env::split_paths(&path)
        .chain(usual)
        .any(|d: std::path::PathBuf| d.join(program).is_file())
}

/// A command in a process group of its own: Ctrl-C in a terminal reaches only the demo, which then stops everything in order.
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut c = Command::new(program);
    c.process_group(0).stdin(Stdio::null());
    // The directories of administrators' programs are not in every user's path.
    let path = std::env::var("PATH").unwrap_or_default();
    c.env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin"))
        .env("LC_ALL", "C");
    c
}

/// Runs to its end and returns the output. `look` is called at intervals.
///
/// # Errors
/// It cannot be started, its exit code is not 0, or the demo should stop (then the program is ended first).
pub fn run(
    c: &mut Command,
    input: &str,
    stop: &Stop,
    dir: &Path,
    look: &mut dyn FnMut(),
) -> Result<String, Failure> {
    let name = c.get_program().to_string_lossy().into_owned();
    stop.check()?;
    // The output goes to a file and not to a pipe, so it need not be read during the run.
    let log = dir.join("output");
    let failed = |e: &std::io::Error| Failure::file(&log, "write", e);
    let file = File::create(&log).map_err(|e| failed(&e))?;
    let again = file.try_clone().map_err(|e| failed(&e))?;
    c.stdout(file).stderr(again);
    if !input.is_empty() {
        c.stdin(Stdio::piped());
    }
    let mut child = Guard(
        c.spawn()
            .map_err(|e| Failure::failed(format!("{name}: cannot be started: {e}")))?,
    );
    if let Some(mut stdin) = child.0.stdin.take() {
        stdin
            .write_all(input.as_bytes())
            .map_err(|e| Failure::failed(format!("{name}: does not read its input: {e}")))?;
    }
    let status = loop {
        stop.check()?;
        match child.0.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => std::thread::sleep(CHECK_INTERVAL),
            Err(e) => {
                return Err(Failure::failed(format!(
                    "{name}: cannot be waited for: {e}"
                )));
            }
        }
        look();
    };
    let text = std::fs::read(&log).map_err(|e| Failure::file(&log, "read", &e))?;
    let text = String::from_utf8_lossy(&text).into_owned();
    if status.success() {
        return Ok(text);
    }
    let last: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).collect();
    let last = last[last.len().saturating_sub(3)..].join("; ");
    Err(Failure::failed(format!("{name}: {status}: {last}")))
}

/// Runs a short clean-up step, which is not interrupted. If it fails, it is repeated for up to a minute, because the kernel releases a device
/// only a moment after its last user has ended, which is long on a busy machine.
pub fn insist(name: &str, args: &[&std::ffi::OsStr]) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let done = command(name)
            .args(args)
            .output()
            .map_err(|e| format!("{name}: {e}"))?;
        if done.status.success() {
            return Ok(());
        }
        if begun.elapsed() > Duration::from_secs(60) {
            return Err(format!(
                "{name}: {}",
                String::from_utf8_lossy(&done.stderr).trim()
            ));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A child process that is ended when this value is dropped.
pub struct Guard(pub Child);

impl Drop for Guard {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // The process may just have ended; then there is nothing to do.
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_comes_back_and_failure_says_why() {
        let dir = tempfile::tempdir().expect("a directory");
        let sh = |text: &str, input: &str| {
            run(
                command("sh").arg("-c").arg(text),
                input,
                &Stop::default(),
                dir.path(),
                &mut || {},
            )
        };
        assert_eq!(sh("cat; echo b >&2", "a\n"), Ok("a\nb\n".into()));
        let e = sh("echo first; echo it broke >&2; exit 3", "").expect_err("3");
        assert!(
            e.to_string().contains("it broke") && e.to_string().contains('3'),
            "{e}"
        );
        assert!(
            run(
                &mut command("no-such-program"),
                "",
                &Stop::default(),
                dir.path(),
                &mut || {}
            )
            .is_err()
        );
        assert!(find("sh") && !find("no-such-program"));
    }

    #[test]
    fn a_stop_ends_the_program() {
        let dir = tempfile::tempdir().expect("a directory");
        let stop = Stop::default();
        let pid = dir.path().join("pid");
        let script = format!("echo $$ > {}; exec sleep 1000", pid.display());
        let later = stop.clone();
        let mut look = || {
            if std::fs::read_to_string(&pid).is_ok_and(|p| p.ends_with('\n')) {
                later.0.store(true, Ordering::Relaxed);
            }
        };
        let ended = run(
            command("sh").arg("-c").arg(&script),
            "",
            &stop,
            dir.path(),
            &mut look,
        );
        assert!(ended.is_err_and(|e| e.to_string().contains("interrupted")));
        let pid = std::fs::read_to_string(&pid).expect("written");
        assert!(!Path::new("/proc").join(pid.trim()).exists());
    }
}
