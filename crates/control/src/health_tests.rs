//! Tests of the decision how a volume is.

use super::*;
use isotherm_live::loss::Listed;
use isotherm_live::vitals::{Deed, RECENT, Vital};

fn ago(s: u64) -> Instant {
    let now = Instant::now();
    now.checked_sub(Duration::from_secs(s)).unwrap_or(now)
}

fn errors(last_s: u64, errno: i32) -> Errors {
    Errors {
        first: ago(last_s + 5),
        last: ago(last_s),
        count: 17,
        deed: Deed::Write,
        errno: Some(errno),
    }
}

fn unanswered(s: u64) -> Unanswered {
    Unanswered {
        since: ago(s),
        reads: 5,
        writes: 0,
        flushes: 1,
    }
}

type Wrong<'a> = (Option<&'a VolumeFailure>, Option<&'a LastCheck>, &'a [u8]);
const NOTHING: Wrong<'_> = (None, None, &[]);

/// Judges a volume of two members; the second one, which may be a disk that sleeps, answered this. If it has failed, its map is
/// incomplete, too.
fn judge(vital: Vital, sleeps: bool, (failure, checked, missing): Wrong<'_>) -> Health {
    let members = [("/dev/f".into(), false), ("/dev/s".into(), sleeps)];
    let vitals = Vitals {
        members: vec![Vital::default(), vital],
        flushes_waiting: 3,
    };
    let facts = Facts {
        failure,
        missing,
        left_out: false,
        lost: &Listed::default(),
        members: &members,
        vitals: &vitals,
        checked,
        incomplete: failure.is_some(),
        read_only: false,
    };
    facts.judge()
}

pub(crate) fn of(vital: Vital) -> Health {
    judge(vital, false, NOTHING)
}

#[test]
fn a_volume_is_failing_while_a_member_answers_errors_and_minutes_after() {
    let health = of(Vital {
        errors: Some(errors(4, 5)),
        ..Vital::default()
    });
    assert_eq!(health.level, Level::Failing);
    let cause = &health.causes[0];
    assert_eq!(cause.id(), (Kind::Errors, Some(1)));
    assert!(
        health
            .sentence()
            .starts_with("FAILING: /dev/s answers errors since ")
    );
    assert!(
        cause
            .detail
            .starts_with("17 errors, the last was a write at ")
    );
    assert!(
        cause.detail.ends_with(": input/output error"),
        "{}",
        cause.detail
    );
    assert_eq!(health.answer().causes[0].count, Some(17));
    let old = of(Vital {
        errors: Some(errors(RECENT.as_secs() + 1, 5)),
        ..Vital::default()
    });
    assert_eq!(
        (old.level, old.sentence().as_str()),
        (Level::Well, "Serving well.")
    );
    // No space is another thing to do. As long as the file system stays full, it is not over.
    for (last, local, level) in [
        (1, false, Level::Failing),
        (61, false, Level::Well),
        (61, true, Level::Well),
    ] {
        let health = of(Vital {
            errors: Some(errors(last, 28)),
            local_file: local,
            ..Vital::default()
        });
        assert_eq!(health.level, level, "{last}");
        assert!(health.causes.iter().all(|c| c.kind == Kind::NoSpace));
    }
    // A file system that never has free space.
    assert!(is_full(Path::new("/proc")) && !is_full(Path::new("/nowhere")));
}

#[test]
fn a_member_is_silent_after_ten_seconds_and_a_disk_that_sleeps_after_thirty() {
    let silent = |s, sleeps| {
        let vital = Vital {
            unanswered: Some(unanswered(s)),
            ..Vital::default()
        };
        judge(vital, sleeps, NOTHING)
    };
    assert_eq!(silent(5, false).level, Level::Well);
    assert_eq!(silent(11, true).level, Level::Well);
    assert_eq!(silent(31, true).level, Level::Failing);
    let health = silent(11, false);
    assert!(
        health
            .sentence()
            .starts_with("FAILING: /dev/s has not answered since ")
    );
    let want = "waiting for it: 5 reads, 1 flush; FLUSHes of clients that are not answered: 3";
    assert_eq!(health.causes[0].detail, want);
}

#[test]
fn the_worst_comes_first_and_everything_is_told() {
    let failure = VolumeFailure {
        reason: "a flush failed".to_owned(),
        member: Some((1, "/dev/s".into())),
        errno: Some(5),
        at: UNIX_EPOCH + Duration::from_secs(1_795_828_453),
        overtaken: false,
    };
    let damaged = LastCheck {
        ok: false,
        time_unix_s: 1_795_828_453,
        read_bytes: 1 << 20,
        lost_bytes: 4096,
        differing_bytes: 0,
        not_compared_bytes: 0,
        bad_places: 1,
    };
    let health = judge(
        Vital {
            errors: Some(errors(4, 5)),
            ..Vital::default()
        },
        false,
        (Some(&failure), Some(&damaged), &[0]),
    );
    let kinds: Vec<Kind> = health.causes.iter().map(|c| c.kind).collect();
    let want = [
        Kind::Failure,
        Kind::Errors,
        Kind::Missing,
        Kind::Damage,
        Kind::Incomplete,
    ];
    assert_eq!(kinds, want);
    assert!(health.causes.is_sorted_by(|a, b| a.level >= b.level));
    let text = "FAILED: /dev/s (member 1): a flush failed: input/output error, Sat, 28 Nov 2026 01:14:13 GMT. Writes are refused until it is served anew. (4 more below)";
    assert_eq!(health.sentence(), text);
    let damage = judge(Vital::default(), false, (None, Some(&damaged), &[]));
    assert_eq!(damage.level, Level::Degraded);
    let found = "4096 bytes cannot be read, 0 bytes differ between copy and home, 1 place of a member cannot be read";
    assert_eq!(damage.causes[0].detail, found);
    let missing = judge(Vital::default(), false, (None, None, &[0]));
    assert_eq!(missing.sentence(), "Degraded: 1 of its members missing.");
    // A line of a log or of a service's status is one line, whatever a device is called.
    let odd = VolumeFailure {
        member: Some((1, "/dev/s\n\u{1b}[2J".into())),
        ..failure
    };
    let odd = judge(Vital::default(), false, (Some(&odd), None, &[])).sentence();
    assert!(
        odd.starts_with("FAILED: /dev/s\\n\\u{1b}[2J (member 1)"),
        "{odd}"
    );
}

/// As long as a file system has no space, a lack of it counts, however long ago the last error was; then it is over.
#[test]
fn no_space_lasts_as_long_as_there_is_none() {
    let vitals = Vitals {
        members: vec![Vital {
            errors: Some(errors(NO_SPACE_HOLDS.as_secs() + 30, 28)),
            local_file: true,
            ..Vital::default()
        }],
        flushes_waiting: 0,
    };
    // The first of these file systems never has space.
    for (path, kinds) in [("/proc", vec![Kind::NoSpace]), ("/", vec![])] {
        let facts = Facts {
            failure: None,
            missing: &[],
            left_out: false,
            lost: &Listed::default(),
            members: &[(path.into(), false)],
            vitals: &vitals,
            checked: None,
            incomplete: false,
            read_only: false,
        };
        let found: Vec<Kind> = facts.judge().causes.iter().map(|c| c.kind).collect();
        assert_eq!(found, kinds, "{path}");
    }
}
