//! The mover's calls on real directories.

use super::attributes::{DirAttributes, make_dir_like, set_attributes, xattrs_of};
use super::copy::{Side, copy_step, read_all, write_all};
use super::names::{is_regular, reopen};
use super::root::{Root, facts_of};
use super::roots::Roots;
use crate::mover::Call;
use crate::mutants::step;
use crate::tree::{At, DIR, Facts, Id, TEMPS, TYPE, Tier, Tree, above, parent};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FallocateFlags, OFlags, RenameFlags};
use rustix::io::Errno;

/// Stores the number of an open file: the fastest tier, the file's tier, the file, its identity, the number.
pub(crate) type GiveNumber = Box<dyn Fn(&Root, Tier, &OwnedFd, Id, u64) -> Result<(), Errno>>;

/// The mover's calls on real directories.
#[derive(Default)]
pub struct Disk {
    roots: Roots,
    /// Source and copy of the present copy operation.
    pair: Option<(At, OwnedFd, At, OwnedFd)>,
    /// The source of copies, if it is open already, and the file that it must be.
    source: Option<OwnedFd>,
    expected: Option<Id>,
    /// Stores the number of a copy.
    give_number: Option<GiveNumber>,
    /// The file of the last copy call that failed.
    failed: Option<Side>,
}

impl Disk {
    /// Works on these tiers.
    pub fn new(roots: impl Into<Roots>) -> Disk {
        Disk {
            roots: roots.into(),
            ..Disk::default()
        }
    }
    /// Numbers of copies are stored in this way.
    pub(crate) fn number_with(&mut self, give: GiveNumber) {
        self.give_number = Some(give);
    }
    /// Copies are read from that open file, so that a rename cannot put another file in its place. If there is none, the file is opened by its
    /// name. What is read must be the regular file `id`. Reading leaves its access time as it is, if the system allows that.
    pub(crate) fn copy_from(&mut self, open: Option<&OwnedFd>, id: Id) {
        self.expected = Some(id);
        self.source = open.and_then(|fd| {
            reopen(fd, OFlags::RDONLY | OFlags::NOATIME)
                .or_else(|_| rustix::io::fcntl_dupfd_cloexec(fd, 0))
                .ok()
        });
    }
    /// The tier whose error the answer to a call was. A call of both tiers, which has just failed, knows the one.
    pub(crate) fn blamed(&self, call: &Call) -> Option<Tier> {
        match (call, self.failed) {
            (Call::Copy(from, ..) | Call::CopyAttributes(from, _), Some(Side::Source)) => {
                Some(from.tier)
            }
            (Call::Copy(_, to, ..) | Call::CopyAttributes(_, to), Some(Side::Target)) => {
                Some(to.tier)
            }
            _ => call.tier(),
        }
    }
    /// Notes on which side a step of a copy failed.
    fn told<T>(&mut self, done: Result<T, (Side, Errno)>) -> Result<T, Errno> {
        self.failed = done.as_ref().err().map(|failed| failed.0);
        done.map_err(|failed| failed.1)
    }
    /// The descriptor of a copy that was made last. It can be written, whatever the permissions of the file are now.
    pub(crate) fn target(&self, at: &At) -> Result<OwnedFd, Errno> {
        match &self.pair {
            Some((_, _, to, fd)) if to == at => rustix::io::fcntl_dupfd_cloexec(fd, 0),
            _ => self.root(at.tier)?.open_at(&at.path, OFlags::RDWR, 0),
        }
    }
    /// Runs a call that adds a name on a tier. If the tier is full, the space that was set aside for that is released, and the call is tried
    /// again: a change of several tiers that has begun must not fail for lack of space.
    fn with_spare<T>(
        &self,
        tier: Tier,
        call: impl Fn(&Root) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let root = self.root(tier)?;
        match call(root) {
            Err(Errno::NOSPC | Errno::DQUOT) if root.release_spare() => call(root),
            other => other,
        }
    }
    /// Closes the files of a copy of which this name is removed.
    fn let_go(&mut self, at: &At) {
        if let Some((from, _, to, _)) = &self.pair {
            if *to == *at {
                self.pair = None;
            } else if from.tier == at.tier {
                // The file has moved, and its old names go. On NFS a name that is removed from an open file stays under another name.
                (self.pair, self.source) = (None, None);
            }
        }
    }
    fn root(&self, tier: Tier) -> Result<&Root, Errno> {
        self.roots.get(usize::from(tier)).ok_or(Errno::NODEV)
    }
    fn pair(&mut self, from: &At, to: &At) -> Result<(&OwnedFd, &OwnedFd), Errno> {
        self.failed = None;
        let same = |p: &(At, OwnedFd, At, OwnedFd)| p.0 == *from && p.2 == *to;
        if !self.pair.as_ref().is_some_and(same) {
            let source = if let Some(fd) = &self.source {
                rustix::io::fcntl_dupfd_cloexec(fd, 0)?
            } else {
                let root = self.root(from.tier)?;
                root.open_regular(&from.path, OFlags::RDONLY)?.0
            };
            let target = self.root(to.tier)?.open_at(&to.path, OFlags::RDWR, 0)?;
            self.pair = Some((from.clone(), source, to.clone(), target));
        }
        let (_, a, _, b) = self.pair.as_ref().ok_or(Errno::BADF)?;
        Ok((a, b))
    }
}

impl Tree for Disk {
    fn tiers(&self) -> Tier {
        self.roots.len() as Tier
    }
    fn is_there(&self, tier: Tier) -> bool {
        self.roots.get(usize::from(tier)).is_some_and(|r| !r.absent)
    }
    fn stat(&mut self, at: &At) -> Result<Option<Facts>, Errno> {
        self.root(at.tier)?.stat(&at.path)
    }
    fn may_remove(&mut self, at: &At) -> Result<bool, Errno> {
        self.root(at.tier)?.may_remove(&at.path)
    }
    fn prove_writable(&mut self, tier: Tier) -> Result<(), Errno> {
        self.root(tier)?.prove_writable()
    }
    fn create(&mut self, at: &At, bytes: u64) -> Result<(), Errno> {
        self.pair = None;
        let root = self.root(at.tier)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        let fd = root.open_at(&at.path, flags, 0o600)?;
        // The space is checked and reserved before anything is copied. `copy` releases it for a file with holes.
        let (free, _) = root.room()?;
        let keep = FallocateFlags::KEEP_SIZE;
        let reserved = if bytes > free {
            Err(Errno::NOSPC)
        } else if bytes >= 1 << 20 {
            match rustix::fs::fallocate(&fd, keep, 0, bytes) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
                other => other,
            }
        } else {
            Ok(())
        };
        if reserved.is_err() {
            root.unlink(&at.path, AtFlags::empty())?;
        }
        reserved
    }
    fn copy(&mut self, from: &At, to: &At, offset: u64, len: u64) -> Result<Option<u64>, Errno> {
        for at in [from, to] {
            step(&self.root(at.tier)?.path)?;
        }
        let (expected, root) = (self.expected, self.root(from.tier)?.dev);
        let is_it =
            |f: &Facts| is_regular(f) && f.dev == root && expected.is_none_or(|id| id == f.id);
        let (source, target) = self.pair(from, to)?;
        let done = copy_step(source, target, is_it, (offset, len));
        self.told(done)
    }
    fn copy_attributes(&mut self, from: &At, to: &At) -> Result<(), Errno> {
        let (source, target) = self.pair(from, to)?;
        let read = facts_of(source).and_then(|f| Ok((f, xattrs_of(source)?)));
        let done = read.map_err(|e| (Side::Source, e)).and_then(|(f, xattrs)| {
            set_attributes(target, &f, &xattrs).map_err(|e| (Side::Target, e))
        });
        self.told(done)
    }
    fn set_number(&mut self, at: &At, number: u64) -> Result<(), Errno> {
        let copy = self.target(at)?;
        let id = facts_of(&copy)?.id;
        let give = self.give_number.as_ref().ok_or(Errno::INVAL)?;
        give(self.root(0)?, at.tier, &copy, id, number)
    }
    fn write(&mut self, at: &At, bytes: &[u8]) -> Result<(), Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        self.with_spare(at.tier, |root| {
            let fd = root.open_at(&at.path, flags, 0o600)?;
            write_all(&fd, bytes, 0).inspect_err(|_| {
                // The partial file has no meaning: recovery sees that it is torn.
                let _ = root.unlink(&at.path, AtFlags::empty());
            })
        })
    }
    fn read(&mut self, at: &At) -> Result<Vec<u8>, Errno> {
        let fd = self.root(at.tier)?.open_at(&at.path, OFlags::RDONLY, 0)?;
        let mut bytes = vec![0; facts_of(&fd)?.size.min(1 << 24) as usize];
        let done = read_all(&fd, &mut bytes, 0)?;
        bytes.truncate(done);
        Ok(bytes)
    }
    fn list(&mut self, at: &At) -> Result<Vec<Vec<u8>>, Errno> {
        let root = self.root(at.tier)?;
        if root.absent {
            return Ok(Vec::new());
        }
        match root.list(&at.path) {
            // A full tier may have no hidden directories yet.
            Err(Errno::NOENT | Errno::NOSPC | Errno::DQUOT) => Ok(Vec::new()),
            other => other,
        }
    }
    fn sync_file(&mut self, at: &At) -> Result<(), Errno> {
        step(&self.root(at.tier)?.path)?;
        if let Some((_, _, to, fd)) = &self.pair
            && to == at
        {
            return rustix::fs::fsync(fd);
        }
        let fd = self.root(at.tier)?.open_at(&at.path, OFlags::RDONLY, 0)?;
        rustix::fs::fsync(fd)
    }
    fn sync_dir(&mut self, at: &At) -> Result<(), Errno> {
        let dir = self.root(at.tier)?.directory(&at.path)?;
        match rustix::fs::fsync(dir) {
            // Some remote file systems do not support syncing directories.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(()),
            other => other,
        }
    }
    fn make_parents(&mut self, at: &At) -> Result<(), Errno> {
        let mut missing: Vec<&[u8]> = Vec::new();
        for dir in above(&at.path) {
            match self.root(at.tier)?.entry(dir).and_then(facts_of) {
                Ok(f) if f.mode & TYPE == DIR => break,
                Ok(_) => return Err(Errno::NOTDIR),
                Err(Errno::NOENT) => missing.push(dir),
                Err(e) => return Err(e),
            }
        }
        for dir in missing.into_iter().rev() {
            let others = self.roots.iter().enumerate();
            let mut others = others.filter(|o| o.0 != usize::from(at.tier));
            let like = others.find_map(|(_, r)| r.directory(dir).ok());
            let known = like.map(|like| DirAttributes::of(dir, like)).transpose()?;
            self.with_spare(at.tier, |root| match &known {
                Some(known) => make_dir_like(root, known),
                None => root.mkdir(dir, 0o700),
            })?;
        }
        Ok(())
    }
    fn rename(&mut self, from: &At, to: &[u8]) -> Result<(), Errno> {
        self.with_spare(from.tier, |root| {
            root.rename(&from.path, to, RenameFlags::empty())
        })
    }
    fn place(&mut self, from: &At, to: &[u8]) -> Result<(), Errno> {
        self.with_spare(from.tier, |root| root.rename_new(&from.path, to))
    }
    fn exchange(&mut self, a: &At, b: &[u8]) -> Result<(), Errno> {
        self.root(a.tier)?.rename(&a.path, b, RenameFlags::EXCHANGE)
    }
    fn link(&mut self, from: &At, to: &[u8]) -> Result<(), Errno> {
        self.with_spare(from.tier, |root| root.link(&from.path, to))
    }
    fn unlink_if(&mut self, at: &At, id: Id) -> Result<bool, Errno> {
        self.let_go(at);
        match self.root(at.tier)?.unlink_if(&at.path, id) {
            Err(Errno::NOENT) => Ok(true),
            other => other,
        }
    }
    fn unlink(&mut self, at: &At) -> Result<(), Errno> {
        self.let_go(at);
        let root = self.root(at.tier)?;
        match root.unlink(&at.path, AtFlags::empty()) {
            // A directory that was not complete (`make_dir_like`).
            Err(Errno::ISDIR) if parent(&at.path) == TEMPS => {
                root.unlink(&at.path, AtFlags::REMOVEDIR)?;
            }
            other => other?,
        }
        // Space has become free: set it aside again for the next time.
        if !root.has_spare() {
            root.reserve_spare();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::IfPresent;

    /// Between the first look at a file and the first copied byte, a rename can put another file at its name.
    #[test]
    fn a_copy_is_read_from_the_file_in_use() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _, live) = crate::store::with_a_file(dir.path());
        store.write(&live, 0, b"the file", false).unwrap();
        let mut disk = Disk::new(store.roots.clone());
        disk.copy_from(live.hold().fd().ok(), live.facts().unwrap().id);
        let (from, to) = (At::new(0, "f"), At::new(1, ".isotherm/tmp/m1"));
        disk.create(&to, 8).unwrap();
        store
            .rename((0, b"f"), (0, b"g"), IfPresent::Refuse)
            .unwrap();
        std::fs::write(dir.path().join("fast/f"), "another file").unwrap();
        assert_eq!(disk.copy(&from, &to, 0, 1 << 20), Ok(None));
        let copy = dir.path().join("slow/.isotherm/tmp/m1");
        assert_eq!(std::fs::read(copy).unwrap(), b"the file");
        store.release(&live);
    }
}
