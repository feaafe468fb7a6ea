//! The volume as the kernel's own block device `/dev/ublkbN`.
//!
//! ```text
//!  /dev/ublkbN ◄─ kernel ─► /dev/ublkcN ◄─ commands in the engine's io_uring ─► Port ─► engine
//!                 request's pages ◄──────────────── pread, pwrite ────────────────► its memory
//!                 request's pages ◄──────────── or: buffers of the io_uring ───────► devices
//! ```
//!
//! [`abi`] has the kernel's numbers, [`control`] the commands to `/dev/ublk-control`, `properties` the size and limits of a disk, `queue` receives requests on the engine's thread, [`front`] adds, takes over
//! and removes devices. The code uses the kernel's interface through the `io-uring` crate alone: the crate `libublk` would need a C
//! compiler's headers (bindgen, libclang) wherever this is built.
//!
//! Unless recovery is turned off, a device survives a server that is killed. Its users wait, the next server of the volume finds the device
//! by the volume's identity and takes it over, and the kernel sends the requests in flight again (`UBLK_F_USER_RECOVERY_REISSUE`). The next
//! server must find everything that such a device has acknowledged (`kept_writes`). If this data could be lost with the server's memory,
//! its users would not notice the loss, because they do not see a crash, and a later FLUSH would wrongly report that the data is durable.

pub mod abi;
pub mod control;
pub mod front;
mod kernels;
pub mod link;
mod properties;
mod queue;

/// Checks that this process can serve devices over ublk.
///
/// # Errors
/// The reason why it cannot: the kernel has no ublk, an older one or one that crashes, or the process is not root.
pub fn usable() -> std::io::Result<()> {
    control::Control::open().map(drop)
}

/// The reason why ublk is not available, or must not be used; `None` if it may be.
pub fn missing() -> Option<String> {
    // First of all: nobody should be told to load a module that crashes the machine.
    kernels::defect().or_else(|| {
        let is_there = std::path::Path::new(abi::CONTROL).exists();
        (!is_there).then(|| {
            format!(
                "ublk: this kernel has no {}: load its module (modprobe ublk_drv; Linux 6.5 or later)",
                abi::CONTROL
            )
        })
    })
}
