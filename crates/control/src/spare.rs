//! The spare of a served volume: it takes the place of flash that has failed, as `isotherm cache add` would give it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use isotherm_answers::Noted;
use isotherm_live::VolumeConfig;
use isotherm_live::volume::spare;

use crate::ReplaceAsk;
use crate::live::Live;

/// Time between two attempts to use a spare that could not be used.
const AGAIN: Duration = Duration::from_secs(10);

/// The use of spares.
#[derive(Debug, Default)]
pub struct Spares {
    /// One is about to be used.
    busy: AtomicBool,
    last: Mutex<Last>,
}

/// The last attempt.
#[derive(Debug, Default)]
struct Last {
    at: Option<Instant>,
    /// What was said about it, which is said once.
    said: Option<String>,
}

impl Live {
    /// Enters the spare of the volume into the description.
    pub(crate) fn set_spare(&self, new: Option<&Path>) -> Result<Noted<()>, String> {
        self.refuse_if_closing()?;
        if let Some(new) = new {
            self.refuse_own(new)?;
        }
        // A device may be slow to answer, so nobody waits for this.
        let spare = checked(&self.volume, &self.config(), new)?;
        let _one = self.setting();
        self.try_keep(|config| enter(config, spare))
            .map_err(|e| e.to_string())?;
        *self.last() = Last::default();
        Ok(Noted {
            what: (),
            notes: Vec::new(),
        })
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Last> {
        let last = self.spares.last.lock();
        last.unwrap_or_else(PoisonError::into_inner)
    }

    /// Warns of spares that could not be used now. Call it when serving begins.
    pub fn check_spares(&self) {
        if self.read_only {
            return;
        }
        for (place, path, is_member) in self.all_spares() {
            if is_member {
                // It took the place, and a kill came before the description said so.
                let kept = self.try_keep(|config| {
                    if let Some(m) = config.members.get_mut(place) {
                        m.spare = None;
                    }
                });
                if let Err(e) = kept {
                    tracing::warn!("the description still names a spare that is flash now: {e}");
                }
            } else if let Err(e) = spare::check(&self.volume, place, &path) {
                tracing::warn!("the spare could not be used at present: {e}");
            }
        }
    }

    fn all_spares(&self) -> Vec<(usize, PathBuf, bool)> {
        let base = self.file.parent().unwrap_or(Path::new(""));
        spare::all(&self.config(), base)
    }

    /// Lets a spare take the place of its flash if this has failed. Call it again and again; a thread does what takes time.
    pub fn use_spare_if_due(self: &Arc<Self>) {
        let missing = self.missing();
        if missing.is_empty() || self.read_only || self.handle.failure().is_some() {
            return;
        }
        let config = self.config();
        let due = missing.iter().find_map(|&place| {
            let m = config.members.get(usize::from(place))?;
            let spare = m.spare.as_ref().filter(|_| !m.removed)?;
            Some((usize::from(place), spare.clone()))
        });
        let Some((place, spare)) = due else { return };
        let waits = self.last().at.is_some_and(|at| at.elapsed() < AGAIN);
        if waits || self.spares.busy.swap(true, Ordering::SeqCst) {
            return;
        }
        // (This thread touches no device: it is the one that watches for the end.)
        let path = self.file.parent().unwrap_or(Path::new("")).join(spare);
        let live = Arc::clone(self);
        let thread = std::thread::Builder::new().name("spare".into());
        let begun = thread.spawn(move || {
            live.use_spare(place, path);
            live.spares.busy.store(false, Ordering::SeqCst);
        });
        if begun.is_err() {
            self.spares.busy.store(false, Ordering::SeqCst);
        }
    }

    fn use_spare(&self, place: usize, path: PathBuf) {
        let shown = path.display().to_string();
        let made = self.replace(&ReplaceAsk {
            new: path,
            member: Some(place.to_string()),
            size: None,
            empty: true,
            force: false,
            only_free: true,
            rate: None,
        });
        let mut last = self.last();
        last.at = Some(Instant::now());
        match made {
            Ok(made) => {
                last.said = None;
                tracing::warn!(
                    "{shown}: the spare has taken the place of flash that failed, with {} extents, and begins empty; `isotherm cache {} spare DEVICE` names another one",
                    made.what.slots,
                    self.volume.display()
                );
                for note in made.notes {
                    tracing::warn!("{note}");
                }
            }
            Err(e) if last.said.as_ref() == Some(&e) => {}
            Err(e) => {
                tracing::error!(
                    "{shown}: the spare cannot take the place of flash that failed: {e}"
                );
                last.said = Some(e);
            }
        }
    }
}

/// The lasting name of a device that is to be the spare of volume `p/v`; `None` for none.
///
/// # Errors
/// The volume has no flash, or the device could not take its place.
pub fn checked(
    volume: &Path,
    config: &VolumeConfig,
    new: Option<&Path>,
) -> Result<Option<PathBuf>, String> {
    let v = volume.display();
    let Some(place) = spare::place(config) else {
        return Err(format!(
            "{v}: has one tier: create a volume with --fast and --slow"
        ));
    };
    let Some(new) = new else { return Ok(None) };
    if config.members[place].removed {
        return Err(format!(
            "{v}: has no flash: `isotherm cache {v} add DEVICE` gives it some"
        ));
    }
    let checked = spare::check(volume, place, new);
    checked.map(Some).map_err(|e| e.to_string())
}

/// Enters a spare, or that there is none, into a description.
pub fn enter(config: &mut VolumeConfig, spare: Option<PathBuf>) {
    config.members.iter_mut().for_each(|m| m.spare = None);
    if let Some(place) = spare::place(config) {
        config.members[place].spare = spare;
    }
}
