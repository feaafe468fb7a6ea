//! The purposes for which the engine is closed and opened again, and their receivers.

use crate::copying::{State, Wait};
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::recorder::Recording;
use crate::volume::grow::Grows;
use crate::volume::replace::Replacement;
use crate::volume::{FlashAsk, FlashChanged, FormerFlash, Grown, NotChanged, Replaced};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

/// The refusal of a second request while one is being carried out.
pub(crate) const BEING_CHANGED: &str =
    "a recording or a change of the volume is about to begin: try again afterwards";

/// The purpose for which the engine is closed and opened again, and the receiver of the outcome.
pub(crate) enum Purpose {
    /// A recording begins with the new engine.
    Record(SyncSender<Result<Recording, Error>>),
    /// The volume or its flash grows while its store is closed.
    Grow {
        what: Grows,
        /// The description, for errors.
        file: PathBuf,
        tell: SyncSender<Result<Grown, Error>>,
    },
    /// The volume goes on without its flash, all of which is clean.
    RemoveFlash {
        /// The description, for errors.
        file: PathBuf,
        tell: SyncSender<Result<FormerFlash, Error>>,
    },
    /// A flash device joins or leaves while the store is closed.
    ChangeFlash {
        ask: Box<FlashAsk>,
        tell: SyncSender<Result<FlashChanged, NotChanged>>,
    },
    /// It is found out how a member can be replaced, and its copy begins if that is necessary. The engine is not closed for this.
    Plan {
        replacement: Box<Replacement>,
        tell: SyncSender<Result<Planned, Error>>,
    },
    /// A member is replaced while the store is closed.
    Replace {
        replacement: Box<Replacement>,
        tell: SyncSender<Result<Replaced, NotReplaced>>,
    },
}

/// A replacement that is possible.
pub(crate) struct Planned {
    pub replacement: Box<Replacement>,
    /// If the member is being copied: what can be seen of it.
    pub state: Option<Arc<State>>,
    /// The members.
    pub devices: Arc<Vec<Option<Device>>>,
}

/// A replacement that was not made.
pub(crate) struct NotReplaced {
    pub error: Error,
    /// If it is only too early for the end of a copy: the reason, and the replacement.
    pub again: Option<(Wait, Box<Replacement>)>,
}

impl From<Error> for NotReplaced {
    fn from(error: Error) -> NotReplaced {
        NotReplaced { error, again: None }
    }
}

impl Purpose {
    /// Tells the receiver that nothing was done.
    pub(crate) fn refuse(self, why: impl Into<Reason>) {
        let Reason(e, early) = why.into();
        // The receiver may have gone.
        match self {
            Purpose::Record(tell) => drop(tell.send(Err(e))),
            Purpose::Grow { tell, .. } => drop(tell.send(Err(e))),
            Purpose::RemoveFlash { tell, .. } => drop(tell.send(Err(e))),
            Purpose::ChangeFlash { ask, tell } => {
                // The device is free, and a file that was made for it is gone, before the receiver goes on.
                drop(ask);
                drop(tell.send(Err(e.into())));
            }
            Purpose::Replace { replacement, tell }
                if early.is_some() && replacement.is_copied() =>
            {
                let again = early.map(|wait| (wait, replacement));
                drop(tell.send(Err(NotReplaced { error: e, again })));
            }
            Purpose::Replace { replacement, tell } => {
                // The device is free, and a file that was made for it is gone, before the receiver goes on.
                drop(replacement);
                drop(tell.send(Err(e.into())));
            }
            Purpose::Plan { replacement, tell } => {
                drop(replacement);
                drop(tell.send(Err(e)));
            }
        }
    }

    pub(super) fn is_change(&self) -> bool {
        !matches!(self, Purpose::Record(_))
    }

    /// Whether this is the end of a copy.
    pub(super) fn ends_copy(&self) -> bool {
        matches!(self, Purpose::Replace { replacement, .. } if replacement.is_copied())
    }
}

/// The reason of a refusal; with a [`Wait`], the same may be possible later.
pub(crate) struct Reason(pub Error, pub Option<Wait>);

impl From<&str> for Reason {
    fn from(what: &str) -> Reason {
        Reason(refused(what), Some(Wait::Change))
    }
}

impl From<Error> for Reason {
    fn from(e: Error) -> Reason {
        Reason(e, None)
    }
}

pub(super) fn refused(what: &str) -> Error {
    Error::new(ErrorKind::Volume, what)
}
