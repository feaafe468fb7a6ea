//! Changes of the policy and of the members of a served volume. `replace.rs` has the replacement of a member, `flash.rs` flash that joins or
//! leaves.

pub use crate::flash::{changed, removal};
pub use crate::replace::replacement;
use std::sync::PoisonError;

use isotherm_answers::{CleanBegun, Grown as GrownAnswer, GrownMember, Noted, ResizedFlash, Set};
use isotherm_core::World;
use isotherm_live::config::build_policy;
use isotherm_live::volume::Grown;
use isotherm_live::{MemberConfig, VolumeConfig};

use crate::live::Live;

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
        self.can_describe()?;
        let grown = self.handle.grow(&self.file).map_err(|e| e.to_string())?;
        let mut what = growth(&grown);
        what.front_ends = self.fronts.lock().resized();
        self.try_keep(|config| grown.describe(config))
            .map_err(|e| {
                format!("the volume has grown, but its description still has the old sizes: {e}")
            })?;
        let notes = grown.notes;
        Ok(Noted { what, notes })
    }

    /// Uses the flash in its present size.
    pub(crate) fn resize_flash(&self) -> Result<Noted<ResizedFlash>, String> {
        let _one = self.setting();
        self.can_describe()?;
        let grown = (self.handle.grow_flash(&self.file)).map_err(|e| e.to_string())?;
        self.try_keep(|config| grown.describe(config))
            .map_err(|e| {
                format!(
                    "the larger flash is in use, but the description still has the old size: {e}"
                )
            })?;
        let what = resized(&grown, &self.config());
        let notes = grown.notes;
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
