//! Data and attributes of files.

use crate::catalogue::NodeId;
use crate::copies::Update;
use crate::disk::{path_of, read_all};
use crate::live::{Backing, Held, Live};
use crate::placement::Access;
use crate::recording::Op;
use crate::store::Store;
use crate::tree::{Facts, Tier, Time};
use crate::waits::Kind;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// Bytes of copies to drop when the fastest tier is full while a file on it is written.
pub(crate) const EVICT_BYTES: u64 = 16 << 20;

/// A time to set.
#[derive(Clone, Copy, Debug)]
pub enum SetTime {
    /// Keep the present time.
    Keep,
    /// The time of the call.
    Now,
    /// This time.
    At(Time),
}

impl SetTime {
    fn spec(self) -> Timespec {
        let special = |nsec| Timespec {
            tv_sec: 0,
            tv_nsec: nsec,
        };
        match self {
            SetTime::Keep => special(rustix::fs::UTIME_OMIT),
            SetTime::Now => special(rustix::fs::UTIME_NOW),
            SetTime::At(t) => Timespec {
                tv_sec: t.sec,
                tv_nsec: i64::from(t.nsec),
            },
        }
    }
}

/// The attributes to set.
#[derive(Clone, Copy, Debug)]
pub struct SetAttr {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Time of the last read.
    pub atime: SetTime,
    /// Time of the last write.
    pub mtime: SetTime,
    /// Whether the caller may not keep set-user-ID rights when it changes the size: see [`Store::strip_rights`].
    pub strip: bool,
}

/// A place at which attributes are stored.
enum Target<'a> {
    Open(Held<'a>),
    /// Opens the file that has the name on a tier, without access to its contents.
    Named(OwnedFd),
}

impl Target<'_> {
    fn own(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self {
            Target::Open(h) => rustix::fs::fchown(h.fd()?, uid, gid),
            Target::Named(fd) => rustix::fs::chown(path_of(fd), uid, gid),
        }
    }
    fn mode(&self, mode: u32) -> Result<(), Errno> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        match self {
            Target::Open(h) => rustix::fs::fchmod(h.fd()?, mode),
            Target::Named(fd) => rustix::fs::chmod(path_of(fd), mode),
        }
    }
    fn times(&self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Target::Open(h) => rustix::fs::futimens(h.fd()?, times),
            Target::Named(fd) => {
                rustix::fs::utimensat(rustix::fs::CWD, path_of(fd), times, AtFlags::empty())
            }
        }
    }
    fn set_xattr(&self, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<(), Errno> {
        match self {
            Target::Open(h) => rustix::fs::fsetxattr(h.fd()?, name, value, flags),
            Target::Named(fd) => rustix::fs::setxattr(path_of(fd), name, value, flags),
        }
    }
    fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Target::Open(h) => rustix::fs::fremovexattr(h.fd()?, name),
            Target::Named(fd) => rustix::fs::removexattr(path_of(fd), name),
        }
    }
}

impl Store {
    /// Changes the attributes of a node at every place that stores them, then reads them again.
    fn on_each(
        &self,
        node: NodeId,
        f: impl Fn(&Target<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let live = self.lives.get(node);
        let (path, on) = {
            let cat = self.cat();
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            let on = n.dir().map_or(1 << n.tier, |d| d.on);
            (cat.path(node), on)
        };
        if let Some(live) = live.filter(|l| l.hold().fd().is_ok()) {
            let before = live.facts()?;
            let tier = live.hold().backing()?.tier;
            let _wait = self.waits_for(tier, node, Kind::Attributes);
            let done = self.evicting(tier, || f(&Target::Open(live.hold())));
            live.mark_changed();
            live.times_set(before, live.facts()?);
            done.map_err(|e| self.device_error_of(tier, node, e))?;
            return self.learn(node, || live.facts()).map(|_| ());
        }
        let path = path.ok_or(Errno::NOENT)?;
        let on = self.present(on);
        if on == 0 {
            return self.require_present(self.tier_of(node)?, &path);
        }
        for (tier, root) in self
            .roots
            .iter()
            .enumerate()
            .rev()
            .filter(|(t, _)| on & (1 << t) != 0)
        {
            // The fastest tier comes last: its attributes are the ones that count, so if a tier fails, nothing has changed.
            let change = || f(&Target::Named(root.entry(&path)?));
            let _wait = self.waits_for(tier as Tier, node, Kind::Attributes);
            self.evicting(tier as Tier, change)
                .map_err(|e| self.device_error(tier as Tier, &path, e))?;
        }
        let first = on.trailing_zeros() as usize;
        match self.learn(node, || self.roots[first].stat(&path)?.ok_or(Errno::NOENT)) {
            Ok(facts) => {
                let mut cat = self.cat_mut();
                if cat.get(node).is_some_and(|n| n.facts.id != facts.id) {
                    cat.set_facts(node, &facts);
                }
                Ok(())
            }
            Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }
    /// Of the given tiers (one bit each), those that are present.
    pub(crate) fn present(&self, on: u16) -> u16 {
        let tiers = self.roots.iter().enumerate();
        let absent = tiers.filter(|r| r.1.absent).fold(0, |a, (t, _)| a | 1 << t);
        on & !absent
    }
    fn tier_of(&self, node: NodeId) -> Result<crate::tree::Tier, Errno> {
        self.cat().get(node).map(|n| n.tier).ok_or(Errno::NOENT)
    }
    /// Changes attributes.
    ///
    /// # Errors
    /// A device error.
    pub fn set_attr(&self, node: NodeId, set: &SetAttr) -> Result<Facts, Errno> {
        if let Some(size) = set.size {
            self.truncate(node, size, set.strip)?;
        }
        let keep = |t: &SetTime| matches!(t, SetTime::Keep);
        let times = !keep(&set.atime) || !keep(&set.mtime);
        if set.uid.is_some() || set.gid.is_some() || set.mode.is_some() || times {
            let _claim = self.claim(|cat, all| all.node(cat, node))?;
            self.on_each(node, |at| {
                if set.uid.is_some() || set.gid.is_some() {
                    at.own(set.uid, set.gid)?;
                }
                if let Some(mode) = set.mode {
                    at.mode(mode)?;
                }
                if times {
                    at.times(&Timestamps {
                        last_access: set.atime.spec(),
                        last_modification: set.mtime.spec(),
                    })?;
                }
                Ok(())
            })?;
            if set.mode.is_some() {
                self.reread_acl(node)?;
            }
        }
        self.facts(node)
    }
    /// A change of the mode also changes access lists, so they are read again.
    fn reread_acl(&self, node: NodeId) -> Result<(), Errno> {
        let listed = |name: &[u8]| name.starts_with(b"system.posix_acl");
        if self.cat().xattrs(node).iter().any(|x| listed(&x.0)) {
            self.reread_xattrs(node)?;
        }
        Ok(())
    }
    fn reread_xattrs(&self, node: NodeId) -> Result<(), Errno> {
        let at = {
            let cat = self.cat();
            cat.get(node).map(|n| n.tier).zip(cat.path(node))
        };
        if let Some((tier, path)) = at {
            let all = crate::disk::xattrs(&self.roots[usize::from(tier)], &path)?;
            self.cat_mut().set_xattrs(node, all);
        }
        Ok(())
    }
    /// Sets an extended attribute.
    ///
    /// # Errors
    /// A device error.
    pub fn set_xattr(
        &self,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        let _claim = self.claim(|cat, all| all.node(cat, node))?;
        let flags = XattrFlags::from_bits_retain(flags);
        self.on_each(node, |at| at.set_xattr(name, value, flags))?;
        self.reread_xattrs(node)
    }
    /// Removes an extended attribute.
    ///
    /// # Errors
    /// There is no such attribute, or a device error.
    pub fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        let _claim = self.claim(|cat, all| all.node(cat, node))?;
        self.on_each(node, |at| at.remove_xattr(name))?;
        self.reread_xattrs(node)
    }
    /// Called after a user who may not keep them has changed the data: the file loses set-user-ID, and set-group-ID if the group may
    /// execute it. (The tier itself removes capabilities.) A kernel that checks this itself reads the attribute `security.capability` at
    /// each write, which doubles the number of requests.
    ///
    /// # Errors
    /// A device error.
    pub fn strip_rights(&self, live: &Live) -> Result<(), Errno> {
        let mode = live.facts()?.mode;
        let gone = 0o4000 | if mode & 0o010 == 0 { 0 } else { 0o2000 };
        if mode & gone == 0 {
            return Ok(());
        }
        let mode = Mode::from_raw_mode(mode & 0o7777 & !gone);
        rustix::fs::fchmod(live.hold().fd()?, mode)?;
        live.mark_changed();
        self.learn(live.node, || live.facts())?;
        self.tell_kernel(live.node);
        Ok(())
    }
    /// The tier removed a file's capabilities when its data changed, so they are not shown any more.
    fn forget_capabilities(&self, node: NodeId) -> Result<(), Errno> {
        let listed = |name: &[u8]| name == b"security.capability";
        if self.cat().xattrs(node).iter().any(|x| listed(&x.0)) {
            let _claim = self.claim(|cat, all| all.node(cat, node))?;
            self.reread_xattrs(node)?;
        }
        Ok(())
    }
    fn truncate(&self, node: NodeId, size: u64, strip: bool) -> Result<(), Errno> {
        if !self.cat().get(node).is_some_and(|n| n.is_file()) {
            return Err(Errno::INVAL);
        }
        let live = self.live(node)?;
        let start = self.recording.start();
        let done = self.with_room(&live, Update::Same, |fd, _| rustix::fs::ftruncate(fd, size));
        self.note(start, Op::Drop, node, (size, u64::MAX - size));
        let done = match done {
            Ok(()) if strip => self.strip_rights(&live),
            done => done,
        };
        self.release(&live);
        done
    }
    /// Changes data, at home and then on the copy; the second argument of `f` is true for the home. If the tier is full, the file moves to
    /// the next tier with space, and the change is tried again.
    pub(crate) fn with_room<T>(
        &self,
        live: &Arc<Live>,
        update: Update,
        f: impl Fn(&OwnedFd, bool) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        self.open_home(live)?;
        loop {
            let tier = {
                let held = live.hold();
                let b = held.backing()?;
                let copy = held.copy();
                let _turn =
                    copy.map(|_| live.update.lock().unwrap_or_else(PoisonError::into_inner));
                let _wait = self.waits_for(b.tier, live.node, Kind::Write);
                let done = if b.writable {
                    f(&b.fd, true)
                } else {
                    Err(Errno::ROFS)
                };
                if let Some(copy) = copy {
                    self.update_copy(live.node, copy, (&b.fd, &done), update, |fd| f(fd, false));
                }
                live.mark_changed();
                match done {
                    Err(Errno::NOSPC | Errno::DQUOT) => b.tier,
                    Ok(done) => {
                        drop(held);
                        self.forget_capabilities(live.node)?;
                        return Ok(done);
                    }
                    Err(e) => {
                        let tier = b.tier;
                        drop(held);
                        return Err(self.device_error_of(tier, live.node, e));
                    }
                }
            };
            self.room_changed(tier);
            if tier == 0 && self.evict_copies(EVICT_BYTES) {
                continue;
            }
            if usize::from(tier) + 1 >= self.roots.len() {
                return Err(Errno::NOSPC);
            }
            if !self.spill(live.node, tier) && !self.push_out(tier) {
                return Err(Errno::NOSPC);
            }
        }
    }
    /// Reads into the buffer. The result is shorter than requested only at the end of the file.
    ///
    /// # Errors
    /// A device error.
    pub fn read(&self, live: &Live, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let start = self.recording.start();
        let done = loop {
            let held = live.hold();
            let copy = held.copy();
            if let Some(copy) = copy.filter(|c| c.covers(offset, buffer.len() as u64)) {
                if let Ok(n) = read_all(&copy.fd, buffer, offset) {
                    self.copies.reads.fetch_add(1, Ordering::Relaxed);
                    break n;
                }
                self.invalidate(live.node, copy);
            }
            if let Ok(home) = held.backing() {
                let _wait = self.waits_for(home.tier, live.node, Kind::Read);
                let n = read_all(&home.fd, buffer, offset);
                if home.tier > 0 && copy.is_none() {
                    self.want_head(live.node, offset);
                }
                break n.map_err(|e| self.device_error_of(home.tier, live.node, e))?;
            }
            drop(held);
            self.open_home(live)?;
        };
        live.mark_used();
        self.note(start, Op::Read, live.node, (offset, done as u64));
        self.placement
            .record(Access::new(live.node, false, offset, done as u32));
        Ok(done)
    }
    /// Writes the whole buffer.
    ///
    /// # Errors
    /// No tier has space, or a device error.
    pub fn write(
        &self,
        live: &Arc<Live>,
        offset: u64,
        data: &[u8],
        durable: bool,
    ) -> Result<(), Errno> {
        let start = self.recording.start();
        self.give_way(live, offset, data.len() as u64);
        self.with_room(live, Update::Same, |fd, home| {
            crate::disk::write_all(fd, data, offset)?;
            if durable && home {
                rustix::fs::fdatasync(fd)
            } else {
                Ok(())
            }
        })?;
        self.note(start, Op::Write, live.node, (offset, data.len() as u64));
        self.placement
            .record(Access::new(live.node, true, offset, data.len() as u32));
        Ok(())
    }
    /// Makes a file durable.
    ///
    /// # Errors
    /// A device error.
    pub fn sync(&self, live: &Live, data_only: bool) -> Result<(), Errno> {
        let start = self.recording.start();
        self.open_home(live)?;
        let held = live.hold();
        let Backing { tier, fd, .. } = held.backing()?;
        let _wait = self.waits_for(*tier, live.node, Kind::Sync);
        let done = if data_only {
            rustix::fs::fdatasync(fd)
        } else {
            rustix::fs::fsync(fd)
        };
        match done {
            Ok(()) => self.device_answered(*tier),
            Err(e) => return Err(self.device_error_of(*tier, live.node, e)),
        }
        self.note(start, Op::Sync, live.node, (0, 0));
        Ok(())
    }
    /// Makes a directory durable on every tier that has it.
    ///
    /// # Errors
    /// A device error.
    pub fn sync_dir(&self, node: NodeId) -> Result<(), Errno> {
        let (path, on) = {
            let cat = self.cat();
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            (
                cat.path(node).ok_or(Errno::NOENT)?,
                n.dir().ok_or(Errno::NOTDIR)?.on,
            )
        };
        let on = self.present(on);
        for (tier, root) in self
            .roots
            .iter()
            .enumerate()
            .filter(|(t, _)| on & (1 << t) != 0)
        {
            let synced = root.directory(&path).and_then(rustix::fs::fsync);
            synced.map_err(|e| self.device_error(tier as Tier, &path, e))?;
        }
        Ok(())
    }
    /// Number of changes of a file so far.
    pub fn changes(live: &Live) -> u64 {
        live.changes.load(Ordering::SeqCst)
    }
}
