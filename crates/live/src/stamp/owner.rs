//! The process that wrote a stamp, and whether it lives. That it lives, or that it has ended, counts only if this process can know: a process of
//! this boot, in a namespace of process numbers that can be seen from here. What cannot be seen is not taken to have ended.
//!
//! ```text
//! another boot or machine ─────────────────────────────────► unknown
//! our namespace ────────► /proc: number and start time ────► lives, ends (killed, not gone yet), has ended
//! another namespace ─ we are root in the first one ─► all processes of /proc that are in that namespace
//!                  └─ else (in a container) ────────► unknown
//! ```

use super::boot;
use crate::device::{holds_any, is_ending};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError};

/// The number of the namespace in which the system began, a constant of Linux (`PROC_PID_INIT_INO`).
const FIRST_SPACE: u64 = 0xEFFF_FFFC;

/// The process that wrote a stamp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owner {
    pub boot: [u8; 16],
    /// The namespace of process numbers; numbers are comparable only within one.
    pub space: u64,
    pub process: u64,
    pub started: u64,
    pub host: String,
}

/// Whether a process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Lives,
    /// It was killed, and the system has not ended its requests yet.
    Ends,
    HasEnded,
    /// It ran on another machine or before this boot, or cannot be seen from here.
    Unknown,
}

/// The stamps of this process that may still be written.
static OURS: Mutex<BTreeSet<[u8; 16]>> = Mutex::new(BTreeSet::new());

fn ours() -> std::sync::MutexGuard<'static, BTreeSet<[u8; 16]>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// As long as a copy of this exists, the stamps with the token are those of a server that lives.
#[derive(Clone, Debug)]
pub(super) struct InUse(#[expect(dead_code, reason = "its drop counts")] Arc<Token>);

#[derive(Debug)]
struct Token([u8; 16]);

impl InUse {
    pub(super) fn new(token: [u8; 16]) -> InUse {
        ours().insert(token);
        InUse(Arc::new(Token(token)))
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        ours().remove(&self.0);
    }
}

/// The words of `/proc/PROCESS/stat` after the name, which may contain anything.
fn stat(process: u64) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// The time of its start, clock ticks after that of the machine.
fn started(process: u64) -> Option<u64> {
    stat(process)?.get(19)?.parse().ok()
}

/// Whether the process exists, which is known also where `/proc` does not show the processes of other users.
fn exists(process: u64) -> bool {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(Errno::SRCH))
}

/// Whether start times of that process mean the same here: a namespace of time may shift them.
fn same_clock(process: u64) -> bool {
    let clock = |of: &str| fs::read_link(format!("/proc/{of}/ns/time")).ok();
    clock(&process.to_string()) == clock("self")
}

/// The standing of a process that `/proc` shows under this number.
fn standing(process: u64, began: u64) -> Standing {
    if !exists(process) {
        // Its files are open until its last request has ended. Then the list of locks still has it.
        return if holds_any(&process.to_string()) {
            Standing::Ends
        } else {
            Standing::HasEnded
        };
    }
    judge(
        started(process).map(|now| now == began || !same_clock(process)),
        || is_zombie(process),
        || is_ending(&process.to_string()),
    )
}

/// The standing of a process that exists. `may_be_it`: whether it can be the one that is meant, and not a later one with its number; `None` if
/// its start cannot be read. That is no proof of anything.
fn judge(
    may_be_it: Option<bool>,
    is_zombie: impl FnOnce() -> bool,
    is_ending: impl FnOnce() -> bool,
) -> Standing {
    match may_be_it {
        Some(false) => Standing::HasEnded,
        Some(true) if is_zombie() => Standing::HasEnded,
        Some(true) if is_ending() => Standing::Ends,
        Some(true) | None => Standing::Lives,
    }
}

/// Whether nothing is left of the process but its exit code: it has no thread, and no lock.
fn is_zombie(process: u64) -> bool {
    let words = stat(process).unwrap_or_default();
    let threads = words.get(17).and_then(|n| n.parse::<u32>().ok());
    words.first().is_some_and(|state| state == "Z")
        && threads.is_some_and(|n| n <= 1)
        && !holds_any(&process.to_string())
}

impl Owner {
    pub(super) fn here() -> Owner {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let process = u64::from(std::process::id());
        Owner {
            boot: boot(),
            space: fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino()),
            process,
            started: started(process).unwrap_or(0),
            host: host.trim().to_owned(),
        }
    }

    /// Whether the process that wrote the stamp with this token lives.
    pub(super) fn standing(&self, token: &[u8; 16]) -> Standing {
        let here = Owner::here();
        let comparable = here.boot != [0; 16] && here.boot == self.boot && self.started != 0;
        // A /proc of another namespace tells nothing about ours.
        let number = here.process.to_string();
        if !comparable || fs::read_link("/proc/self").map_or(true, |p| p.as_os_str() != &*number) {
            return Standing::Unknown;
        }
        if self.space != here.space {
            return if here.space == FIRST_SPACE {
                self.standing_inside()
            } else {
                Standing::Unknown
            };
        }
        if (self.process, self.started) != (here.process, here.started) {
            return standing(self.process, self.started);
        }
        if ours().contains(token) {
            Standing::Lives
        } else {
            // An earlier session of this process, which has closed the volume.
            Standing::HasEnded
        }
    }

    /// The standing of a process in another namespace, which the first one can see under other numbers.
    fn standing_inside(&self) -> Standing {
        let status = |number: &str| fs::read_to_string(format!("/proc/{number}/status")).ok();
        if status("1").is_none() {
            // This /proc hides the processes of others.
            return Standing::Unknown;
        }
        let wanted = self.process.to_string();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        for number in all.filter_map(|p| p.file_name().to_str()?.parse::<u64>().ok()) {
            let status = status(&number.to_string()).unwrap_or_default();
            // Its numbers from our namespace to its own.
            let numbers = status.lines().find_map(|l| l.strip_prefix("NSpid:"));
            let inner = numbers
                .into_iter()
                .flat_map(str::split_whitespace)
                .skip(1)
                .last();
            let space = fs::metadata(format!("/proc/{number}/ns/pid"));
            // Whether the namespace may be looked at depends on capabilities.
            if inner != Some(&wanted) || space.is_ok_and(|s| s.ino() != self.space) {
                continue;
            }
            match standing(number, self.started) {
                Standing::HasEnded => {}
                found => return found,
            }
        }
        Standing::HasEnded
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    fn of(process: u64) -> Owner {
        Owner {
            process,
            started: started(process).unwrap_or(0),
            ..Owner::here()
        }
    }

    /// `/proc` may hide the processes of others (`hidepid`), and show them in part.
    #[test]
    fn what_cannot_be_read_is_no_proof_of_an_end() {
        use Standing::{Ends, HasEnded, Lives};
        for (may_be_it, zombie, ending, standing) in [
            (None, false, false, Lives),
            (None, true, true, Lives),
            (Some(true), false, false, Lives),
            (Some(true), false, true, Ends),
            (Some(true), true, true, HasEnded),
            (Some(false), false, false, HasEnded),
        ] {
            assert_eq!(judge(may_be_it, || zombie, || ending), standing);
        }
    }

    #[test]
    fn only_a_process_that_is_seen_to_be_gone_has_ended() {
        let none = [0; 16];
        let mut owner = of(u64::from(std::os::unix::process::parent_id()));
        assert_eq!(owner.standing(&none), Standing::Lives, "our parent");
        owner.started += 1;
        assert_eq!(
            owner.standing(&none),
            Standing::HasEnded,
            "its number was another's before"
        );
        owner.boot = [7; 16];
        assert_eq!(
            owner.standing(&none),
            Standing::Unknown,
            "of another machine"
        );
        let mut owner = of(1);
        owner.space = FIRST_SPACE + 1;
        let seen = owner.standing(&none);
        assert!(
            matches!(seen, Standing::Unknown | Standing::HasEnded),
            "no such namespace: {seen:?}"
        );
    }

    #[test]
    fn sessions_of_this_process_are_told_apart_by_their_tokens() {
        let (owner, token) = (Owner::here(), [9; 16]);
        assert_eq!(owner.standing(&token), Standing::HasEnded);
        let session = InUse::new(token);
        let copy = session.clone();
        drop(session);
        assert_eq!(owner.standing(&token), Standing::Lives);
        drop(copy);
        assert_eq!(owner.standing(&token), Standing::HasEnded);
    }

    #[test]
    fn a_child_that_was_killed_has_ended_before_it_is_waited_for() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let owner = of(u64::from(child.id()));
        assert_eq!(owner.standing(&[0; 16]), Standing::Lives);
        child.kill().unwrap();
        let begun = Instant::now();
        while owner.standing(&[0; 16]) != Standing::HasEnded {
            assert!(begun.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
        assert_eq!(owner.standing(&[0; 16]), Standing::HasEnded);
    }

    /// A server in a container.
    #[test]
    fn a_process_in_a_namespace_of_its_own_is_seen_from_the_first_one() {
        if Owner::here().space != FIRST_SPACE {
            return println!("skipped: this is a container");
        }
        let script =
            "read x < /proc/self/stat; echo $(stat -Lc %i /proc/self/ns/pid) ${x##*) }; exec cat";
        let mut inside = Command::new("unshare");
        inside.args(["--pid", "--fork", "--mount-proc", "sh", "-c", script]);
        let child = inside
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut child) = child else {
            return println!("skipped: no unshare here");
        };
        let mut line = String::new();
        let out = child.stdout.take().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.len() < 21 {
            child.wait().unwrap();
            return println!("skipped: no namespaces for us here");
        }
        let owner = Owner {
            space: words[0].parse().unwrap(),
            process: 1,
            started: words[20].parse().unwrap(),
            ..Owner::here()
        };
        assert_eq!(owner.standing(&[0; 16]), Standing::Lives, "{line}");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(owner.standing(&[0; 16]), Standing::HasEnded);
    }
}
