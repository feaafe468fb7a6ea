//! The volume as a virtio block device of a virtual machine, without a device on this host.
//!
//! ```text
//!  virtual machine monitor ── unix socket ──► Session: features, memory, queues, configuration      (a thread)
//!  guest ── queues in shared memory, eventfds ──► Device ─► Port ─► completion ─► used ring, eventfd  (the engine's thread)
//! ```
//!
//! The protocol on the socket is vhost-user (<https://qemu-project.gitlab.io/qemu/interop/vhost-user.html>), the device that of virtio 1.2,
//! section 5.2 (<https://docs.oasis-open.org/virtio/virtio/v1.2/virtio-v1.2.html>), with split queues.
//!
//! Nobody here is believed: a guest may write anything into its memory at any time, so every value is read once and checked, and the memory
//! of a request is bounded (`block::DATA_MAX`, `ring::PARTS_MAX`, one request for each descriptor of a queue). A guest that breaks the
//! rules of a request gets an error for it; one that breaks those of a queue has no queue any more until its driver starts again.

mod block;
mod device;
pub mod front;
mod inflight;
mod queue;
mod ring;
mod session;
#[cfg(test)]
mod tests;
mod wire;
