//! How a served volume is: the one place that decides it. `status`, `list`, `top`, the web view, the metrics, the log and the service's
//! status line show this answer and none of their own.
//!
//! | state | meaning |
//! |---|---|
//! | `well` | nothing below |
//! | `degraded` | all requests are served, and something needs a person: a member is missing, a check found damage, part of the map is unknown, a drive says that it fails |
//! | `failing` | some requests fail or wait now: a member has answered errors within the last minutes, has no space, or does not answer |
//! | `failed` | writes are refused until the volume is served anew |
//!
//! Nothing here asks the engine's thread or touches a member that may hang, so there is an answer although the engine waits.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use isotherm_answers::LastCheck;
use isotherm_live::loss::Listed;
use isotherm_live::server::VolumeFailure;
use isotherm_live::vitals::{Errors, Unanswered, Vital, Vitals};
use isotherm_words::printable::printable;

use crate::closing::unanswered;
use crate::failure::reason;
use crate::live::Live;

/// A member that does not answer an operation for this long is failing.
const SILENT: Duration = Duration::from_secs(10);
/// The same for a member that is sent to sleep: disks need up to half a minute to start.
const SILENT_SLEEPER: Duration = Duration::from_secs(30);
/// A lack of space counts for this long, or as long as the file system has none.
const NO_SPACE_HOLDS: Duration = Duration::from_secs(60);
/// A file system with less free space than this has none, bytes.
const ROOM: u64 = 1 << 20;

pub use isotherm_answers::{CauseKind as Kind, Level};

fn head(level: Level) -> &'static str {
    match level {
        Level::Well => "Serving well",
        Level::Degraded => "Degraded",
        Level::Failing => "FAILING",
        Level::Failed => "FAILED",
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// How bad it is.
    pub level: Level,
    /// What it is.
    pub kind: Kind,
    /// The member, by its place in the member list, and its path.
    pub member: Option<(usize, PathBuf)>,
    /// One sentence without a period, which stays the same as long as this goes on.
    pub what: String,
    /// Figures, which change.
    pub detail: String,
    /// What to do.
    pub todo: String,
    /// The system's number of the last error.
    pub errno: Option<i32>,
    /// Number of errors or of operations that wait.
    pub count: Option<u64>,
    /// When it began.
    pub since: Option<SystemTime>,
    /// Time of the last error.
    pub last: Option<SystemTime>,
}

/// How a volume is.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    /// The level of the worst cause.
    pub level: Level,
    /// What is wrong, the worst first.
    pub causes: Vec<Cause>,
    read_only: bool,
}

/// What the decision depends on.
pub struct Facts<'a> {
    /// Why the volume has failed.
    pub failure: Option<&'a VolumeFailure>,
    /// The places of missing members in the member list.
    pub missing: &'a [u8],
    /// Whether they are flash without which the volume goes on for good.
    pub left_out: bool,
    /// What was lost with flash and is listed.
    pub lost: &'a Listed,
    /// The members' paths, and whether they are sent to sleep.
    pub members: &'a [(PathBuf, bool)],
    /// What the members have answered.
    pub vitals: &'a Vitals,
    /// The outcome of the last complete check of all data.
    pub checked: Option<&'a LastCheck>,
    /// Whether part of the map could not be recovered.
    pub incomplete: bool,
    /// Whether only reads are served.
    pub read_only: bool,
}

/// A point in time for people, in universal time.
pub fn date(at: SystemTime) -> String {
    // The library panics outside of the years that it can write.
    let known = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let most = Duration::from_secs(253_402_300_799);
    httpdate::fmt_http_date(UNIX_EPOCH + known.min(most))
}

/// The system's words for an error number.
fn words(errno: Option<i32>) -> String {
    errno.map_or_else(
        || "fewer bytes than asked for".to_owned(),
        |n| reason(&io::Error::from_raw_os_error(n)),
    )
}

fn unix(at: SystemTime) -> f64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_secs_f64()
}

/// The time of the calendar at this moment of the monotonic clock.
pub(crate) fn calendar(at: Instant) -> SystemTime {
    let now = SystemTime::now();
    now.checked_sub(at.elapsed()).unwrap_or(now)
}

/// A number and a noun.
pub(crate) fn count(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

/// Whether the file system with `path` has no space, as far as the system says so.
fn is_full(path: &Path) -> bool {
    rustix::fs::statvfs(path).is_ok_and(|v| v.f_bavail.saturating_mul(v.f_frsize) < ROOM)
}

impl Facts<'_> {
    fn path(&self, member: usize) -> PathBuf {
        let path = self.members.get(member).map(|m| m.0.clone());
        path.unwrap_or_default()
    }

    fn failed(&self) -> Option<Cause> {
        let f = self.failure?;
        let whose = f.member.as_ref().map_or_else(String::new, |m| {
            format!("{} (member {}): ", m.1.display(), m.0)
        });
        let why = f
            .errno
            .map_or_else(String::new, |n| format!(": {}", words(Some(n))));
        Some(Cause {
            level: Level::Failed,
            kind: Kind::Failure,
            member: f.member.clone(),
            what: format!("{whose}{}{why}, {}", f.reason, date(f.at)),
            detail: "Writes are refused until it is served anew".to_owned(),
            todo: "look at `dmesg` and the device, stop the volume and serve it again; what was written since the last good flush may be lost".to_owned(),
            errno: f.errno,
            count: None,
            since: Some(f.at),
            last: Some(f.at),
        })
    }

    fn silent(&self, member: usize, u: &Unanswered) -> Option<Cause> {
        let sleeps = self.members.get(member).is_some_and(|m| m.1);
        let limit = if sleeps { SILENT_SLEEPER } else { SILENT };
        if u.since.elapsed() < limit {
            return None;
        }
        let (path, since) = (self.path(member), calendar(u.since));
        let mut detail = format!("waiting for it: {}", unanswered(u));
        if self.vitals.flushes_waiting > 0 {
            let n = self.vitals.flushes_waiting;
            detail = format!("{detail}; FLUSHes of clients that are not answered: {n}");
        }
        Some(Cause {
            level: Level::Failing,
            kind: Kind::Silent,
            what: format!("{} has not answered since {}", path.display(), date(since)),
            member: Some((member, path)),
            detail,
            todo: "look at `dmesg` and at what is behind it (a disk, a server); what needs it waits without a time limit and ends when it answers; all else goes on".to_owned(),
            errno: None,
            count: Some(u64::from(u.reads) + u64::from(u.writes) + u64::from(u.flushes)),
            since: Some(since),
            last: None,
        })
    }

    fn errors(&self, member: usize, e: &Errors, local: bool) -> Option<Cause> {
        let (path, recent) = (self.path(member), e.is_recent(Instant::now()));
        let (since, last) = (calendar(e.first), calendar(e.last));
        // Space may be there again, which other errors cannot show.
        let full = local && is_full(&path);
        let no_space = e.is_no_space() && (full || e.last.elapsed() < NO_SPACE_HOLDS);
        if !no_space && (e.is_no_space() || !recent) {
            return None;
        }
        let (kind, what, todo) = if no_space {
            (
                Kind::NoSpace,
                format!("no space for {} since {}", path.display(), date(since)),
                "free space on its file system: until then writes to it fail, and a flush that fails for lack of space fails the volume",
            )
        } else {
            (
                Kind::Errors,
                format!("{} answers errors since {}", path.display(), date(since)),
                "look at `dmesg`, at the device and its cables (`smartctl -a`), and save what is not in a backup; requests that need it may fail, all others go on",
            )
        };
        Some(Cause {
            level: Level::Failing,
            kind,
            what,
            member: Some((member, path)),
            detail: format!(
                "{}, the last was a {} at {}: {}",
                count(e.count, "error", "errors"),
                e.deed.word(),
                date(last),
                words(e.errno)
            ),
            todo: todo.to_owned(),
            errno: e.errno,
            count: Some(e.count),
            since: Some(since),
            last: Some(last),
        })
    }

    fn missing(&self) -> Option<Cause> {
        let paths: Vec<String> = (self.missing.iter())
            .map(|&m| self.path(usize::from(m)).display().to_string())
            .collect();
        let first = self.missing.first().copied().map(usize::from)?;
        let todo = if self.left_out {
            "this flash is no part of the volume any more, also if it returns: give the volume another device (`isotherm replace`)"
        } else {
            "attach it and serve the volume again, or give the volume another device (`isotherm replace`)"
        };
        Some(Cause {
            level: Level::Degraded,
            kind: Kind::Missing,
            member: Some((first, self.path(first))),
            what: format!("{} of its members missing", paths.len()),
            detail: paths.join(", "),
            todo: todo.to_owned(),
            errno: None,
            count: Some(paths.len() as u64),
            since: None,
            last: None,
        })
    }

    fn lost(&self) -> Option<Cause> {
        (self.lost.bytes > 0).then(|| Cause {
            level: Level::Failing,
            kind: Kind::Lost,
            member: None,
            what: "data was lost with flash, and reading it is an error".to_owned(),
            detail: format!("{} bytes: {}", self.lost.bytes, self.lost.words()),
            todo: Listed::TODO.to_owned(),
            errno: None,
            count: Some(self.lost.bytes),
            since: None,
            last: None,
        })
    }

    fn damage(&self) -> Option<Cause> {
        let last = self.checked.filter(|last| !last.ok)?;
        let at = UNIX_EPOCH.checked_add(Duration::from_secs(last.time_unix_s));
        let when = at.map_or_else(String::new, |t| format!(" of {}", date(t)));
        Some(Cause {
            level: Level::Degraded,
            kind: Kind::Damage,
            member: None,
            what: format!("the check of all data{when} found damage"),
            detail: format!(
                "{} bytes cannot be read, {} bytes differ between copy and home, {} cannot be read",
                last.lost_bytes,
                last.differing_bytes,
                count(last.bad_places, "place of a member", "places of members"),
            ),
            todo: "`isotherm check VOLUME --data` names the places: restore what lies there from a backup, then check again; a check that finds no damage ends this".to_owned(),
            errno: None,
            count: None,
            since: at,
            last: at,
        })
    }

    fn incomplete(&self) -> Option<Cause> {
        self.incomplete.then(|| Cause {
            level: Level::Degraded,
            kind: Kind::Incomplete,
            member: None,
            what: "part of its map could not be recovered".to_owned(),
            detail: "what the map lacks reads as an error".to_owned(),
            todo:
                "attach the missing member; `isotherm check VOLUME` of the stopped volume says more"
                    .to_owned(),
            errno: None,
            count: None,
            since: None,
            last: None,
        })
    }

    /// How the volume is.
    pub fn judge(&self) -> Health {
        let mut causes: Vec<Cause> = self.failed().into_iter().collect();
        for (i, m) in self.vitals.members.iter().enumerate() {
            causes.extend(m.unanswered.and_then(|u| self.silent(i, &u)));
            causes.extend(m.errors.and_then(|e| self.errors(i, &e, m.local_file)));
        }
        causes.extend(self.lost());
        causes.extend(self.missing());
        causes.extend(self.damage());
        causes.extend(self.incomplete());
        Health {
            level: causes.first().map_or(Level::Well, |c| c.level),
            causes,
            read_only: self.read_only,
        }
    }
}

impl Live {
    /// How the volume is. Does not ask the engine's thread.
    pub fn health(&self) -> Health {
        let members: Vec<(PathBuf, bool)> = (self.config().members.iter())
            .map(|m| (m.path.clone(), m.standby_s.is_some()))
            .collect();
        let (vitals, missing) = (self.handle.vitals(), self.missing());
        let lost = self.handle.listed();
        Facts {
            failure: self.handle.failure(),
            missing: &missing,
            left_out: self.handle.left_out().next().is_some(),
            lost: &lost,
            members: &members,
            vitals: &vitals,
            checked: self.checks.figures().last.as_ref(),
            incomplete: self.recovery.incomplete,
            read_only: self.read_only,
        }
        .judge()
        .and(self.drives.causes(|m| Some(members.get(m)?.0.as_path())))
    }

    /// For each member, seconds since it began not to answer an operation; 0: it answers.
    pub(crate) fn silent_s(&self) -> Vec<f64> {
        let members = self.handle.vitals().members;
        let one = |m: Vital| {
            m.unanswered
                .map_or(0.0, |u| u.since.elapsed().as_secs_f64())
        };
        members.into_iter().map(one).collect()
    }
}

impl Cause {
    /// Kind and member: what stays the same while this goes on.
    pub fn id(&self) -> (Kind, Option<usize>) {
        (self.kind, self.member.as_ref().map(|m| m.0))
    }

    fn answer(&self) -> isotherm_answers::Cause {
        let member = self.member.as_ref();
        isotherm_answers::Cause {
            state: self.level,
            kind: self.kind,
            member: member.map(|m| m.0 as u64),
            path: member.map(|m| m.1.to_string_lossy().into_owned()),
            what: self.what.clone(),
            detail: self.detail.clone(),
            todo: self.todo.clone(),
            errno: self.errno,
            error: self.errno.map(|n| words(Some(n))),
            count: self.count,
            since_unix_s: self.since.map(unix),
            last_unix_s: self.last.map(unix),
        }
    }
}

impl Health {
    /// The same with further causes, which are no worse than those that it has.
    fn and(mut self, more: Vec<Cause>) -> Health {
        self.causes.extend(more);
        self.level = self.causes.first().map_or(Level::Well, |c| c.level);
        self
    }

    /// One sentence, which stays the same as long as nothing changes.
    pub fn sentence(&self) -> String {
        let Some(worst) = self.causes.first() else {
            let how = if self.read_only { "read-only" } else { "well" };
            return format!("Serving {how}.");
        };
        let head = head(self.level);
        let after = match worst.kind {
            Kind::Failure => format!(" {}.", worst.detail),
            _ => String::new(),
        };
        let more = match self.causes.len() - 1 {
            0 => String::new(),
            n => format!(" ({n} more below)"),
        };
        // A path may hold anything, and this is one line.
        printable(&format!("{head}: {}.{after}{more}", worst.what))
    }

    /// As in answers.
    pub fn answer(&self) -> isotherm_answers::Health {
        isotherm_answers::Health {
            state: self.level,
            sentence: self.sentence(),
            causes: self.causes.iter().map(Cause::answer).collect(),
        }
    }
}

#[cfg(test)]
#[path = "health_tests.rs"]
pub(crate) mod tests;
