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
        let _one = self.setting();
        let config = self.config();
        if let Some(new) = new {
            self.refuse_own(new)?;
        }
        let later = with_spare(&self.volume, &config, new)?;
        self.try_keep(|config| *config = later)
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
                let kept = self.try_keep(|config| config.members[place].spare = None);
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
        let is_due = |(place, _, is_member): &(usize, PathBuf, bool)| {
            let is_out = missing.iter().any(|m| usize::from(*m) == *place);
            is_out && !is_member && !self.config().members[*place].removed
        };
        let Some((place, path, _)) = self.all_spares().into_iter().find(is_due) else {
            return;
        };
        let waits = self.last().at.is_some_and(|at| at.elapsed() < AGAIN);
        if waits || self.spares.busy.swap(true, Ordering::SeqCst) {
            return;
        }
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

/// The description of volume `p/v` with another spare, or none.
///
/// # Errors
/// The volume has no flash, or the device could not take its place.
pub fn with_spare(
    volume: &Path,
    config: &VolumeConfig,
    new: Option<&Path>,
) -> Result<VolumeConfig, String> {
    let v = volume.display();
    let Some(place) = spare::place(config) else {
        return Err(format!(
            "{v}: has one tier: create a volume with --fast and --slow"
        ));
    };
    let mut later = config.clone();
    for m in &mut later.members {
        m.spare = None;
    }
    if let Some(new) = new {
        if later.members[place].removed {
            return Err(format!(
                "{v}: has no flash: `isotherm cache {v} add DEVICE` gives it some"
            ));
        }
        let new = spare::check(volume, place, new).map_err(|e| e.to_string())?;
        later.members[place].spare = Some(new);
    }
    Ok(later)
}
