//! How the control socket comes to its place.

use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::io::Errno;
use rustix::net;

use crate::server::CONNECTIONS_MAX;
use crate::with_short_path;

/// The socket is bound under another name and then moved to its place. It has mode 0600 from the first moment, because the kernel gives its
/// file the mode of the socket, and it takes no block of a full disk.
pub(crate) fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let dir = path
        .parent()
        .filter(|d| !d.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let bound = tempfile::Builder::new()
        .prefix(".isotherm-")
        .make_in(dir, |inside| with_short_path(inside, bind))?;
    Ok(bound.persist(path)?)
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let socket = net::socket_with(
        net::AddressFamily::UNIX,
        net::SocketType::STREAM,
        net::SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    net::bind(&socket, &net::SocketAddrUnix::new(path)?)?;
    net::listen(&socket, CONNECTIONS_MAX as i32)?;
    Ok(socket.into())
}

/// Whether a file system has no room for one more file, or takes none.
pub(crate) fn takes_no_file(e: &io::Error) -> bool {
    let known = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS];
    Errno::from_io_error(e).is_some_and(|e| known.contains(&e))
}
