//! Growth of a volume that is not being served, after devices of its slowest tier have become larger.

use super::{OpenMode, Volume, config_error, description, device_error};
use crate::buffers::{ALIGNMENT, Buffer};
use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use crate::random::random;
use crate::volume::memory::{self, Needs};
use isotherm_core::store::superblock::MemberEntry;
use isotherm_core::store::{self, Growth, Media, OpenError, Superblock};
use std::path::{Path, PathBuf};

/// Largest number of bytes that are written home at once.
const PIECE: usize = 1 << 20;

/// The growth of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grown {
    /// Size of the volume before, in bytes.
    pub before: u64,
    /// Size of the volume now, in bytes.
    pub volume_bytes: u64,
    /// Slots of each member, before and now.
    pub slots: Vec<(u32, u32)>,
    /// Bytes that were copied because their place on a faster tier became metadata.
    pub moved_bytes: u64,
    /// Messages for people.
    pub notes: Vec<String>,
}

impl Volume {
    /// Lets volume `p/v` grow to the present size of the devices of its slowest tier.
    ///
    /// # Errors
    /// A member is missing, no device has become large enough, the volume is in use or cannot be opened, or a device fails. The volume can
    /// then be opened with its old size or with the new one.
    pub fn grow(volume: &Path) -> Result<Grown, Error> {
        let file = description(volume);
        let (mut v, growth) = Volume::planned(volume, &file)?;
        let old = v.opened.superblock.clone();
        let mut growth = growth;
        let lacking = growth.lacking(&v.opened.space);
        if lacking > 0 {
            // A tiering volume whose slow tier is full gets its new slots first.
            let Some(step) = growth.first_step(&v.opened.superblock) else {
                let what = format!(
                    "{lacking} extents of the fast tier have to make room for the metadata of the larger volume, and the slow tier has no free place for them: discard data (`fstrim`) first"
                );
                v.end_session();
                return Err(config_error(&file, what));
            };
            v.transfer(&step)?;
            v.apply(&step)?;
            drop(v);
            (v, growth) = Volume::planned(volume, &file)?;
        }
        let moved_bytes = v.transfer(&growth)?;
        let sb = v.apply(&growth)?;
        let mut notes = std::mem::take(&mut v.notes);
        // The description states the sizes that `create` was given.
        for (m, entry) in v.config.members.iter_mut().zip(&sb.members) {
            m.size = m.size.filter(|size| size.0 >= entry.bytes);
        }
        if let Err(e) = v.config.save(&file) {
            notes.push(format!(
                "the volume has grown, but its description still has the old sizes: {e}"
            ));
        }
        let pairs = old.members.iter().zip(&sb.members);
        Ok(Grown {
            before: u64::from(old.extents) << old.extent_shift,
            volume_bytes: u64::from(sb.extents) << sb.extent_shift,
            slots: pairs.map(|(a, b)| (a.slots, b.slots)).collect(),
            moved_bytes,
            notes,
        })
    }

    /// Opens the volume, and plans its growth. If that is refused, the volume is as it was before.
    fn planned(volume: &Path, file: &Path) -> Result<(Volume, Growth), Error> {
        let v = Volume::open(volume, OpenMode::ReadWrite)?;
        match v.plan_growth(file) {
            Ok(growth) => Ok((v, growth)),
            Err(e) => {
                v.end_session();
                Err(e)
            }
        }
    }

    /// Ends the session that has begun with opening, so that nothing has changed.
    pub(super) fn end_session(&self) {
        // If this fails, the next opening recovers the volume.
        let _ = store::settle(&mut FileMedia::new(&self.devices), &self.opened);
    }

    /// Writes the new shape. The volume is closed then.
    fn apply(&mut self, growth: &Growth) -> Result<Superblock, Error> {
        let epoch = u64::from_le_bytes(random()?);
        let mut media = FileMedia::new(&self.devices);
        let grown = store::grow(&mut media, &mut self.opened, growth, epoch);
        grown.map_err(|e| self.in_words(&media, e))
    }

    fn plan_growth(&self, file: &Path) -> Result<Growth, Error> {
        let sb = &self.opened.superblock;
        if let Some(m) = self.opened.report.missing.first() {
            let path = self.config.members[usize::from(m.0)].path.display();
            return Err(config_error(
                file,
                format!("{path} is missing: attach it, or replace it first"),
            ));
        }
        let sizes: Vec<u64> = self.devices.iter().flatten().map(|d| d.bytes).collect();
        let growth = store::plan_growth(sb, &sizes).map_err(|e| config_error(file, e))?;
        let larger = Superblock {
            extents: growth.extents,
            members: sb
                .members
                .iter()
                .zip(&growth.slots)
                .map(|(m, &slots)| MemberEntry { slots, ..m.clone() })
                .collect(),
            ..sb.clone()
        };
        let geo = larger.geometry().map_err(|e| config_error(file, e))?;
        Needs::of(&geo, self.config.io.buffers.0).check_fits(
            memory::installed(),
            "this machine",
            file,
        )?;
        Ok(growth)
    }

    /// Copies what must leave its place, durably. Returns the number of bytes.
    fn transfer(&self, growth: &Growth) -> Result<u64, Error> {
        let mut media = FileMedia::new(&self.devices);
        let mut piece = Buffer::new(0, PIECE as u32, ALIGNMENT as u32);
        let mut run = || -> Result<u64, OpenError> {
            let (mut done, mut places) = (0, Vec::new());
            for t in growth.transfers(&self.opened.space) {
                let mut at = 0;
                while at < t.bytes {
                    let n = (t.bytes - at).min(PIECE as u32);
                    let part = &mut piece[..n as usize];
                    media.read(t.from.0, t.from.1 + u64::from(at), part)?;
                    media.write(t.to.0, t.to.1 + u64::from(at), part)?;
                    at += n;
                }
                done += u64::from(t.bytes);
                if !places.contains(&t.to.0) {
                    places.push(t.to.0);
                }
            }
            for m in places {
                media.flush(m)?;
            }
            Ok(done)
        };
        let done = run();
        done.map_err(|e| self.in_words(&media, e))
    }

    /// The text of an error of the store.
    pub(super) fn in_words(&self, media: &FileMedia<'_>, e: OpenError) -> Error {
        let paths: Vec<PathBuf> = self.config.members.iter().map(|m| m.path.clone()).collect();
        match e {
            OpenError::Media(e) => device_error(media, &paths, e),
            e => Error::new(ErrorKind::Volume, e.to_string()),
        }
    }
}
