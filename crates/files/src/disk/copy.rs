//! Copies bytes from one open file to another.

use rustix::fd::OwnedFd;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The next range with data at or after `offset`; `None` if only a hole follows.
pub(super) fn next_data(fd: &OwnedFd, offset: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    let start = match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not report holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((offset, size))),
        other => other?,
    };
    let end = rustix::fs::seek(fd, SeekFrom::Hole(start)).unwrap_or(size);
    Ok(Some((start, end)))
}

/// Copies a range, in the kernel if possible, else through memory. Returns the number of bytes, which is lower at the end of the file.
///
/// # Errors
/// A device error.
pub fn copy_range(from: &OwnedFd, to: &OwnedFd, offset: u64, len: u64) -> Result<u64, Errno> {
    let (mut a, mut b, mut done) = (offset, offset, 0);
    while done < len {
        let want = (len - done) as usize;
        match rustix::fs::copy_file_range(from, Some(&mut a), to, Some(&mut b), want) {
            Ok(0) => break,
            Ok(n) => done += n as u64,
            Err(Errno::INTR) => {}
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                return copy_by_hand(from, to, offset + done, len - done).map(|n| n + done);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

fn copy_by_hand(from: &OwnedFd, to: &OwnedFd, offset: u64, len: u64) -> Result<u64, Errno> {
    let mut buffer = vec![0u8; len.min(1 << 20) as usize];
    let mut done = 0;
    while done < len {
        let want = (len - done).min(buffer.len() as u64) as usize;
        let n = rustix::io::retry_on_intr(|| {
            rustix::io::pread(from, &mut buffer[..want], offset + done)
        })?;
        if n == 0 {
            break;
        }
        write_all(to, &buffer[..n], offset + done)?;
        done += n as u64;
    }
    Ok(done)
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_all(fd: &OwnedFd, buffer: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(fd, &mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Writes the whole buffer.
///
/// # Errors
/// A device error.
pub fn write_all(fd: &OwnedFd, bytes: &[u8], offset: u64) -> Result<(), Errno> {
    let mut done = 0;
    while done < bytes.len() {
        let at = offset + done as u64;
        match rustix::io::pwrite(fd, &bytes[done..], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
