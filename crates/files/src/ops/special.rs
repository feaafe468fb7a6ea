//! Links, pipes, sockets and devices that are made under a hidden name, durably, and get their names by an intent: those that change disks, and
//! whiteouts, which an overlay has in the place of what it deleted.

use crate::catalogue::{Body, NodeId};
use crate::disk::{Xattrs, path_of};
use crate::intent::Op;
use crate::mover::{Outcome, Why};
use crate::names::Creator;
use crate::store::Store;
use crate::tree::{At, Facts, Id, LNK, TEMPS, TYPE, Tier, join, wall};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

/// The type bits of a character device.
const CHR: u32 = 0o020_000;

/// A whiteout that has no name yet.
pub(super) struct Whiteout {
    temp: At,
    facts: Facts,
    number: u64,
}

impl Whiteout {
    /// The step that gives it its name, after what had that name has got another.
    pub(super) fn step(&self, path: &[u8]) -> Op {
        Op::Rename(self.facts.id, self.temp.clone(), path.to_vec())
    }
}

impl Store {
    /// Makes a whiteout, a device that does not exist, on a disk.
    pub(super) fn make_whiteout(&self, tier: Tier, creator: Creator) -> Result<Whiteout, Errno> {
        let now = crate::tree::Time {
            sec: wall(),
            nsec: 0,
        };
        let like = Facts {
            mode: CHR,
            uid: creator.uid,
            gid: creator.gid,
            atime: now,
            mtime: now,
            ..Facts::default()
        };
        let temp = self.hidden(tier);
        let number = self.names.new_number(&self.tiers)?;
        let made = self.make_hidden(&temp, &like, None, number);
        let synced = made.and_then(|fd| {
            rustix::fs::syncfs(&self.root(tier).fd)?;
            crate::disk::facts_of(&fd)
        });
        let facts = synced.map_err(|e| {
            self.drop_hidden(&temp);
            self.device_error(tier, &temp.path, e)
        })?;
        Ok(Whiteout {
            temp,
            facts,
            number,
        })
    }
    /// The rename did not happen.
    pub(super) fn drop_whiteout(&self, whiteout: &Whiteout) {
        self.drop_hidden(&whiteout.temp);
    }
    /// It has its name.
    pub(super) fn enter_whiteout(&self, whiteout: &Whiteout, dir: NodeId, name: &[u8]) {
        let mut cat = self.cat_mut();
        let (tier, facts) = (whiteout.temp.tier, whiteout.facts);
        if let Some(node) = cat.add(dir, name, tier, facts, Body::Special) {
            cat.set_lasting(node, whiteout.number);
        }
        drop(cat);
        let dir = self.names.shown_number(dir);
        self.open.tell_kernel_of_name(dir, name);
    }
    fn hidden(&self, tier: Tier) -> At {
        let name = format!("m{}", self.names.number());
        At::new(tier, join(TEMPS, name.as_bytes()))
    }
    fn drop_hidden(&self, temp: &At) {
        // An intent that is left needs it, and the next mount carries that out. That mount also removes what cannot be removed now.
        if self.is_stuck() {
            return;
        }
        let _ = self.root(temp.tier).unlink(&temp.path, AtFlags::empty());
    }
    /// Moves a link, pipe, socket or device to another disk.
    pub(super) fn move_special(&self, node: NodeId, to: Tier) -> Outcome {
        let moved = self.try_move_special(node, to);
        moved.map_or_else(|outcome| outcome, |()| Outcome::Done)
    }
    fn try_move_special(&self, node: NodeId, to: Tier) -> Result<(), Outcome> {
        let failed = |e: Errno| Outcome::Failed(e);
        let _claim = self
            .names
            .claim(|cat, all| all.all_names(cat, node))
            .map_err(failed)?;
        let known = self
            .names
            .known(node)
            .map_err(|_| Outcome::Refused(Why::Gone))?;
        let (paths, dirs) = {
            let cat = self.cat();
            (cat.paths(node), cat.parents(node))
        };
        let (from, root) = (known.tier, self.root(to));
        for dir in dirs {
            self.ensure_dir(dir, to).map_err(failed)?;
        }
        for path in &paths {
            let there = self.root(from).stat(path).map_err(failed)?;
            match there {
                Some(f) if f.id == known.facts.id && f.nlink as usize != paths.len() => {
                    return Err(Outcome::Refused(Why::Links));
                }
                Some(f) if f.id == known.facts.id => {}
                _ => return Err(Outcome::Refused(Why::Gone)),
            }
            if root.stat(path).map_err(failed)?.is_some() {
                return Err(Outcome::Refused(Why::Clash));
            }
        }
        let temp = self.hidden(to);
        let undo = |e: Errno| {
            self.drop_hidden(&temp);
            Outcome::Failed(self.device_error(to, &known.path, e))
        };
        let (target, xattrs, number) = {
            let cat = self.cat();
            let target = cat.get(node).and_then(|n| n.target().map(<[u8]>::to_vec));
            (target, cat.xattrs(node).to_vec(), cat.lasting(node))
        };
        let made = self.make_hidden(&temp, &known.facts, target.as_deref(), number);
        let fd = made.map_err(undo)?;
        // There is no sync of one link or pipe.
        let synced = set_xattrs(&fd, &xattrs).and_then(|()| rustix::fs::syncfs(&root.fd));
        synced.map_err(undo)?;
        let new = crate::disk::facts_of(&fd).map_err(undo)?;
        let ops = ops_of(&temp, new.id, &paths, (from, known.facts.id));
        self.names.together(&self.tiers, &ops).map_err(undo)?;
        let mut cat = self.cat_mut();
        cat.replace(node, to, new.id);
        let (nlink, ctime) = (known.facts.nlink, known.facts.ctime);
        let facts = Facts {
            nlink,
            ctime,
            ..new
        };
        cat.set_facts(node, &facts);
        drop(cat);
        self.restore_dir_times(node, [from, to]);
        self.open.tell_kernel(self.names.shown_number(node));
        Ok(())
    }
    /// Makes a link to `target`, or a pipe, socket or device, with these attributes and this inode number.
    fn make_hidden(
        &self,
        temp: &At,
        like: &Facts,
        target: Option<&[u8]>,
        number: u64,
    ) -> Result<OwnedFd, Errno> {
        let root = self.root(temp.tier);
        if let Some(target) = target {
            root.symlink(target, &temp.path)?;
        } else {
            let kind = FileType::from_raw_mode(like.mode & TYPE);
            root.mknod(&temp.path, kind, 0o600, like.rdev)?;
        }
        let fd = root.entry(&temp.path)?;
        let path = &path_of(fd.as_fd())[..];
        let (uid, gid) = (Uid::from_raw(like.uid), Gid::from_raw(like.gid));
        rustix::fs::chown(path, Some(uid), Some(gid))?;
        if like.mode & TYPE != LNK {
            rustix::fs::chmod(path, Mode::from_raw_mode(like.mode & 0o7777))?;
        }
        let times = Timestamps {
            last_access: like.atime.into(),
            last_modification: like.mtime.into(),
        };
        rustix::fs::utimensat(rustix::fs::CWD, path, &times, AtFlags::empty())?;
        if number > 0 {
            let id = crate::disk::facts_of(&fd)?.id;
            self.give_number(temp.tier, &fd, id, number)?;
        }
        Ok(fd)
    }
}

fn set_xattrs(fd: &OwnedFd, xattrs: &Xattrs) -> Result<(), Errno> {
    let path = &path_of(fd.as_fd())[..];
    for (name, value) in xattrs {
        match rustix::fs::setxattr(path, &name[..], value, XattrFlags::empty()) {
            // The system sets these labels itself.
            Err(Errno::OPNOTSUPP | Errno::PERM) if name == b"security.selinux" => {}
            other => other?,
        }
    }
    Ok(())
}

/// The steps that give a copy the names of its file, and take these from the file.
fn ops_of(temp: &At, copy: Id, paths: &[Vec<u8>], (from, old): (Tier, Id)) -> Vec<Op> {
    let mut ops: Vec<Op> = match paths {
        [one] => vec![Op::Rename(copy, temp.clone(), one.clone())],
        many => many
            .iter()
            .map(|p| Op::Link(copy, temp.clone(), p.clone()))
            .collect(),
    };
    ops.extend(paths.iter().map(|p| Op::Unlink(old, At::new(from, &p[..]))));
    if paths.len() > 1 {
        ops.push(Op::Unlink(copy, temp.clone()));
    }
    ops
}
