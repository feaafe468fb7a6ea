//! The real devices below the engine, and the buffers and front ends above it.
//!
//! ```text
//!  block file · NBD · ublk · iSCSI · vhost-user   front ends (front_end.rs): know their protocol, never the extent map
//!        │ Port: op, offset, len, buffer, completion
//!        ▼
//!  engine thread (core + io_uring)
//! ```
//!
//! Invariant: a front end reaches the volume only through [`port::Port`].

pub mod block_file;
pub mod buffers;
mod cache_end;
pub mod classes;
pub mod config;
pub mod contents;
pub mod copying;
pub mod device;
pub mod error;
pub mod front_end;
pub mod inbox;
pub mod iscsi;
mod keeper;
pub mod loop_device;
pub mod loss;
pub mod media;
pub mod members;
pub mod mounts;
pub mod mutants;
pub mod nbd;
mod newcomers;
mod open_files;
pub mod paced;
pub mod pages;
pub mod port;
mod random;
pub mod recorder;
mod reopen;
pub mod requests;
pub mod scrub;
pub mod server;
pub mod shares;
mod sockets;
pub mod stack;
mod stamp;
pub mod tail;
pub mod ublk;
pub mod vhost_user;
pub mod vitals;
pub mod volume;
pub mod world;
mod zeroing;

pub use config::{MemberConfig, VolumeConfig};
pub use error::{Error, ErrorKind};
pub use server::{Handle, Server, Session, prepare_process};
pub use sockets::peer_process;
pub use volume::{OpenMode, Volume};
