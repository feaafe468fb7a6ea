//! Changes of the members of a served volume.

use serde_json::{Value, json};

use crate::live::Live;

impl Live {
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
        let members: Vec<Value> = grown
            .slots
            .iter()
            .map(|(before, now)| json!({"slots_before": before, "slots": now}))
            .collect();
        Ok(json!({
            "volume_bytes_before": grown.before, "volume_bytes": grown.volume_bytes, "members": members,
            "moved_bytes": grown.moved_bytes, "front_ends": self.fronts.lock().resized(), "notes": notes,
        }))
    }
}
