//! The superblocks of open members.

use crate::error::{Error, ErrorKind};
use crate::media::FileMedia;
use isotherm_core::MemberId;
use isotherm_core::store::superblock::SuperblockError;
use isotherm_core::store::{self, Superblock};
use std::path::PathBuf;

pub(crate) type Found = Vec<Option<Superblock>>;

/// The better superblock of each device ([`store::second_superblock`]).
pub(crate) fn find_superblocks(
    media: &mut FileMedia<'_>,
    paths: &[PathBuf],
    tolerant: bool,
    notes: &mut Vec<String>,
) -> Result<Found, Error> {
    let sizes: Vec<Option<u64>> = (0..paths.len())
        .map(|i| media.size(MemberId(i as u8)))
        .collect();
    let mut at = |i: usize, offset: u64, block: &mut [u8]| {
        if sizes[i].is_some_and(|bytes| offset + block.len() as u64 > bytes) {
            return Err(SuperblockError::Foreign);
        }
        media.read_superblock(MemberId(i as u8), offset, block)
    };
    let first: Vec<_> = (0..paths.len())
        .map(|i| store::superblock_at(&mut |offset, block| at(i, offset, block), 0))
        .collect();
    let places = store::second_places(first.iter().flatten());
    let mut found = Vec::new();
    for (i, one) in first.into_iter().enumerate() {
        let mut read = |offset, block: &mut [u8]| at(i, offset, block);
        let second =
            store::second_superblock(&mut read, &one, (&places, sizes[i]), sizes[i].is_some());
        match store::choose(one, second) {
            Ok(sb) => found.push(Some(sb)),
            // Its absence was reported before, or will be.
            Err(_) if tolerant && sizes[i].is_none() => found.push(None),
            // A member in another format is present, but not usable for this program.
            Err(e)
                if tolerant
                    && !matches!(e, SuperblockError::Newer(_) | SuperblockError::Older(_)) =>
            {
                notes.push(format!(
                    "{}: served without it: {}",
                    paths[i].display(),
                    words(i, e)
                ));
                found.push(None);
            }
            Err(e) => {
                let fix = match e {
                    SuperblockError::Foreign | SuperblockError::Damaged => {
                        "; if its contents are lost, `isotherm replace` puts this device, or another, in its place"
                    }
                    SuperblockError::Unreadable(_) => {
                        "; if the device has failed, `isotherm replace` puts another in its place"
                    }
                    _ => "",
                };
                let e = words(i, e);
                return Err(Error::new(
                    ErrorKind::Volume,
                    format!("{}: {e}{fix}", paths[i].display()),
                ));
            }
        }
    }
    Ok(found)
}

/// The reason why the superblocks of a member cannot be used, and what to do.
fn words(member: usize, error: SuperblockError) -> String {
    match error {
        // What the device said is more than the core knows.
        SuperblockError::Unreadable(number) => format!(
            "the superblocks of member {member} cannot be read: {}: see the kernel's log, look after the device, its cable and its server, or serve the rest with --read-only",
            std::io::Error::from_raw_os_error(number)
        ),
        e => store::OpenError::Superblock(MemberId(member as u8), e).to_string(),
    }
}
