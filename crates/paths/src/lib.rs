//! Files and sockets by path, in directories that other users may change.
//!
//! Root's commands read and write files beside descriptions of volumes, and such a directory may be another user's. That user can put links,
//! pipes and other files under every name there, at any moment. So:
//!
//! - a file is made under a random name by a call that follows no link and takes no existing file, is synced, and then gets its name by a
//!   rename ([`replace`]); or it is made under its name by such a call ([`create`]);
//! - new files of writes that were killed are removed by a later write in the same directory (`leftovers.rs`);
//! - all calls of one write go through one descriptor of the directory, and a link on the way there is followed only if nobody else could
//!   have made it to lead elsewhere (`place.rs`);
//! - what is read is a regular file ([`read`]), because a pipe would block; and a secret is the reader's own or root's, and nobody else can
//!   read it ([`read_secret`]);
//! - a socket has its mode before anybody can connect ([`bind`]).
//!
//! The mount table tells what lies behind a path without touching it ([`mounts()`]).
#![forbid(unsafe_code)]

mod leftovers;
mod mounts;
mod place;
mod reading;
mod reason;
mod socket;
mod writing;

pub use mounts::{Mount, Place, device_words, mounts, parse_mounts, place, unescaped};
pub use reading::{read, read_secret, read_text};
pub use reason::{reason, without_numbers};
pub use socket::bind;
pub use writing::{New, create, replace, replace_behind_links};

/// Whether the safe way is left out, as `ISOTHERM_PATHS_MUTANT` says: the tests must notice it.
#[cfg(test)]
fn broken(rule: &str) -> bool {
    std::env::var("ISOTHERM_PATHS_MUTANT").is_ok_and(|m| m == rule)
}

/// Whether the safe way is left out: never.
#[cfg(not(test))]
fn broken(_rule: &str) -> bool {
    false
}
