//! The superblocks of the members, and what is wrong with them.

use std::path::Path;

use isotherm_core::MemberId;
use isotherm_core::store::superblock::SuperblockError;
use isotherm_core::store::{self, Superblock};
use isotherm_live::config::format_uuid;
use isotherm_live::device::Device;
use isotherm_live::members::check_tails;

use super::Check;
use super::words::words;
use crate::Failure;

impl Check<'_> {
    /// Reads a block of a member for [`store::second_superblock`].
    fn block(&mut self, member: usize, offset: u64, to: &mut [u8]) -> Result<(), SuperblockError> {
        self.media
            .read_superblock(MemberId(member as u8), offset, to)
    }

    /// The devices of another volume are neither checked nor repaired in the name of this one. The names of devices may have changed.
    pub(super) fn refuse_others(&mut self, count: usize, file: &Path) -> Result<(), Failure> {
        let known = self.findings.len();
        self.superblocks(count);
        // The check itself finds them again.
        self.findings.truncate(known);
        let Some((member, uuid)) = self.other else {
            return Ok(());
        };
        Err(Failure::failed(format!(
            "{}: member {}: belongs to volume {}, not to this one: give the device of this volume, or correct `uuid`",
            file.display(),
            self.paths[member].display(),
            format_uuid(&uuid)
        )))
    }

    /// Says which disks have tails. A tail that is not of the same session as its disk is neither checked nor repaired.
    pub(super) fn tails(&mut self, devices: &[Option<Device>]) -> Result<(), Failure> {
        let tailed = devices.iter().flatten().filter(|d| d.tail().is_some());
        for device in tailed {
            crate::log::note(format_args!("isotherm: one disk: {}", device.names()));
        }
        let known = self.findings.len();
        let found = self.superblocks(devices.len());
        self.findings.truncate(known);
        check_tails(devices, &found).map_err(|e| Failure::failed(e.to_string()))
    }

    /// Both superblocks of each member, in the order of the volume's member list.
    pub(super) fn superblocks(&mut self, count: usize) -> Vec<Option<Superblock>> {
        let first: Vec<_> = (0..count)
            .map(|i| store::superblock_at(&mut |at, to| self.block(i, at, to), 0))
            .collect();
        let places = store::second_places(first.iter().flatten());
        let mut all: Vec<Option<Superblock>> = vec![None; count];
        for (i, one) in first.into_iter().enumerate() {
            if self.removed[i] {
                continue;
            }
            if let Err(e) = &one {
                self.find(i, format!("first superblock: {}", words(*e)));
            }
            let size = self.sizes[i];
            let mut read = |at, to: &mut [u8]| self.block(i, at, to);
            let two = store::second_superblock(&mut read, &one, (&places, size), size.is_some());
            match (&one, &two) {
                (_, Err(e)) => self.find(i, format!("second superblock: {}", words(*e))),
                (Ok(a), Ok(b)) if a.uuid != b.uuid => {
                    self.find(i, "its superblocks are of two volumes");
                }
                _ => {}
            }
            let Ok(chosen) = store::choose(one, two) else {
                continue;
            };
            if self.uuid.is_some_and(|own| own != chosen.uuid) {
                self.other = Some((i, chosen.uuid));
                continue;
            }
            all[i] = Some(chosen);
        }
        self.in_their_places(all)
    }

    /// The superblocks, but for those of members that are listed in other places than they have. (An older table, of before a change that was cut
    /// off, may say another place.)
    fn in_their_places(&mut self, all: Vec<Option<Superblock>>) -> Vec<Option<Superblock>> {
        let newest = store::newest_superblock(all.iter().flatten()).cloned();
        let mut found: Vec<Option<Superblock>> = vec![None; all.len()];
        for (i, sb) in all.into_iter().enumerate() {
            let Some(sb) = sb else { continue };
            let own = usize::from(sb.index);
            let place = newest.as_ref().and_then(|newest| sb.place_in(newest));
            let place = place.unwrap_or(own);
            let used = sb.members[own].bytes;
            if let Some(has) = self.sizes[i].filter(|&has| has < used) {
                let what = format!("has {has} bytes, the volume uses {used}: it was cut short");
                self.find(i, what);
            }
            if i == place {
                found[i] = Some(sb);
            } else {
                self.find(
                    i,
                    format!("is member {place} of the volume, but listed as member {i}"),
                );
            }
        }
        found
    }
}
