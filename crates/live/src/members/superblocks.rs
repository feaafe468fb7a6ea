//! The superblocks of open members.

use super::probe::{SEARCH_MIB, second_by_counter};
use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use isotherm_core::MemberId;
use isotherm_core::store::superblock::SuperblockError;
use isotherm_core::store::{self, BLOCK, Media, Superblock};
use std::path::PathBuf;

pub(crate) type Found = Vec<Option<Superblock>>;

/// The better superblock of each device. If the first copy cannot be read, the member lists of the other members state the place of the
/// second.
pub(crate) fn find_superblocks(
    media: &mut FileMedia<'_>,
    paths: &[PathBuf],
    tolerant: bool,
    notes: &mut Vec<String>,
) -> Result<Found, Error> {
    let there: Vec<bool> = (0..paths.len())
        .map(|i| media.is_there(MemberId(i as u8)))
        .collect();
    let told: Vec<Option<u64>> = (0..paths.len())
        .map(|i| {
            let member = MemberId(i as u8);
            second_by_counter(|at, block| there[i] && media.read(member, at, block).is_ok())
        })
        .collect();
    let mut read = |i: usize, at: u64| {
        let mut block = [0; BLOCK];
        match media.read(MemberId(i as u8), at, &mut block) {
            Ok(()) => Superblock::decode(&block),
            Err(_) => Err(SuperblockError::Damaged),
        }
    };
    let first: Vec<_> = (0..paths.len()).map(|i| read(i, 0)).collect();
    let good = first.iter().find_map(|s| s.as_ref().ok()).cloned();
    let mut found = Vec::new();
    for (i, one) in first.into_iter().enumerate() {
        let guide = one
            .as_ref()
            .ok()
            .map(|s| (s.clone(), s.index))
            .or_else(|| Some((good.clone()?, i as u8)));
        let second = match guide {
            Some((sb, index)) if usize::from(index) < sb.members.len() => {
                read(i, sb.copy_offset(MemberId(index)))
            }
            // No other member has the place. The member's own counter may have it; otherwise all places that end at a multiple of 1 MiB are
            // tried.
            None if there[i] => {
                let told = told[i].map(|at| read(i, at)).filter(Result::is_ok);
                told.or_else(|| {
                    let mut all = (1..=SEARCH_MIB).map(|mib| read(i, (mib << 20) - BLOCK as u64));
                    all.find(Result::is_ok)
                })
                .unwrap_or(Err(SuperblockError::Foreign))
            }
            _ => Err(SuperblockError::Foreign),
        };
        match store::choose(one, second) {
            Ok(sb) => found.push(Some(sb)),
            // Its absence was reported before, or will be.
            Err(_) if tolerant && !there[i] => found.push(None),
            // A member in another format is present, but not usable for this program.
            Err(e)
                if tolerant
                    && !matches!(e, SuperblockError::Newer(_) | SuperblockError::Older(_)) =>
            {
                notes.push(format!(
                    "{}: served without it: {}",
                    paths[i].display(),
                    store::OpenError::Superblock(MemberId(i as u8), e)
                ));
                found.push(None);
            }
            Err(e) => {
                let is_lost = matches!(e, SuperblockError::Foreign | SuperblockError::Damaged);
                let e = store::OpenError::Superblock(MemberId(i as u8), e);
                let fix = if is_lost {
                    "; if its contents are lost, `isotherm replace` puts this device, or another, in its place"
                } else {
                    ""
                };
                return Err(Error::new(
                    ErrorKind::Volume,
                    format!("{}: {e}{fix}", paths[i].display()),
                ));
            }
        }
    }
    Ok(found)
}
