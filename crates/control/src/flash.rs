//! Flash of a served cache volume that joins it, or leaves it.

use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use isotherm_answers::{ChangedFlash, Noted, RemovedFlash};
use isotherm_core::World;
use isotherm_live::config::build_policy;
use isotherm_live::volume::{FlashAsk, FlashChanged, FormerFlash, NO_CACHE, Newcomer};
use isotherm_live::{Error, MemberConfig};

use crate::AddFlashAsk;
use crate::figures::Limits;
use crate::live::Live;
use crate::settings::with_words;

/// If nothing more gets clean for this time, nothing will.
const STUCK: Duration = Duration::from_secs(120);
/// Interval at which it is looked how much is still dirty.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Live {
    /// Takes all flash out: nothing new is copied or kept on it, what is dirty goes home, then the volume goes on without it. This goes on if
    /// its client leaves.
    pub(crate) fn remove_flash(&self) -> Result<Noted<RemovedFlash>, String> {
        let former = self.clean_first(|| self.without_flash())?;
        let what = removal(&former);
        let notes = former.erase(&self.config(), &self.file);
        Ok(Noted { what, notes })
    }

    /// Takes one of several flash devices out, in the same way.
    pub(crate) fn remove_one_flash(&self, place: usize) -> Result<Noted<ChangedFlash>, String> {
        let mut made = self.clean_first(|| self.change_flash(FlashAsk::Leave(place)))?;
        made.erase();
        let what = changed(&made);
        let notes = made.notes;
        Ok(Noted { what, notes })
    }

    /// Gives the volume one more flash device.
    pub(crate) fn add_flash(&self, wanted: &AddFlashAsk) -> Result<Noted<ChangedFlash>, String> {
        self.refuse_if_not_changeable()?;
        if self.removes_flash.load(Ordering::SeqCst) {
            return Err("the flash is being removed: wait for the end of this".to_owned());
        }
        let _one = self.setting();
        let (new, size, force) = (&wanted.new, wanted.size, wanted.force);
        self.refuse_own(new)?;
        let new = Newcomer::open(&self.config(), new, size, force).map_err(|e| e.to_string())?;
        let made = self.change_flash(FlashAsk::Join(Box::new(new)))?;
        let what = changed(&made);
        let notes = made.notes;
        Ok(Noted { what, notes })
    }

    fn refuse_if_not_changeable(&self) -> Result<(), String> {
        self.refuse_if_closing()?;
        if self.read_only {
            return Err(
                "the volume is served read-only: serve it without --read-only first".into(),
            );
        }
        self.refuse_if_replacing()?;
        if !self.on_engine(|engine, _| engine.space().geo.is_cache())? {
            return Err(format!("{}: {NO_CACHE}", self.volume.display()));
        }
        Ok(())
    }

    /// Lets the members change, and keeps the description in step.
    fn change_flash(&self, ask: FlashAsk) -> Result<FlashChanged, String> {
        let before = self.config().members;
        let joins = matches!(ask, FlashAsk::Join(_));
        let mut later = self.config();
        ask.describe(&mut later);
        // All members are named at any moment.
        if joins {
            self.describe(&later.members)
                .map_err(|e| nothing_done(&e))?;
        }
        let made = self.handle.change_flash(ask);
        let is_made = made.as_ref().map_or_else(|e| e.made, |_| true);
        let kept = match (joins, is_made) {
            (true, false) => self.describe(&before),
            (false, true) => self.describe(&later.members),
            _ => Ok(()),
        };
        if is_made {
            self.members_have_changed();
        }
        let mut made = made.map_err(|e| e.error.to_string())?;
        made.notes.extend(kept.err().map(|e| {
            format!("the description names other flash than there is, until the next start: {e}")
        }));
        Ok(made)
    }

    /// Goes on without flash, which is clean. The description says so first: if this ends early, the next opening finds that it is there.
    fn without_flash(&self) -> Result<FormerFlash, String> {
        let config = self.config();
        let slowest = config.members.iter().map(|m| m.tier).max();
        let mut later = config.members.clone();
        for m in later.iter_mut().filter(|m| Some(m.tier) != slowest) {
            m.removed = true;
        }
        self.describe(&later).map_err(|e| nothing_done(&e))?;
        let former = self.handle.remove_flash(&self.file);
        if former.is_err() {
            // If this fails, the next opening corrects it.
            let _ = self.describe(&config.members);
        }
        former.map_err(|e| e.to_string())
    }

    /// Refuses a change that could not be entered into the description: the next start would not find the members.
    pub(crate) fn can_describe(&self) -> Result<(), String> {
        self.try_keep(|_| ()).map_err(|e| nothing_done(&e))
    }

    fn describe(&self, members: &[MemberConfig]) -> Result<(), Error> {
        self.try_keep(|config| config.members = members.to_vec())
    }

    /// The limits of the members' lives.
    pub(crate) fn limits(&self) -> Limits {
        let limits = self.limits.lock();
        limits.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All members are there, and may have other places than before.
    fn members_have_changed(&self) {
        let limits = Limits::of(&self.config());
        *self.limits.lock().unwrap_or_else(PoisonError::into_inner) = limits;
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.clear();
    }

    /// Lets all that is dirty go home, and keeps it there, until `end` has succeeded.
    fn clean_first<T>(&self, end: impl Fn() -> Result<T, String>) -> Result<T, String> {
        self.refuse_if_not_changeable()?;
        if self.removes_flash.swap(true, Ordering::SeqCst) {
            return Err("the flash is being removed already".to_owned());
        }
        let removed = self.clean_until(end);
        // What the user has chosen, which counts from now on or when there is flash again.
        let one = self.setting();
        let text = self.config().policy;
        let restored = build_policy(&text).and_then(|policy| {
            let set = self.on_engine(move |e, w| e.set_policy(w.now(), &text, policy))?;
            set.map_err(|e| e.to_string())
        });
        drop(one);
        self.removes_flash.store(false, Ordering::SeqCst);
        if let (Ok(_), Err(e)) = (&removed, restored) {
            return Err(format!(
                "the flash was removed, but the policy is as it was only after the next start: {e}"
            ));
        }
        removed
    }

    fn clean_until<T>(&self, end: impl Fn() -> Result<T, String>) -> Result<T, String> {
        let pass = [("write-mode".to_owned(), "pass-through".to_owned())];
        loop {
            let chosen = self.config().policy;
            let text = with_words(&chosen, &pass);
            let policy = build_policy(&text)?;
            let begun = self.on_engine(move |engine, world| {
                let now = world.now();
                if engine.is_recorded() {
                    return Err("the volume is being recorded: stop the recording first".to_owned());
                }
                let begun = engine.set_policy(now, &text, policy);
                let begun = begun.and_then(|()| engine.clean(now));
                begun.map_err(|e| format!("the flash cannot be cleaned: {e}"))
            })?;
            begun?;
            if !self.wait_clean(&chosen)? {
                continue;
            }
            let _one = self.setting();
            match end() {
                Err(_) if self.dirty_extents()? > 0 => {}
                ended => return ended,
            }
        }
    }

    /// Waits until nothing is dirty. Returns false if somebody has chosen another policy meanwhile.
    fn wait_clean(&self, policy: &str) -> Result<bool, String> {
        let (mut least, mut since) = (u32::MAX, Instant::now());
        loop {
            let left = self.dirty_extents()?;
            if left == 0 {
                return Ok(true);
            }
            if let Some(failure) = self.handle.failure() {
                return Err(format!("the volume has failed: {failure}"));
            }
            if self.config().policy != policy {
                return Ok(false);
            }
            if left < least {
                (least, since) = (left, Instant::now());
            }
            if since.elapsed() > STUCK {
                return Err(format!(
                    "{left} extents stay dirty: a disk does not take them, or flash does not give them back; the flash stays (`isotherm check --data` names places that cannot be read)"
                ));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    fn dirty_extents(&self) -> Result<u32, String> {
        self.on_engine(|e, _| e.space().map.dirty())
    }
}

/// The words of a description that cannot be changed.
fn nothing_done(e: &Error) -> String {
    format!("nothing was changed, because the description cannot be: {e}")
}

/// Flash that was taken out, for `isotherm cache remove`.
pub fn removal(former: &FormerFlash) -> RemovedFlash {
    let paths = former.paths();
    let path = |p: &PathBuf| p.to_string_lossy().into_owned();
    RemovedFlash {
        flash: paths.iter().map(path).collect(),
        written_home_bytes: former.written_home,
    }
}

/// One flash device that has joined or left, for `isotherm cache`.
pub fn changed(made: &FlashChanged) -> ChangedFlash {
    ChangedFlash {
        device: made.path.to_string_lossy().into_owned(),
        slots_before: made.slots.0,
        slots: made.slots.1,
        written_home_bytes: made.written_home,
    }
}
