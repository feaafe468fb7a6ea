//! The volume as the kernel's own block device `/dev/ublkbN`.
//!
//! ```text
//!  /dev/ublkbN ◄─ kernel ─► /dev/ublkcN ◄─ io_uring commands ─► queue thread ─► Port ─► completion ─┐
//!                 request's pages ◄──────────── pread, pwrite ──── queue thread ◄── eventfd ────────┘
//! ```
//!
//! [`abi`] knows the kernel's numbers, [`control`] the commands to `/dev/ublk-control`, `queue` takes requests, [`front`] adds,
//! takes over and removes devices. Written to the kernel's interface with the `io-uring` crate alone: the crate `libublk` would
//! need a C compiler's headers (bindgen, libclang) wherever this is built.
//!
//! Unless it is told not to, a device outlives a server that is killed: its users wait, the next server of the volume finds it by the volume's identity and
//! takes it over, and the kernel sends it again what was in flight (`UBLK_F_USER_RECOVERY_REISSUE`). Never false: what such a device
//! has acknowledged is found by the next server (`kept_writes`). If it could be lost with the server's memory, that would happen behind
//! the back of users who hear of no crash, and a later FLUSH would claim that it is safe.

pub mod abi;
pub mod control;
pub mod front;
mod queue;

/// Why there is no ublk, in words; `None` if there is.
pub fn missing() -> Option<String> {
    let there = std::path::Path::new(abi::CONTROL).exists();
    (!there).then(|| {
        format!(
            "ublk: this kernel has no {}: load its module (modprobe ublk_drv; Linux 6.5 or later), or use --block-file DIR and a \
             loop device",
            abi::CONTROL
        )
    })
}
