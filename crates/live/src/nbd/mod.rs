//! The volume over the network block device protocol.
//!
//! ```text
//!  socket bytes ─► proto::Connection ─► requests ─► Port ─► completion ─► proto::Ticket ─► outbox ─► socket
//!                  (no I/O, no clock)                                     (reply bytes)    (sendmsg, batched)
//! ```
//!
//! [`proto`] knows the protocol and no socket; [`server`] knows sockets and threads and no protocol.
//! The protocol is that of <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>: fixed newstyle
//! handshake, simple and structured replies, `base:allocation`.

pub mod front;
mod outbox;
mod pending_reply;
pub mod proto;
mod relay;
pub mod server;
mod session;
mod socket;
pub mod testing;
mod time_limits;
pub mod tls;
