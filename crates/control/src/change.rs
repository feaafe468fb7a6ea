//! Changes of the members of a served volume.

use std::sync::PoisonError;

use isotherm_live::volume::{Grown, ReplaceHow, Replaced};
use serde_json::{Value, json};

use crate::ReplaceAsk;
use crate::live::Live;

impl Live {
    /// Members that are absent.
    pub fn missing(&self) -> Vec<u8> {
        let missing = self.missing.lock();
        let mut all = missing.unwrap_or_else(PoisonError::into_inner).clone();
        all.extend(self.handle.left_out());
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Lets the volume grow, and shows its new size to the users of the front ends. The answer has the keys of `isotherm grow --json` but the
    /// volume's name, and two more: `front_ends` has a sentence for each front end, `notes` has messages for people.
    pub(crate) fn grow(&self) -> Result<Value, String> {
        let _one = self.setting();
        let grown = self.handle.grow(&self.file).map_err(|e| e.to_string())?;
        let mut notes = grown.notes.clone();
        if let Err(e) = self.keep_config(|config| grown.describe(config)) {
            notes.push(format!(
                "the volume has grown, but its description still has the old sizes: {e}"
            ));
        }
        let mut shown = growth(&grown);
        shown["front_ends"] = json!(self.fronts.lock().resized());
        shown["notes"] = json!(notes);
        Ok(shown)
    }

    /// Replaces a member. The answer has the keys of `isotherm replace --json` but the volume's name, and `notes` with messages for people.
    pub(crate) fn replace(&self, wanted: &ReplaceAsk) -> Result<Value, String> {
        let _one = self.setting();
        let (config, file) = (self.config(), &self.file);
        let how = ReplaceHow {
            member: wanted.member.clone(),
            size: wanted.size,
            empty: wanted.empty,
            force: wanted.force,
            accept_loss: false,
        };
        let made = self.handle.replace((&config, file), &wanted.new, &how);
        let made = made.map_err(|e| e.to_string())?;
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        missing.retain(|m| usize::from(*m) != made.place);
        drop(missing);
        let mut notes = made.notes.clone();
        if let Err(e) = self.keep_config(|config| made.describe(config)) {
            notes.push(made.not_described(&e).to_string());
        }
        let mut shown = replacement(&made);
        shown["notes"] = json!(notes);
        Ok(shown)
    }
}

/// What `isotherm grow --json` shows of a growth.
pub fn growth(grown: &Grown) -> Value {
    let members: Vec<Value> = grown
        .slots
        .iter()
        .map(|(before, now)| json!({"slots_before": before, "slots": now}))
        .collect();
    json!({
        "volume_bytes_before": grown.before, "volume_bytes": grown.volume_bytes, "members": members,
        "moved_bytes": grown.moved_bytes, "front_ends": [], "notes": grown.notes,
    })
}

/// What `isotherm replace --json` shows of a replacement.
pub fn replacement(made: &Replaced) -> Value {
    json!({
        "member": made.place, "tier": made.tier,
        "old": made.old.to_string_lossy(), "new": made.new.to_string_lossy(),
        "slots_before": made.slots.0, "slots": made.slots.1,
        "copied_bytes": made.copied_bytes, "already": made.already, "notes": made.notes,
    })
}
