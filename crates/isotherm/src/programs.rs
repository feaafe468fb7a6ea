//! Programs that a server or a command of root starts: they must be nobody else's, and they must end.

use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::Failure;

/// Interval at which a program is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Time that a killed program gets to end. One that waits for a device that hangs cannot be killed.
const AFTER_KILL: Duration = Duration::from_secs(2);
/// Permission to run a file, for anybody.
const MAY_RUN: u32 = 0o111;
/// Permission to change it, for others than its owner.
const OTHERS_MAY_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Where a distribution may put programs of ours, besides the directory of this one. `PATH` is not searched: what root starts must not depend on it.
const ELSEWHERE: &str = "/usr/libexec";

/// The program of ours with this name.
///
/// # Errors
/// It is not installed; the text says where it was looked for.
pub fn installed(name: &str) -> Result<PathBuf, String> {
    let own = std::env::current_exe();
    let own = own.map_err(|e| format!("cannot find this program's directory: {e}"))?;
    let own = own.parent().unwrap_or(Path::new("/"));
    let mut paths = [own, Path::new(ELSEWHERE)]
        .map(|d| d.join(name))
        .into_iter();
    paths.find(|p| p.is_file()).ok_or_else(|| {
        format!(
            "its program is not installed: no {name} in {} or {ELSEWHERE}",
            own.display()
        )
    })
}

/// Whether somebody else than root and this process' user may change a file, or what a directory has under a name.
fn others_may_change(m: &Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    // In a sticky directory, everybody has names of their own.
    let may_write = m.mode() & OTHERS_MAY_WRITE != 0 && !(m.is_dir() && m.mode() & STICKY != 0);
    may_write || (m.uid() != own && m.uid() != 0)
}

/// The program without links on the way. `option` is what it was given for.
///
/// # Errors
/// There is no such program, or others could put theirs in its place.
pub fn checked(program: &Path, option: &str) -> Result<PathBuf, Failure> {
    let failed = |e: &io::Error| Failure::file(program, &format!("use it for {option}"), e);
    let program = std::fs::canonicalize(program).map_err(|e| failed(&e))?;
    let m = std::fs::metadata(&program).map_err(|e| failed(&e))?;
    let shown = program.display();
    let refused = |what: &str| Failure::usage(format!("{option} {shown}: {what}"));
    if !m.is_file() || m.mode() & MAY_RUN == 0 {
        return Err(refused("is no program: give a file that may be run"));
    }
    for on_the_way in program.ancestors() {
        let m = std::fs::metadata(on_the_way).map_err(|e| failed(&e))?;
        if others_may_change(&m) {
            return Err(refused(&format!(
                "others could change what the server runs: {} must belong to root or to the user of the server, who alone may write to it (`chmod go-w`)",
                on_the_way.display()
            )));
        }
    }
    Ok(program)
}

/// The status of a program that ends in time. Otherwise it is killed with all that it has started, and this is `None`. It must be the first of
/// its process group.
///
/// # Errors
/// It cannot be asked. (One that does not end although it was killed is left alone.)
pub fn wait(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    if let Some(status) = ends(child, patience)? {
        return Ok(Some(status));
    }
    kill(child)?;
    ends(child, AFTER_KILL)?;
    Ok(None)
}

fn kill(child: &Child) -> io::Result<()> {
    let group = rustix::process::Pid::from_child(child);
    Ok(rustix::process::kill_process_group(
        group,
        rustix::process::Signal::KILL,
    )?)
}

fn ends(child: &mut Child, patience: Duration) -> io::Result<Option<ExitStatus>> {
    let begun = Instant::now();
    loop {
        let status = child.try_wait()?;
        if status.is_some() || begun.elapsed() >= patience {
            return Ok(status);
        }
        std::thread::sleep(LOOK.min(patience));
    }
}

/// What came of a program whose output is wanted.
#[derive(Debug)]
pub enum Said {
    /// It ended, and this is its exit code and what it printed.
    All(Option<i32>, Vec<u8>),
    /// It printed more than is read.
    TooMuch,
    /// It did not end in time, and was killed.
    TooLate,
    /// As before, and it cannot be killed: it waits in the kernel for a device.
    Stuck(Child),
}

/// Runs a program without input, and reads at most `most` bytes of its output.
///
/// # Errors
/// It cannot be started.
pub fn output(command: &mut Command, most: u64, patience: Duration) -> io::Result<Said> {
    let mut child = command
        // The service manager would take its words for the server's.
        .env_remove("NOTIFY_SOCKET")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let (tell, told) = channel();
    let out = child.stdout.take();
    // What the program has started may keep the pipe for ever, so nobody waits for this thread.
    let reader = std::thread::Builder::new().name("output".into());
    let reader = reader.spawn(move || {
        let mut text = Vec::new();
        let read = out.map(|o| o.take(most + 1).read_to_end(&mut text));
        let _ = tell.send(read.transpose().map(|_| text)); // the one who asked may have given up
    });
    let text = match reader {
        Ok(_) => told.recv_timeout(patience),
        Err(e) => {
            kill(&child)?;
            ends(&mut child, AFTER_KILL)?;
            return Err(e);
        }
    };
    let text = match text {
        Ok(text) => text.ok(),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
    };
    let in_time = text.as_ref().is_some_and(|t| t.len() as u64 <= most);
    let status = if in_time {
        ends(&mut child, AFTER_KILL)?
    } else {
        None
    };
    if let (Some(status), Some(text)) = (status, text.as_ref()) {
        return Ok(Said::All(status.code(), text.clone()));
    }
    kill(&child)?;
    Ok(match ends(&mut child, AFTER_KILL)? {
        None => Said::Stuck(child),
        Some(_) if text.is_some_and(|t| t.len() as u64 > most) => Said::TooMuch,
        Some(_) => Said::TooLate,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_has_started_ends_with_it() {
        let mut child = Command::new("sh")
            .args(["-c", "sleep 1000 & echo; wait"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("starts");
        let mut out = child.stdout.take().expect("piped");
        out.read_exact(&mut [0]).expect("it has started the other");
        let ended = wait(&mut child, Duration::from_millis(10));
        assert!(ended.expect("waited").is_none());
        // Both had the pipe, which ends with the last of them.
        assert_eq!(out.read(&mut [0]).expect("read"), 0);
    }

    fn sh(script: &str, most: u64, patience: u64) -> Said {
        let patience = Duration::from_millis(patience);
        output(Command::new("sh").args(["-c", script]), most, patience).expect("starts")
    }

    #[test]
    fn output_is_bounded_in_size_and_time() {
        assert!(matches!(sh("echo a; exit 4", 100, 60_000), Said::All(Some(4), t) if t == b"a\n"));
        assert!(matches!(
            sh("exec cat /dev/zero", 1 << 20, 60_000),
            Said::TooMuch
        ));
        assert!(matches!(sh("exec sleep 1000", 100, 50), Said::TooLate));
        // It ends, and what it started has its output for ever: it is killed as well.
        assert!(matches!(sh("sleep 1000 & echo a", 100, 50), Said::TooLate));
        assert!(output(&mut Command::new("/no/such"), 1, LOOK).is_err());
    }
}
