//! Begins a session on a volume: with all members, or without members that are not needed.

use super::{OpenMode, device_error, in_words};
use crate::config::VolumeConfig;
use crate::device::Device;
use crate::error::{Error, ErrorKind};
use crate::loss::Lost;
use crate::media::FileMedia;
use crate::members::{Found, find_superblocks};
use crate::random::random;
use isotherm_core::policy::Uses;
use isotherm_core::store::{self, OpenError, Opened};
use std::path::{Path, PathBuf};

/// Reason why a session cannot begin.
pub(super) enum Refused {
    /// The store cannot be opened.
    Store(store::OpenError),
    /// A cache is missing that held the newest data of these ranges.
    Lost(Lost),
    /// The system has no random numbers.
    System(Error),
}

impl Refused {
    /// The text of the error; `absent` is the reason why a member could not be opened.
    pub(super) fn in_words(
        self,
        media: &FileMedia<'_>,
        paths: &[PathBuf],
        file: &Path,
        absent: Option<Error>,
    ) -> Error {
        match self {
            Refused::Store(store::OpenError::Media(e)) => device_error(media, paths, e),
            Refused::Store(e) => {
                let path = e.member().and_then(|m| paths.get(usize::from(m.0)));
                let path = path.map_or(file, |p| p.as_path());
                let why = absent.map(|a| format!("{a}; ")).unwrap_or_default();
                Error::new(ErrorKind::Volume, format!("{why}{}: {e}", path.display()))
            }
            Refused::Lost(lost) => Error::new(
                ErrorKind::Volume,
                format!(
                    "{}\nattach the member; or go on without it: with --accept-loss, what the slow tier has of these ranges counts from then on, and zeros where it has nothing{}",
                    lost.words(),
                    if lost.can_be_listed {
                        "; with --without-flash, reads of these ranges fail until they are written again"
                    } else {
                        ""
                    }
                ),
            ),
            Refused::System(e) => e,
        }
    }
}

/// Opens the store: with all members, or without members that are not needed.
pub(super) fn begin(
    media: &mut FileMedia<'_>,
    found: &Found,
    mode: OpenMode,
    uses: Uses,
) -> Result<(Opened, Lost), Refused> {
    use store::open::{Loss, Mode};
    let mut open = |how| store::open(media, found, how).map_err(Refused::Store);
    let epoch = || random().map(u64::from_le_bytes).map_err(Refused::System);
    let missing = found.iter().any(Option::is_none);
    if mode == OpenMode::ReadOnly {
        let opened = open(Mode::ReadOnly)?;
        let lost = Lost::of(&opened, uses);
        return Ok((opened, lost));
    }
    if !missing {
        let whole = open(Mode::ReadWrite { epoch: epoch()? });
        let accept_loss = mode == OpenMode::AcceptLoss;
        let wants = match &whole {
            Err(Refused::Store(e)) => {
                matches!(e, OpenError::CheckpointLost { .. } | OpenError::ListLost(_))
            }
            Err(_) => false,
            Ok(opened) => !opened.space.lost.is_empty(),
        };
        let opened = if accept_loss && wants {
            let (epoch, loss) = (epoch()?, Loss::Accepted);
            open(Mode::Degraded { epoch, loss })?
        } else {
            whole?
        };
        return Ok((opened, Lost::default()));
    }
    // The losses are determined before anything is written.
    let lost = Lost::of(&open(Mode::ReadOnly)?, uses);
    let how = Mode::Degraded {
        epoch: epoch()?,
        loss: match mode {
            OpenMode::AcceptLoss => Loss::Accepted,
            OpenMode::ListLoss => Loss::Listed,
            _ => Loss::Refused,
        },
    };
    match open(how) {
        Ok(opened) => Ok((opened, lost)),
        Err(Refused::Store(OpenError::LostWrites { .. })) => Err(Refused::Lost(lost)),
        Err(e) => Err(e),
    }
}

/// Opens the store of a volume again, on devices that are open already; without those that are none if nothing is lost with them.
pub(crate) fn open_again(
    config: &VolumeConfig,
    devices: &[Option<Device>],
) -> Result<Opened, Error> {
    if devices.iter().any(Option::is_none) {
        return open_degraded(config, devices);
    }
    let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
    let mut media = FileMedia::new(devices);
    let found = find_superblocks(&mut media, &paths, false, &mut Vec::new())?;
    let epoch = u64::from_le_bytes(random()?);
    let opened = store::open(&mut media, &found, store::open::Mode::ReadWrite { epoch });
    opened.map_err(|e| in_words(config, &media, e))
}

/// Opens the store of a volume again, on devices that are open already, without those that are none. Nothing may be lost with them.
pub(super) fn open_degraded(
    config: &VolumeConfig,
    devices: &[Option<Device>],
) -> Result<Opened, Error> {
    let paths: Vec<PathBuf> = config.members.iter().map(|m| m.path.clone()).collect();
    let mut media = FileMedia::new(devices);
    let found = find_superblocks(&mut media, &paths, true, &mut Vec::new())?;
    let mode = store::open::Mode::Degraded {
        epoch: u64::from_le_bytes(random()?),
        loss: store::open::Loss::Refused,
    };
    let opened = store::open(&mut media, &found, mode);
    opened.map_err(|e| in_words(config, &media, e))
}

/// One line for people about the missing members. `listed`: what they held cannot be read.
pub(super) fn missing_members_note(
    report: &store::Report,
    (lost, listed): (&Lost, bool),
    paths: &[PathBuf],
) -> String {
    let names: Vec<_> = report
        .missing
        .iter()
        .filter_map(|m| paths.get(usize::from(m.0)))
        .map(|p| p.display().to_string())
        .collect();
    let names = names.join(", ");
    if lost.is_nothing() {
        format!(
            "{names}: this cache is gone; it held nothing of its own, the volume goes on without it (degraded); `isotherm replace` gives it another device"
        )
    } else if listed {
        format!("{names}: this cache is gone, with writes that it alone held (degraded)")
    } else {
        format!(
            "{names}: this cache is gone, with writes that it alone held; the volume goes on without them (degraded)"
        )
    }
}
