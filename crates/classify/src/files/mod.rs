//! Files of a mounted file system as ranges of the volume below it: by FIEMAP (ext4, XFS, btrfs without its own RAID).
//!
//! Never false: a range that is registered was the file's when it was asked for. What moves later is stale until the next walk;
//! that costs classes, nothing else.

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
