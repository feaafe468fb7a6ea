//! Member files whose writes are volatile until fsync: a FUSE file system over the hostile world's disks.
//!
//! The volume above is the real one: its io_uring, its O_DIRECT files, its fdatasync and RWF_DSYNC end here. When power is lost, every
//! sector of every unflushed write is kept or lost on its own, at one instant for all members, and every later request fails.

use fuser::{
    BackgroundSession, BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, TimeOrNow, WriteFlags,
};
use isotherm_hostile::Rng;
use isotherm_hostile::disk::Disk;
use isotherm_live::block_file::O_DSYNC;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time to live of cached names and attributes, which never change.
const TTL: Duration = Duration::from_secs(3600);

struct State {
    disks: Vec<Disk>,
    /// Number of writes and flushes until power is lost.
    fuse: Option<u64>,
    rng: Rng,
    dead: bool,
    flushes: Vec<u64>,
    forced: u64,
}

impl State {
    fn change(&mut self) -> Result<(), Errno> {
        if !self.dead {
            match &mut self.fuse {
                Some(0) => {
                    self.dead = true;
                    for d in &mut self.disks {
                        d.crash(&mut self.rng, &[]);
                    }
                }
                Some(n) => *n -= 1,
                None => {}
            }
        }
        if self.dead { Err(Errno::EIO) } else { Ok(()) }
    }
}

/// The members, mounted. Dropping it unmounts.
pub struct Rack {
    state: Arc<Mutex<State>>,
    session: Option<BackgroundSession>,
    dir: PathBuf,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rack {
    /// Mounts `disks` as files `0`, `1`… in `dir`.
    pub fn mount(disks: Vec<Disk>, dir: &Path, seed: u64) -> std::io::Result<Rack> {
        let flushes = vec![0; disks.len()];
        let state = State {
            disks,
            fuse: None,
            rng: Rng::new(seed),
            dead: false,
            flushes,
            forced: 0,
        };
        let state = Arc::new(Mutex::new(state));
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("isotherm-test-rack".into())];
        let session = fuser::spawn_mount(Shelf(Arc::clone(&state)), dir, &config)?;
        Ok(Rack {
            state,
            session: Some(session),
            dir: dir.to_owned(),
        })
    }
    /// Number of writes and flushes after which the power will be lost.
    pub fn cut_after(&self, changes: u64) {
        locked(&self.state).fuse = Some(changes);
    }
    /// Power is lost now, if it was not lost before.
    pub fn cut(&self) {
        let mut s = locked(&self.state);
        s.fuse = Some(0);
        // The error is the purpose of this call.
        let _ = s.change();
    }
    /// Whether power was lost.
    pub fn is_dead(&self) -> bool {
        locked(&self.state).dead
    }
    /// Number of flushes of each member so far, and of writes that were durable by themselves.
    pub fn flushes(&self) -> (Vec<u64>, u64) {
        let s = locked(&self.state);
        (s.flushes.clone(), s.forced)
    }
    /// Unmounts, and returns the data that survived.
    pub fn into_disks(mut self) -> std::io::Result<Vec<Disk>> {
        self.unmount()?;
        Ok(std::mem::take(&mut locked(&self.state).disks))
    }
    fn unmount(&mut self) -> std::io::Result<()> {
        let Some(session) = self.session.take() else {
            return Ok(());
        };
        // A closed ring closes its files a moment later, so an ordinary unmount may be refused. The session ends when the last of them is
        // closed.
        let done = Command::new("umount")
            .arg("--lazy")
            .arg(&self.dir)
            .status()?;
        if !done.success() {
            return Err(std::io::Error::other(format!("umount: {done}")));
        }
        match session.join() {
            // Seen once, on a busy machine; its cause was not found. The session is over, and that is all that is wanted here. If a
            // connection ended earlier, the volume would get errors while the rack has power, and the test would fail.
            Err(e) if e.kind() == std::io::ErrorKind::ConnectionAborted => {
                eprintln!("the session ended with {e}");
                Ok(())
            }
            other => other,
        }
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        if let Err(e) = self.unmount() {
            eprintln!("{}: {e}", self.dir.display());
        }
    }
}

struct Shelf(Arc<Mutex<State>>);

impl Shelf {
    fn attr(&self, ino: INodeNo) -> Option<FileAttr> {
        let s = locked(&self.0);
        let (kind, size) = match ino.0 {
            1 => (FileType::Directory, 0),
            n => (
                FileType::RegularFile,
                s.disks.get(n as usize - 2)?.len() as u64,
            ),
        };
        let t = UNIX_EPOCH;
        Some(FileAttr {
            ino,
            size,
            blocks: size / 512,
            atime: t,
            mtime: t,
            ctime: t,
            crtime: t,
            kind,
            perm: if ino.0 == 1 { 0o700 } else { 0o600 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }
    /// Carries out a write, which is durable by itself or not.
    fn land(&self, ino: INodeNo, offset: u64, data: &[u8], forced: bool) -> Result<(), Errno> {
        let mut s = locked(&self.0);
        s.change()?;
        let d = &mut s.disks[ino.0 as usize - 2];
        if d.get(offset, data.len()).is_none() {
            return Err(Errno::ENOSPC);
        }
        if forced {
            d.write_through(offset, data);
            s.forced += 1;
        } else {
            d.write(offset, data);
        }
        Ok(())
    }
}

fn end(reply: ReplyEmpty, r: Result<(), Errno>) {
    match r {
        Ok(()) => reply.ok(),
        Err(e) => reply.error(e),
    }
}

impl Filesystem for Shelf {
    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let n = name.to_str().and_then(|n| n.parse::<u64>().ok());
        match n
            .filter(|_| parent.0 == 1)
            .and_then(|n| self.attr(INodeNo(n + 2)))
        {
            Some(a) => reply.entry(&TTL, &a, Generation(0)),
            None => reply.error(Errno::ENOENT),
        }
    }
    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino) {
            Some(a) => reply.attr(&TTL, &a),
            None => reply.error(Errno::ENOENT),
        }
    }
    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        // Times are not used, and the size of a disk does not change.
        match self.attr(ino) {
            Some(a) => reply.attr(&TTL, &a),
            None => reply.error(Errno::ENOENT),
        }
    }
    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::FOPEN_DIRECT_IO);
    }
    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let s = locked(&self.0);
        let d = &s.disks[ino.0 as usize - 2];
        let len = u64::from(size).min((d.len() as u64).saturating_sub(offset)) as usize;
        match d.get(offset, len) {
            Some(data) if !s.dead => reply.data(data),
            _ => reply.error(Errno::EIO),
        }
    }
    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // RWF_DSYNC arrives as O_DSYNC of that one write.
        match self.land(ino, offset, data, flags.0 & O_DSYNC != 0) {
            Ok(()) => reply.written(data.len() as u32),
            Err(e) => reply.error(e),
        }
    }
    fn fallocate(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        // Space is reserved: a disk has it.
        if mode == 0 {
            return reply.ok();
        }
        // A punched or zeroed range holds zeros, and is as volatile as any write.
        end(reply, self.land(ino, offset, &vec![0; len as usize], false));
    }
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // close() guarantees nothing.
        reply.ok();
    }
    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let mut s = locked(&self.0);
        let r = s.change();
        if r.is_ok() {
            let i = ino.0 as usize - 2;
            let stamp = s.disks[i].stamp();
            s.disks[i].flush(stamp);
            s.flushes[i] += 1;
        }
        drop(s);
        end(reply, r);
    }
}
