//! What the drives under the members report of themselves, as it was last heard. Somebody else asks them, because a drive may hang.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use isotherm_answers::Drive;

use crate::health::{Cause, Kind, Level};

/// Time of the figures of a drive, if there are any, and the figures.
type Heard = (Option<Instant>, Drive);

/// The path that a member had when its drives were asked, and the drives.
type Member = (PathBuf, Vec<Heard>);

/// The drives by the places of members. What was heard of a device that has been replaced is not told of the other one.
#[derive(Debug, Default)]
pub struct Drives(Mutex<BTreeMap<usize, Member>>);

impl Drives {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Member>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was heard of all drives of the member in this place. A drive without figures keeps those that it had.
    pub fn heard(&self, (member, path): (usize, &Path), drives: Vec<Drive>) {
        let mut all = self.lock();
        let before = all.remove(&member).filter(|(old, _)| old == path);
        let before = before.map_or_else(Vec::new, |b| b.1);
        let now = drives.into_iter().map(|new| {
            if new.not_known.is_none() && !new.asleep {
                return (Some(Instant::now()), new);
            }
            let old = before.iter().find(|(_, old)| old.device == new.device);
            let (at, old) = old.cloned().unwrap_or_default();
            let kept = Drive {
                device: new.device,
                asleep: new.asleep,
                not_known: new.not_known,
                ..old
            };
            (at, kept)
        });
        let now: Vec<Heard> = now.collect();
        if !now.is_empty() {
            all.insert(member, (path.to_owned(), now));
        }
    }

    /// The drives of the member in this place; `None` if none are known.
    pub fn of(&self, (member, path): (usize, &Path)) -> Option<Vec<Drive>> {
        let all = self.lock();
        let aged = |(at, drive): &Heard| Drive {
            age_s: at.map(|at| at.elapsed().as_secs_f64()),
            ..drive.clone()
        };
        let (_, drives) = all.get(&member).filter(|(asked, _)| asked == path)?;
        Some(drives.iter().map(aged).collect())
    }

    /// One cause for each member of which a drive says that it fails.
    pub fn causes<'a>(&self, path: impl Fn(usize) -> Option<&'a Path>) -> Vec<Cause> {
        let all = self.lock();
        let failing = all.iter().filter_map(|(member, (asked, drives))| {
            let (_, drive) = drives.iter().find(|(_, d)| d.fails())?;
            let path = path(*member).filter(|p| p == asked)?.to_owned();
            Some(Cause {
                level: Level::Degraded,
                kind: Kind::Drive,
                what: format!("the drive {} of {} says that it fails", drive.device, path.display()),
                member: Some((*member, path)),
                detail: detail(drive),
                todo: "save what is in no backup, and give the volume another device while this one can be read (`isotherm replace`; in an array `mdadm --replace`)".to_owned(),
                errno: None,
                count: None,
                since: None,
                last: None,
            })
        });
        failing.collect()
    }
}

/// What else a drive says that fails.
fn detail(drive: &Drive) -> String {
    let mut all = drive.complaints();
    if drive.passed == Some(false)
        && let Some(first) = all.first_mut()
    {
        "SMART status: failed".clone_into(first);
    }
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(device: &str) -> Drive {
        Drive {
            device: device.into(),
            ..Drive::default()
        }
    }

    #[test]
    fn figures_outlive_sleep_and_a_drive_that_is_gone_does_not() {
        let (drives, md0) = (Drives::default(), Path::new("/dev/md0"));
        assert_eq!(drives.of((0, md0)), None);
        let warm = Drive {
            temperature_c: Some(40),
            passed: Some(false),
            ..drive("/dev/a")
        };
        drives.heard((0, md0), vec![warm.clone(), drive("/dev/b")]);
        let asleep = Drive {
            asleep: true,
            ..drive("/dev/a")
        };
        let hangs = Drive {
            not_known: Some("hangs".into()),
            ..drive("/dev/c")
        };
        drives.heard((0, md0), vec![asleep, hangs]);
        let now = drives.of((0, md0)).expect("known");
        assert_eq!(
            (now.len(), now[0].temperature_c, now[0].asleep),
            (2, Some(40), true)
        );
        assert!(now[0].age_s.is_some() && now[1].age_s.is_none());
        assert_eq!(now[1].not_known.as_deref(), Some("hangs"));
        let causes = drives.causes(|_| Some(md0));
        assert_eq!(
            causes[0].what,
            "the drive /dev/a of /dev/md0 says that it fails"
        );
        assert_eq!(causes[0].detail, "SMART status: failed");
        // Another device in its place, and a member that has left.
        let new = Path::new("/dev/md1");
        assert!(drives.of((0, new)).is_none() && drives.causes(|_| Some(new)).is_empty());
        assert!(drives.causes(|_| None).is_empty());
        drives.heard((0, md0), Vec::new());
        assert_eq!(drives.of((0, md0)), None);
    }
}
