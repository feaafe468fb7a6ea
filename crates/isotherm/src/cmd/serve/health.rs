//! Tells what changes of the volume's health to the log and to the service manager: `systemctl status` shows the same sentence as
//! `isotherm status`.

use isotherm_control::health::{Cause, Kind, Level};
use isotherm_control::live::Live;
use isotherm_live::port::Port;

use super::hook::Hook;
use crate::human;
use crate::notify;

/// What was told, and the user's program that is told as well.
pub(super) struct Told {
    causes: Vec<Cause>,
    hook: Option<Hook>,
}

/// The service's status line of a volume that is well.
pub(super) fn well(volume_bytes: u64) -> String {
    format!("serving {}", human::bytes(volume_bytes))
}

impl Told {
    /// Nothing yet.
    pub(super) fn new(hook: Option<Hook>) -> Told {
        Told {
            causes: Vec::new(),
            hook,
        }
    }

    /// Compares the volume's health with what was told, and tells the difference.
    pub(super) fn look(&mut self, live: &Live) {
        let health = live.health();
        let ids = |causes: &[Cause]| causes.iter().map(|c| (c.id(), c.since)).collect::<Vec<_>>();
        let (before, now) = (ids(&self.causes), ids(&health.causes));
        if before == now {
            return;
        }
        for cause in health.causes.iter().filter(|c| !self.has(c)) {
            began(cause);
        }
        let is_now = |c: &Cause| health.causes.iter().any(|n| n.id() == c.id());
        for cause in self.causes.iter().filter(|c| !is_now(c)) {
            tracing::info!(kind = cause.id().0.word(), "over: {}", cause.what);
        }
        let status = match health.level {
            Level::Well => well(live.handle.volume_bytes()),
            _ => health.sentence(),
        };
        notify::tell(&format!("STATUS={status}"));
        if let Some(hook) = &self.hook {
            hook.changed(&health);
        }
        self.causes = health.causes;
    }

    /// Whether this was told. Another check that finds damage is news, although there is nothing else to do.
    fn has(&self, cause: &Cause) -> bool {
        let same = |t: &Cause| {
            t.id() == cause.id() && (cause.id().0 != Kind::Damage || t.since == cause.since)
        };
        self.causes.iter().any(same)
    }
}

fn began(cause: &Cause) {
    let member = cause.member.as_ref();
    let path = member.map(|m| tracing::field::display(m.1.display()));
    let (kind, member, errno) = (cause.kind.word(), member.map(|m| m.0), cause.errno);
    let head = if cause.kind == Kind::Failure {
        "volume failed: "
    } else {
        ""
    };
    let text = format!("{head}{}: {}; {}", cause.what, cause.detail, cause.todo);
    if cause.level >= Level::Failing {
        tracing::error!(kind, member, path, errno, "{text}");
    } else {
        tracing::warn!(kind, member, path, errno, "{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    /// What goes on is told once. Only the damage that another check found is told again, because nothing else says that it is still there.
    #[test]
    fn what_goes_on_is_no_news_and_another_check_is() {
        let then = SystemTime::UNIX_EPOCH;
        let later = then + Duration::from_secs(60);
        let cause = |kind, since| Cause {
            level: Level::Degraded,
            kind,
            member: None,
            what: String::new(),
            detail: String::new(),
            todo: String::new(),
            errno: None,
            count: None,
            since: Some(since),
            last: None,
        };
        for (kind, again) in [(Kind::Damage, false), (Kind::Errors, true)] {
            let told = Told {
                causes: vec![cause(kind, then)],
                hook: None,
            };
            assert!(told.has(&cause(kind, then)), "{kind:?}");
            assert_eq!(told.has(&cause(kind, later)), again, "{kind:?}");
            assert!(!told.has(&cause(Kind::Missing, then)), "{kind:?}");
        }
    }
}
