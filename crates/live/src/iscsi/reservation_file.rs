//! Reservations that survive the server (`APTPL`): a file beside the volume's description, which is replaced as a whole before the answer.

use super::reservations::{Held, MAX_REGISTRANTS, Nexus, Reservations};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Maximum size of the file in bytes.
const MOST: u64 = 1 << 20;

/// The contents of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// Identity of the volume. A file that was copied from another volume is refused.
    volume: String,
    /// Type of the reservation; 0 without one.
    kind: u8,
    /// Port of the holder.
    #[serde(default)]
    holder: Option<Port>,
    #[serde(default)]
    registrants: Vec<Port>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Port {
    initiator: String,
    isid: String,
    /// In hexadecimal digits.
    key: String,
}

impl Port {
    fn of(nexus: &Nexus, key: u64) -> Port {
        Port {
            initiator: nexus.initiator.clone(),
            isid: nexus.digits(),
            key: format!("{key:016x}"),
        }
    }

    fn read(&self) -> Option<(Nexus, u64)> {
        let isid = u64::from_str_radix(&self.isid, 16)
            .ok()
            .filter(|_| self.isid.len() == 12)?;
        let key = u64::from_str_radix(&self.key, 16)
            .ok()
            .filter(|k| *k != 0)?;
        let mut six = [0; 6];
        six.copy_from_slice(&isid.to_be_bytes()[2..]);
        let nexus = Nexus {
            initiator: self.initiator.clone(),
            isid: six,
        };
        Some((nexus, key))
    }
}

/// The place where reservations are kept.
#[derive(Clone, Debug)]
pub struct ReservationFile {
    /// The file.
    pub file: PathBuf,
    /// Identity of the volume as text.
    pub volume: String,
}

impl ReservationFile {
    fn named(&self, e: &io::Error) -> io::Error {
        io::Error::new(e.kind(), format!("{}: {e}", self.file.display()))
    }

    /// The reservations in the file; none if there is no file.
    ///
    /// # Errors
    /// The file cannot be read, or [`ReservationFile::save`] did not write it for this volume. The target does not start then: an initiator
    /// that was fenced off must not regain access.
    pub fn load(&self) -> io::Result<Reservations> {
        let text = match isotherm_paths::read_text(&self.file, MOST) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Reservations::default()),
            other => other.map_err(|e| self.named(&e))?,
        };
        let wrong = |what: &str| {
            let remedy = "remove it to serve without the reservations that it held, once no initiator relies on them";
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "{}: iSCSI reservations: {what}: {remedy}",
                    self.file.display()
                ),
            )
        };
        let text: Text = toml::from_str(&text).map_err(|e| wrong(e.message()))?;
        if text.volume != self.volume {
            return Err(wrong("they are another volume's"));
        }
        let registrants: Option<Vec<_>> = text.registrants.iter().map(Port::read).collect();
        let registrants = registrants.ok_or_else(|| wrong("an initiator's port or key is none"))?;
        if registrants.len() > MAX_REGISTRANTS {
            return Err(wrong("too many registrations"));
        }
        let by = text
            .holder
            .as_ref()
            .map(|h| h.read().ok_or_else(|| wrong("its holder is none")));
        let held = match (text.kind, by.transpose()?) {
            (0, None) => None,
            (kind @ (1 | 3 | 5..=8), Some((by, _))) => Some(Held { kind, by }),
            _ => return Err(wrong("a reservation without a holder or a known type")),
        };
        Ok(Reservations {
            registrants,
            held,
            aptpl: true,
            ..Reservations::default()
        })
    }

    /// Writes the reservations durably, or removes the file if they are not to be kept.
    ///
    /// # Errors
    /// The file system reports an error; the file is unchanged then.
    pub fn save(&self, all: &Reservations) -> io::Result<()> {
        let done = if all.aptpl && !all.registrants.is_empty() {
            self.write(all)
        } else {
            match std::fs::remove_file(&self.file) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
                other => other.and_then(|()| self.sync_directory()),
            }
        };
        done.map_err(|e| self.named(&e))
    }

    fn write(&self, all: &Reservations) -> io::Result<()> {
        let key = |n: &Nexus| {
            all.registrants
                .iter()
                .find(|r| r.0 == *n)
                .map_or(1, |r| r.1)
        };
        let text = Text {
            volume: self.volume.clone(),
            kind: all.held.as_ref().map_or(0, |h| h.kind),
            holder: all.held.as_ref().map(|h| Port::of(&h.by, key(&h.by))),
            registrants: all
                .registrants
                .iter()
                .map(|(n, k)| Port::of(n, *k))
                .collect(),
        };
        let text = toml::to_string(&text).map_err(io::Error::other)?;
        isotherm_paths::replace(&self.file, 0o600, |file| {
            file.write_all(
                b"# Persistent reservations of the iSCSI target. Written by isotherm.\n",
            )?;
            file.write_all(text.as_bytes())
        })
    }

    fn sync_directory(&self) -> io::Result<()> {
        let dir = self.file.parent().filter(|d| !d.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    }
}
