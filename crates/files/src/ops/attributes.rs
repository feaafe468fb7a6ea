//! Attributes of files and directories: owner, mode, times, extended attributes, access lists.
//!
//! A file that is open is changed through its descriptor, also after its last name was removed. Anything else is changed under its name on
//! each tier that has it. What has no name any more and is not open (a removed directory that a program works in, a removed pipe that one
//! has open) has its attributes in memory only, until the kernel forgets it.

use crate::access::{ACLS, Access, others};
use crate::catalogue::{NodeId, ROOT};
use crate::disk::{Xattrs, facts_of, is_mark, path_of, xattrs_of};
use crate::live::{Held, Live};
use crate::store::Store;
use crate::tiers::Kind;
use crate::tree::{DIR, Facts, REG, TYPE, Tier, Time, disks_in};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::cell::RefCell;
use std::time::{SystemTime, UNIX_EPOCH};

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
            SetTime::At(t) => t.into(),
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
    /// It has no name and is not open.
    Gone(RefCell<(Facts, Xattrs)>),
}

/// The time of this call.
fn now() -> Timespec {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default();
    Timespec {
        tv_sec: since.as_secs() as i64,
        tv_nsec: i64::from(since.subsec_nanos()),
    }
}

fn set_time(at: &mut Time, to: Timespec) {
    let to = match to.tv_nsec {
        rustix::fs::UTIME_OMIT => return,
        rustix::fs::UTIME_NOW => now(),
        _ => to,
    };
    *at = Time {
        sec: to.tv_sec,
        nsec: to.tv_nsec as u32,
    };
}

/// The bits of a mode that go when somebody changes the file who may not keep them.
fn lost_rights(mode: u32) -> u32 {
    0o4000 | if mode & 0o010 == 0 { 0 } else { 0o2000 }
}

impl Target<'_> {
    fn own(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
        match self {
            Target::Open(h) => rustix::fs::fchown(h.fd()?, uid, gid),
            Target::Named(fd) => rustix::fs::chown(path_of(fd.as_fd()), uid, gid),
            Target::Gone(it) => {
                let facts = &mut it.borrow_mut().0;
                facts.uid = uid.map_or(facts.uid, Uid::as_raw);
                facts.gid = gid.map_or(facts.gid, Gid::as_raw);
                if facts.mode & TYPE == REG {
                    facts.mode &= !lost_rights(facts.mode);
                }
                Ok(())
            }
        }
    }
    fn mode(&self, mode: u32) -> Result<(), Errno> {
        let bits = mode & 0o7777;
        let mode = Mode::from_raw_mode(bits);
        match self {
            Target::Open(h) => rustix::fs::fchmod(h.fd()?, mode),
            Target::Named(fd) => rustix::fs::chmod(path_of(fd.as_fd()), mode),
            Target::Gone(it) => {
                let facts = &mut it.borrow_mut().0;
                facts.mode = facts.mode & TYPE | bits;
                Ok(())
            }
        }
    }
    fn times(&self, times: &Timestamps) -> Result<(), Errno> {
        match self {
            Target::Open(h) => rustix::fs::futimens(h.fd()?, times),
            Target::Named(fd) => rustix::fs::utimensat(
                rustix::fs::CWD,
                path_of(fd.as_fd()),
                times,
                AtFlags::empty(),
            ),
            Target::Gone(it) => {
                let facts = &mut it.borrow_mut().0;
                set_time(&mut facts.atime, times.last_access);
                set_time(&mut facts.mtime, times.last_modification);
                Ok(())
            }
        }
    }
    fn set_xattr(&self, name: &[u8], value: &[u8], flags: XattrFlags) -> Result<(), Errno> {
        match self {
            Target::Open(h) => rustix::fs::fsetxattr(h.fd()?, name, value, flags),
            Target::Named(fd) => rustix::fs::setxattr(path_of(fd.as_fd()), name, value, flags),
            // They would have to change the mode, too.
            Target::Gone(_) if name.starts_with(ACLS) => Err(Errno::OPNOTSUPP),
            Target::Gone(it) => {
                let all = &mut it.borrow_mut().1;
                let there = all.iter_mut().find(|x| x.0 == name);
                match there {
                    Some(_) if flags.contains(XattrFlags::CREATE) => return Err(Errno::EXIST),
                    None if flags.contains(XattrFlags::REPLACE) => return Err(Errno::NODATA),
                    Some(there) => there.1 = value.to_vec(),
                    None => all.push((name.to_vec(), value.to_vec())),
                }
                Ok(())
            }
        }
    }
    fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        match self {
            Target::Open(h) => rustix::fs::fremovexattr(h.fd()?, name),
            Target::Named(fd) => rustix::fs::removexattr(path_of(fd.as_fd()), name),
            Target::Gone(it) => {
                let all = &mut it.borrow_mut().1;
                let before = all.len();
                all.retain(|x| x.0 != name);
                (all.len() < before).then_some(()).ok_or(Errno::NODATA)
            }
        }
    }
}

impl Store {
    /// Changes the attributes of a node at every place that stores them, then reads them again. `lasts`: the change is shown in the end even
    /// if a disk still has the old ones, unless it is the fastest that has the node.
    fn on_each(
        &self,
        node: NodeId,
        lasts: bool,
        f: impl Fn(&Target<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let live = self.open.get(node);
        let (path, on, known) = {
            let cat = self.cat();
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            (cat.path(node), n.on(), n.facts)
        };
        if let Some(live) = live.filter(|l| l.hold().fd().is_ok()) {
            let before = live.facts()?;
            let tier = live.hold().backing()?.tier;
            let _wait = self.waits_for(tier, node, Kind::Attributes);
            let done = (self.copies).evicting(&self.tiers, tier, || f(&Target::Open(live.hold())));
            live.mark_changed();
            let now = live.facts()?;
            if let Some(copy) = live.hold().copy() {
                copy.times_set(&before, &now);
            }
            self.copies.ranges.times_set(node, &before, &now);
            done.map_err(|e| self.names.device_error_of(&self.tiers, tier, node, e))?;
            return (self.names)
                .learn(&self.tiers, node, || live.facts())
                .map(|_| ());
        }
        let Some(path) = path else {
            return self.on_gone(node, f);
        };
        // The root is always as on the fastest tier.
        let on = self.all_change(on, lasts || node == ROOT, &path)?;
        let mut changed = 0;
        for tier in disks_in(on).rev() {
            let root = self.root(tier);
            // The fastest tier comes last: its attributes are the ones that count, so if a tier fails, nothing is shown that was not done.
            let change = || {
                let fd = root.entry(&path)?;
                let there = facts_of(&fd)?;
                let same = match known.mode & TYPE {
                    DIR => there.mode & TYPE == DIR,
                    _ => there.id == known.id,
                };
                // Another file was put there directly on the tier.
                same.then_some(()).ok_or(Errno::STALE)?;
                f(&Target::Named(fd))
            };
            let _wait = self.waits_for(tier, node, Kind::Attributes);
            let done = self.copies.evicting(&self.tiers, tier, change);
            done.map_err(|e| {
                self.say_differing(&path, tier, changed, e);
                self.device_error(tier, &path, e)
            })?;
            changed |= 1 << tier;
        }
        let first = on.trailing_zeros() as usize;
        match self.names.learn(&self.tiers, node, || {
            self.roots[first].stat(&path)?.ok_or(Errno::NOENT)
        }) {
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
    /// Checks before a change of attributes that all disks of a node (one bit each) can make it. Returns the disks that do. One that is absent
    /// would show the old attributes when it is back, unless the change lasts.
    fn all_change(&self, on: u16, lasts: bool, path: &[u8]) -> Result<u16, Errno> {
        let (present, first) = (self.present(on), on.trailing_zeros());
        for tier in disks_in(on).filter(|t| !lasts || u32::from(*t) == first) {
            self.require_present(tier, path)?;
        }
        for tier in disks_in(present).filter(|_| !present.is_power_of_two()) {
            let proved = self.root(tier).prove_writable();
            proved.map_err(|e| self.device_error(tier, path, e))?;
        }
        Ok(present)
    }
    /// Whether these attributes of a directory hold if one of its disks still has the old ones: of two modes the strictest holds, and times
    /// are those of the fastest disk.
    fn lasts(&self, node: NodeId, set: &SetAttr) -> bool {
        let cat = self.cat();
        let Some(known) = cat.get(node).map(|n| n.facts) else {
            return false;
        };
        let listed = cat.xattrs(node).iter().any(|x| x.0.starts_with(ACLS));
        let takes = |mode: u32| {
            let (new, old) = (mode & 0o7777, known.mode & 0o7777);
            // The sticky bit takes rights away.
            let gives = (new & !old & 0o6777) | (old & !new & 0o1000);
            new == old || (gives == 0 && !listed)
        };
        let same = |new: Option<u32>, old| new.is_none_or(|new| new == old);
        same(set.uid, known.uid) && same(set.gid, known.gid) && set.mode.is_none_or(takes)
    }
    /// Says that a change of attributes failed after some disks (one bit each) had made it.
    fn say_differing(&self, path: &[u8], tier: Tier, changed: u16, e: Errno) {
        if changed != 0 {
            let names: Vec<String> = disks_in(changed).map(|t| self.tier_name(t)).collect();
            self.say(&format!(
                "{}: a change of its attributes was made on {} and failed on {} ({e}): see `isotherm files check`",
                String::from_utf8_lossy(path),
                names.join(", "),
                self.tier_name(tier)
            ));
        }
    }
    /// Stores what the catalogue says of who may use a directory on all disks that have it, after they differed. Returns a line about it.
    pub(crate) fn make_alike(&self, node: NodeId) -> String {
        let (shown, access) = {
            let cat = self.cat();
            (cat.shown_path(node), Access::known(&cat, node))
        };
        let Some(access) = access else {
            return String::new();
        };
        let (uid, gid, mode) = access.parts();
        let done = self.on_each(node, true, |at| {
            let kinds = [&b"_access"[..], b"_default"];
            for kind in kinds.into_iter().filter(|_| access.has_no_acls()) {
                let name = [ACLS, kind].concat();
                match at.remove_xattr(&name) {
                    Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                    Err(e) => return Err(e),
                }
            }
            at.own(Some(uid), Some(gid))?;
            at.mode(mode)
        });
        let end = done.and_then(|()| self.reread_xattrs(node));
        let end = end.map_or_else(
            |e| format!(", but not stored on all disks ({e})"),
            |()| String::new(),
        );
        format!(
            "{shown}: owner, mode or access lists were not the same on all disks: the strictest hold from now on ({access}){end}"
        )
    }
    /// Gives a directory the extended attributes that are shown, except for access lists, on all disks that have it.
    pub(crate) fn same_xattrs(&self, node: NodeId) -> Result<(), Errno> {
        let shown = others(self.cat().xattrs(node));
        self.on_each(node, true, |at| {
            let Target::Named(fd) = at else { return Ok(()) };
            let there = others(&xattrs_of(fd)?);
            for (name, _) in there.iter().filter(|x| !shown.iter().any(|s| s.0 == x.0)) {
                at.remove_xattr(name)?;
            }
            for (name, value) in shown.iter().filter(|x| !there.contains(x)) {
                at.set_xattr(name, value, XattrFlags::empty())?;
            }
            Ok(())
        })
    }
    /// As [`Store::on_each`], for a node that has no name and is not open.
    fn on_gone(
        &self,
        node: NodeId,
        f: impl Fn(&Target<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut cat = self.cat_mut();
        let facts = cat.get(node).ok_or(Errno::NOENT)?.facts;
        let target = Target::Gone(RefCell::new((facts, cat.xattrs(node).to_vec())));
        f(&target)?;
        if let Target::Gone(it) = target {
            let (mut facts, xattrs) = it.into_inner();
            set_time(&mut facts.ctime, now());
            cat.set_facts(node, &facts);
            cat.set_xattrs(node, xattrs);
        }
        Ok(())
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
            let _claim = self.names.claim(|cat, all| all.node(cat, node))?;
            self.on_each(node, self.lasts(node, set), |at| {
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
        let listed = |name: &[u8]| name.starts_with(ACLS);
        if self.cat().xattrs(node).iter().any(|x| listed(&x.0)) {
            self.reread_xattrs(node)?;
        }
        Ok(())
    }
    fn reread_xattrs(&self, node: NodeId) -> Result<(), Errno> {
        if let Some(live) = self.open.get(node)
            && let Ok(fd) = live.hold().fd()
        {
            // It may have no name any more.
            let all = xattrs_of(fd)?;
            self.cat_mut().set_xattrs(node, all);
            return Ok(());
        }
        if let Ok(known) = self.names.known(node) {
            let all = crate::disk::xattrs(self.root(known.tier), &known.path)?;
            self.cat_mut().set_xattrs(node, all);
        }
        Ok(())
    }
    /// Sets an extended attribute.
    ///
    /// # Errors
    /// `EPERM`: it is the one with the inode number. A device error.
    pub fn set_xattr(
        &self,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        flags: u32,
    ) -> Result<(), Errno> {
        if is_mark(name) {
            return Err(Errno::PERM);
        }
        let _claim = self.names.claim(|cat, all| all.node(cat, node))?;
        let flags = XattrFlags::from_bits_retain(flags);
        let lasts = !name.starts_with(ACLS);
        self.on_each(node, lasts, |at| at.set_xattr(name, value, flags))?;
        self.reread_xattrs(node)
    }
    /// Removes an extended attribute.
    ///
    /// # Errors
    /// There is no such attribute, or a device error.
    pub fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Result<(), Errno> {
        if is_mark(name) {
            return Err(Errno::NODATA);
        }
        let _claim = self.names.claim(|cat, all| all.node(cat, node))?;
        let lasts = !name.starts_with(ACLS);
        self.on_each(node, lasts, |at| at.remove_xattr(name))?;
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
        let gone = lost_rights(mode);
        if mode & gone == 0 {
            return Ok(());
        }
        let mode = Mode::from_raw_mode(mode & 0o7777 & !gone);
        rustix::fs::fchmod(live.hold().fd()?, mode)?;
        live.mark_changed();
        self.names.learn(&self.tiers, live.node, || live.facts())?;
        self.open.tell_kernel(self.names.shown_number(live.node));
        Ok(())
    }
    /// The tier removed a file's capabilities when its data changed, so they are not shown any more.
    pub(crate) fn forget_capabilities(&self, node: NodeId) -> Result<(), Errno> {
        let listed = |name: &[u8]| name == b"security.capability";
        if self.cat().xattrs(node).iter().any(|x| listed(&x.0)) {
            let _claim = self.names.claim(|cat, all| all.node(cat, node))?;
            self.reread_xattrs(node)?;
        }
        Ok(())
    }
}
