//! A member whose server was killed: the file of its successor takes the place of the dead one, for everybody in this process.

use super::{Device, OpenHow};
use crate::error::{Error, ErrorKind};
use crate::mutants::{LiveMutant, broken};
use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, makedev, statx};
use rustix::io::{DupFlags, dup3};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `old` names the open file of `new` from now on.
fn put(new: &File, old: &File) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `old`, and is not closed here.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(old.as_raw_fd()) });
    Ok(dup3(new, &mut place, DupFlags::CLOEXEC)?)
}

impl Device {
    /// What the successor of its server must show; `None`: a killed server is a device that is gone. The server is not asked.
    pub(crate) fn lineage(&self) -> Option<String> {
        if self.is_block || self.joined.is_some() {
            return None;
        }
        let how = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let about = statx(&self.file, c"", how, StatxFlags::TYPE).ok()?;
        crate::mounts::lineage(makedev(about.stx_dev_major, about.stx_dev_minor))
    }

    /// Opens the file at its path, which another server shows now, and puts it in the place of the dead one, locked as that.
    ///
    /// # Errors
    /// It is not there yet. [`ErrorKind::Volume`]: it is there, and lacks something that was written to this one.
    pub(crate) fn succeed(&self, lineage: &str) -> Result<(), Error> {
        let device = |e: io::Error| Error::new(ErrorKind::Device, e.to_string());
        let flags = fcntl_getfl(&self.file).map_err(|e| device(e.into()))?;
        let how = OpenHow {
            read_only: !flags.contains(OFlags::RDWR),
            buffered: !self.direct,
            ..OpenHow::default()
        };
        let mut new = Device::open(&self.path, how)?;
        if !self.direct && new.direct {
            new.use_page_cache()?;
        }
        let other = new.lineage().as_deref() != Some(lineage);
        if other && !broken(LiveMutant::TrustAnySuccessor)
            || new.bytes < self.bytes
            || new.direct != self.direct
        {
            let what = format!(
                "{}: what is there now may lack what was written to it before: stop the volume, and start it again",
                self.path.display()
            );
            return Err(Error::new(ErrorKind::Volume, what));
        }
        put(&new.file, &self.file)
            .and_then(|()| put(new.past_cache.file(), self.past_cache.file()))
            .and_then(|()| match (&new.bottom, &self.bottom) {
                (Some(new), Some(old)) => put(new, old),
                _ => Ok(()),
            })
            .map_err(device)?;
        new.moved = true;
        Ok(())
    }
}
