//! Creates names, and directories on a tier when the first file needs them there.

use crate::catalogue::{Body, Catalogue, Kind, NodeId};
use crate::disk::{DirAttributes, Root, is_hidden, make_dir_like, path_of};
use crate::live::{Backing, Live};
use crate::names::{Creator, NAME_MAX, Names};
use crate::scan::body_of;
use crate::store::Store;
use crate::tree::{Facts, Id, TYPE, Tier};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Uid};
use rustix::io::Errno;
use std::sync::Arc;

/// The place of a new name: its directory's attributes and its path.
pub(super) struct Place {
    dir: NodeId,
    pub(super) path: Vec<u8>,
    parent: Facts,
    default_acl: bool,
}

impl Creator {
    fn mode(&self, mode: u32, place: &Place) -> u32 {
        if place.default_acl {
            mode
        } else {
            mode & !self.umask
        }
    }
    /// The group of a new file there.
    fn group(&self, place: &Place) -> u32 {
        if place.parent.mode & 0o2000 != 0 {
            place.parent.gid
        } else {
            self.gid
        }
    }
}

pub(super) fn parent_of(cat: &Catalogue, dir: NodeId, name: &[u8]) -> Result<Place, Errno> {
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
    let xattrs = cat.xattrs(dir).iter();
    let default_acl = xattrs.clone().any(|x| x.0 == b"system.posix_acl_default");
    Ok(Place {
        dir,
        path,
        parent: node.facts,
        default_acl,
    })
}

/// Removes what was just created and could not be completed, if it still has its name. If this fails, it is shown when its name is used.
fn take_back(root: &Root, place: &Place, made: impl AsFd) {
    if let Ok(f) = crate::disk::facts_of(made) {
        let _ = root.unlink_if(&place.path, f.id);
    }
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
    /// Adds a file to the catalogue that was found on a tier and was not known.
    fn adopt(&self, place: &Place, name: &[u8], tier: Tier) -> Result<(), Errno> {
        let root = self.root(tier);
        let facts = root.stat(&place.path)?.ok_or(Errno::NOENT)?;
        let body = body_of(&facts, tier, || root.target(&place.path))?;
        let xattrs = crate::disk::xattrs(root, &place.path)?;
        self.say(&format!(
            "{}: made underneath on {}; it is shown from now on",
            String::from_utf8_lossy(&place.path),
            self.tier_name(tier)
        ));
        let number = self.names.found(&self.tiers, &[(tier, &place.path, facts)])[0];
        let mut cat = self.cat_mut();
        if let Some(id) = cat.add(place.dir, name, tier, facts, body) {
            cat.set_xattrs(id, xattrs);
            cat.set_lasting(id, number);
        }
        drop(cat);
        let dir = self.names.shown_number(place.dir);
        self.open.tell_kernel_of_name(dir, name);
        Ok(())
    }
    /// Sets the owner of a new file. Returns its attributes.
    fn own(fd: impl AsFd, creator: Creator, place: &Place, mode: u32) -> Result<Facts, Errno> {
        let (uid, gid) = (creator.uid, creator.group(place));
        let now = crate::disk::facts_of(&fd)?;
        if now.uid == uid && now.gid == gid {
            return Ok(now);
        }
        rustix::fs::fchown(&fd, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        if mode & 0o6000 != 0 {
            rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode & 0o7777))?;
        }
        crate::disk::facts_of(&fd)
    }
    pub(super) fn give_number(
        &self,
        tier: Tier,
        fd: &OwnedFd,
        id: Id,
        number: u64,
    ) -> Result<(), Errno> {
        (self.names.lasting()).give(self.root(0), tier, fd, id, number)
    }
    fn add_new(
        &self,
        place: &Place,
        name: &[u8],
        tier: Tier,
        facts: Facts,
        (body, number): (Body, u64),
    ) -> Result<NodeId, Errno> {
        let xattrs = if place.default_acl {
            crate::disk::xattrs(self.root(tier), &place.path).unwrap_or_default()
        } else {
            Vec::new()
        };
        let id = {
            let mut cat = self.cat_mut();
            let id = cat
                .add(place.dir, name, tier, facts, body)
                .ok_or(Errno::NOENT)?;
            cat.set_xattrs(id, xattrs);
            cat.set_lasting(id, number);
            id
        };
        self.names.dir_changed(&self.tiers, place.dir, tier);
        Ok(id)
    }
    /// Creates a name on the disk `first`, or, if that has no space for it or does not answer, on the first of [`Store::elsewhere`] that
    /// does. On the fastest tier, copies make room first.
    fn on_a_tier<T>(
        &self,
        place: &Place,
        name: &[u8],
        first: Tier,
        make: impl Fn(&Root, Tier) -> Result<T, Errno>,
    ) -> Result<(T, Tier), Errno> {
        let mut others = None;
        let mut tier = first;
        loop {
            let root = self.root(tier);
            let made = self
                .ensure_dir(place.dir, tier)
                .and_then(|()| self.copies.evicting(&self.tiers, tier, || make(root, tier)));
            match made {
                Ok(made) => return Ok((made, tier)),
                // Another tier may work: this one is full, or its device is gone.
                Err(
                    e @ (Errno::NOSPC
                    | Errno::DQUOT
                    | Errno::IO
                    | Errno::ROFS
                    | Errno::NODEV
                    | Errno::NOTCONN),
                ) => {
                    let shown = self.device_error(tier, &place.path, e);
                    self.room_changed(tier);
                    let others = others.get_or_insert_with(|| {
                        self.elsewhere(first, self.cat().dir_on(place.dir))
                            .into_iter()
                    });
                    tier = others.next().ok_or(shown)?;
                }
                Err(Errno::EXIST) => {
                    self.adopt(place, name, tier)?;
                    return Err(Errno::EXIST);
                }
                Err(e) => return Err(self.device_error(tier, &place.path, e)),
            }
        }
    }
    /// Creates a regular file. Returns it open, with its attributes.
    ///
    /// # Errors
    /// It exists, no tier has space, or a device error.
    pub fn create(
        &self,
        dir: NodeId,
        name: &[u8],
        mode: u32,
        creator: Creator,
    ) -> Result<(NodeId, Arc<Live>, Facts), Errno> {
        let _claim = self.names.claim(|cat, all| all.name(cat, dir, name))?;
        let place = self.place(dir, name)?;
        let mode = creator.mode(mode, &place) & 0o7777;
        let first = self.disk_for_new(0, self.cat().dir_on(dir));
        let number = self.names.new_number(&self.tiers)?;
        let ((fd, facts), tier) = self.on_a_tier(&place, name, first, |root, tier| {
            let (fd, named) = root.new_file(&place.path, mode)?;
            let complete = || {
                let facts = Self::own(&fd, creator, &place, mode)?;
                self.give_number(tier, &fd, facts.id, number)?;
                if !named {
                    root.give_name(&fd, &place.path)?;
                }
                crate::disk::facts_of(&fd)
            };
            let facts = complete();
            let facts = facts.inspect_err(|_| take_back(root, &place, &fd))?;
            Ok((fd, facts))
        })?;
        let id = self.add_new(&place, name, tier, facts, (Body::File, number))?;
        let backing = Backing {
            tier,
            fd,
            writable: true,
        };
        Ok((id, self.open.live_new(&self.names, id, backing), facts))
    }
    /// Creates a directory on the fastest tier that has space. Another tier gets it when a file is to be stored there.
    ///
    /// # Errors
    /// It exists, no tier has space, or a device error.
    pub fn mkdir(
        &self,
        dir: NodeId,
        name: &[u8],
        mode: u32,
        creator: Creator,
    ) -> Result<NodeId, Errno> {
        let _claim = self.names.claim(|cat, all| all.name(cat, dir, name))?;
        let place = self.place(dir, name)?;
        let mut mode = creator.mode(mode, &place) & 0o7777;
        mode |= place.parent.mode & 0o2000;
        let number = self.names.new_number(&self.tiers)?;
        let (facts, tier) = self.on_a_tier(&place, name, 0, |root, tier| {
            root.mkdir(&place.path, mode & 0o1777)?;
            let complete = || {
                let fd = root.directory(&place.path)?;
                let facts = Self::own(&fd, creator, &place, mode)?;
                self.give_number(tier, &fd, facts.id, number)?;
                if mode & 0o2000 != 0 {
                    rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
                }
                crate::disk::facts_of(&fd)
            };
            // An empty directory: nothing is lost, whoever made it.
            complete().inspect_err(|_| {
                let _ = root.unlink(&place.path, AtFlags::REMOVEDIR);
            })
        })?;
        let body = Body::Dir(1 << tier);
        self.add_new(&place, name, tier, facts, (body, number))
    }
    /// Creates a symbolic link.
    ///
    /// # Errors
    /// It exists, no tier has space, or a device error.
    pub fn symlink(
        &self,
        dir: NodeId,
        name: &[u8],
        target: &[u8],
        creator: Creator,
    ) -> Result<NodeId, Errno> {
        let body = Body::Link(target.into());
        self.special(dir, name, creator, body, |root, path| {
            root.symlink(target, path)
        })
    }
    /// Creates a pipe, a socket or a device file.
    ///
    /// # Errors
    /// It exists, no tier has space, or a device error.
    pub fn mknod(
        &self,
        dir: NodeId,
        name: &[u8],
        mode: u32,
        rdev: u64,
        creator: Creator,
    ) -> Result<NodeId, Errno> {
        let mask = if self.place(dir, name)?.default_acl {
            0
        } else {
            creator.umask
        };
        let permissions = mode & 0o7777 & !mask;
        self.special(dir, name, creator, Body::Special, |root, path| {
            let kind = FileType::from_raw_mode(mode & TYPE);
            root.mknod(path, kind, permissions, rdev)
        })
    }
    fn special(
        &self,
        dir: NodeId,
        name: &[u8],
        creator: Creator,
        body: Body,
        make: impl Fn(&Root, &[u8]) -> Result<(), Errno>,
    ) -> Result<NodeId, Errno> {
        let _claim = self.names.claim(|cat, all| all.name(cat, dir, name))?;
        let place = self.place(dir, name)?;
        let owner = Some(Uid::from_raw(creator.uid));
        let group = Some(Gid::from_raw(creator.group(&place)));
        let number = self.names.new_number(&self.tiers)?;
        let (facts, tier) = self.on_a_tier(&place, name, 0, |root, tier| {
            make(root, &place.path)?;
            let fd = root.entry(&place.path)?;
            // Somebody who can write to the directory on the tier must not get a file of others by a link in this place.
            let made = crate::disk::facts_of(&fd)?;
            if made.nlink != 1 {
                return Err(Errno::STALE);
            }
            rustix::fs::chown(path_of(fd.as_fd()), owner, group)
                .and_then(|()| self.give_number(tier, &fd, made.id, number))
                .and_then(|()| crate::disk::facts_of(&fd))
                .inspect_err(|_| take_back(root, &place, &fd))
        })?;
        self.add_new(&place, name, tier, facts, (body, number))
    }
    /// Adds a name to a file.
    ///
    /// # Errors
    /// The name exists, the node is a directory, or a device error.
    pub fn link(&self, node: NodeId, dir: NodeId, name: &[u8]) -> Result<(), Errno> {
        let _claim = self.names.claim(|cat, all| {
            all.name(cat, dir, name);
            all.node(cat, node);
        })?;
        let place = self.place(dir, name)?;
        let known = self.names.known(node)?;
        if known.kind == Kind::Dir {
            return Err(Errno::PERM);
        }
        let (old, tier) = (known.path, known.tier);
        self.require_present(tier, &old)?;
        self.check_unreplaced(node, tier, &old, known.facts.id)?;
        self.ensure_dir(dir, tier)?;
        let root = self.root(tier);
        match (self.copies).evicting(&self.tiers, tier, || root.link(&old, &place.path)) {
            Err(Errno::EXIST) => {
                self.adopt(&place, name, tier)?;
                return Err(Errno::EXIST);
            }
            other => other?,
        }
        self.cat_mut().link(node, dir, name);
        self.refresh(node);
        self.names.dir_changed(&self.tiers, dir, tier);
        Ok(())
    }
    /// Reads the attributes of a node that is not in use again.
    pub(crate) fn refresh(&self, node: NodeId) {
        if let Ok(known) = self.names.known(node)
            && let Ok(f) = self.names.learn(&self.tiers, node, || {
                let f = self.root(known.tier).stat(&known.path)?;
                f.ok_or(Errno::NOENT)
            })
        {
            // The catalogue has the exact size and modification time of a file that is not in use. If they differ, the file was changed
            // directly on its tier.
            let is_file = known.kind == Kind::File;
            if is_file && known.facts.version() != f.version() && self.open.get(node).is_none() {
                self.open.tell_kernel_of_data(self.names.shown_number(node));
            }
            self.cat_mut().update(node, |known| known.nlink = f.nlink);
        }
    }
    /// Makes sure that a directory and those above it exist on a tier. Their attributes come from the catalogue, because the other tiers
    /// may sleep or be absent. Those that are made must not change meanwhile.
    pub(crate) fn ensure_dir(&self, dir: NodeId, tier: Tier) -> Result<(), Errno> {
        if Names::missing_on(&self.cat(), dir, tier)?.is_empty() {
            return Ok(());
        }
        let _claim = self.names.claim_missing(dir, tier);
        self.ensure_claimed(dir, tier)
    }
    /// As [`Store::ensure_dir`], for a caller that has claimed the directories that are missing.
    pub(crate) fn ensure_claimed(&self, dir: NodeId, tier: Tier) -> Result<(), Errno> {
        let missing = {
            let cat = self.cat();
            let known = |dir: NodeId| {
                Some(DirAttributes {
                    path: cat.path(dir)?,
                    facts: cat.get(dir)?.facts,
                    xattrs: cat.xattrs(dir).to_vec(),
                    number: cat.lasting(dir),
                })
            };
            let missing = Names::missing_on(&cat, dir, tier)?.into_iter();
            let missing = missing.map(|dir| Some((dir, known(dir)?)));
            missing.collect::<Option<Vec<_>>>().ok_or(Errno::NOENT)?
        };
        let Some((_, first)) = missing.first() else {
            return Ok(());
        };
        self.require_present(tier, &first.path)?;
        let root = self.root(tier);
        for (node, known) in missing.iter().rev() {
            let make = || (self.copies).evicting(&self.tiers, tier, || make_dir_like(root, known));
            // A file there is renamed or linked into a directory that only other tiers have. The fastest tier keeps its space for moves.
            if tier > 0 {
                root.with_spare(make)?;
            } else {
                make()?;
            }
            // At once, and not after the last one: if that fails, this one exists all the same.
            self.cat_mut().now_on(*node, tier);
        }
        Ok(())
    }
}
