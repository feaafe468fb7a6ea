//! Opening after a kill: the records that the killed server has kept are written to the journal, before recovery reads it.

use super::device_error;
use crate::device::Device;
use crate::error::Error;
use crate::keeper::{self, Left};
use crate::media::FileMedia;
use crate::members::Found;
use isotherm_core::store::superblock::State;
use isotherm_core::store::{self, keep};
use std::path::PathBuf;

/// What was found and done.
#[derive(Debug, Default)]
pub(super) struct Restored {
    /// The session whose keeper is no longer needed once another session has begun.
    former: Option<([u8; 16], u64)>,
    /// Whether the last session had a keeper which is gone, although the machine did not start anew.
    pub(super) answers_lost: bool,
}

impl Restored {
    /// A session has begun with what was restored.
    pub(super) fn is_on_the_devices(&self) {
        if let Some((uuid, epoch)) = self.former {
            keeper::remove(&uuid, epoch);
        }
    }
}

/// Restores what the keeper of the last session has, if that session was not closed. `same_kernel`: its server ran under this kernel;
/// `accepted`: the user has accepted losses.
pub(super) fn restore(
    devices: &[Option<Device>],
    found: &Found,
    paths: &[PathBuf],
    same_kernel: bool,
    accepted: bool,
    notes: &mut Vec<String>,
) -> Result<Restored, Error> {
    let Some(sb) = store::newest_superblock(found.iter().flatten()) else {
        return Ok(Restored::default());
    };
    if accepted {
        keeper::remember_loss(&sb.uuid, false);
    }
    let known = keeper::is_loss_known(&sb.uuid);
    if sb.state != State::Active {
        // The next session may be one that keeps nothing, as in a replacement.
        keeper::settle(&sb.uuid);
        return Ok(Restored {
            former: None,
            answers_lost: known,
        });
    }
    let former = Some((sb.uuid, sb.epoch));
    match keeper::left(&sb.uuid, sb.epoch, devices) {
        Left::Unknown => Ok(Restored::default()),
        Left::Gone => {
            let lost = known || same_kernel && !accepted;
            if lost && !known {
                keeper::remember_loss(&sb.uuid, true);
            }
            Ok(Restored {
                former,
                answers_lost: lost,
            })
        }
        Left::Kept(kept) => {
            let mut media = FileMedia::new(devices);
            let blocks = keep::restore(&mut media, found, &kept)
                .map_err(|e| device_error(&media, paths, e))?;
            if blocks > 0 {
                notes.push(format!(
                    "the server was killed: {blocks} blocks of the journal that it had kept in memory are on the device now"
                ));
            }
            Ok(Restored {
                former,
                answers_lost: known,
            })
        }
    }
}
