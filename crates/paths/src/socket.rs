//! Sockets with a path.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{Mode, OFlags, fchmod, openat};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::place::Place;

/// Connections that the kernel accepts before the server does.
const WAITING_MAX: i32 = 128;

/// Listens at `path`, in the place of any socket that is there. Nobody can connect before the socket has the permissions `mode`, whatever the
/// umask is. The path may be longer than a socket address.
///
/// # Errors
/// The directory cannot be written, or is reached by another user's link (see the crate).
pub fn bind(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let place = Place::of(path, false)?;
    let (new, socket) = place.at_a_new_name(|name| {
        let socket = rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // The file of the socket gets the socket's permissions, less the umask.
        fchmod(&socket, Mode::from_raw_mode(mode & 0o700))?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(place.path_of(name))?)?;
        Ok(socket)
    })?;
    let finish = || {
        rustix::net::listen(&socket, WAITING_MAX)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&place.dir, &new, flags, Mode::empty())?;
        let found = rustix::fs::fstat(&file)?;
        let is_own = found.st_uid == rustix::process::geteuid().as_raw()
            && rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::Socket;
        if !is_own {
            return Err(io::Error::other("somebody removed the new socket"));
        }
        // A descriptor of a path has no other way to a change of the mode.
        let this = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        rustix::fs::chmod(this, Mode::from_raw_mode(mode))?;
        Ok(place.rename_from(&new)?)
    };
    finish().inspect_err(|_| place.remove(&new))?;
    Ok(UnixListener::from(socket))
}
