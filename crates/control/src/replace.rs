//! The replacement of a member of a served volume. Its copy, if there must be one, goes on if the client that asked for it leaves.

use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use isotherm_answers::{
    CancelledReplace, Noted, Replaced as ReplacedAnswer, Replacing, ReplacingWaits,
};
use isotherm_live::VolumeConfig;
use isotherm_live::block_file::source;
use isotherm_live::config::{format_uuid, parse_uuid};
use isotherm_live::copying::{Begun, Progress, Step, Wait};
use isotherm_live::stack::own::volumes_below;
use isotherm_live::volume::{ReplaceHow, Replaced, description};

use crate::client::connect;
use crate::live::Live;
use crate::{ReplaceAsk, place};

/// Longest wait for the end of a copy that is given up. A device that does not answer can delay it.
const GIVES_UP: Duration = Duration::from_secs(10);

/// Longest wait for the server of another volume.
const ANSWERS: Duration = Duration::from_secs(3);

impl Live {
    /// Replaces a member.
    pub(crate) fn replace(&self, wanted: &ReplaceAsk) -> Result<Noted<ReplacedAnswer>, String> {
        self.refuse_if_closing()?;
        self.refuse_own(&wanted.new)?;
        let mut begun = self.begin_replace(wanted)?;
        loop {
            begun.copy().map_err(|e| e.to_string())?;
            let _one = self.setting();
            match begun.switch().map_err(|e| e.to_string())? {
                Step::Done(made) => return self.replaced(&made),
                Step::Later(same) => begun = *same,
            }
        }
    }

    /// Refuses a new member that lies on this volume, or on another volume that lies on it.
    pub(crate) fn refuse_own(&self, new: &Path) -> Result<(), String> {
        let own = marks(&self.config(), &self.fronts.lock().names());
        let mut others = place::served_volumes();
        let mut to_see = vec![new.to_owned()];
        while let Some(path) = to_see.pop() {
            let below = volumes_below(&path);
            if own.iter().any(|m| below.contains(m)) {
                return Err(format!(
                    "{}: lies on this volume itself, which would wait for its own writes: name a device or file that does not",
                    new.display()
                ));
            }
            if below.is_empty() {
                continue;
            }
            others.retain(|volume| {
                let Ok(config) = VolumeConfig::load(&description(volume)) else {
                    return false;
                };
                let is_below = marks(&config, &front_ends(volume))
                    .iter()
                    .any(|m| below.contains(m));
                if is_below {
                    to_see.extend(config.all_paths());
                }
                !is_below
            });
        }
        Ok(())
    }

    fn begin_replace(&self, wanted: &ReplaceAsk) -> Result<Begun, String> {
        let _one = self.setting();
        if self.removes_flash.load(Ordering::SeqCst) {
            return Err("the flash is being removed: wait for the end of this".to_owned());
        }
        let config = self.config();
        let place = wanted
            .member
            .as_deref()
            .and_then(|m| m.parse::<usize>().ok());
        let is_free = |i: usize| {
            let removed = config.members.get(i).is_some_and(|m| m.removed);
            removed || self.missing().iter().any(|m| usize::from(*m) == i)
        };
        if wanted.only_free && !place.is_some_and(is_free) {
            return Err("the volume has flash by now: see `isotherm status`".to_owned());
        }
        self.can_describe()?;
        let how = ReplaceHow {
            member: wanted.member.clone(),
            size: wanted.size,
            empty: wanted.empty,
            force: wanted.force,
            accept_loss: false,
        };
        let described = (&config, self.file.as_path());
        let begun = (self.handle).begin_replace(described, &wanted.new, &how, wanted.rate);
        begun.map_err(|e| self.named(&e.to_string()))
    }

    /// A message with the name of the volume.
    fn named(&self, text: &str) -> String {
        text.replace("VOLUME", &self.volume.display().to_string())
    }

    /// Enters a replacement into the description, and shows it.
    ///
    /// # Errors
    /// It is made, but cannot be entered.
    fn replaced(&self, made: &Replaced) -> Result<Noted<ReplacedAnswer>, String> {
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.retain(|m| usize::from(*m) != made.place);
        drop(missing);
        self.try_keep(|config| made.describe(config))
            .map_err(|e| made.not_described(&e).to_string())?;
        let (what, notes) = (replacement(made), made.notes.clone());
        Ok(Noted { what, notes })
    }

    /// Gives up the copy of a member.
    pub(crate) fn cancel_replace(&self) -> Result<CancelledReplace, String> {
        let ended = self.handle.cancel_replace(GIVES_UP);
        let (progress, given_up) = ended.ok_or("no member is being replaced")?;
        let new = progress.new.display();
        if !given_up {
            return Err(match self.handle.replacing() {
                Some(_) => {
                    format!("{new}: a device does not answer: the copy ends as soon as it does")
                }
                None => format!("{new}: it was too late: the copy has ended (`isotherm status`)"),
            });
        }
        Ok(CancelledReplace {
            cancelled: true,
            member: progress.member,
            old: progress.old.to_string_lossy().into_owned(),
            new: progress.new.to_string_lossy().into_owned(),
            copied_bytes: progress.copied_bytes,
        })
    }

    /// How far the copy of a member is, for `status`; null if there is none.
    pub(crate) fn replacing(&self) -> Option<Replacing> {
        self.handle.replacing().map(|p| shown(&p))
    }

    /// Refuses a second change.
    pub(crate) fn refuse_if_replacing(&self) -> Result<(), String> {
        let busy = self.handle.busy_replacing();
        busy.map_or(Ok(()), |why| Err(self.named(&why)))
    }
}

fn shown(p: &Progress) -> Replacing {
    Replacing {
        member: p.member as u64,
        old: p.old.to_string_lossy().into_owned(),
        new: p.new.to_string_lossy().into_owned(),
        total_bytes: p.total_bytes,
        copied_bytes: p.copied_bytes,
        left_bytes: p.left_bytes,
        pass: p.pass,
        left_s: p.left.map(|t| t.as_secs_f64()),
        waits_for: match p.wait {
            Wait::None => None,
            Wait::Turn => Some(ReplacingWaits::Turn),
            Wait::Writes => Some(ReplacingWaits::Writes),
            Wait::Change => Some(ReplacingWaits::OtherChange),
        },
    }
}

/// What `isotherm replace --json` shows of a replacement.
pub fn replacement(made: &Replaced) -> ReplacedAnswer {
    ReplacedAnswer {
        member: made.place,
        tier: made.tier,
        old: made.old.to_string_lossy().into_owned(),
        new: made.new.to_string_lossy().into_owned(),
        slots_before: made.slots.0,
        slots: made.slots.1,
        copied_bytes: made.copied_bytes,
        already: made.already,
    }
}

/// The marks of a volume ([`volumes_below`]).
fn marks(config: &VolumeConfig, front_ends: &[String]) -> Vec<String> {
    let ublk = front_ends.iter().filter_map(|n| n.strip_prefix("ublk:"));
    let mut marks: Vec<String> = ublk.map(str::to_owned).collect();
    marks.push(source(&config.name));
    let uuid = config.uuid.as_deref().and_then(parse_uuid);
    marks.extend(uuid.map(|u| format!("isotherm {}", format_uuid(&u))));
    marks
}

/// The front ends of another volume; none if its server does not answer at once.
fn front_ends(volume: &Path) -> Vec<String> {
    let client = connect(volume).ok().flatten();
    let status = client.and_then(|c| c.with_limit(ANSWERS).brief().ok());
    status.and_then(|s| s.front_ends).unwrap_or_default()
}
