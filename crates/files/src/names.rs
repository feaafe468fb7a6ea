//! Making, renaming and removing names.

use crate::catalogue::{Body, Catalogue, NodeId};
use crate::disk::is_hidden;
use crate::intent::Op;
use crate::live::{Backing, Live};
use crate::scan::{DIR, TYPE, body_of};
use crate::store::Store;
use crate::tree::{At, Facts, Id, Tier};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Longest name.
pub(crate) const NAME_MAX: usize = 255;

/// Who makes something.
#[derive(Clone, Copy, Debug)]
pub struct Maker {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Permissions that are not given unless the directory has a default access list.
    pub umask: u32,
}

/// A place for a new name: its directory's attributes and its path.
struct Place {
    dir: NodeId,
    path: Vec<u8>,
    above: Facts,
    listed: bool,
}

impl Maker {
    fn mode(&self, mode: u32, place: &Place) -> u32 {
        if place.listed {
            mode
        } else {
            mode & !self.umask
        }
    }
    /// Group of what is made there.
    fn group(&self, place: &Place) -> u32 {
        if place.above.mode & 0o2000 != 0 {
            place.above.gid
        } else {
            self.gid
        }
    }
}

fn parent_of(cat: &Catalogue, dir: NodeId, name: &[u8]) -> Result<Place, Errno> {
    if name.len() > NAME_MAX {
        return Err(Errno::NAMETOOLONG);
    }
    let node = cat.get(dir).ok_or(Errno::NOENT)?;
    if node.dir().is_none() {
        return Err(Errno::NOTDIR);
    }
    let path = cat.path_in(dir, name).ok_or(Errno::NOENT)?;
    if is_hidden(&path) {
        return Err(Errno::PERM);
    }
    let listed = cat.xattrs(dir).iter();
    let listed = listed.clone().any(|x| x.0 == b"system.posix_acl_default");
    Ok(Place {
        dir,
        path,
        above: node.facts,
        listed,
    })
}

impl Store {
    fn place(&self, dir: NodeId, name: &[u8]) -> Result<Place, Errno> {
        let cat = self.cat();
        let place = parent_of(&cat, dir, name)?;
        if cat.child(dir, name).is_some() {
            return Err(Errno::EXIST);
        }
        if cat.get(dir).is_some_and(|n| n.links() == 0 && dir != 0) {
            return Err(Errno::NOENT);
        }
        Ok(place)
    }
    /// Something that is there underneath and was not known: it is known from now on.
    fn adopt(&self, place: &Place, name: &[u8], tier: Tier) -> Result<(), Errno> {
        let root = &self.roots[usize::from(tier)];
        let facts = root.stat(&place.path)?.ok_or(Errno::NOENT)?;
        let body = body_of(root, &place.path, &facts, tier)?;
        let xattrs = crate::disk::xattrs(root, &place.path)?;
        self.say(&format!(
            "{}: made underneath on {}; it is shown from now on",
            String::from_utf8_lossy(&place.path),
            self.tier_name(tier)
        ));
        let mut cat = self.cat_mut();
        if let Some(id) = cat.add(place.dir, name, tier, facts, body) {
            cat.set_xattrs(id, xattrs);
        }
        Ok(())
    }
    fn own(fd: impl AsFd, maker: Maker, place: &Place, mode: u32) -> Result<(), Errno> {
        let (uid, gid) = (maker.uid, maker.group(place));
        let now = crate::disk::facts_of(&fd)?;
        if now.uid != uid || now.gid != gid {
            rustix::fs::fchown(&fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            if mode & 0o6000 != 0 {
                rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode & 0o7777))?;
            }
        }
        Ok(())
    }
    /// The directory's times changed.
    pub(crate) fn dir_changed(&self, dir: NodeId, tier: Tier) {
        let path = {
            let cat = self.cat();
            cat.path(dir)
        };
        let Some(path) = path else { return };
        if let Ok(Some(f)) = self.roots[usize::from(tier)].stat(&path) {
            self.cat_mut().update(dir, |d| {
                d.mtime = f.mtime.max(d.mtime);
                d.ctime = f.ctime.max(d.ctime);
            });
        }
    }
    fn known(
        &self,
        place: &Place,
        name: &[u8],
        tier: Tier,
        facts: Facts,
        body: Body,
    ) -> Result<NodeId, Errno> {
        let listed = if place.listed {
            crate::disk::xattrs(&self.roots[usize::from(tier)], &place.path).unwrap_or_default()
        } else {
            Vec::new()
        };
        let id = {
            let mut cat = self.cat_mut();
            let id = cat
                .add(place.dir, name, tier, facts, body)
                .ok_or(Errno::NOENT)?;
            cat.set_xattrs(id, listed);
            id
        };
        self.dir_changed(place.dir, tier);
        Ok(id)
    }
    /// A new regular file, open.
    ///
    /// # Errors
    /// It is there, no tier has room, or the device's.
    pub fn create(
        &self,
        dir: NodeId,
        name: &[u8],
        mode: u32,
        maker: Maker,
    ) -> Result<(NodeId, Arc<Live>), Errno> {
        let _names = self.names()?;
        let place = self.place(dir, name)?;
        let mode = maker.mode(mode, &place) & 0o7777;
        let mut tier = self.tier_for_new(0);
        let (fd, tier) = loop {
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
            let made = self
                .ensure_dir(dir, tier)
                .and_then(|()| self.roots[usize::from(tier)].open_at(&place.path, flags, mode));
            match made {
                Ok(fd) => break (fd, tier),
                Err(Errno::NOSPC) if usize::from(tier) + 1 < self.roots.len() => {
                    self.room_changed(tier);
                    tier += 1;
                }
                Err(Errno::EXIST) => {
                    self.adopt(&place, name, tier)?;
                    return Err(Errno::EXIST);
                }
                Err(e) => return Err(e),
            }
        };
        Self::own(&fd, maker, &place, mode)?;
        let facts = crate::disk::facts_of(&fd)?;
        let id = self.known(&place, name, tier, facts, Body::File)?;
        let backing = Backing {
            tier,
            fd,
            writable: true,
        };
        Ok((id, self.live_new(id, backing)))
    }
    /// A new directory, on the fastest tier that has its parent's room; other tiers get it when they need it.
    ///
    /// # Errors
    /// It is there, or the device's.
    pub fn mkdir(
        &self,
        dir: NodeId,
        name: &[u8],
        mode: u32,
        maker: Maker,
    ) -> Result<NodeId, Errno> {
        let _names = self.names()?;
        let place = self.place(dir, name)?;
        let mut mode = maker.mode(mode, &place) & 0o7777;
        mode |= place.above.mode & 0o2000;
        self.ensure_dir(dir, 0)?;
        let root = &self.roots[0];
        match rustix::fs::mkdirat(
            &root.fd,
            &place.path[..],
            Mode::from_raw_mode(mode & 0o1777),
        ) {
            Err(Errno::EXIST) => {
                self.adopt(&place, name, 0)?;
                return Err(Errno::EXIST);
            }
            other => other?,
        }
        let fd = root.directory(&place.path)?;
        Self::own(&fd, maker, &place, mode)?;
        if mode & 0o2000 != 0 {
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
        }
        let facts = crate::disk::facts_of(&fd)?;
        self.known(&place, name, 0, facts, Body::Dir(1))
    }
    /// A new symbolic link.
    ///
    /// # Errors
    /// It is there, or the device's.
    pub fn symlink(
        &self,
        dir: NodeId,
        name: &[u8],
        target: &[u8],
        maker: Maker,
    ) -> Result<NodeId, Errno> {
        let body = Body::Link(target.into());
        self.special(dir, name, maker, body, |root, path| {
            rustix::fs::symlinkat(target, &root.fd, path)
        })
    }
    /// A pipe, a socket or a device.
    ///
    /// # Errors
    /// It is there, or the device's.
    pub fn mknod(
        &self,
        dir: NodeId,
        name: &[u8],
        mode: u32,
        rdev: u64,
        maker: Maker,
    ) -> Result<NodeId, Errno> {
        let mask = if self.place(dir, name)?.listed {
            0
        } else {
            maker.umask
        };
        let permissions = Mode::from_raw_mode(mode & 0o7777 & !mask);
        self.special(dir, name, maker, Body::Special, |root, path| {
            let kind = FileType::from_raw_mode(mode & TYPE);
            rustix::fs::mknodat(&root.fd, path, kind, permissions, rdev)
        })
    }
    fn special(
        &self,
        dir: NodeId,
        name: &[u8],
        maker: Maker,
        body: Body,
        make: impl Fn(&crate::disk::Root, &[u8]) -> Result<(), Errno>,
    ) -> Result<NodeId, Errno> {
        let _names = self.names()?;
        let place = self.place(dir, name)?;
        self.ensure_dir(dir, 0)?;
        let root = &self.roots[0];
        match make(root, &place.path) {
            Err(Errno::EXIST) => {
                self.adopt(&place, name, 0)?;
                return Err(Errno::EXIST);
            }
            other => other?,
        }
        let (uid, gid) = (Uid::from_raw(maker.uid), Gid::from_raw(maker.group(&place)));
        rustix::fs::chownat(
            &root.fd,
            &place.path[..],
            Some(uid),
            Some(gid),
            AtFlags::SYMLINK_NOFOLLOW,
        )?;
        let facts = root.stat(&place.path)?.ok_or(Errno::NOENT)?;
        self.known(&place, name, 0, facts, body)
    }
    /// Is what lies there still the node's file? If another was put there underneath it is shown from now on, and nothing is done.
    fn still(&self, node: NodeId, tier: Tier, path: &[u8], id: Id) -> Result<(), Errno> {
        match self.roots[usize::from(tier)].stat(path)? {
            Some(f) if f.id == id => Ok(()),
            None => Ok(()),
            Some(f) => {
                self.say(&format!(
                    "{}: replaced underneath on {}; nothing was done to it",
                    String::from_utf8_lossy(path),
                    self.tier_name(tier)
                ));
                if f.mode & TYPE != DIR {
                    self.cat_mut().replace(node, tier, f.id);
                    self.seen(node, f);
                }
                Err(Errno::STALE)
            }
        }
    }
    /// Take a name away that is no directory's. The node, if the kernel still may refer to it.
    ///
    /// # Errors
    /// There is none, it is a directory, or the device's.
    pub fn unlink(&self, dir: NodeId, name: &[u8]) -> Result<NodeId, Errno> {
        let _names = self.names()?;
        let (path, node, tier, id) = {
            let cat = self.cat();
            let place = parent_of(&cat, dir, name)?;
            let node = cat.child(dir, name).ok_or(Errno::NOENT)?;
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            if n.dir().is_some() {
                return Err(Errno::ISDIR);
            }
            (place.path, node, n.tier, n.facts.id)
        };
        self.still(node, tier, &path, id)?;
        let root = &self.roots[usize::from(tier)];
        match rustix::fs::unlinkat(&root.fd, &path[..], AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
        self.lost(dir, name);
        self.refresh(node);
        self.dir_changed(dir, tier);
        Ok(node)
    }
    /// A name is gone: so is its node if that was the last.
    fn lost(&self, dir: NodeId, name: &[u8]) {
        let mut cat = self.cat_mut();
        if let Some(node) = cat.unlink(dir, name) {
            self.gone(&mut cat, node);
        }
    }
    pub(crate) fn gone(&self, cat: &mut Catalogue, node: NodeId) {
        let Some(n) = cat.get(node) else { return };
        if n.links() > 0 {
            return;
        }
        if n.is_file() {
            self.placement.forget(node);
        }
        let (tier, bytes, file) = (usize::from(n.tier), n.facts.blocks * 512, n.is_file());
        if file {
            let on = &self.bytes_on[tier];
            let _ = on.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |b| {
                Some(b.saturating_sub(bytes))
            });
        }
        cat.drop_unused(node);
    }
    /// Remove an empty directory, from every tier that has it.
    ///
    /// # Errors
    /// There is none, it is not empty, or the device's.
    pub fn rmdir(&self, dir: NodeId, name: &[u8]) -> Result<(), Errno> {
        let _names = self.names()?;
        let (path, on) = {
            let cat = self.cat();
            let place = parent_of(&cat, dir, name)?;
            let node = cat.child(dir, name).ok_or(Errno::NOENT)?;
            let d = cat.get(node).and_then(|n| n.dir()).ok_or(Errno::NOTDIR)?;
            if !d.is_empty() {
                return Err(Errno::NOTEMPTY);
            }
            (place.path, d.on)
        };
        self.rmdir_below(&path, on)?;
        self.lost(dir, name);
        self.dir_changed(dir, 0);
        Ok(())
    }
    fn rmdir_below(&self, path: &[u8], on: u16) -> Result<(), Errno> {
        // Slow ones first: if one holds something made underneath, the directory stays.
        for tier in (0..self.roots.len()).rev().filter(|t| on & (1 << t) != 0) {
            match rustix::fs::unlinkat(&self.roots[tier].fd, path, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
    /// One more name for a file.
    ///
    /// # Errors
    /// It is there, it is a directory, or the device's.
    pub fn link(&self, node: NodeId, dir: NodeId, name: &[u8]) -> Result<(), Errno> {
        let _names = self.names()?;
        let place = self.place(dir, name)?;
        let (old, tier) = {
            let cat = self.cat();
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            if n.dir().is_some() {
                return Err(Errno::PERM);
            }
            (cat.path(node).ok_or(Errno::NOENT)?, n.tier)
        };
        self.ensure_dir(dir, tier)?;
        let root = &self.roots[usize::from(tier)];
        match rustix::fs::linkat(
            &root.fd,
            &old[..],
            &root.fd,
            &place.path[..],
            AtFlags::empty(),
        ) {
            Err(Errno::EXIST) => {
                self.adopt(&place, name, tier)?;
                return Err(Errno::EXIST);
            }
            other => other?,
        }
        self.cat_mut().link(node, dir, name);
        self.refresh(node);
        self.dir_changed(dir, tier);
        Ok(())
    }
    /// Attributes of something that is not in use, anew.
    pub(crate) fn refresh(&self, node: NodeId) {
        let at = {
            let cat = self.cat();
            cat.get(node).and_then(|n| Some((n.tier, cat.path(node)?)))
        };
        if let Some((tier, path)) = at
            && let Ok(Some(f)) = self.roots[usize::from(tier)].stat(&path)
        {
            self.seen(node, f);
            self.cat_mut().update(node, |known| known.nlink = f.nlink);
        }
    }
    /// Rename; `exchange` and `keep` as RENAME_EXCHANGE and RENAME_NOREPLACE.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(
        &self,
        dir: NodeId,
        name: &[u8],
        to: NodeId,
        called: &[u8],
        keep: bool,
        exchange: bool,
    ) -> Result<(), Errno> {
        let mut names = self.names()?;
        let plan = {
            let cat = self.cat();
            plan(&cat, dir, name, to, called, keep, exchange)?
        };
        let Some(plan) = plan else { return Ok(()) };
        let first = Plan::tiers(plan.on)[0];
        for tier in Plan::tiers(plan.on) {
            self.ensure_dir(to, tier)?;
        }
        if exchange {
            for tier in Plan::tiers(plan.over_on) {
                self.ensure_dir(dir, tier)?;
            }
        } else if plan.over.is_some() && plan.is_dir {
            self.rmdir_below(&plan.to, plan.over_on & !plan.on)?;
        }
        if plan.simple() {
            let flags = if exchange {
                RenameFlags::EXCHANGE
            } else if plan.over.is_none() {
                RenameFlags::NOREPLACE
            } else {
                RenameFlags::empty()
            };
            self.rename_once(first, &plan.from, &plan.to, flags)?;
        } else {
            self.together(&mut names, &self.ops(&plan)?)?;
        }
        let mut cat = self.cat_mut();
        if exchange {
            let (Some(a), Some(b)) = (cat.unlink(dir, name), cat.unlink(to, called)) else {
                return Err(Errno::IO);
            };
            cat.link(a, to, called);
            cat.link(b, dir, name);
        } else if let Some(over) = cat.rename(dir, name, to, called) {
            self.gone(&mut cat, over);
        }
        drop(cat);
        self.refresh(plan.node);
        if let Some(over) = plan.over {
            self.refresh(over);
        }
        for d in [dir, to] {
            self.dir_changed(d, first);
        }
        Ok(())
    }
    fn rename_once(
        &self,
        tier: Tier,
        from: &[u8],
        to: &[u8],
        flags: RenameFlags,
    ) -> Result<(), Errno> {
        let fd = &self.roots[usize::from(tier)].fd;
        match rustix::fs::renameat_with(fd, from, fd, to, flags) {
            // A file system without flags: names are held still by us.
            Err(Errno::INVAL | Errno::NOSYS) if flags == RenameFlags::NOREPLACE => {
                rustix::fs::renameat(fd, from, fd, to)
            }
            other => other,
        }
    }
    fn ops(&self, plan: &Plan) -> Result<Vec<Op>, Errno> {
        let id = |tier: Tier, path: &[u8]| {
            let f = self.roots[usize::from(tier)].stat(path)?;
            Ok::<Option<Id>, Errno>(f.map(|f| f.id))
        };
        let mut ops = Vec::new();
        let both = if plan.exchange {
            plan.on & plan.over_on
        } else {
            0
        };
        for tier in Plan::tiers(plan.on) {
            let from = At::new(tier, &plan.from[..]);
            let Some(x) = id(tier, &plan.from)? else {
                continue;
            };
            ops.push(if both & (1 << tier) != 0 {
                Op::Exchange(x, from, plan.to.clone())
            } else {
                Op::Rename(x, from, plan.to.clone())
            });
        }
        for tier in Plan::tiers(plan.over_on & !plan.on) {
            let at = At::new(tier, &plan.to[..]);
            let Some(x) = id(tier, &plan.to)? else {
                continue;
            };
            if plan.exchange {
                ops.push(Op::Rename(x, at, plan.from.clone()));
            } else if !plan.is_dir {
                ops.push(Op::Unlink(x, at));
            }
        }
        Ok(ops)
    }
}

/// A rename, looked at.
struct Plan {
    node: NodeId,
    over: Option<NodeId>,
    from: Vec<u8>,
    to: Vec<u8>,
    /// Tiers that the thing is on, and what is called so.
    on: u16,
    over_on: u16,
    is_dir: bool,
    exchange: bool,
}

impl Plan {
    fn tiers(on: u16) -> Vec<Tier> {
        (0..16).filter(|t| on & (1 << t) != 0).collect()
    }
    /// Is it one system call on one tier?
    fn simple(&self) -> bool {
        let one = self.on.is_power_of_two();
        one && (self.over.is_none()
            || self.over_on & !self.on == 0
            || (self.is_dir && !self.exchange))
            && !(self.exchange && self.over_on != self.on)
    }
}

fn plan(
    cat: &Catalogue,
    dir: NodeId,
    name: &[u8],
    to: NodeId,
    called: &[u8],
    keep: bool,
    exchange: bool,
) -> Result<Option<Plan>, Errno> {
    let from_place = parent_of(cat, dir, name)?;
    let to_place = parent_of(cat, to, called)?;
    let node = cat.child(dir, name).ok_or(Errno::NOENT)?;
    let over = cat.child(to, called);
    if keep && over.is_some() {
        return Err(Errno::EXIST);
    }
    if exchange && over.is_none() {
        return Err(Errno::NOENT);
    }
    if over == Some(node) {
        // Two names of one file, or the same name: nothing happens.
        return Ok(None);
    }
    let on = |id: NodeId| cat.get(id).map_or(0, |n| n.on());
    let is_dir = cat.get(node).is_some_and(|n| n.dir().is_some());
    if is_dir && cat.is_below(to, node) {
        return Err(Errno::INVAL);
    }
    if let Some(o) = over {
        let other = cat.get(o).and_then(|n| n.dir());
        if exchange {
            if other.is_some() && cat.is_below(dir, o) {
                return Err(Errno::INVAL);
            }
        } else {
            match other {
                Some(_) if !is_dir => return Err(Errno::ISDIR),
                None if is_dir => return Err(Errno::NOTDIR),
                Some(d) if !d.is_empty() => return Err(Errno::NOTEMPTY),
                _ => {}
            }
        }
    }
    Ok(Some(Plan {
        node,
        over,
        from: from_place.path,
        to: to_place.path,
        on: on(node),
        over_on: over.map_or(0, on),
        is_dir,
        exchange,
    }))
}
