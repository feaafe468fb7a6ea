//! Copies bytes from one open file to another.

use super::root::facts_of;
use crate::tree::Facts;
use rustix::fd::OwnedFd;
use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// The next range with data at or after `offset`; `None` if only a hole follows.
fn next_data(fd: &OwnedFd, offset: u64, size: u64) -> Result<Option<(u64, u64)>, Errno> {
    let start = match rustix::fs::seek(fd, SeekFrom::Data(offset)) {
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not report holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(Some((offset, size))),
        other => other?,
    };
    let end = rustix::fs::seek(fd, SeekFrom::Hole(start)).unwrap_or(size);
    Ok(Some((start, end)))
}

/// The file of a copy whose call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Target,
}

/// Copies a part of a file, if `is_it` says so of its attributes, and leaves holes out. Returns as [`crate::tree::Tree::copy`] does.
pub(super) fn copy_step(
    source: &OwnedFd,
    target: &OwnedFd,
    is_it: impl Fn(&Facts) -> bool,
    (offset, len): (u64, u64),
) -> Result<Option<u64>, (Side, Errno)> {
    let [of_source, of_target] = [Side::Source, Side::Target].map(|s| move |e: Errno| (s, e));
    let f = facts_of(source).map_err(of_source)?;
    if !is_it(&f) {
        return Err(of_source(Errno::STALE));
    }
    let sparse = f.blocks * 512 < f.size;
    if offset == 0 {
        if sparse {
            // Preallocated space would fill the holes.
            rustix::fs::ftruncate(target, 0).map_err(of_target)?;
        }
        rustix::fs::ftruncate(target, f.size).map_err(of_target)?;
    }
    let range = if sparse {
        next_data(source, offset, f.size).map_err(of_source)?
    } else {
        Some((offset, f.size))
    };
    let Some((start, end)) = range.filter(|r| r.0 < f.size) else {
        return Ok(None);
    };
    let want = (end - start).min(len);
    let done = copy_telling(source, target, start, want)?;
    let next = start + done;
    // The file is shorter now, which the comparison after the copy notices. If it is not, its file system does not read what it has.
    if done < want && facts_of(source).map_err(of_source)?.size > next {
        return Err(of_source(Errno::IO));
    }
    Ok((done > 0 && next < f.size).then_some(next))
}

/// Copies a range, in the kernel if possible, else through memory. Returns the number of bytes, which is lower at the end of the file.
///
/// # Errors
/// A device error.
pub fn copy_range(from: &OwnedFd, to: &OwnedFd, offset: u64, len: u64) -> Result<u64, Errno> {
    copy_telling(from, to, offset, len).map_err(|failed| failed.1)
}

/// As [`copy_range`]; an error is that of one of the two files.
fn copy_telling(from: &OwnedFd, to: &OwnedFd, offset: u64, len: u64) -> Result<u64, (Side, Errno)> {
    let (mut a, mut b, mut done) = (offset, offset, 0);
    while done < len {
        let want = (len - done) as usize;
        match rustix::fs::copy_file_range(from, Some(&mut a), to, Some(&mut b), want) {
            Ok(0) => break,
            Ok(n) => done += n as u64,
            Err(Errno::INTR) => {}
            // The kernel cannot do it, or one of the files fails: only single calls tell which.
            Err(_) => {
                return copy_by_hand(from, to, offset + done, len - done).map(|n| n + done);
            }
        }
    }
    Ok(done)
}

fn copy_by_hand(from: &OwnedFd, to: &OwnedFd, offset: u64, len: u64) -> Result<u64, (Side, Errno)> {
    let mut buffer = vec![0u8; len.min(1 << 20) as usize];
    let mut done = 0;
    while done < len {
        let want = (len - done).min(buffer.len() as u64) as usize;
        let n = rustix::io::retry_on_intr(|| {
            rustix::io::pread(from, &mut buffer[..want], offset + done)
        })
        .map_err(|e| (Side::Source, e))?;
        if n == 0 {
            break;
        }
        write_all(to, &buffer[..n], offset + done).map_err(|e| (Side::Target, e))?;
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
    write_counted(fd, bytes, offset, &mut 0)
}

/// As [`write_all`]; counts the bytes that were written, also before an error.
pub(crate) fn write_counted(
    fd: &OwnedFd,
    bytes: &[u8],
    offset: u64,
    done: &mut usize,
) -> Result<(), Errno> {
    while *done < bytes.len() {
        let at = offset + *done as u64;
        match rustix::io::pwrite(fd, &bytes[*done..], at) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => *done += n,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    /// The health of a tier counts errors of copies, so the error must be that of the right file.
    #[test]
    fn the_file_that_fails_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &str| -> OwnedFd {
            let mut how = OpenOptions::new();
            how.read(true).write(true).open(path).unwrap().into()
        };
        let file = dir.path().join("f");
        std::fs::write(&file, vec![1; 8192]).unwrap();
        let file = open(file.to_str().unwrap());
        // Nothing is mapped at address 0.
        let memory = open("/proc/self/mem");
        let read = copy_telling(&memory, &file, 0, 4096);
        assert_eq!(read, Err((Side::Source, Errno::IO)));
        let written = copy_telling(&file, &open("/dev/full"), 0, 4096);
        assert_eq!(written, Err((Side::Target, Errno::NOSPC)));
    }
}
