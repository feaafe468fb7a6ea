//! The volume as an iSCSI target with one logical unit.
//!
//! ```text
//!  socket bytes ─► pdu ─► login ─► session ─► scsi ─► Port ─► completion ─► outbox ─► socket
//!                  (pure) (pure)   (reader)   (pure)                       (writer)
//! ```
//!
//! [`pdu`], [`login`] and [`scsi`] know the protocols and no socket; [`server`] and `session` know sockets and threads. The
//! protocols are those of RFC 7143 (iSCSI), SPC-4 and SBC-3 (SCSI): one connection in each session, error recovery level 0, no
//! digests, CHAP with MD5. The group number of a command, 0 to 31, is the request's class. Initiators share the disk by persistent
//! [`reservations`].

pub mod chap;
mod commands;
mod config;
mod disk;
mod entrance;
pub mod front;
mod input;
pub mod login;
mod outbox;
pub mod pdu;
pub mod reservation_file;
pub mod reservations;
pub mod scsi;
mod sense;
pub mod server;
mod session;
mod shared;
pub mod testing;
mod transfer;
mod vpd;
mod work;
