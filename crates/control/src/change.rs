//! Changes of the policy and of the members of a served volume. `replace.rs` has the replacement of a member.

pub use crate::replace::replacement;
use std::path::PathBuf;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use isotherm_answers::{
    CleanBegun, Grown as GrownAnswer, GrownMember, Noted, RemovedFlash, ResizedFlash, Set,
};
use isotherm_core::World;
use isotherm_live::config::build_policy;
use isotherm_live::volume::{FormerFlash, Grown, NO_CACHE, not_described};
use isotherm_live::{MemberConfig, VolumeConfig};

use crate::live::Live;
use crate::settings::with_words;

/// If nothing more gets clean for this time, nothing will.
const STUCK: Duration = Duration::from_secs(120);
/// Interval at which it is looked how much is still dirty.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl Live {
    /// Members that are absent, without those that were taken out of the volume.
    pub fn missing(&self) -> Vec<u8> {
        let missing = self.missing.lock();
        let mut all = missing.unwrap_or_else(PoisonError::into_inner).clone();
        all.extend(self.handle.left_out());
        let config = self.config();
        all.retain(|m| (config.members.get(usize::from(*m))).is_none_or(|m| !m.removed));
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Replaces the policy, and keeps the choice for the next start.
    pub(crate) fn set_policy(&self, text: &str) -> Result<Set, String> {
        let _one = self.setting();
        let policy = build_policy(text)?;
        let told = text.to_owned();
        let (outcome, params, copies) = self.on_engine(move |engine, world| {
            let outcome = engine.set_policy(world.now(), &told, policy);
            (
                outcome,
                crate::figures::params(engine),
                crate::figures::copies(engine, world.now()),
            )
        })?;
        outcome.map_err(|e| format!("policy: {text}: {e}"))?;
        self.keep_config(|config| text.clone_into(&mut config.policy))?;
        Ok(Set {
            policy: Some(text.to_owned()),
            params,
            copies: Some(copies),
        })
    }

    /// Lets the volume grow, and shows its new size to the users of the front ends.
    pub(crate) fn grow(&self) -> Result<Noted<GrownAnswer>, String> {
        let _one = self.setting();
        let grown = self.handle.grow(&self.file).map_err(|e| e.to_string())?;
        let mut notes = grown.notes.clone();
        if let Err(e) = self.keep_config(|config| grown.describe(config)) {
            notes.push(format!(
                "the volume has grown, but its description still has the old sizes: {e}"
            ));
        }
        let mut what = growth(&grown);
        what.front_ends = self.fronts.lock().resized();
        Ok(Noted { what, notes })
    }

    /// Uses the flash in its present size.
    pub(crate) fn resize_flash(&self) -> Result<Noted<ResizedFlash>, String> {
        let _one = self.setting();
        let grown = (self.handle.grow_flash(&self.file)).map_err(|e| e.to_string())?;
        let mut notes = grown.notes.clone();
        if let Err(e) = self.keep_config(|config| grown.describe(config)) {
            notes.push(format!(
                "the larger flash is in use, but the description still has the old size: {e}"
            ));
        }
        let what = resized(&grown, &self.config());
        Ok(Noted { what, notes })
    }

    /// Begins to write home what is dirty. The answer has the number of extents.
    pub(crate) fn clean(&self) -> Result<CleanBegun, String> {
        self.refuse_if_closing()?;
        let begun = self.on_engine(|engine, world| {
            let left = engine.space().map.dirty();
            engine.clean(world.now()).map(|()| left)
        })?;
        let left = begun.map_err(|e| format!("nothing can be cleaned: {e}"))?;
        Ok(CleanBegun {
            dirty_extents: left,
        })
    }

    /// Takes the flash out: nothing new is copied or kept on it, what is dirty goes home, then the volume goes on without it. This goes on if
    /// its client leaves.
    pub(crate) fn remove_flash(&self) -> Result<Noted<RemovedFlash>, String> {
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
        if self.removes_flash.swap(true, Ordering::SeqCst) {
            return Err("the flash is being removed already".to_owned());
        }
        let removed = self.clean_and_remove();
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

    fn clean_and_remove(&self) -> Result<Noted<RemovedFlash>, String> {
        let pass = [("write-mode".to_owned(), "pass-through".to_owned())];
        let former = loop {
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
            match self.handle.remove_flash(&self.file) {
                Ok(former) => break former,
                Err(_) if self.dirty_extents()? > 0 => {}
                Err(e) => return Err(e.to_string()),
            }
        };
        let what = removal(&former);
        // While the description names them, they stay what they are.
        let kept = self.keep_config(|config| former.describe(config));
        kept.map_err(|e| not_described(&e).to_string())?;
        let notes = former.erase(&self.config(), &self.file);
        Ok(Noted { what, notes })
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

/// What `isotherm grow --json` shows of a growth.
pub fn growth(grown: &Grown) -> GrownAnswer {
    let of = |&(slots_before, slots): &(u32, u32)| GrownMember {
        slots_before,
        slots,
    };
    GrownAnswer {
        volume_bytes_before: grown.before,
        volume_bytes: grown.volume_bytes,
        members: grown.slots.iter().map(of).collect(),
        moved_bytes: grown.moved_bytes,
        front_ends: Vec::new(),
    }
}

/// Flash that has grown, for `isotherm cache resize`.
pub fn resized(grown: &Grown, config: &VolumeConfig) -> ResizedFlash {
    let slowest = config.members.iter().map(|m| m.tier).max();
    let all = grown.slots.iter().zip(&config.members);
    let flash = all.filter(|(_, m)| Some(m.tier) != slowest);
    let path = |(_, m): (_, &MemberConfig)| m.path.to_string_lossy().into_owned();
    ResizedFlash {
        flash: flash.clone().map(path).collect(),
        slots_before: flash.clone().map(|(s, _)| u64::from(s.0)).sum(),
        slots: flash.map(|(s, _)| u64::from(s.1)).sum(),
    }
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
