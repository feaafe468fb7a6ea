//! Maps the files of a mounted file system to ranges of the volume below it, with FIEMAP (ext4, XFS, btrfs without its own RAID).
//!
//! Guarantee: a range that is registered belonged to the file when the file system was asked. Data that moves later is stale until the next
//! walk; this affects classes and nothing else.

mod changes;
mod device;
mod fiemap;
mod rules;
mod walk;

pub use changes::Changes;
pub use device::{Place, place_of};
pub use fiemap::extents;
pub use rules::{Facts, Rule, Rules};
pub use walk::{Options, Walked, class_attribute, walk};

/// First byte, bytes, class.
pub type Ranges = Vec<(u64, u64, u8)>;
