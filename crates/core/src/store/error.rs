//! The reasons why a volume cannot be opened, and their messages.

use super::MediaError;
use super::superblock::SuperblockError;
use crate::units::{ExtentId, MemberId};
use core::fmt;

/// The reason why a volume cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenError {
    /// A device failed.
    Media(MediaError),
    /// Neither superblock of this member can be used.
    Superblock(MemberId, SuperblockError),
    /// The volume has features with which this program may read it but not write it.
    ReadOnlyFeatures,
    /// A member is absent.
    Missing(MemberId),
    /// A member is absent, and extents have their home on it.
    LostHomes {
        /// The member.
        member: MemberId,
        /// Number of these extents.
        extents: u32,
    },
    /// A member is absent, and the metadata of the remaining members may be incomplete, because the mirror may lag.
    Unsure(MemberId),
    /// A member is absent that had, or may have had, writes that no other member has.
    LostWrites {
        /// The member.
        member: MemberId,
        /// Number of extents that are known to be affected.
        extents: u32,
    },
    /// The member belongs to another volume.
    Foreign(MemberId),
    /// The same member of the list was given twice.
    Twice(MemberId),
    /// The member list of this device differs from the others'.
    MemberList(MemberId),
    /// The member was last used in an older session, so it missed writes.
    Stale {
        /// The member.
        member: MemberId,
        /// Its generation.
        generation: u64,
        /// The volume's generation.
        newest: u64,
    },
    /// The member is smaller than the volume requires: it was truncated.
    Short {
        /// The member.
        member: MemberId,
        /// Its size in bytes.
        bytes: u64,
        /// The size that the volume uses.
        needed: u64,
    },
    /// The device is no part of the volume any more, or never became one: the table of members has another device in its place.
    Replaced(MemberId),
    /// A release of this disk has begun and not ended: a part of its head may be the volume's data already.
    Releasing(MemberId),
    /// The disk is being released, and its stash is not what it was when that began.
    DamagedStash {
        /// The member.
        member: MemberId,
        /// Where the stash begins.
        at: u64,
        /// Number of bytes in it, which are the first ones of what the disk holds.
        bytes: u64,
    },
    /// The first block of this disk is not the volume's any more but that of a file system, a partition table or the like.
    Overwritten(MemberId),
    /// Both blocks of this disk's mark are damaged, and with them the list of what was lost with earlier flash.
    ListLost(MemberId),
    /// The table of members cannot change as wanted.
    BadTable(&'static str),
    /// The volume cannot grow.
    BadGrowth(&'static str),
    /// A device cannot take the place of a member.
    BadSuccessor(&'static str),
    /// The member has the same generation but another session: two copies of the volume have diverged.
    Diverged(MemberId),
    /// The member is an older copy of itself: other members state a higher value of its counter.
    RolledBack {
        /// The member.
        member: MemberId,
        /// The value of its counter.
        counter: u64,
        /// The highest value that another member states.
        known: u64,
    },
    /// A journal block that had been durable is missing, and the mirror does not have it.
    JournalHole {
        /// Its sequence number.
        seq: u64,
    },
    /// The newest journal blocks that were certainly durable are damaged on the primary. The mirror's journal ends at `seq`, and it is
    /// unknown which later blocks the primary had.
    JournalEnd {
        /// Number of the first unknown block.
        seq: u64,
    },
    /// A block of the newest checkpoint is damaged on every copy.
    CheckpointLost {
        /// The checkpoint.
        number: u64,
        /// First extent of which the block may have had a record.
        first: ExtentId,
        /// The extent after the last one.
        end: ExtentId,
    },
    /// No checkpoint can be read in full.
    NoCheckpoint,
    /// A record has impossible values.
    BadRecord(&'static str),
}

impl From<MediaError> for OpenError {
    fn from(e: MediaError) -> OpenError {
        OpenError::Media(e)
    }
}

impl fmt::Display for OpenError {
    #[expect(clippy::too_many_lines, reason = "a sentence for each error")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::Media(e) => write!(
                f,
                "member {} failed at byte {}: check the device",
                e.member.0, e.offset
            ),
            OpenError::Superblock(m, SuperblockError::Foreign) => {
                write!(
                    f,
                    "member {} carries no Isotherm superblock: give the device that belongs to the volume",
                    m.0
                )
            }
            OpenError::Superblock(m, SuperblockError::Newer(v)) => {
                write!(
                    f,
                    "member {} was written by format version {v} or uses features this program does not know: use a newer isotherm",
                    m.0
                )
            }
            OpenError::Superblock(m, SuperblockError::Older(v)) => {
                write!(
                    f,
                    "member {} is of format version {v}, which this program no longer reads: copy the data out with the isotherm that made it, or release the volume with that, then create it anew",
                    m.0
                )
            }
            OpenError::ReadOnlyFeatures => write!(
                f,
                "the volume has features that only a newer isotherm may write to: use that, or serve it with --read-only"
            ),
            OpenError::Superblock(m, SuperblockError::Damaged) => {
                write!(
                    f,
                    "both superblocks of member {} are damaged: restore the device, or serve the rest with --read-only",
                    m.0
                )
            }
            OpenError::Superblock(m, SuperblockError::Unreadable(error)) => {
                write!(
                    f,
                    "the superblocks of member {} cannot be read (error {error} of the system): restore the device, or serve the rest with --read-only",
                    m.0
                )
            }
            OpenError::Superblock(m, SuperblockError::Impossible(what)) => {
                write!(
                    f,
                    "the superblock of member {} is impossible ({what}): restore the device",
                    m.0
                )
            }
            OpenError::Missing(m) => write!(
                f,
                "member {} is missing: attach it, or serve what survives with --read-only",
                m.0
            ),
            OpenError::LostHomes { member, extents } => write!(
                f,
                "member {} is missing, and {extents} extents have their home on it: attach it, or serve what survives with --read-only",
                member.0
            ),
            OpenError::Unsure(m) => write!(
                f,
                "member {} is missing, and the others may not know of all that was written: attach it, or serve what survives with --read-only",
                m.0
            ),
            OpenError::LostWrites { member, extents } => write!(
                f,
                "member {} is missing, and it held the newest data of {extents} extents or more: attach it, or go on without these writes with --accept-loss",
                member.0
            ),
            OpenError::Foreign(m) => write!(
                f,
                "member {} belongs to another volume: give the device of this one",
                m.0
            ),
            OpenError::Twice(m) => write!(f, "member {} was given twice", m.0),
            OpenError::MemberList(m) => write!(
                f,
                "member {} disagrees about the member list: it was part of another set-up",
                m.0
            ),
            OpenError::Stale {
                member,
                generation,
                newest,
            } => write!(
                f,
                "member {} is of generation {generation}, the volume of {newest}: it missed writes and cannot rejoin; serve the rest with --read-only",
                member.0
            ),
            OpenError::Short {
                member,
                bytes,
                needed,
            } => write!(
                f,
                "member {} has {bytes} bytes, the volume uses {needed}: it was cut short",
                member.0
            ),
            OpenError::Replaced(m) => write!(
                f,
                "member {} was replaced, and this device is no part of the volume any more (or its joining was never finished): give the device that replaced it",
                m.0
            ),
            OpenError::Releasing(m) => write!(
                f,
                "member {} is being released: end that with `isotherm release`",
                m.0
            ),
            OpenError::DamagedStash { member, at, bytes } => write!(
                f,
                "the first {bytes} bytes of what member {} holds are set aside from byte {at} on, and have been damaged there since the release began; nothing was written: restore the disk from a backup or a copy, and repeat the command (from byte {bytes} on the disk holds what the volume showed)",
                member.0
            ),
            OpenError::Overwritten(m) => write!(
                f,
                "member {} begins with a file system, a partition table or the like where the volume's superblock was: something else uses this disk; if it must not, erase its first 4 KiB, and the volume writes its own again",
                m.0
            ),
            OpenError::BadTable(why) => write!(f, "the members cannot change: {why}"),
            OpenError::ListLost(m) => write!(
                f,
                "member {}: both blocks of its mark are damaged, and with them the list of the data that was lost with earlier flash: check the disk; --accept-loss goes on with what the disk holds, older data included",
                m.0
            ),
            OpenError::BadGrowth(why) => write!(f, "the volume cannot grow: {why}"),
            OpenError::BadSuccessor(why) => write!(f, "the device cannot replace a member: {why}"),
            OpenError::Diverged(m) => {
                write!(
                    f,
                    "member {} was written by another session of the same generation: two copies of the volume diverged",
                    m.0
                )
            }
            OpenError::RolledBack {
                member,
                counter,
                known,
            } => write!(
                f,
                "member {} is an older copy of itself (its counter says {counter}, the others know of {known}): what was written to it since is not there; give the device that was served last",
                member.0
            ),
            OpenError::JournalHole { seq } => {
                write!(
                    f,
                    "journal block {seq} was durable and is damaged, and the mirror does not have it: what changed since cannot be told, and slots may have changed hands; restore the members from a backup, or go on with the disks of a cache volume alone: `serve --without-flash --accept-loss`"
                )
            }
            OpenError::JournalEnd { seq } => {
                write!(
                    f,
                    "the end of the journal is damaged on the primary, and the mirror may have followed only to block {seq}: what came behind cannot be told; restore the members from a backup, or go on with the disks of a cache volume alone: `serve --without-flash --accept-loss`"
                )
            }
            OpenError::CheckpointLost { number, first, end } => write!(
                f,
                "checkpoint {number} is damaged on every copy where it tells of extents {first} to {}: restore a member, or go on without what is lost with --accept-loss",
                end.0 - 1
            ),
            OpenError::NoCheckpoint => write!(
                f,
                "no checkpoint can be read in full on fast or mirror: restore a device from a backup, or go on with the disks of a cache volume alone: `serve --without-flash --accept-loss`"
            ),
            OpenError::BadRecord(what) => {
                write!(f, "{what}: the metadata is damaged; run `isotherm check`")
            }
        }
    }
}

impl OpenError {
    /// The member that the error concerns, if there is one.
    pub fn member(&self) -> Option<MemberId> {
        match self {
            OpenError::Media(e) => Some(e.member),
            OpenError::Superblock(m, _)
            | OpenError::Missing(m)
            | OpenError::LostHomes { member: m, .. }
            | OpenError::LostWrites { member: m, .. }
            | OpenError::Unsure(m)
            | OpenError::Releasing(m)
            | OpenError::DamagedStash { member: m, .. }
            | OpenError::Overwritten(m)
            | OpenError::ListLost(m)
            | OpenError::Foreign(m)
            | OpenError::Twice(m)
            | OpenError::MemberList(m)
            | OpenError::Stale { member: m, .. }
            | OpenError::Short { member: m, .. }
            | OpenError::RolledBack { member: m, .. }
            | OpenError::Replaced(m)
            | OpenError::Diverged(m) => Some(*m),
            _ => None,
        }
    }
}

impl core::error::Error for OpenError {}
