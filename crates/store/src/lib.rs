//! An object store as one disk: ordered, fenced write-back by a process of its own, `isotherm-store`.
//!
//! ```text
//!  block file · NBD          the same front ends as for a volume
//!        │ Port              port.rs: threads by kind of request
//!        ▼
//!      Disk ── writes ─► spool (spool.rs): append-only log on local flash; FLUSH is its fdatasync
//!        │                 │ one epoch after the other (upload.rs)
//!        │                 ▼
//!        └── reads ◄── cache.rs ◄── remote.rs: deadlines, PUT that only creates ─► s3:// gs:// az:// file://
//! ```
//!
//! # What holds
//!
//! - Writes are taken in one order, that of the spool. An epoch is a prefix of it which ends where a FLUSH came (or, if none comes for as long
//!   again, anywhere: a state between two FLUSHes is one that a power loss could leave, too). Epochs are committed in order, so the store always
//!   has the disk as it was at one moment, at most `order_s` and the time of an upload ago.
//! - An object is made once, by a conditional PUT, under a name with its writer's fence token, and never changed. The state is the manifest with
//!   the highest number, and manifest N + 1 is made by a conditional PUT of a writer that has read N. That is the whole protocol; it needs
//!   nothing but "create if absent", which every store with a conditional PUT has. The fence of a new writer is such a manifest, so the next one
//!   of the writer before it is refused; it answers EIO from then on and ends.
//! - A request without an answer may have been carried out, now or later. It is repeated with the same name and the same bytes until it is known
//!   what became of it. Only then something else is tried under that number.
//! - Objects are packed: one of up to `object_bytes` holds many runs of blocks of an epoch, so a small write costs its own bytes and no
//!   read-modify-write of a range. The map says where each run lies. A commit writes what has changed in it (a *delta*); now and then the
//!   changed *segments* are written anew (upkeep.rs). Objects that are less than half in use are moved together with an epoch.
//! - An object that the state names and that is missing, short or changed is EIO, never zeros: the map has what was written, and each block a
//!   checksum that includes the object's name.
//! - An object is removed when the newest manifest has not named it for the grace time, as its writer has seen it, and it is older than that
//!   manifest by as much, on the store's clock.
//!   All that a later writer makes is newer than the manifest of the one before, so a writer that has lost the fence cannot remove it.
//!
//! Memory: about 64 bytes for each run of the map and of the spool, 240 for each object, and the cache.
#![forbid(unsafe_code)]

mod ahead;
pub mod cache;
pub mod disk;
#[cfg(test)]
mod disk_tests;
pub mod extent_map;
pub mod head;
pub mod layout;
pub mod port;
mod reading;
pub mod readout;
pub mod remote;
pub mod spool;
pub mod state;
pub mod status;
mod upkeep;
pub mod upload;
