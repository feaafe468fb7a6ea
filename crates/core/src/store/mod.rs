//! The on-disk store: superblock, journal, checkpoints, recovery. `docs/on-disk-format.md` describes every byte.
//!
//! Invariant: a record is on a device only if the data that it exposes was durable before the record was issued.

mod adopt;
mod agree;
pub mod checkpoint;
pub mod codec;
pub mod counter;
mod degraded;
mod error;
mod evidence;
mod found;
mod grow;
mod grow_cache;
mod grow_flash;
mod heal;
pub mod journal;
pub mod keep;
pub mod layout;
pub mod lost;
pub mod mark;
mod members;
mod mend;
mod mutants;
pub mod open;
pub mod record;
mod recover;
pub mod release;
mod replace;
mod report;
pub mod salvage;
mod second;
mod session;
pub mod superblock;
mod table;
mod unfinished;

#[cfg(feature = "mutants")]
pub use agree::choose_under;
pub use agree::{choose, in_places, is_left_out, newest_superblock};
pub use error::OpenError;
pub use grow::{Growth, Transfer, extents_of, grow, plan_growth};
pub use grow_flash::plan_flash_growth;
pub use layout::{Carrier, Layout, MetaArea};
pub use members::{FlashChange, NewFlash, plan_join, plan_leave};
pub use mend::mend;
pub use open::{Closing, Opened, format, format_kept, mark_clean, open, open_after_loss};
pub use replace::{Successor, held_by, replace, slots_in_use, slots_of};
pub use report::{Part, Repair, Report};
pub use second::{ReadBlock, second_places, second_superblock, superblock_at};
pub use superblock::Superblock;
pub use table::{Settled, settle};
pub use unfinished::Unfinished;

use crate::units::MemberId;
use crate::volume::ExtentMap;

/// Bytes of a metadata block.
pub const BLOCK: usize = 4096;
/// Bytes of the header of a journal or checkpoint block. The rest of the block is for records.
pub const HEADER: usize = 64;
/// Number of 16-byte record units that fit into a block.
pub const UNITS: usize = (BLOCK - HEADER) / 16;

/// A read, write or flush of metadata failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MediaError {
    /// The member.
    pub member: MemberId,
    /// The byte offset.
    pub offset: u64,
}

/// Synchronous access to member devices for creation and recovery. Offsets and lengths are multiples of 4 KiB.
pub trait Media {
    /// Reads bytes from `offset` on, to fill `buf`.
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MediaError>;
    /// Writes `buf` at `offset`. The write may be lost until [`Media::flush`].
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MediaError>;
    /// Makes all completed writes of that member durable.
    fn flush(&mut self, member: MemberId) -> Result<(), MediaError>;
    /// The size of a member in bytes, if the medium knows it. A volume whose superblock states a larger size is refused before any memory
    /// is allocated according to that size. A medium that returns `None` must have checked the size itself.
    fn bytes(&self, _member: MemberId) -> Option<u64> {
        None
    }
    /// The map of a volume was allocated, and recovery begins to fill it. A medium may ask the system for large pages for it.
    fn map_made(&mut self, _map: &ExtentMap) {}
    /// A safety rule of recovery that is removed, which the test suites must notice.
    #[cfg(feature = "mutants")]
    fn mutant(&self) -> Option<crate::mutants::Mutant> {
        None
    }
}
