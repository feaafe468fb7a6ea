//! A listening Unix socket, which is removed at its end.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The file of a listening socket. Dropping the value removes the file, unless another server has replaced it.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: Identity,
}

/// Device, inode and time of creation (a socket is never written to). The time is needed because a file system may give the inode number of
/// a removed socket to the next one.
type Identity = (u64, u64, i64, i64);

fn identity(path: &Path) -> io::Result<Identity> {
    let m = fs::symlink_metadata(path)?;
    Ok((m.dev(), m.ino(), m.mtime(), m.mtime_nsec()))
}

impl SocketFile {
    /// Listens at `path`, and replaces the socket of a process that was killed. Every user who may enter the directory may connect.
    ///
    /// # Errors
    /// One line with the path: it is in use by a server, belongs to something else, or the system refuses.
    pub fn listen(path: &Path) -> Result<(UnixListener, SocketFile), String> {
        let shown = path.display();
        let failed = |e: io::Error| {
            format!(
                "{shown}: cannot listen there: {}",
                isotherm_paths::reason(&e)
            )
        };
        match fs::symlink_metadata(path) {
            Ok(m) if !m.file_type().is_socket() => {
                return Err(format!("{shown}: exists and is no socket: move it away"));
            }
            Ok(_) if UnixStream::connect(path).is_ok() => {
                return Err(format!(
                    "{shown}: another server listens there: stop it, or choose another path"
                ));
            }
            _ => {}
        }
        let listener = isotherm_paths::bind(path, 0o666).map_err(failed)?;
        let file = SocketFile {
            path: path.to_owned(),
            identity: identity(path).map_err(failed)?,
        };
        Ok((listener, file))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|i| i == self.identity) {
            // If this fails, the next server replaces the socket.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dead_sockets_are_replaced_and_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        let (first, file) = SocketFile::listen(&path).unwrap();
        let e = SocketFile::listen(&path).unwrap_err();
        assert!(e.contains("another server"), "{e}");
        drop(first);
        // Times of files have a resolution of a few milliseconds.
        std::thread::sleep(std::time::Duration::from_millis(50));
        let second = SocketFile::listen(&path).unwrap();
        drop(file);
        assert!(path.exists(), "it is the socket of the second server");
        drop(second);
        assert!(!path.exists());
        fs::write(&path, "precious").unwrap();
        assert!(SocketFile::listen(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
